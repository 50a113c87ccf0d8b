"""`Source.transform`: DataFrame programs between the records and the raw table."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import orjson
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.functions import col, lit

from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.ingestion.definition_changes import recorded
from lakehouse.ingestion.ingest import MostRejectedError, rows_at
from lakehouse.ingestion.redefined_source import source_changes
from lakehouse.ingestion.source import Column
from lakehouse.ingestion.source_tables import ledger_table, source_columns
from tests.integration.spark_support import configured
from tests.orchestration.conftest import Pipe, event, june

pytestmark = pytest.mark.spark


@pytest.fixture(params=["auto", "spark"])
def pipe(pipe: Pipe, request: pytest.FixtureRequest) -> Pipe:
    """Little goes to Spark and back, much is transformed where it is: the same comes of both."""
    return pipe.with_source(engine=request.param)


def priced(rows: DataFrame) -> DataFrame:
    """A column more, a value changed, and lines rejected in both ways."""
    return (
        rows.withColumn("double_amount", col("amount") * 2)
        .withColumn("user", F.upper("user"))
        .withColumn(
            "quarantine_reason", F.when(col("amount") % 7 == 0, F.concat(lit("sevens: "), "user"))
        )
        .where("amount % 11 <> 0 or amount is null")
    )


def table_rows(pipe: Pipe) -> list[dict]:
    rows = pipe.lake.load_table("raw.events").scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["landing_file"], row["landing_line"]))


def rejects(pipe: Pipe) -> list[dict]:
    rows = pipe.lake.load_table("raw.events_quarantine").scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["landing_file"], row["landing_line"]))


@pytest.mark.parametrize("seed", [1, 2])
def test_every_line_is_a_row_or_a_reject(seed: int, pipe: Pipe) -> None:
    """Brute force in Python over files that land one after another, some lines twice."""
    chance = random.Random(seed)
    pipe = pipe.with_source(transform=priced)
    expected, counts, seen = {}, Counter(), set()
    for file in range(3):
        name, lines = f"{file}.jsonl.gz", []
        for line in range(1, 60):
            number = chance.randrange(100)
            day = 3 + number % 3  # the key decides the day, so that repeated lines are duplicates
            amount = None if number % 10 == 0 else number
            lines.append(event(number, day, amount=amount))
            if chance.random() < 0.05:
                lines[-1] = b"{broken"
                counts["malformed"] += 1
            elif amount is not None and amount % 11 == 0:
                counts["left out"] += 1
            elif amount is not None and amount % 7 == 0:
                counts["sevens"] += 1
            elif number in seen:
                counts["duplicates"] += 1
            else:
                seen.add(number)
                expected[name, line] = (number, amount, f"U{number % 5}")
        pipe.land(name, lines, modified=1_780_000_000 + file)
        pipe.index()
        done = pipe.ingest(june(1, 20), chance.choice(["replace", "increment"]))
        assert done.counts.lines == done.counts.rows + done.counts.quarantined + (
            done.counts.duplicates
        )
    found = {
        (row["landing_file"], row["landing_line"]): (row["id"], row["amount"], row["user"])
        for row in table_rows(pipe)
    }
    assert found == expected
    assert all(
        row["double_amount"] == (None if row["amount"] is None else row["amount"] * 2)
        for row in table_rows(pipe)
    )
    reasons = Counter(
        "malformed" if row["reason"] != "transform" else row["detail"].split()[0].rstrip(":")
        for row in rejects(pipe)
    )
    assert reasons == Counter(
        {"malformed": counts["malformed"], "left": counts["left out"], "sevens": counts["sevens"]}
    )
    assert done.by_day
    assert sum(one.duplicates for one in done.by_day.values()) == counts["duplicates"]
    # nothing of the rows as typed stays
    table = pipe.lake.load_table("raw.events")
    live = {file.file_path for file in table.scan().plan().files}
    there = {one.location for one in table.storage.list(f"{table.location}/data")}
    older = {
        file.file_path
        for snapshot in table.metadata.snapshots
        for file in table.scan(snapshot_id=snapshot.snapshot_id).plan().files
    }
    assert there == live | older
    # and it is computed again as it was
    ledger = ledger_table(pipe.lake, pipe.source).current_snapshot().snapshot_id
    snapshot_id = table.current_snapshot().snapshot_id
    again = rows_at(pipe.work(), pipe.source, june(1, 20), ledger, snapshot_id).toArrow()
    assert sorted(map(str, again.to_pylist())) == sorted(
        map(str, table.scan().to_arrow().cast(again.schema).to_pylist())
    )


SMALL_DRIVER = """
import sys
from dataclasses import replace
from pathlib import Path
from pyspark.sql import functions as F
from lakehouse.ingestion.ingest import ingest_days
from lakehouse.spark import build_session
from tests.orchestration.conftest import Pipe, event, june

