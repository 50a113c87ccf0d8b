"""Rescued data: nothing that a record says is lost, and a column declared later is filled."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakehouse as lh
from lakehouse.errors import InvalidInputError, InvalidSchemaError
from lakehouse.ingestion.drift import Drift
from lakehouse.ingestion.ingest import ingest_days
from lakehouse.ingestion.reading.file_index import FileIndex
from lakehouse.ingestion.reading.formats.json_text import inexact_lines
from lakehouse.ingestion.reading.landing_file import file_chunks
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.rescued_columns import fill_columns
from lakehouse.ingestion.source_tables import raw_table, source_columns
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import (
    Column,
    EventTime,
    LakehouseResource,
    Pipeline,
    ReadOptions,
    Source,
    fill_job,
)
from tests.orchestration.conftest import Pipe, event, june

DAY = date(2026, 6, 1)
FED = Source(
    name="fed",
    event_time=EventTime("ts"),
    first_day=DAY,
    last_day=date(2026, 6, 30),
    bucket="id",
    natural_key=("id",),
    columns=(Column("id", "string"), Column("ts", "string"), Column("n", "long")),
    drift="quarantine",
    rescue="rest",
)


def read(data: bytes, source: Source, path: str) -> tuple[list[dict], Counter[str]]:
    """Rows, and how many rejects there are of each reason."""
    clock = EventClock(source.event_time, source.first_day, DAY.replace(day=30))
    typer, index, rows = RowTyper(source, source.columns, clock), FileIndex(), []
    reasons: Counter[str] = Counter()
    for chunk in file_chunks(pa.BufferReader(data), path, source):
        rejects = index.add(chunk, source, clock)
        if chunk.records is not None:
            batch = typer.rows(chunk.records, path, list(index.lines), Counter(), rejects)
            rows += [] if batch is None else batch.to_pylist()
        reasons.update(rejects.reasons)
    return sorted(rows, key=lambda row: row["landing_line"]), reasons


VALUES = ["1", "-7", "1.5", '"12"', '"x"', "null", "true", "[1,{\"a\":0.12345678901234567890}]",
          "9223372036854775808", "12345678901234567890.25", '"\\u00e9"', "{}"]  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_row_says_what_its_record_says(seed: int, form: str, tmp_path: Path) -> None:
    """By `json` with exact numbers: columns and rest together are the record, and nothing twice."""
    chance = random.Random(seed)
    names = ["n", "m", "a.b", "landing_file", "N"]
    records = [
        {"id": json.dumps(f"i{number}"), "ts": '"2026-06-02T10:00:00"'}
        | {name: chance.choice(VALUES) for name in names if form == "csv" or chance.random() < 0.7}
        for number in range(40)
    ]
    if form == "jsonl":
        text = "\n".join(
            "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in one.items()) + "}" for one in records
        )
        data, wanted = text.encode(), [exact(line) for line in text.split("\n")]
    elif form == "csv":
        rows = [[one[name] for name in ("id", "ts", *names)] for one in records]
        rows = [[one.strip('"').replace(",", ";") for one in row] for row in rows]
        quoted = [",".join('"' + one.replace('"', '""') + '"' for one in row) for row in rows]
        data = "\n".join([",".join(["id", "ts", *names]), *quoted]).encode()
        wanted = [dict(zip(["id", "ts", *names], row, strict=True)) for row in rows]
    else:
        table = pa.table(
            {
                "id": [f"i{n}" for n in range(6)], "ts": ["2026-06-02T10:00:00"] * 6,
                "n": pa.array([1.5, 2.0, float("nan"), None, float("inf"), -1.0]),
                "m": pa.array([Decimal("1.10"), None, Decimal(0), Decimal("2.50")] * 2)[:6],
                "day": pa.array([DAY, None, DAY, DAY, DAY, DAY]),
            }
        )  # fmt: skip
        pq.write_table(table, tmp_path / "a.parquet")
        data = (tmp_path / "a.parquet").read_bytes()
        spelled = {"nan": "NaN", "inf": "Infinity"}
        wanted = [
            {
                k: spelled.get(str(v), v if isinstance(v, str) else str(v))
                for k, v in row.items()
                if v is not None
            }
            for row in table.to_pylist()
        ]
    rows, reasons = read(data, FED, f"a.{form}")
    assert reasons == {}
    assert len(rows) == len(wanted)
    for row, record in zip(rows, wanted, strict=True):
        rest = {} if row["rest"] is None else exact(row["rest"])
        assert list(rest) == sorted(rest)
        columns = {name: row[name] for name in ("id", "ts", "n") if row[name] is not None}
        assert not columns.keys() & rest.keys()
        found = {**rest, **{k: str(v) for k, v in columns.items()}}
        said = {k: v for k, v in record.items() if v is not None}
        if form == "parquet":
            found = {k: str(v) for k, v in found.items()}
            assert found == said
            continue
        if "n" in columns:
            said["n"] = str(int(said["n"]))
        assert found == said


def number(chance: random.Random) -> str:
    """One of up to 30 digits on each side of its point, half with an exponent."""

    def digits(most: int) -> str:
        return "".join(chance.choices("0001234567899", k=chance.randint(0, most)))

    text = chance.choice(["0", f"{chance.randint(1, 9)}{digits(30)}"])
    text += chance.choice(["", f".{digits(30)}{chance.randint(0, 9)}"])
    if chance.random() < 0.5:
        text += f"{chance.choice('eE')}{chance.choice(['', '+', '-'])}{chance.randint(0, 320)}"
    return chance.choice(["", "-"]) + text


@pytest.mark.parametrize("shape", ["{}", "[1,{}]", '{{"a": {}}}'])
def test_a_number_keeps_its_digits_whatever_its_length(shape: str) -> None:
    """By Python's decimals: what a double does not say is in the text that is kept."""
    chance = random.Random(shape)
    numbers = [text for text in (number(chance) for _ in range(3000)) if abs(float(text)) < 1e308]
    lines = [f'{{"id":"1","ts":"2026-06-02T10:00:00","x":{shape.format(n)}}}' for n in numbers]
    source = replace(FED, columns=(*FED.columns[:2], Column("x", "json")), rescue=None)
    rows, reasons = read("\n".join(lines).encode(), source, "a.jsonl")
    assert not reasons
    kept = [json.loads(row["x"], parse_int=Decimal, parse_float=Decimal) for row in rows]
    given = [json.loads(shape.format(n), parse_int=Decimal, parse_float=Decimal) for n in numbers]
    assert kept == given


