"""The ETL beside Spark's own ways, and at sizes that matter.

    hourmark bench etl [--json] [--scenario NAME] [--size small|large]

One JSON object a line, the last a summary; without --json the same for people. Runs on the stack of $HOURMARK_HOME, and starts it
where it is not up. Outputs are checked: the benchmark fails where one is wrong.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from bench.etl_compare import compare
from bench.etl_site import Site


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="hourmark bench etl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--events", type=int, default=1_000_000, help="distinct events of a round")
    parser.add_argument("--types", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="that count; one more is run before them")
    parser.add_argument("--batch", type=int, default=250_000, help="records of a micro-batch, for all contenders")
    parser.add_argument("--local", action="store_true", help="buckets and files on the local disk instead of HDFS")
    arguments = parser.parse_args()

    def say(found: dict[str, Any]) -> None:
        print(json.dumps(found) if arguments.json else _words(found), flush=True)

    with Site(local=arguments.local) as site:
        say(
            compare(
                site, say, events=arguments.events, types=arguments.types, rounds=arguments.rounds, batch_records=arguments.batch
            )
        )


def _words(found: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value}" for name, value in found.items())


if __name__ == "__main__":
    main()
