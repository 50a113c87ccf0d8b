"""`make dbt-spark`: the `session` method on a lakehouse, with `incremental_strategy='merge'`.

Runs the project three times while purchases arrive, the last time with `--full-refresh`, and dbt's
own tests after each; ends with 1 where rows are not what SQLite makes of all purchases.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

from dbt.cli.main import dbtRunner
from pyspark.sql import SparkSession

from lakehouse.spark import build_session

HOME = Path(__file__).parent
ARRIVALS = (
    [(1, 10, "2026-01-01"), (2, 5, "2026-01-01"), (1, 2, "2026-01-01")],
    [(2, 7, "2026-01-02"), (3, 1, "2026-01-02")],
    [(3, 9, "2026-01-03"), (4, 30, "2026-01-03")],
)
SNAPSHOTS = (["append"], ["append", "overwrite"], ["append"])
"""Of the incremental model after each run: made, merged into, made anew."""
EXPECTED = {
    "totals": "SELECT user_id, sum(amount), max(day) FROM purchases GROUP BY user_id",
    "best": "SELECT user_id, sum(amount) AS total, max(day) FROM purchases GROUP BY user_id "
    "HAVING total >= 10",
    "shown": "SELECT user_id, 2 * sum(amount) AS twice FROM purchases GROUP BY user_id "
    "HAVING twice >= 20",
}


def main() -> int:
    """Run the project; the exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        project = folder / "project"
        shutil.copytree(HOME, project)
        spark = build_session(
            "dbt",
            master="local[2]",
            config={"spark.log.level": "OFF", "spark.sql.warehouse.dir": f"{folder}/spark"},
            catalogs={"lake": f"file://{folder}/warehouse"},
        )
        try:
            return _runs(spark, project)
        finally:
            spark.stop()


def _runs(spark: SparkSession, project: Path) -> int:
    spark.sql("CREATE NAMESPACE lake.raw")
    spark.sql("CREATE TABLE lake.raw.purchases (user_id BIGINT, amount BIGINT, day DATE)")
    spark.catalog.setCurrentCatalog("lake")  # dbt-spark names tables by schema and name
    seen = sqlite3.connect(":memory:")
    seen.execute("CREATE TABLE purchases (user_id INT, amount INT, day TEXT)")
    for number, rows in enumerate(ARRIVALS):
        seen.executemany("INSERT INTO purchases VALUES (?, ?, ?)", rows)
        listed = ", ".join(f"({user}, {amount}, DATE '{day}')" for user, amount, day in rows)
        spark.sql(f"INSERT INTO lake.raw.purchases VALUES {listed}")
        refresh = ["--full-refresh"] if number == len(ARRIVALS) - 1 else []
        for command in (["run", *refresh], ["test"]):
            if not _dbt(command, project):
                return 1
        for model, query in EXPECTED.items():
            expected = sorted(tuple(map(str, row)) for row in seen.execute(query))
            found = sorted(
                tuple(map(str, row)) for row in spark.table(f"lake.raw.{model}").collect()
            )
            if found != expected:
                say(f"DIFFERENT: {model} is {found}, not {expected}")
                return 1
        made = spark.sql("SELECT operation FROM lake.raw.totals.snapshots ORDER BY committed_at")
        operations = [row[0] for row in made.collect()]
        say(f"snapshots of the incremental model: {', '.join(operations)}")
        if operations != SNAPSHOTS[number]:
            return 1
    return 0


def _dbt(command: list[str], project: Path) -> bool:
    places = ["--project-dir", str(project), "--profiles-dir", str(project)]
    done = dbtRunner().invoke([*command, *places])
    if done.exception is not None:
        say(f"dbt {command[0]} raised {done.exception}")
    return bool(done.success)


def say(line: str) -> None:
    """One line of output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
