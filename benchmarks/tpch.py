"""TPC-H's 22 queries over our tables beside the same engine over plain Parquet files, in one run.

    python -m benchmarks.tpch [--sf 1] [--repeat 3] [--engines duckdb,datafusion,polars,spark]
                              [--partitioned] [--iceberg-runtime JAR]

Data and queries are of DuckDB's extension, from PyPI. The plain files are DuckDB's own, one a
table, of the codec that tables have. DuckDB and Polars are given our tables by what
`scan.to_duckdb()`, `scan.to_lazyframe()` and `scan.to_dataset()` return, DataFusion by `lakehouse
sql` (`QueryEngine`), Spark as a catalog's tables; Polars answers those of the queries that its SQL
can say. `--partitioned` hides months of orders and of shipments in the tables. Iceberg's runtime
reads the same tables in the same session, given the PySpark that it is built for. Each takes turns;
the processor seconds of the cheapest turn count, those of opening the tables included, and every
answer is compared with that over the plain files. Then one order of a thousand goes, with its
lines, merge-on-read: all again, beside plain files of the rows that are left. Results go to
benchmarks/results/tpch.json, engine by engine if need be.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import sqlglot
from duckdb_extensions import import_extension
from pyspark.sql import DataFrame, SparkSession

import lakehouse as lh
from benchmarks.spark_support import processor_seconds
from lakehouse.queries import QueryEngine
from lakehouse.spark import build_session

RESULTS = Path(__file__).parent / "results" / "tpch.json"
ENGINES = {"duckdb", "datafusion", "polars", "spark"}
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
CODEC = "compression zstd"  # as tables have
CHANGED = ("orders", "lineitem")
GONE = "{}_orderkey % 1000 = 7"
CONFIG = {"autoinstall_known_extensions": "false", "python_enable_replacements": "false"}
Ask = Callable[[str], pa.Table]


def generate(sf: float, folder: Path, lake: lh.Lakehouse, *, partitioned: bool) -> dict[int, str]:
    """Plain files and tables of the same rows; returns the queries by number."""
    connection = duckdb.connect(str(folder / "generated.duckdb"), config=CONFIG)
    import_extension("tpch", con=connection)
    connection.load_extension("tpch")
    connection.execute(f"call dbgen(sf={sf})")
    for name in TABLES:
        connection.execute(f"copy {name} to '{folder}/plain/{name}.parquet' ({CODEC})")
        rows = connection.sql(f"from {name}").to_arrow_reader(1_000_000)
        lake.create_table(
            f"tpch.{name}",
            rows.schema,
            partition_by=MONTHS.get(name, []) if partitioned else [],
            properties=MERGE_ON_READ,
        ).append(rows)
        where = f"where not ({GONE.format(name[0])})" if name in CHANGED else ""
        left = folder / "left" / f"{name}.parquet"
        if where:
            connection.execute(f"copy (from {name} {where}) to '{left}' ({CODEC})")
        else:
            left.hardlink_to(folder / "plain" / f"{name}.parquet")
    queries = dict(connection.sql("select query_nr, query from tpch_queries()").fetchall())
    connection.close()
    return {number: text.strip().rstrip(";") for number, text in queries.items()}


MONTHS = {"orders": ["month(o_orderdate)"], "lineitem": ["month(l_shipdate)"]}
ICEBERG = {
    f"spark.sql.catalog.default_iceberg{key}": value
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": "file:///tmp",
    }.items()
}  # fmt: skip
MERGE_ON_READ = {"write.delete.mode": "merge-on-read"}


def tables(query: str) -> list[tuple[int, str]]:
    """Where a query names tables, from its end to its start, and which."""
    nodes = sqlglot.parse_one(query, dialect="duckdb").find_all(sqlglot.exp.Table)
    found = [(node.this.meta["start"], node.name) for node in nodes if node.name in TABLES]
    return sorted(found, reverse=True)


def names(query: str) -> set[str]:
    return {name for _, name in tables(query)}


def qualified(query: str) -> str:
    """With our names of the tables."""
    for start, _ in tables(query):
        query = f"{query[:start]}tpch.{query[start:]}"
    return query


def over_duckdb(source: Callable[[str, Any], Any]) -> Ask:
    def ask(query: str) -> pa.Table:
        with duckdb.connect(config=CONFIG) as connection:
            for name in names(query):
                source(name, connection).create_view(name)
            return connection.sql(query).to_arrow_table()

    return ask


def over_datafusion(folder: Path) -> Ask:
    def ask(query: str) -> pa.Table:
        settings = {
            "datafusion.execution.time_zone": "UTC",
            "datafusion.sql_parser.parse_float_as_decimal": "true",
        }
        context = datafusion.SessionContext(datafusion.SessionConfig(settings))
        for name in names(query):
            context.register_parquet(name, str(folder / f"{name}.parquet"))
        return context.sql(query).to_arrow_table()

    return ask


def over_polars(source: Callable[[str], pl.LazyFrame]) -> Ask:
    def ask(query: str) -> pa.Table:
        frames = {name: source(name) for name in names(query)}
        return pl.SQLContext(frames).execute(query, eager=False).collect().to_arrow()

    return ask


def over_spark(spark: SparkSession, source: Callable[[str], DataFrame]) -> Ask:
    def ask(query: str) -> pa.Table:
        for name in names(query):
            source(name).createOrReplaceTempView(name)
        (text,) = sqlglot.transpile(query, read="duckdb", write="spark")
        return spark.sql(text).toArrow()

    return ask


def contenders(engine: str, plain: Path, lake: lh.Lakehouse, runtime: str) -> dict[str, Ask]:
    """By name, the plain files first."""
    if engine == "spark":
        config = ICEBERG | {"spark.jars": runtime}
        spark = build_session("tpch", catalogs={"lake": lake}, config=config)
        asks = {
            "plain": over_spark(spark, lambda name: spark.read.parquet(f"{plain}/{name}.parquet")),
            "spark.table": over_spark(spark, lambda name: spark.table(f"lake.tpch.{name}")),
        }
        if runtime:
            asks["Iceberg"] = over_spark(
                spark,
                lambda name: spark.read.format("iceberg").load(
                    lake.load_table(f"tpch.{name}").metadata_location
                ),
            )
        return asks

    def scan(name: str) -> lh.TableScan:
        return lake.load_table(f"tpch.{name}").scan()

    if engine == "duckdb":
        return {
            "plain": over_duckdb(
                lambda name, connection: connection.read_parquet(f"{plain}/{name}.parquet")
            ),
            "to_duckdb": over_duckdb(lambda name, connection: scan(name).to_duckdb(connection)),
            "to_dataset": over_duckdb(
                lambda name, connection: connection.from_arrow(scan(name).to_dataset())
            ),
        }
    if engine == "datafusion":
        ours = QueryEngine(lake, lake.environment, exact=True)
        return {
            "plain": over_datafusion(plain),
            "lakehouse sql": lambda query: ours.run(qualified(query)),
        }
    return {
        "plain": over_polars(lambda name: pl.scan_parquet(plain / f"{name}.parquet")),
        "to_lazyframe": over_polars(lambda name: scan(name).to_lazyframe()),
        "to_dataset": over_polars(lambda name: pl.scan_pyarrow_dataset(scan(name).to_dataset())),
    }


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether two answers are equal but for the last digits of what was summed in another order."""
    if one.num_rows != other.num_rows or one.num_columns != other.num_columns:
        return False
    rows = [
        sorted(map(row_key, zip(*table.to_pydict().values(), strict=True)))
        for table in (one, other)
    ]
    return all(
        a == b or (isinstance(a, float) and math.isclose(a, float(b), rel_tol=1e-6))
        for left, right in zip(*rows, strict=True)
        for (_, a), (_, b) in zip(left, right, strict=True)
    )


