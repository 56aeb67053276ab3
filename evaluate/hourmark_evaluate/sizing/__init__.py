"""`hourmark size`: a load, expressed as machines.

| module         | what it holds                                                              |
|----------------|----------------------------------------------------------------------------|
| `model`        | what each component needs for a load, by measured coefficients (pure)      |
| `coefficients` | the measured ones, and the measurements that they were fitted to           |
| `fitting`      | coefficients from measurements, and how far they are off elsewhere (pure)  |
| `report`       | the answer, for people                                                     |
| `cli`          | the command                                                                |

`measured.json` is written by `hourmark bench size --keep`, on a machine that does nothing else.
"""
