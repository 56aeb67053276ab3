"""Entry point for `spark-submit etl/job.py --config hourmark.toml`.

`hourmark etl run` starts the same driver without spark-submit.
"""

from hourmark_etl.driver import main

if __name__ == "__main__":
    main()
