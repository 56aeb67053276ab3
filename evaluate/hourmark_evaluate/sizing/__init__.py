"""The number of machines that a load needs (`hourmark size`).

| module         | content                                                                       |
|----------------|-------------------------------------------------------------------------------|
| `model`        | what each component needs for a load, from measured coefficients (pure)       |
| `coefficients` | the measured coefficients and the measurements to which they were fitted      |
| `fitting`      | coefficients from measurements, and their error for other loads (pure)        |
| `report`       | the result as text and as JSON (pure)                                         |
| `cli`          | the command                                                                   |

`hourmark bench size --keep` writes `measured.json`. Run it on an otherwise idle machine.
"""