def test_what_looks_like_a_long_number_and_is_a_string_is_not_read_again() -> None:
    """Reading a line exactly takes ten times as long: names of things must not cause that."""
    texts = [
        "store-100",
        "e-100",
        "9b2e-4123-8e-412",
        "20260601123456789012345",
        "10.0.0.1",
        "1e-9",
    ]
    texts += ["2026-06-01T10:00:00.123456789Z", "a, 1.5e-7", "0.30000000000000004", " 1e3"]
    numbers = [
        "0.30000000000000004",
        "1.7976931348623157e308",
        "1767225600000000",
        "1.5e-7",
        "-0.0",
    ]
    numbers += ["9223372036854775807", "18446744073709551615", "4.35", "5e-324", "1E-05"]
    texts += [repr(random.Random(seed).gauss(0, 10**seed)) for seed in range(20)]
    lines = [f'{{"x": "{text}"}}' for text in texts] + [f'{{"x":{text}}}' for text in numbers]
    lines += [f'{{"x":[1,{text}]}}' for text in texts[-20:]]
    assert inexact_lines([line.encode() for line in lines]) == []
    assert inexact_lines([b'{"x": 0.1}', b'{"x":0.30000000000000002}', b'{"x":1e-330}']) == [1, 2]


def exact(text: str) -> dict:
    """The fields of a JSON text, numbers as their digits."""
    return json.loads(text, parse_int=str, parse_float=str)


def test_keys_and_event_times_have_to_fit() -> None:
    source = replace(FED, columns=(Column("id", "long"), Column("ts", "string")))
    lines = [b'{"id":1,"ts":"2026-06-02T10:00:00","x":1}', b'{"id":"one","ts":"2026-06-02T10:00"}',
             b'{"ts":"2026-06-02T10:00"}', b'{"id":2,"ts":"soon"}', b"no json",
             b'{"id":3,"ts":"2026-06-02T10:00","x":%s}' % (b"[" * 900 + b"]" * 900)]  # fmt: skip
    rows, reasons = read(b"\n".join(lines), source, "a.jsonl")
    assert [(row["id"], row["rest"]) for row in rows] == [(1, '{"x":1}')]
    assert reasons == {
        "type conflict": 2, "null key": 1, "event time malformed": 1, "malformed JSON": 1,
    }  # fmt: skip
    # off, it is as it was
    rows, reasons = read(lines[0], replace(source, rescue=None), "a.jsonl")
    assert (rows, reasons) == ([], {"unexpected column": 1})


