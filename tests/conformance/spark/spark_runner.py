"""One engine on one Spark: runs the list in a catalog, or reads what the other engine left.

`python -m tests.conformance.spark.spark_runner ENGINE FOLDER --own NAME (--jars ...)` writes
`FOLDER/ENGINE.json`; with `--read OTHER` it reads the tables of `FOLDER/OTHER` and writes
`FOLDER/ENGINE-reads-OTHER.json`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark.sql.functions as F  # noqa: N812
from pyspark.sql import DataFrame, SparkSession

from tests.conformance.spark.by_procedure import as_procedure
from tests.conformance.spark.case import Case
from tests.conformance.spark.statements import CASES

PYTHON = re.compile(r"(spark|source)\.")
JVM = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def lakehouse_session(folder: Path, home: Path) -> SparkSession:
    """Our catalog over SQLite, as `lake`."""
    from lakehouse.lake import load_catalog
    from lakehouse.spark import build_session

    lake = load_catalog(f"sqlite:///{home}/catalog.db", warehouse=f"{home}/warehouse", name="lake")
    config = {**JVM, "spark.sql.warehouse.dir": str(home / "spark-warehouse")}
    return build_session("list", master="local[2]", config=config, catalogs={"lake": lake})


def iceberg_session(folder: Path, home: Path, jars: str) -> SparkSession:
    """Iceberg's catalog over the same kind of SQLite database, as `lake`."""
    settings = {
        **JVM,
        "spark.jars": jars,
        "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        "spark.sql.catalog.spark_catalog.type": "hadoop",
        "spark.sql.catalog.spark_catalog.warehouse": f"file://{home}/spark-warehouse",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{home}/catalog.db?busy_timeout=60000",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": f"file://{home}/warehouse",
        "spark.sql.catalog.lake.clients": "1",
    }
    builder = SparkSession.builder.master("local[2]").appName("list")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class Runner:
    """Runs cases in a session whose catalog is `lake`.

    Args:
        spark: the session.
        folder: for files of cases.
        by_procedure: whether procedures stand for Iceberg's extensions of the grammar.
    """

    def __init__(self, spark: SparkSession, folder: Path, *, by_procedure: bool) -> None:
        self._spark = spark
        self._folder = folder
        self._by_procedure = by_procedure

    def run(self, number: int, case: Case) -> dict[str, Any]:
        """What the statement of a case returned or raised, and what the queries after it say."""
        words = names(number) | {
            "home": str(self._folder),
            "folder": f"{self._folder}/c{number}",
        }
        kept = dict(self._spark.sparkContext.getConf().getAll())
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {words['n']}")
        try:
            more = replace(case, columns_only=False)
            for text in case.before:
                done = self._told(text, words, more)
                if "error" in done:
                    return {"before": text, **done}
            found: dict[str, Any] = {"statement": self._told(case.statement, words, case)}
            found["then"] = [self._told(text, words, more) for text in case.then]
        finally:
            for key in re.findall(r"^SET (\S+) =", "\n".join(case.before), re.MULTILINE):
                self._spark.conf.set(key, kept[key]) if key in kept else self._spark.conf.unset(key)
        return found

    def rows(self, table: str) -> list[str] | None:
        """All rows of a table; None where there is none."""
        try:
            return sorted(repr(tuple(one)) for one in self._spark.table(table).collect())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            return None if "TABLE_OR_VIEW_NOT_FOUND" in str(error) else [message(error)]

    def _told(self, text: str, words: dict[str, str], case: Case) -> dict[str, Any]:
        try:
            frame = self._do(text, words)
            if frame is None:
                return {"rows": []}
            columns = [f"{one.name} {one.dataType.simpleString()}" for one in frame.schema]
            if case.columns_only:
                return {"columns": columns}
            rows = [repr(tuple(one)) for one in frame.collect()]
        except Exception as error:  # noqa: BLE001 - an error is an answer, too
            return {"error": message(error)}
        return {"rows": [_without_numbers(row, words) for row in sorted(rows)]}

    def _do(self, text: str, words: dict[str, str]) -> DataFrame | None:
        statement = self._filled(text, words)
        call = as_procedure(statement) if self._by_procedure else None
        if call is not None:
            self._spark.sql(call)
            return None
        if not PYTHON.match(statement):
            return self._spark.sql(statement)
        done = eval(statement, {"spark": self._spark, "F": F})  # noqa: S307
        return done if isinstance(done, DataFrame) else None

    def _filled(self, text: str, words: dict[str, str]) -> str:
        if re.search(r"\{(v|ts|ms)\d\}", text):
            snapshots = self._spark.sql(
                "SELECT snapshot_id, CAST(committed_at AS STRING), unix_millis(committed_at) "
                f"FROM {words['t']}.snapshots ORDER BY committed_at, snapshot_id"
            ).collect()
            for number, one in enumerate(snapshots, 1):
                words |= {f"v{number}": str(one[0]), f"ts{number}": one[1], f"ms{number}": one[2]}
        if "{metadata}" in text:
            log = self._spark.sql(f"SELECT file FROM {words['t']}.metadata_log_entries").collect()
            words |= {"metadata": log[-1][0]}
        for key, value in words.items():
            text = text.replace(f"{{{key}}}", str(value))
        return text


def names(number: int) -> dict[str, str]:
    """The words that texts of a case have for its tables."""
    namespace = f"lake.c{number:03}"
    return {
        "number": str(number),
        "n": namespace,
        "t": f"{namespace}.t",
        "s": f"{namespace}.s",
        "namespace": f"c{number:03}",
        "name": f"c{number:03}.t",
    }


def message(error: Exception) -> str:
    """The first line of an error, without Java's class names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    first = (told or [type(error).__name__])[0]
    return re.sub(r"^:? ?(?:[\w.$]+(?:Exception|Error): )+", "", first)


def _without_numbers(row: str, words: dict[str, str]) -> str:
    """What differs between runs is left out: ids of snapshots."""
    for key in ("v1", "v2", "v3"):
        if key in words:
            row = row.replace(words[key], f"<{key}>")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["lakehouse", "iceberg"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jars", default="")
    parser.add_argument("--read", help="the engine whose tables are read")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cases")
    arguments = parser.parse_args()
    folder, engine = arguments.folder, arguments.engine
    home = folder / (arguments.read or engine)
    home.mkdir(parents=True, exist_ok=True)
    if engine == "lakehouse":
        spark = lakehouse_session(folder, home)
    else:
        spark = iceberg_session(folder, home, arguments.jars)
    runner = Runner(spark, home, by_procedure=engine == "lakehouse")
    chosen = arguments.only or range(1, len(CASES) + 1)
    tables = {number: _tables(number) for number in chosen}
    kept: dict[str, Any] = {"spark": spark.version}
    if arguments.read is None:
        kept["cases"] = {number: runner.run(number, CASES[number - 1]) for number in chosen}
    kept["tables"] = {name: runner.rows(name) for number in chosen for name in tables[number]}
    name = engine if arguments.read is None else f"{engine}-reads-{arguments.read}"
    (folder / f"{name}.json").write_text(json.dumps(kept, indent=1))
    spark.stop()


def _tables(number: int) -> Sequence[str]:
    words = names(number)
    return [words["t"], words["s"]]


if __name__ == "__main__":
    main()