def row_key(row: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    values = [float(value) if isinstance(value, Decimal | int) else value for value in row]
    return tuple(
        (f"{value:.4g}" if isinstance(value, float) else str(value), value) for value in values
    )


def measured(
    queries: dict[int, str], asks: dict[str, Ask], repeat: int, used: Callable[[], float]
) -> dict[int, dict[str, float]]:
    """Processor seconds of each query by contender; a query that the engine refuses is left out."""
    found: dict[int, dict[str, float]] = {}
    for number, query in queries.items():
        answers: dict[str, pa.Table] = {}
        spent: dict[str, float] = {}
        try:
            for _, (name, ask) in itertools.product(range(repeat), asks.items()):
                gc.collect()
                start = used()
                answers[name] = ask(query)
                seconds = used() - start
                spent[name] = min(spent.get(name, math.inf), seconds)
                if not same(answers[name], answers["plain"]):
                    raise AssertionError(f"Q{number}: {name} answers something else")
        except pl.exceptions.PolarsError as error:
            if answers:
                raise
            print(f"  Q{number}: refused over plain files: {str(error).splitlines()[0][:90]}")
            continue
        found[number] = {name: round(seconds, 4) for name, seconds in spent.items()}
    return found


def summary(found: dict[int, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Of each contender the sum, its ratio to the plain files', and the worst query's."""
    contending = next(iter(found.values()))
    plain = sum(times["plain"] for times in found.values())
    return {
        name: {
            "seconds": round(total := sum(times[name] for times in found.values()), 3),
            "ratio": round(total / plain, 3),
            "worst": round(max(times[name] / times["plain"] for times in found.values()), 2),
            "worst_query": max(
                found, key=lambda number: found[number][name] / found[number]["plain"]
            ),
        }
        for name in contending
    }


def kept(sf: float) -> dict[str, Any]:
    """Cases of this scale that are kept: engines may be measured one by one."""
    if not RESULTS.is_file():
        return {}
    results = json.loads(RESULTS.read_text())
    cases: dict[str, Any] = results["cases"] if results["facts"]["sf"] == sf else {}
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sf", type=float, default=1.0, help="scale factor")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--engines", default="duckdb,datafusion,polars")
    parser.add_argument("--partitioned", action="store_true")
    parser.add_argument("--iceberg-runtime", default="", help="jar of iceberg-spark-runtime")
    parser.add_argument("--queries", default="", help="numbers; all of them by default")
    arguments = parser.parse_args()
    unknown = set(arguments.engines.split(",")) - ENGINES
    if unknown:
        parser.error(f"no engine of this benchmark: {', '.join(sorted(unknown))}")
    folder = Path(tempfile.mkdtemp(prefix="tpch-"))
    results: dict[str, Any] = {}
    try:
        for name in ("plain", "left"):
            (folder / name).mkdir()
        lake = lh.load_catalog(str(folder / "lake"))
        queries = generate(arguments.sf, folder, lake, partitioned=arguments.partitioned)
        wanted = {int(number) for number in arguments.queries.split(",") if number}
        queries = {
            number: text for number, text in queries.items() if not wanted or number in wanted
        }
        for state, plain in (("as written", "plain"), ("after deletes", "left")):
            if state == "after deletes":
                for name in CHANGED:
                    lake.load_table(f"tpch.{name}").delete(GONE.format(name[0]))
            for engine in arguments.engines.split(","):
                print(f"{engine}, {state}, load {os.getloadavg()[0]:.1f}", flush=True)
                asks = contenders(engine, folder / plain, lake, arguments.iceberg_runtime)
                used = processor_seconds if engine == "spark" else time.process_time
                found = measured(queries, asks, arguments.repeat, used)
                summed = summary(found)
                label = f"spark {version('pyspark')}" if engine == "spark" else engine
                layout = ", partitioned" if arguments.partitioned else ""
                results[f"{label}, {state}{layout}"] = {
                    "queries": found, "summary": summed, "load": os.getloadavg()[0],
                }  # fmt: skip
                for name, told in summed.items():
                    print(
                        f"  {name:14} {told['seconds']:7.2f} s of processor for {len(found)} "
                        f"queries, {told['ratio']:5.2f} x plain, at worst {told['worst']:5.2f} "
                        f"(Q{told['worst_query']})",
                        flush=True,
                    )
    finally:
        shutil.rmtree(folder)
    RESULTS.write_text(
        json.dumps(
            {
                "facts": {"sf": arguments.sf, "repeat": arguments.repeat, "cores": os.cpu_count()},
                "versions": {
                    package: version(package)
                    for package in ("duckdb", "datafusion", "polars", "pyarrow", "pyspark")
                },
                "machine": platform.machine(),
                "python": platform.python_version(),
                "cases": kept(arguments.sf) | results,
            },
            indent=1,
        )
        + "\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