@pytest.mark.parametrize("frames", [0, 300])
@pytest.mark.parametrize("leaf", ["1", "[null]", "1" * 30, "0.12345678901234567890"])
def test_how_deep_a_field_may_be_is_not_up_to_who_reads_it(leaf: str, frames: int) -> None:
    if frames:
        test_how_deep_a_field_may_be_is_not_up_to_who_reads_it(leaf, frames - 1)
        return
    for levels, taken in ((200, 1), (255, 0), (900, 0)):
        line = f'{{"id":"1","ts":"2026-06-02T10:00","x":{"[" * levels}{leaf}{"]" * levels}}}'
        rows, reasons = read(line.encode(), FED, "a.jsonl")
        assert (len(rows), reasons.total()) == (taken, 1 - taken)


@pytest.mark.parametrize(
    "name", ["rest", "Rest", "a b", "", "event_ts", "landing_file", "id", "ts"]
)
def test_the_name_of_the_rest_is_checked(name: str) -> None:
    columns = (Column("id", "string"), Column("ts", "string"), Column("REST", "string"))
    with pytest.raises(InvalidInputError, match="rescue="):
        replace(FED, columns=columns, rescue=name)


@pytest.fixture
def lake(tmp_path: Path) -> Lakehouse:
    return lh.load_catalog((tmp_path / "warehouse").as_uri())


def test_a_table_with_such_a_column_of_its_own_is_refused(lake: Lakehouse) -> None:
    own = replace(FED, rescue=None, columns=(*FED.columns, Column("rest", "string")))
    raw_table(lake, own, Drift(), print)
    with pytest.raises(InvalidSchemaError, match="has a column 'rest' already"):
        raw_table(lake, FED, Drift(), print)
    raw_table(lake, replace(FED, rescue="others"), Drift(), print)
    assert "others" not in [column.name for column in source_columns(lake, FED)]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_columns_declared_later_are_what_they_would_have_been(form: str, lake: Lakehouse) -> None:
    """The judge: the same files read under the later definition from the beginning."""
    chance = random.Random(3)
    read_options = ReadOptions(decimal_separator=",", date_format="dd.MM.yyyy")
    early = replace(FED, read=read_options)
    late = replace(
        early,
        columns=(*FED.columns, Column("price", "decimal(8,2)"), Column("day", "date"),
                 Column("tags", "json"), Column("flag", "boolean")),
    )  # fmt: skip
    pools = {"n": ["5", "five", "", "6,5"], "price": ["1,50", "dear", "2.5", "1234567,00", ""],
             "day": ["01.02.2026", "31.02.2026", "2026-02-01"], "tags": ["a", "[1]"],
             "flag": ["true", "no"], "other": ["x", ""]}  # fmt: skip
    records = [
        {"id": f"i{n}", "ts": f"2026-06-{1 + n % 3:02}T10:00:00"}
        | {name: chance.choice(pool) for name, pool in pools.items()}
        for n in range(60)
    ]
    if form == "csv":
        names = list(records[0])
        data = "\n".join([";".join(names), *(";".join(one.values()) for one in records)])
    else:
        for one in records:
            one |= {k: json.loads(v) for k, v in one.items() if v in ("5", "true", "[1]")}
        data = "\n".join(map(json.dumps, records))
    table = raw_table(lake, early, Drift(), print)
    rows, _ = read(data.encode(), early, f"a.{form}")
    schema = table.scan().to_arrow().schema
    table.append(pa.Table.from_pylist(rows, schema))
    wanted, _ = read(data.encode(), late, f"a.{form}")

    before = table.refresh().current_snapshot()
    said = fill_columns(lake, late, dry_run=True)
    assert lake.load_table("raw.fed").current_snapshot() == before
    done = fill_columns(lake, late)
    assert (dict(done.filled), done.days) == (dict(said.filled), said.days)
    assert done.filled["price"] == sum(one["price"] is not None for one in wanted) > 0
    found = lake.load_table("raw.fed").scan().to_arrow()
    order = [name for name in found.column_names if name != "event_ts"]
    by_id = {row["id"]: row for row in found.to_pylist()}
    assert {key: [row[name] for name in order] for key, row in by_id.items()} == {
        row["id"]: [row[name] for name in order] for row in wanted
    }
    again = lake.load_table("raw.fed").current_snapshot()
    assert fill_columns(lake, late).filled == {}
    assert lake.load_table("raw.fed").current_snapshot() == again
    with pytest.raises(InvalidInputError, match="keeps no rest"):
        fill_columns(lake, replace(late, rescue=None))


