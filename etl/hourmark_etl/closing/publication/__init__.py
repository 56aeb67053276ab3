"""How sealed hours become buckets on storage.

| module      | content                                                       |
|-------------|---------------------------------------------------------------|
| `port`      | the port, and what each implementation guarantees             |
| `attempts`  | publishes with a rename, on a storage with folders            |
| `selection` | publishes with a selection and copies, on an object store     |
| `choice`    | chooses the implementation for a storage                      |
"""
