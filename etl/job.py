"""The driver's main program for `spark-submit etl/job.py --config hourmark.toml`; `hourmark etl
run` is the same.
"""

from hourmark_etl.driver import main

if __name__ == "__main__":
    main()
