"""`hourmark doctor`: checks whether servers and this machine meet Hourmark's requirements.

| module          | contents                                                             |
|-----------------|----------------------------------------------------------------------|
| `check_result`  | result of one check                                                  |
| `…_check`       | reads facts from a server or this machine; changes nothing           |
| `…_evaluation`  | turns facts into results, as pure functions                          |
| `storage_probe` | tests operations that storage must refuse, in a temporary folder     |
| `http_request`  | one HTTP request with the server's clock                             |
| `check_runner`  | runs all checks concurrently with a time limit                       |
| `cli`           | the command                                                          |
"""
