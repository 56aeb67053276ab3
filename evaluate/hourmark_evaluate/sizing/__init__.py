"""The number of machines that a load needs (`hourmark size`).

| module         | content                                                                       |
|----------------|-------------------------------------------------------------------------------|
| `model`        | what each component needs for a load, from measured coefficients (pure)       |
| `measurements` | measurements, coefficients fitted to them, and their error for other loads    |
| `report`       | the result as text and as JSON (pure)                                         |
| `cli`          | the command                                                                   |

`hourmark bench size --keep` writes `measured.json`. Run it on an otherwise idle machine.
"""
