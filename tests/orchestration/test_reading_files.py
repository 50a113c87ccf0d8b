"""Reading landing files: every line is told, whatever is wrong with the file."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.errors import InvalidInputError
from lakehouse.orchestration.ingestion.event_time import BadEventTime, instant_parser
from lakehouse.orchestration.ingestion.first_look import index_file
from lakehouse.orchestration.ingestion.kinds import fits, inferred, kinds_of, promoted
from lakehouse.orchestration.ingestion.landing import LandingFile
from lakehouse.orchestration.ingestion.records import read_records
from lakehouse.orchestration.ingestion.source import Column, EventTime, Source
from lakehouse.orchestration.ingestion.typed_columns import typed_column
from lakehouse.orchestration.ingestion.typed_rows import REASON, FileTask, file_batches

TODAY = date(2026, 6, 30)
FILE = LandingFile("a.jsonl.gz", 1, 1)
EVENTS = Source(
    name="events",
    event_time=EventTime("ts", zone="Europe/Berlin"),
    first_day=date(2026, 1, 1),
    bucket="user",
    natural_key=("id",),
    max_line_bytes=1 << 20,
)
PLAIN = replace(EVENTS, gzip=False)


def lines_of(data: bytes, source: Source):
    """(line, reason or None) of every line, and the problems of the file."""
    told, problems = [], []
    for chunk in read_records(io.BytesIO(data), source):
        told += [(line, None) for line in chunk.lines]
        told += [(r.line, r.reason) for r in chunk.rejects if r.line is not None]
        problems += [r.reason for r in chunk.rejects if r.line is None]
    return sorted(told), problems


def event(**fields: object) -> bytes:
    return orjson.dumps({"id": 1, "ts": "2026-06-02T10:00:00", "user": "a", **fields})


@given(
    st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b" ")), max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_each_line_is_told_exactly_once(lines: list[bytes], zipped: bool, ends: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    expected = data.count(b"\n") + (0 if not data or data.endswith(b"\n") else 1)
    told, problems = lines_of(gzip.compress(data) if zipped else data, EVENTS if zipped else PLAIN)
    assert [line for line, _ in told] == list(range(1, expected + 1))
    assert problems == ([] if expected else ["empty file"])


@given(st.integers(1, 400))
def test_a_truncated_gzip_gives_its_complete_lines_and_says_so(cut: int) -> None:
    rows = [event(id=i, text=str(i * 7919 % 1000)) for i in range(200)]
    whole = gzip.compress(b"\n".join(rows) + b"\n", mtime=0)
    told, problems = lines_of(whole[: max(11, len(whole) - cut)], EVENTS)
    good = [line for line, reason in told if reason is None]
    assert good == list(range(1, len(good) + 1))
    assert [reason for line, reason in told if reason] in ([], ["truncated line"])
    assert problems == ["truncated gzip"]


def test_gzip_of_several_members_larger_than_a_block_and_padded() -> None:
    rows = b"".join(event(id=i, text="x" * 50) + b"\n" for i in range(60_000))
    data = gzip.compress(rows[:1_000_003]) + gzip.compress(rows[1_000_003:]) + b"\0" * 100
    told, problems = lines_of(data, EVENTS)
    assert len(told) == 60_000
    assert all(reason is None for _, reason in told)
    assert problems == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty file"),
        (gzip.compress(b""), "empty file"),
        (b'{"plain": 1}\n', "not gzip"),
        (b"\x1f\x8b", "truncated gzip"),
    ],
)
def test_files_that_hold_nothing_are_named(data: bytes, problem: str) -> None:
    assert lines_of(data, EVENTS) == ([], [problem])


def test_a_damaged_gzip_keeps_what_came_before() -> None:
    data = bytearray(
        gzip.compress(
            b"".join(event(id=i, noise=str(hash((i, "x")))) + b"\n" for i in range(50_000)), mtime=0
        )
    )
    data[len(data) // 2] ^= 0xFF
    told, problems = lines_of(bytes(data), EVENTS)
    assert problems[0].startswith("corrupt gzip")
    assert told


def test_a_line_of_ten_megabytes_is_quarantined_with_its_beginning() -> None:
    long = event(text="y" * (10 << 20))
    data = gzip.compress(event() + b"\n" + long + b"\n" + event(id=3) + b"\n")
    chunks = list(read_records(io.BytesIO(data), EVENTS))
    (reject,) = [r for chunk in chunks for r in chunk.rejects]
    assert (reject.line, reject.reason, reject.record_bytes) == (2, "line too long", len(long))
    assert reject.record is not None
    assert reject.record.startswith('{"id":1')
    assert len(reject.record) == 64 << 10
    assert [line for chunk in chunks for line in chunk.lines] == [1, 3]


def test_byte_order_mark_blank_lines_trailing_text_and_other_values() -> None:
    data = (
        b"\xef\xbb\xbf"
        + event()
        + b"\n\n"
        + event()
        + event()
        + b"\n[1]\n"
        + b'{"id": 1, \xff}\n'
        + b'{"id": '
    )
    assert lines_of(data, PLAIN)[0] == [
        (1, None),
        (2, "blank line"),
        (3, "malformed JSON"),
        (4, "not a JSON object"),
        (5, "malformed JSON"),
        (6, "malformed JSON"),
    ]


def test_csv_with_quotes_ragged_rows_and_an_open_quote() -> None:
    source = replace(PLAIN, format="csv", natural_key=())
    data = (
        b'id,ts,user\n1,2026-06-02T10:00:00,"a\nb"\n2,2026-06-02T10:00:00\n'
        b'3,2026-06-02T10:00:00,c\n\n4,2026-06-02T10:00:00,"open'
    )
    told, _ = lines_of(data, source)
    assert told == [
        (3, None),
        (4, "malformed CSV"),
        (5, None),
        (6, "blank line"),
        (7, "malformed CSV"),
    ]
    columns = [Column("id", "long"), Column("ts", "string"), Column("user", "string")]
    batches = list(
        file_batches(
            FileTask(FILE, frozenset({date(2026, 6, 2)})), io.BytesIO(data), source, columns, TODAY
        )
    )
    rows = pa.Table.from_batches(batches).select(["id", "user"]).to_pylist()
    assert rows == [{"id": 1, "user": "a\nb"}, {"id": 3, "user": "c"}]


def test_parquet_rows_and_a_file_that_is_none() -> None:
    source = replace(PLAIN, format="parquet", natural_key=())
    table = pa.table(
        {
            "ts": [datetime(2026, 6, 2, tzinfo=UTC), None],
            "user": ["a", "b"],
            "amount": [Decimal("1.20"), Decimal("3.45")],
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    found = index_file(FILE, pa.BufferReader(sink.getvalue()), source, TODAY)
    assert [(row.event_day, row.lines) for row in found.ledger] == [
        (date(2026, 6, 2), 1),
        (None, 1),
    ]
    assert found.rejects[0].reason == "event time missing"
    assert found.ledger[0].observed()["amount"] == {"decimal(3,2)": 1}
    assert (
        index_file(FILE, pa.BufferReader(b"PAR1nonsense"), source, TODAY).rejects[0].reason
        == "unreadable Parquet"
    )


def test_event_times_in_their_zone_and_out_of_it() -> None:
    parse = instant_parser(
        EventTime("ts", zone="America/New_York"), date(2013, 1, 1), date(2013, 12, 31)
    )
    assert parse("2013-01-01T05:15:00") == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
    assert parse("2013-07-01T05:15:00") == datetime(2013, 7, 1, 9, 15, tzinfo=UTC)
    assert parse("2013-07-01T05:15:00+02:00") == datetime(2013, 7, 1, 3, 15, tzinfo=UTC)
    assert parse("2013-11-03T01:30:00") == datetime(2013, 11, 3, 5, 30, tzinfo=UTC), (
        "a time that exists twice is its first"
    )
    for value, reason in {
        "2013-03-10T02:30:00": "event time malformed",  # skipped by daylight saving
        "2013-07-01T05:15:00+99:00": "event time malformed",
        "2013-07-01T05:15:00 Mars/Phobos": "event time malformed",
        "2013-07-01": "event time malformed",
        "1969-12-31T23:59:59Z": "event time out of range",
        "2262-04-12T00:00:00Z": "event time out of range",
        "9999-12-31T23:59:59-14:00": "event time malformed",
        "": "event time malformed",
        17: "event time malformed",
        None: "event time missing",
    }.items():
        found = parse(value)
        assert isinstance(found, BadEventTime), value
        assert found.reason == reason, value


@pytest.mark.parametrize(
    ("unit", "value"),
    [("s", 1372656600), ("ms", 1372656600000), ("us", "1372656600000000"), ("s", 1372656600.0)],
)
def test_event_times_as_numbers(unit: str, value: object) -> None:
    parse = instant_parser(EventTime("ts", unit=unit), date(2013, 1, 1), date(2013, 12, 31))  # type: ignore[arg-type]
    assert parse(value) == datetime(2013, 7, 1, 5, 30, tzinfo=UTC)
    assert isinstance(parse(True), BadEventTime)
    assert isinstance(parse(10**30), BadEventTime)


def test_a_source_says_what_is_wrong_with_it() -> None:
    for wrong, word in [
        ({"event_time": EventTime("ts", zone="Mars/Phobos")}, "Mars/Phobos"),
        ({"name": "../x"}, "../x"),
        ({"columns": (Column("id", "integer"),)}, "integer"),
        ({"columns": (Column("id", "int"), Column("ID", "int"))}, "case"),
        ({"columns": (Column("id", "int"),)}, "user"),
        ({"last_day": date(2025, 1, 1)}, "before"),
        ({"format": "parquet"}, "gzip"),
    ]:
        with pytest.raises(InvalidInputError, match=r"source") as caught:
            replace(EVENTS, **wrong)  # type: ignore[arg-type]
        assert word in caught.value.message


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip


@given(
    st.lists(VALUES, max_size=20),
    st.sampled_from(
        [
            "boolean",
            "int",
            "long",
            "double",
            "string",
            "json",
            "date",
            "timestamptz",
            "decimal(10,2)",
        ]
    ),
)
def test_a_value_is_kept_exactly_or_rejected_never_nulled(
    values: list[object], column_type: str
) -> None:
    array, bad = typed_column(values, column_type)
    assert len(array) == len(values)
    for position, (value, kept) in enumerate(zip(values, array.to_pylist(), strict=True)):
        if value is None or position in bad:
            assert kept is None
        elif column_type == "json":
            assert orjson.loads(kept) == value
        elif column_type in ("boolean", "int", "long", "double", "string"):
            assert kept == value
            assert (type(kept) is bool) == (type(value) is bool)
        else:
            assert kept is not None


@given(st.lists(VALUES, max_size=20))
def test_the_inferred_type_keeps_most_values(values: list[object]) -> None:
    kinds = kinds_of(values)
    column_type = inferred(kinds)
    assert (column_type is None) == (not kinds)
    if column_type is not None:
        assert sum(count for kind, count in kinds.items() if fits(kind, column_type)) * 2 >= max(
            kinds.values()
        )


def test_promotions_are_those_of_the_specification() -> None:
    assert promoted("int", "long") == "long"
    assert promoted("decimal(5,2)", "decimal(9,2)") == "decimal(9,2)"
    assert promoted("decimal(5,2)", "decimal(9,3)") is None
    for column_type, kind in [
        ("long", "double"),
        ("int", "double"),
        ("string", "long"),
        ("long", "string"),
        ("boolean", "int"),
        ("date", "timestamp"),
    ]:
        assert promoted(column_type, kind) is None


def test_rows_of_one_day_with_conflicts_unknown_columns_and_null_keys() -> None:
    data = b"\n".join(
        [
            event(id=1, n=1),
            event(id=None),
            event(id=3, n="three"),
            event(id=4, extra=1),
            event(id=5, extra=None),
            event(id=6, ts="2026-06-03T10:00:00"),
        ]
    )
    columns = [
        Column("id", "long"),
        Column("ts", "string"),
        Column("user", "string"),
        Column("n", "int"),
    ]
    batches = list(
        file_batches(
            FileTask(FILE, frozenset({date(2026, 6, 2)})), io.BytesIO(data), PLAIN, columns, TODAY
        )
    )
    assert pa.Table.from_batches(batches).column(REASON).to_pylist() == [
        None,
        "null key",
        "type conflict",
        "unexpected column",
        None,
    ]
