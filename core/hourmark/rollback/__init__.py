"""Checks of whether an installation can return to an older version.

`hourmark rollback check --to VERSION` runs them.

| module     | content                                                                            |
|------------|------------------------------------------------------------------------------------|
| `version`  | what each older version cannot read                                                |
| `obstacle` | one obstacle to a rollback, and how to remove it                                   |
| `settings` | settings that the older version does not know                                      |
| `rules`    | rules revisions that the older version cannot parse by                             |
| `rooms`    | the check functions of all components, loaded by name                              |
| `cli`      | the command                                                                        |

A component's check function takes the configuration and the older version, and changes nothing. It
checks what is on this machine or reachable from it: a log host checks its checkpoint, the ETL's
machine checks the ledger and the markers.
"""
