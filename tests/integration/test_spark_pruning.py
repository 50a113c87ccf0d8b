"""I11 on Spark: a query on files that we planned finds the rows found without any pruning.

The oracle is Spark itself over the same rows held in memory, where the predicate is a column and
nothing is skipped. Predicates are batched, many branches of one query, so that a session tries
hundreds in seconds; `SPARK_PRUNING_CASES=5000` tries more.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakehouse as lh
from tests.integration.spark_support import configured

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CASES = int(os.environ.get("SPARK_PRUNING_CASES", "100"))
SEED = int(os.environ.get("SPARK_PRUNING_SEED", "20261121"))
BRANCHES = 50
ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
# many small queries: interpreting them is quicker than compiling each
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.adaptive.enabled": "false",
}
PLACE = pa.struct(
    [("city", pa.string()), ("at", pa.struct([("x", pa.int32()), ("y", pa.float64())]))]
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
        ("place", PLACE),
    ]
)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose
FLOATS = [0.0, -0.0, 1.5, -2.0, 3.25, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", "a", "ab", "abc", "b", "ba", "é", "\ud7ff", "\ue000", "\U0001f600", "A"]
SPECS = [
    ((), ("day(tz)",)),
    (("bucket(3, i)", "truncate(1, s)"), ("identity(b)", "month(ts)")),
    (("hour(tz)",), ("place.city", "truncate(5, l)")),
    (("day", "bucket(2, s)"), ("f",)),
    (("truncate(10, m)",), ("year(day)", "bucket(4, tz)")),
    (("d", "month(tz)"), ()),
]


def row(rng: random.Random, number: int) -> dict[str, Any]:
    moment = EPOCH + dt.timedelta(
        hours=rng.randrange(-80, 80), microseconds=rng.choice([0, 0, 1, -1])
    )
    at = {"x": rng.choice([None, rng.randrange(-4, 5)]), "y": rng.choice([None, *FLOATS])}
    values = {
        "i": rng.choice([rng.randrange(-6, 7), -(2**31), 2**31 - 1]),
        "l": rng.choice([rng.randrange(-20, 21), 2**63 - 1, -(2**63) + 10]),
        "f": rng.choice(FLOATS),
        "d": rng.choice([*FLOATS, 0.1]),
        "m": Decimal(rng.randrange(-300, 300)) / 100,
        "s": rng.choice(TEXTS) + rng.choice(["", "x"]),
        "day": (EPOCH + dt.timedelta(days=rng.randrange(-400, 400))).date(),
        "ts": moment,
        "tz": (
            EPOCH + dt.timedelta(hours=rng.randrange(-60, 60), seconds=rng.choice([0, 0, 1, -1]))
        ).replace(tzinfo=dt.UTC),
        "b": rng.random() < 0.5,
        "place": {"city": rng.choice([None, *TEXTS]), "at": rng.choice([None, at, at])},
    }
    return {
        "id": number,
        **{name: None if rng.random() < 0.15 else value for name, value in values.items()},
    }


def leaf(rng: random.Random) -> str:
    """A condition on one column.

    Literals often equal a value in the rows, and are often of another type than the column.
    """
    name = rng.choice([*SCHEMA.names[1:], "place.city", "place.at.x", "place.at.y", "place.at"])
    if rng.random() < 0.15 or name in ("place", "place.at"):
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    op = rng.choice(["=", "<=>", "<", "<=", ">", ">=", "<>", "IN", "NOT IN", "BETWEEN"])
    if name in ("s", "place.city"):
        return text_leaf(rng, name, op)
    if name == "b":
        return rng.choice(
            ["b", "NOT b", "b = true", "b <=> NULL", "b <> false", "b IN (true, NULL)"]
        )
    if name in ("day", "ts", "tz"):
        return time_leaf(rng, name, op)
    if name in ("f", "d", "place.at.y") and rng.random() < 0.2:
        return f"{rng.choice(['', 'NOT '])}isnan({name})"
    column = rng.choice([name, name, name, wider(rng, name)])
    return listed(rng, column, op, lambda: number(rng, name))


def wider(rng: random.Random, name: str) -> str:
    kinds = {
        "i": ["BIGINT", "DOUBLE", "DECIMAL(12, 2)"],
        "l": ["DECIMAL(20, 0)"],
        "m": ["DECIMAL(12, 3)", "DOUBLE"],
    }
    kind = rng.choice([*kinds.get(name, []), "STRING" if name in ("i", "l") else "DOUBLE"])
    return f"CAST({name} AS {kind})"


def number(rng: random.Random, name: str) -> str:
    whole = str(rng.choice([rng.randrange(-6, 7), rng.randrange(-25, 26)]))
    if name in ("i", "l", "place.at.x"):
        return rng.choice(
            [
                whole,
                whole,
                f"{whole}L",
                f"'{whole}'",
                f"{whole}.5",
                f"{whole}D",
                "3000000000",
                "2147483647",
            ]
        )
    if name == "m":
        return rng.choice(
            [
                f"{whole}.25",
                f"{whole}.005",
                whole,
                f"{whole}.5D",
                f"CAST('{whole}' AS DECIMAL(20, 5))",
            ]
        )
    plain = rng.choice(["0.0D", "1.5D", "-2.0D", "3.25D", "-0.0D", "0.1D", "1.5", "3", "'1.5'"])
    return rng.choice(
        [
            plain,
            plain,
            f"{rng.choice(['double', 'float'])}('{rng.choice(['NaN', 'Infinity', '-Infinity'])}')",
        ]
    )


def text_leaf(rng: random.Random, name: str, op: str) -> str:
    text = rng.choice(TEXTS)
    kind = rng.randrange(5)
    if kind == 0:
        return f"{name} {rng.choice(['', 'NOT '])}LIKE '{text}%'"
    if kind == 1:
        return f"{rng.choice(['', 'NOT '])}startswith({name}, '{text}')"
    if kind == 2:
        return f"{rng.choice(['upper', 'lower', 'trim'])}({name}) = '{text}'"
    return listed(rng, name, op, lambda: f"'{rng.choice(TEXTS)}'")


def time_leaf(rng: random.Random, name: str, op: str) -> str:
    day = (
        (EPOCH + dt.timedelta(days=rng.choice([rng.randrange(-4, 5), rng.randrange(-400, 400)])))
        .date()
        .isoformat()
    )
    clock = f"{day} {rng.randrange(24):02d}:00:00"
    if name == "day":
        terms = [
            ("day", [f"'{day}'", f"DATE '{day}'", f"TIMESTAMP_NTZ '{clock}'"]),
            ("year(day)", ["1969", "1970", "'1971'"]),
        ]
        terms.append(("trunc(day, 'MM')", [f"DATE '{day[:8]}01'", f"DATE '{day}'"]))
    elif name == "ts":
        terms = [("ts", [f"TIMESTAMP_NTZ '{clock}'", f"'{clock}'", f"DATE '{day}'"])]
        terms += [
            ("date(ts)", [f"'{day}'"]),
            ("CAST(ts AS TIMESTAMP)", [f"TIMESTAMP '{clock}'", f"TIMESTAMP '{clock}+05:30'"]),
        ]
    else:
        terms = [
            (
                "tz",
                [
                    f"TIMESTAMP '{clock}'",
                    f"'{clock}'",
                    f"TIMESTAMP '{clock}-07:00'",
                    f"DATE '{day}'",
                ],
            )
        ]
        terms += [
            ("date(tz)", [f"DATE '{day}'"]),
            ("to_timestamp_ntz(tz)", [f"TIMESTAMP_NTZ '{clock}'"]),
        ]
        terms += [
            (f"date_trunc('{rng.choice(['HOUR', 'DAY', 'MONTH'])}', tz)", [f"TIMESTAMP '{clock}'"]),
            ("year(tz)", ["1969"]),
        ]
    term, literals = rng.choice(terms)
    return listed(rng, term, op, lambda: rng.choice(literals))


def listed(rng: random.Random, column: str, op: str, literal: Any) -> str:
    if op in ("IN", "NOT IN"):
        values = [literal() for _ in range(rng.randrange(1, 5))] + ["NULL"] * (rng.random() < 0.15)
        return f"{column} {op} ({', '.join(values)})"
    if op == "BETWEEN":
        return f"{column} BETWEEN {literal()} AND {literal()}"
    return f"{column} {op} {literal()}" if rng.random() < 0.8 else f"{literal()} {op} {column}"


def predicate(rng: random.Random, depth: int = 2) -> str:
    kind = rng.choice(["leaf", "leaf", *(["AND", "OR", "NOT"] if depth else [])])
    if kind == "leaf":
        return leaf(rng)
    if kind == "NOT":
        return f"NOT ({predicate(rng, depth - 1)})"
    return f"({predicate(rng, depth - 1)}) {kind} ({predicate(rng, depth - 1)})"


def made(
    lake: lh.Lakehouse, number: int, rng: random.Random
) -> tuple[lh.Table, list[dict[str, Any]]]:
    """A table of two specs with a renamed column, and its live rows.

    In every other one rows are deleted by position.
    """
    old, new = SPECS[number % len(SPECS)]
    version = 2 + number % 2
    properties = {"write.delete.mode": "merge-on-read"}
    table = lake.create_table(
        f"p.t{number}", SCHEMA, partition_by=old, format_version=version, properties=properties
    )
    rows = [row(rng, number) for number in range(40)]
    table.append(pa.Table.from_pylist(rows[:20], schema=SCHEMA))
    with table.update_partition_spec() as spec:
        for field in table.spec().fields:
            spec.remove(field.name)
        for term in new:
            spec.add(term)
    with table.update_schema() as schema:
        schema.rename_column("i", "tmp").rename_column("l", "i").rename_column("tmp", "l")
    with table.update_schema() as schema:
        schema.rename_column("i", "tmp").rename_column("l", "i").rename_column("tmp", "l")
    table.append(pa.Table.from_pylist(rows[20:], schema=SCHEMA))
    if number % 3:
        table.delete("id = 3 or id = 25")
        table.delete("id = 7")
        rows = [one for one in rows if one["id"] not in (3, 7, 25)]
    return table, rows


@pytest.fixture
def quick(spark):
    with configured(spark, {**QUICK, "spark.sql.session.timeZone": "UTC"}):
        yield spark


def test_pruned_equals_unpruned(quick, tmp_path):
    from lakehouse.spark import attach

    rng = random.Random(SEED)
    lake = lh.load_catalog(f"file://{tmp_path}/warehouse")
    session = attach(quick, lake)
    skipped, tried = 0, 0
    for number in range(max(1, CASES // BRANCHES)):
        table, rows = made(lake, number, rng)
        quick.conf.set("spark.sql.session.timeZone", "UTC")
        plain = (
            quick.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA))
            .withColumn("ts", _ntz("ts"))
            .cache()
        )
        plain.createOrReplaceTempView("unpruned")
        session.table(table.name).createOrReplaceTempView("pruned")
        quick.conf.set("spark.sql.session.timeZone", ZONES[number % len(ZONES)])
        predicates = [predicate(rng) for _ in range(BRANCHES)]
        flags = ", ".join(f"coalesce({text}, false) AS q{at}" for at, text in enumerate(predicates))
        expected = {at: set() for at in range(BRANCHES)}
        for one in quick.sql(f"SELECT id, {flags} FROM unpruned").toArrow().to_pylist():
            for at in expected:
                expected[at] |= {one["id"]} if one[f"q{at}"] else set()
        plans = Plans()
        lake.add_listener(plans)
        branches = (
            f"SELECT {at} AS q, id FROM pruned WHERE {text}" for at, text in enumerate(predicates)
        )
        found = quick.sql(" UNION ALL ".join(branches)).toArrow().to_pylist()
        lake.remove_listener(plans)
        for at, text in enumerate(predicates):
            ids = [one["id"] for one in found if one["q"] == at]
            assert sorted(ids) == sorted(expected[at]), (
                table.name,
                ZONES[number % len(ZONES)],
                text,
            )
        plain.unpersist()
        skipped, tried = skipped + plans.skipped, tried + len(predicates)
    assert skipped > tried, "the predicates skip too few files to try anything"


def _ntz(name: str) -> Any:
    """`createDataFrame` keeps a naive timestamp; the cast makes the oracle's type certain."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(name).cast("timestamp_ntz")


class Plans:
    """Counts the files that plans left out."""

    def __init__(self) -> None:
        self.skipped = 0

    def scan_planned(self, report: Any) -> None:
        counts = report.to_dict()
        self.skipped += (counts["data_files_total"] or 0) - counts["data_files_planned"]