spark = build_session("small driver", config={"spark.driver.maxResultSize": "1m"})
wide = lambda rows: rows.withColumn(
    "noise", F.transform(F.sequence(F.lit(1), F.lit(3000)), lambda n: n * F.rand())
)
pipe, said = Pipe(Path(sys.argv[1]), spark).with_source(transform=wide), []
pipe.land("a.jsonl.gz", [event(number, 3) for number in range(100)])
pipe.index()
work = replace(pipe.work(), say=said.append)
done = ingest_days(work, pipe.source, june(3), "replace", lambda *_: ())
assert done.counts.rows == 100, done
noise = pipe.lake.load_table("raw.events").scan().to_arrow()["noise"]
assert {len(row) for row in noise} == {3000}
assert any("larger than spark.driver.maxResultSize" in line for line in said), said
spark.stop()
"""


@pytest.mark.slow
def test_what_a_driver_cannot_take_is_written_by_workers(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", SMALL_DRIVER, tmp_path / "pipe"],
        cwd=Path(__file__).parents[2],
        check=True,
    )


TYPED = {
    "flag": ("boolean", True, True),
    "small": ("int", -7, -7),
    "ratio": ("float", 0.5, 0.5),
    "precise": ("double", 0.1, 0.1),
    "price": ("decimal(38, 9)", "12345678901234567890.123456789",
              Decimal("12345678901234567890.123456789")),
    "born": ("date", "1969-12-31", date(1969, 12, 31)),
    "opens": ("time", "23:59:59.999999", time(23, 59, 59, 999999)),
    "local": ("timestamp", "1581-10-04T03:04:05.000006",
              datetime(1581, 10, 4, 3, 4, 5, 6)),  # noqa: DTZ001
    "moment": ("timestamptz", "2262-04-12T00:00:00.000001+02:00",
               datetime(2262, 4, 11, 22, 0, 0, 1, UTC)),
    "any": ("json", {"a": [1, None]}, '{"a":[1,null]}'),
}  # fmt: skip
MADE = {
    "bytes": ("X'00FF'", b"\x00\xff"),
    "list": ("array(1, cast(null AS int))", [1, None]),
    "map": ("map('k', struct(price AS p))", [("k", {"p": TYPED["price"][2]})]),
    "wall": ("timestamp_ntz '1500-01-01 00:00:00.000001'",
             datetime(1500, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    "instant": ("moment - interval 1 microsecond", datetime(2262, 4, 11, 22, tzinfo=UTC)),
    "nothing": ("cast(null AS decimal(5, 2))", None),
    "text": ("to_json(struct(any, flag))", None),
}  # fmt: skip


OF_USERS = {
    "spark.sql.session.timeZone": "Pacific/Kiritimati",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.mark.parametrize("settings", [{}, OF_USERS], ids=["usual", "of users"])
def test_values_of_all_types_come_back_as_they_went(settings: dict[str, str], pipe: Pipe) -> None:
    """What a record holds, and what Spark computes, of a row that stays, one rejected, one lost."""
    pipe = pipe.with_source(
        columns=(*pipe.source.columns, *(Column(name, TYPED[name][0]) for name in TYPED)),
        transform=lambda rows: rows.withColumns(
            {name: F.expr(made) for name, (made, _) in MADE.items()}
            | {"quarantine_reason": F.when(col("id") == 2, lit("two"))}
        ).where("id <> 3"),
    )
    fields = {name: landed for name, (_, landed, _) in TYPED.items()}
    # a moment of the third of June, in both zones another day than where the source is
    pipe.land("a.jsonl.gz", [event(number, 4, 1, **fields) for number in (1, 2, 3, 4)])
    pipe.land("b.jsonl.gz", [event(5, 4, 1, **dict.fromkeys(fields))])
    pipe.index()
    with configured(pipe.spark, settings):
        done = pipe.ingest(june(1, 20))
        table = pipe.lake.load_table("raw.events")
        ledger = ledger_table(pipe.lake, pipe.source).current_snapshot().snapshot_id
        now = table.current_snapshot().snapshot_id
        again = rows_at(pipe.work(), pipe.source, june(1, 20), ledger, now).toArrow()
    assert (done.counts.rows, done.counts.quarantined) == (3, 2)
    rows = table_rows(pipe)
    assert [row["id"] for row in rows] == [1, 4, 5]
    assert sorted(map(str, again.cast(table.schema().as_arrow()).to_pylist())) == sorted(
        map(str, table.scan().to_arrow().to_pylist())
    )
    assert {row["event_ts"] for row in rows} == {datetime(2026, 6, 3, 23, tzinfo=UTC)}
    expected = {name: value for name, (_, _, value) in TYPED.items()}
    expected |= {name: value for name, (_, value) in MADE.items() if value}
    for row in rows[:2]:
        assert {name: row[name] for name in expected} == expected
        assert orjson.loads(row["text"]) == {"any": TYPED["any"][2], "flag": True}
    assert {rows[2][name] for name in TYPED} == {None}
    kept = {row["detail"]: orjson.loads(row["record"]) for row in rejects(pipe)}
    assert {why: (record["id"], record["any"]) for why, record in kept.items()} == {
        "two": (2, TYPED["any"][2]), "left out by the transform": (3, TYPED["any"][2]),
    }  # fmt: skip
    # the same text in every session: times in UTC, and no nulls
    assert {record["event_ts"] for record in kept.values()} == {"2026-06-03T23:00:00.000Z"}
    assert all(None not in record.values() for record in kept.values())
    assert {row["event_day"] for row in rejects(pipe)} == {date(2026, 6, 3)}


REFUSED: dict[str, tuple[Callable[[DataFrame], object], str]] = {
    "no frame": (lambda rows: rows.toArrow(), "has to return a DataFrame, not Table"),
    "no line": (lambda rows: rows.drop("landing_line"), "returns no column 'landing_line'"),
    "line twice": (lambda rows: rows.union(rows), "2 times"),
    "another line": (
        lambda rows: rows.withColumn("landing_line", col("landing_line") + 100),
        "no such line went in",
    ),
    "another file": (
        lambda rows: rows.withColumn("landing_file", lit("other")), "no such line went in",
    ),
    "another day": (
        lambda rows: rows.withColumn("event_ts", F.expr("event_ts + interval 2 days")),
        "no such line went in",
    ),
    "null line": (
        lambda rows: rows.withColumn("landing_line", F.when(col("id") > 1, col("landing_line"))),
        "no such line went in",
    ),
    "joined": (
        lambda rows: rows.join(rows.select("user", col("id").alias("other")), "user"),
        "times",
    ),
    "another type": (
        lambda rows: rows.withColumn("amount", col("amount").cast("string")), "column amount",
    ),
    "time as text": (
        lambda rows: rows.withColumn("event_ts", col("event_ts").cast("string")),
        "'event_ts' as string, and timestamp went in",
    ),
    "same name": (lambda rows: rows.select("*", col("id").alias("user")), "case"),
    "case": (lambda rows: rows.withColumn("x", lit(1)).withColumnsRenamed({"x": "USER"}), "case"),
    "partition": (lambda rows: rows.withColumn("event_ts_day", lit(1)), "event_ts_day"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_accounted_for_is_refused(name: str, pipe: Pipe) -> None:
    program, told = REFUSED[name]
    pipe = pipe.with_source()
    pipe.land("a.jsonl.gz", [event(number, 3, user="u") for number in range(1, 4)])
    pipe.index()
    pipe.ingest(june(3))
    before = table_rows(pipe)
    pipe.source = replace(pipe.source, transform=program)
    pipe.land("b.jsonl.gz", [event(number, 3, user="u") for number in range(4, 9)])
    pipe.index()
    with pytest.raises((InvalidInputError, InvalidSchemaError), match=told):
        pipe.ingest(june(3))
    assert table_rows(pipe) == before
    table = pipe.lake.load_table("raw.events")
    files = {one.location for one in table.storage.list(f"{table.location}/data")}
    assert files == {file.file_path for file in table.scan().plan().files}
    pipe.source = replace(pipe.source, transform=None)
    assert pipe.ingest(june(3)).counts.rows == 8


def test_a_transform_that_rejects_most_fails_with_its_own_words(pipe: Pipe) -> None:
    def none(rows: DataFrame) -> DataFrame:
        return rows.withColumn("quarantine_reason", lit("too cheap"))

    pipe = pipe.with_source(transform=none, max_rejected=5.0)
    pipe.land("a.jsonl.gz", [event(number, 3) for number in range(1, 4)])
    pipe.index()
    with pytest.raises(MostRejectedError, match=r"3 x transform: too cheap \(a.jsonl.gz line 1"):
        pipe.ingest(june(3))
    assert not pipe.lake.load_table("raw.events").scan().count()


def test_columns_that_it_computes_are_its_own(pipe: Pipe) -> None:
    """They are no columns of records, stay when it stops to compute them, and are widened."""

    def ranked(rows: DataFrame) -> DataFrame:
        return rows.withColumn("rank", F.row_number().over(Window.orderBy("id")))

    def wider(rows: DataFrame) -> DataFrame:
        return rows.withColumn("rank", lit(2**40)).withColumn("tags", F.array("user"))

    pipe = pipe.with_source(transform=ranked)
    pipe.land("a.jsonl.gz", [event(1, 3), event(2, 3)])
    pipe.index()
    pipe.ingest(june(3))
    assert [row["rank"] for row in table_rows(pipe)] == [1, 2]
    assert "rank" not in [column.name for column in source_columns(pipe.lake, pipe.source)]
    # records with a field of that name do not fit: nothing would say which of both is in the column
    pipe.land("b.jsonl.gz", [event(3, 3, rank=9), event(4, 3)])
    pipe.index()
    assert pipe.ingest(june(3), "increment").counts.quarantined == 1
    pipe.source = replace(pipe.source, transform=wider)
    (change,) = source_changes(pipe.source, recorded(ledger_table(pipe.lake, pipe.source)))
    assert (change.what, change.effect) == ("transform", "from now on")
    pipe.land("c.jsonl.gz", [event(5, 3)])
    pipe.index()
    pipe.ingest(june(3), "increment")
    assert [row["rank"] for row in table_rows(pipe)] == [1, 2, 1, 2**40]
    assert table_rows(pipe)[-1]["tags"] == ["u0"]
    pipe.source = replace(pipe.source, transform=None)
    pipe.ingest(june(3))
    assert {row["rank"] for row in table_rows(pipe)} == {None}
