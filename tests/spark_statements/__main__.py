"""`python -m tests.spark_statements --statements 2000 --seed 1`: a long run.

Prints what was tried and which errors came from both. The table of a seed is the same on every
run; ends with 1 where a seed's table differs from Spark's own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from lakehouse.spark import build_session
from tests.spark_config import BRIEF
from tests.spark_statements.stated_tables import PER_TABLE, StatedTables, Tally


def say(line: str) -> None:
    """One line of output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Try the statements; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first table; the rest follow")
    arguments = parser.parse_args()
    started = time.monotonic()
    tally = Tally()
    config = {**BRIEF, "spark.log.level": "OFF"}
    spark = build_session("statements", master="local[2]", config=config)
    with tempfile.TemporaryDirectory() as folder:
        tables = StatedTables(spark, Path(folder))
        seed = arguments.seed
        while (left := arguments.statements - tally.statements.total()) > 0:
            tables.one_table(seed, min(PER_TABLE, left), tally)
            if seed in tally.differences:
                say(f"DIFFERENT: {tally.differences[seed]}\n")
            seed += 1
            if not (seed - arguments.seed) % 25:
                say(f"{tally.statements.total():,} statements, {time.monotonic() - started:.0f} s")
        tables.own.drop()
        spark.stop()
    for title, counts in (("statement", tally.statements), ("error of both", tally.failed)):
        for name, count in counts.most_common():
            say(f"{count:7,}  {title}: {name}")
    say(
        f"{tally.statements.total():,} statements on {seed - arguments.seed} tables, "
        f"{tally.failed.total():,} of them errors for both, {len(tally.differences)} tables "
        f"differ, {time.monotonic() - started:.0f} s"
    )
    if tally.differences:
        first = min(tally.differences)
        say(f"again: python -m tests.spark_statements --statements {PER_TABLE} --seed {first}")
    return int(bool(tally.differences))


if __name__ == "__main__":
    sys.exit(main())
