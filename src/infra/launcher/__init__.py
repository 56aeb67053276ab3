"""What `./hourmark` runs before there is a venv: `make_venv`.

`uv.lock` locks the installer, `build.lock` what builds this project and pyspark, which come as sources.

The locks are made by
    uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
from `uv==…`, and from `hatchling editables setuptools wheel`.
"""
