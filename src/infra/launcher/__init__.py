"""What `./hourmark` runs before there is a venv: `make_venv`, and the locks of the installer (`uv.lock`) and of builds (`build.lock`).

The locks are made by
    uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
from `uv==…`, and from `hatchling editables setuptools wheel`, which build this project and pyspark.
"""
