"""Asks the servers that the configuration names, and this machine, for what Hourmark needs:
`hourmark doctor`.

| module            | what it holds                                                         |
|-------------------|-----------------------------------------------------------------------|
| `finding`         | what is said of one thing that was looked at                          |
| `…_judged`        | from facts to findings; pure, a function for each thing that can be wrong |
| `…_asked`         | gets the facts from a server, or this machine; changes nothing        |
| `storage_probed`  | tries what storage must refuse, in a folder that it deletes again     |
| `http_asked`      | one question over HTTP, and the server's clock                        |
| `examination`     | all kinds at once, each for a bounded time                            |
| `cli`             | the command                                                           |
"""