def fed_early(folder: Path) -> tuple[Lakehouse, Source]:
    """A raw table with a field in its rest, and its source, which declares that by now."""
    lake = lh.load_catalog(str(folder / "warehouse"))
    table = raw_table(lake, FED, Drift(), print)
    lines = [{"id": str(n), "ts": "2026-06-02T00:00:00Z", "n": n} for n in range(4)]
    lines[1] |= {"coupon": "a'b"}
    lines[2] |= {"coupon": "\u00fc", "other": 1}
    rows, _ = read("\n".join(map(json.dumps, lines)).encode(), FED, "a.jsonl")
    table.append(pa.Table.from_pylist(rows, table.scan().to_arrow().schema))
    return lake, replace(FED, columns=(*FED.columns, Column("coupon", "string")))


def test_the_job_fills_columns(tmp_path: Path) -> None:
    lake, late = fed_early(tmp_path)
    beside = replace(FED, name="beside", rescue=None)  # neither rescues nor was ingested
    job = fill_job(Pipeline((late, beside, replace(FED, name="new")), (), str(tmp_path)))
    resources = {"lakehouse": LakehouseResource(catalog=str(tmp_path / "warehouse"))}

    def coupons(**tags: str) -> tuple[str, list[object]]:
        done = job.execute_in_process(
            resources=resources, tags={f"lakehouse/{k}": v for k, v in tags.items()}
        )
        table = lake.load_table("raw.fed")
        names = table.schema().column_names
        rows = table.scan().to_arrow().sort_by("id").to_pylist() if "coupon" in names else []
        assert not rows or table.current_snapshot().summary["dagster.run-id"] == done.run_id
        return done.run_id, [row["coupon"] for row in rows]

    assert coupons(**{"dry-run": "true"})[1] == []
    assert coupons(tables="raw.new")[1] == []
    assert coupons()[1] == [None, "a'b", "\u00fc", None]


@pytest.mark.spark
def test_spark_fills_a_column_by_the_documented_statement(tmp_path: Path, spark: object) -> None:
    """The statement of docs/ingestion.md gives what `fill_columns` gives."""
    page = Path(__file__).parents[2] / "docs" / "ingestion.md"
    (statement,) = re.findall(r"```sql\n(UPDATE .*?rest.*?)```", page.read_text(), re.DOTALL)
    lake, late = fed_early(tmp_path)
    raw_table(lake, late, Drift(added=late.columns[-1:]), print)
    lh.spark.attach(spark, lake, name="filled")
    spark.sql(statement.replace("lake.raw.shop", "filled.raw.fed"))
    found = lake.load_table("raw.fed").scan().to_arrow().sort_by("id")["coupon"].to_pylist()
    other, same = fed_early(tmp_path / "other")
    fill_columns(other, same)
    wanted = other.load_table("raw.fed").scan().to_arrow().sort_by("id")["coupon"].to_pylist()
    assert found == wanted == [None, "a'b", "\u00fc", None]


@pytest.mark.spark
def test_ingestion_keeps_the_rest_and_counts_to_the_line(pipe: Pipe, spark: object) -> None:
    """Drift off, no key: records that differ in the rest alone are two events; Spark fills, too."""
    strict = pipe.with_source(drift="quarantine", rescue="rest", natural_key=())
    lines = [event(n, 1) for n in range(3)]
    lines += [event(3, 1, coupon="a"), event(3, 1, coupon="b"), event(3, 1, coupon="a")]
    lines += [event(4, 1, amount="much", big=0).replace(b'big":0', b'big":%d' % 2**70), b"no json"]
    strict.land("1.jsonl.gz", lines)
    strict.index()
    said: list[str] = []
    work = replace(strict.work(), say=said.append)
    ingest_days(work, strict.source, june(1), "replace", lambda snapshot, days: ())
    assert "4 of the lines keep in rest what no column takes" in said
    strict.assert_conserved(len(lines))
    assert strict.rows("id", "amount", "rest")[3:] == [
        (3, 3, '{"coupon":"a"}'), (3, 3, '{"coupon":"b"}'),
        (4, None, '{"amount":"much","big":1180591620717411303424}'),
    ]  # fmt: skip
    columns = (*strict.source.columns, Column("coupon", "string"))
    strict.source = replace(strict.source, columns=columns)
    assert fill_columns(strict.lake, strict.source).filled == {"coupon": 2}
    assert sorted(strict.rows("id", "coupon"), key=str)[3:] == [
        (3, "a"), (3, "b"), (4, None),
    ]  # fmt: skip
    # what is written anew is equal to what was filled
    filled = strict.rows("id", "amount", "coupon", "landing_line")
    strict.ingest(june(1))
    strict.assert_conserved(len(lines))
    assert strict.rows("id", "amount", "coupon", "landing_line") == filled
