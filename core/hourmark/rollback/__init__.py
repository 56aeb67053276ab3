"""What keeps this installation from going back to an older version: `hourmark rollback check --to
VERSION`.

| module     | what it holds                                                                      |
|------------|------------------------------------------------------------------------------------|
| `version`  | what each version does not read of what this one writes                            |
| `obstacle` | one thing that is in the way, and what to do                                       |
| `settings` | settings that it does not know                                                     |
| `rooms`    | each room looks at what it wrote, and is found by name, as commands are            |
| `cli`      | the command                                                                        |

A room's function gets the configuration and the version, and changes nothing. What it looks at is
what is on this machine, or reached from it: a log host asks of its checkpoint, the machine of the
ETL of ledger and markers.
"""
