"""Read options beside readers that we did not write: Spark, DuckDB, the csv module, codecs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.file_index import FileIndex
from lakehouse.ingestion.reading.landing_file import count_lines, file_chunks
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.reading.typing.time_patterns import TimePattern
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.redefined_source import source_definition
from lakehouse.orchestration import Column, EventTime, ReadOptions, Source

DAY = date(2026, 6, 1)


def source(*columns: Column, time: EventTime | None = None, **options: object) -> Source:
    read = ReadOptions(**options)  # type: ignore[arg-type]
    return Source(
        name="fed",
        event_time=time or EventTime("ts"),
        first_day=DAY,
        last_day=date(2026, 6, 30),
        bucket="id",
        columns=(Column("id", "string"), Column("ts", "string"), *columns),
        read=read,
    )


def read(data: bytes, source: Source, path: str = "a.csv"):
    """Rows without the columns of the pipeline, and line -> reason and detail of each reject."""
    clock = EventClock(source.event_time, source.first_day, DAY.replace(day=30))
    typer, index, rows, rejects = RowTyper(source, source.columns, clock), FileIndex(), [], {}
    for chunk in file_chunks(pa.BufferReader(data), path, source):
        found = index.add(chunk, source, clock)
        if chunk.records is not None:
            batch = typer.rows(chunk.records, path, list(index.lines), Counter(), found)
            rows += [] if batch is None else batch.to_pylist()
        told = zip(found.lines, found.reasons, found.details, strict=True)
        rejects |= {line: (reason, detail) for line, reason, detail in told}
    names = [one.name for one in source.columns]
    return [{name: row[name] for name in names} for row in rows], rejects


@pytest.mark.parametrize(
    "encoding",
    ["latin-1", "cp1252", "cp1250", "cp1251", "utf-16", "utf-16-le", "utf-16-be", "utf-32",
     "shift_jis", "gb18030", "utf-8-sig", "cp037", "iso8859-15"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
@pytest.mark.parametrize("packed", [False, True])
def test_text_of_an_encoding_is_that_of_its_codec(encoding: str, form: str, packed: bool) -> None:
    words = ["M\u00fcller", "\u0141\u00f3d\u017a", "\u0436\u0437", "\u6771\u4eac", "\u20ac 5",
             "\u0a0a\u0d0d", "plain"]  # fmt: skip
    words = [one for one in words if one.encode(encoding, "ignore").decode(encoding) == one]
    records = [{"id": word, "ts": f"2026-06-02T10:00:{n:02}"} for n, word in enumerate(words * 3)]
    if form == "csv":
        text = "id,ts\n" + "".join(f"{one['id']},{one['ts']}\n" for one in records)
    elif form == "jsonl":
        text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
    else:
        text = json.dumps(records, ensure_ascii=False)
    data = text.encode(encoding)
    fed = source(encoding=encoding)
    rows, rejects = read(gzip.compress(data) if packed else data, fed, f"a.{form}")
    assert (rows, rejects) == (records, {})
    lines = len(records) if form == "json" else text.count("\n")
    assert count_lines(pa.BufferReader(data), f"a.{form}", fed) == lines


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("cp1252", "utf-8-sig"), ("shift_jis", "utf-8-sig"), ("utf-16", "utf-8-sig"),
     ("utf-16-le", "utf-16-be"), ("utf-16-be", "utf-32-le")],
)  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_says_more_than_the_option(
    encoding: str, mark: str, form: str, packed: bool
) -> None:
    """Beside Python's codec. Files of one feed have marks, others have none."""
    record = {"id": "M\u00fcller \u20ac", "ts": "2026-06-02T10:00:00"}
    texts = {
        "csv": f"id,ts\n{record['id']},{record['ts']}\n",
        "jsonl": json.dumps(record, ensure_ascii=False) + "\n",
        "json": json.dumps([record], ensure_ascii=False),
    }
    text = texts[form] if mark == "utf-8-sig" else "\ufeff" + texts[form]
    data = gzip.compress(text.encode(mark)) if packed else text.encode(mark)
    assert read(data, source(encoding=encoding), f"a.{form}") == ([record], {})


def test_bytes_that_a_marked_text_has_not_reject_their_line() -> None:
    lines = b"\xef\xbb\xbfid,ts\na,2026-06-02T10:00:00\nM\xed\xb2,2026-06-02T10:00:00\n"
    rows, rejects = read(lines, source(encoding="cp1252"))
    assert [row["id"] for row in rows] == ["a"]
    assert rejects == {3: ("malformed CSV", "not UTF-8: invalid continuation byte at byte 2")}


@pytest.mark.parametrize(
    ("encoding", "odd"), [("cp1252", b"\x81"), ("ascii", b"\xc3\xa9"), ("shift_jis", b"\xfd")]
)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_bytes_that_an_encoding_has_not_reject_their_line(
    encoding: str, odd: bytes, form: str
) -> None:
    lines = [b'{"id":"%s","ts":"2026-06-02T10:00:00"}' % one for one in (b"a", odd, b"c")]
    if form == "csv":
        lines = [b"id,ts", *(b"%s,2026-06-02T10:00:00" % one for one in (b"a", odd, b"c"))]
    rows, rejects = read(b"\n".join(lines), source(encoding=encoding), f"a.{form}")
    assert [row["id"] for row in rows] == ["a", "c"]
    ((reason, detail),) = rejects.values()
    assert reason == ("malformed CSV" if form == "csv" else "malformed JSON")
    assert detail == f"not {encoding} (encoding): byte 0x{odd[0]:02x}"
    # where the header has them, nothing can be read, and what to do is said
    with pytest.raises(UnreadableContentError, match="encoding"):
        read(b"id,ts,\xe9\n", source())


@pytest.mark.parametrize("seed", range(60))
def test_fields_of_a_dialect_are_those_of_other_readers(seed: int, tmp_path: Path) -> None:
    """DuckDB where an escape is told, Python's csv module where quotes are doubled or none."""
    chance = random.Random(seed)
    delimiter = chance.choice([",", ";", "\t", "|", "^", "\x01", ":", "~", "\u00a6"])
    quote = chance.choice(['"', "'", "\u00a7", ""])
    delimiter = delimiter if quote else delimiter.replace(":", "~")  # times have colons
    escape = chance.choice([None, "\\"]) if quote in ('"', "'") else None
    null = chance.choice([("",), ("", "NA"), ("-",) if escape else ("\\N",)])
    plain = "a b\u00e9-" + "".join(one for one in ",;|:'\"" if one not in (delimiter, quote))
    rows = [
        ["".join(chance.choice(plain) for _ in range(chance.randrange(4))) for _ in range(3)]
        for _ in range(20)
    ]
    for row in rows:
        if quote and chance.random() < 0.4:
            row[1] += chance.choice([quote, delimiter, "\n", f"{quote}x", quote * 2])
        if chance.random() < 0.2:
            row[2] = chance.choice(["NA", "\\N", ""])

    def written(text: str) -> str:
        special = [quote, delimiter, "\n", "\r", *([escape] if escape else [])]
        if quote and (any(one in text for one in special) or chance.random() < 0.2):
            body = text.replace(escape, escape * 2) if escape else text
            return quote + body.replace(quote, (escape or quote) + quote) + quote
        return text

    header = chance.random() < 0.5
    names = ["id", "x", "y"]
    made = [[*row, "2026-06-02T10:00:00"] for row in rows]
    text = "".join(delimiter.join(map(written, row)) + "\n" for row in made)
    if header:
        text = delimiter.join([*names, "ts"]) + "\n" + text
    options = {"delimiter": delimiter, "quote": quote, "escape": escape, "header": header,
               "null_values": null}  # fmt: skip
    fed = Source(
        name="fed", event_time=EventTime("ts"), first_day=DAY, last_day=DAY.replace(day=30),
        bucket="id", columns=tuple(Column(name, "string") for name in [*names, "ts"]),
        read=ReadOptions(**options),
    )  # fmt: skip
    found, rejects = read(text.encode(), fed)
    assert rejects == {}
    if escape is not None and delimiter.isascii():
        file = tmp_path / "a.csv"
        file.write_text(text)
        table = duckdb.read_csv(
            str(file), delimiter=delimiter, quotechar=quote, escapechar=escape, header=header,
            names=[*names, "ts"], dtype=["VARCHAR"] * 4, na_values=list(null),
        )  # fmt: skip
        wanted = [list(row) for row in table.fetchall()]
    else:
        style = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        doubled = csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote or None,
            quoting=style, doublequote=escape is None, escapechar=escape,
        )  # fmt: skip
        wanted = [[None if one in null else one for one in row] for row in doubled][header:]
    assert [list(row.values()) for row in found] == wanted


FORMATS = [
    "dd.MM.yyyy", "d.M.yyyy", "MM/dd/yyyy", "M/d/yy", "yyyyMMdd", "dd-MMM-yyyy", "MMMM d',' yyyy",
    "yyyy/MM/dd", "dd MMM yy",
]  # fmt: skip
CLOCKS = ["", " HH:mm", " HH:mm:ss", "'T'HHmmss", " h:mm a", " hh:mm:ss a", " HH:mm:ss.SSS",
          " HH:mm[:ss[.SSSSSS]]", " H.mm 'Uhr'"]  # fmt: skip


@pytest.mark.spark
def test_times_are_what_spark_makes_of_the_same_patterns(spark) -> None:
    """Texts that fit, texts of neighbouring patterns, days and hours that there are not."""
    from pyspark.sql import functions as F  # noqa: N812

    chance = random.Random(7)
    strf = {"dd.MM.yyyy": "%d.%m.%Y", "MM/dd/yyyy": "%m/%d/%Y", "yyyyMMdd": "%Y%m%d",
            "dd-MMM-yyyy": "%d-%b-%Y", "yyyy/MM/dd": "%Y/%m/%d",
            "dd MMM yy": "%d %b %y"}  # fmt: skip
    hours = {"": "", " HH:mm": " %H:%M", " HH:mm:ss": " %H:%M:%S", " hh:mm:ss a": " %I:%M:%S %p",
             "'T'HHmmss": "T%H%M%S"}  # fmt: skip
    odd = ["30.02.2026", "31.04.2026 10:00", "29.02.2024", "13/13/2026", "1.2.2026", "01.02.26",
           "20260230", "2026-06-02", "01.02.2026 24:00", "01.02.2026 23:60", " 01.02.2026",
           "01.02.2026 ", "May 5, 2026", "1/2/26 12:30 AM", "1/2/26 0:30 AM", "05-may-2026",
           "1/2/2026 5:07 PM", "3.4.2026 9.05 Uhr", "01.02.2026 10:00:00.123456",
           "05-MAY-2026 11:00:00 pm"]  # fmt: skip
    texts = {
        (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(365 * 86_400))
         ).strftime(day + clock)
        for day in strf.values() for clock in hours.values() for _ in range(3)
    }  # fmt: skip
    cases = sorted({*texts, *odd})
    frame = spark.createDataFrame([(one,) for one in cases], "text string")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        patterns = [day + clock for day in FORMATS for clock in CLOCKS]
        made = frame.select(
            *(
                F.expr(f'cast(try_to_timestamp(text, "{one}") as string)').alias(f"p{at}")
                for at, one in enumerate(patterns)
            )
        ).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        spark.conf.unset("spark.sql.ansi.enabled")
    for at, pattern in enumerate(patterns):
        iso = TimePattern.parsed("timestamp_format", pattern).iso(pa.array(cases)).to_pylist()
        for text, ours, row in zip(cases, iso, made, strict=True):
            try:
                moment = None if ours is None else datetime.fromisoformat(ours)
            except ValueError:
                moment = None
            theirs = None if row[at] is None else datetime.fromisoformat(row[at])
            assert moment == theirs, (pattern, text)


def test_numbers_and_times_are_what_duckdb_makes_of_the_same_options(tmp_path: Path) -> None:
    chance = random.Random(1)
    amounts = [
        f"{chance.randrange(-(10**6), 10**6) / 100:.2f}".replace(".", ",") for _ in range(50)
    ]
    days = [date(2026, 1 + n % 12, 1 + n % 28) for n in range(50)]
    moments = [
        datetime.fromisoformat(f"2026-06-{1 + n % 28:02}T{n % 24:02}:{n:02}") for n in range(50)
    ]
    lines = [
        f"k{n};{m:%d.%m.%Y %H:%M};{a};{d:%d.%m.%Y}"
        for n, (a, d, m) in enumerate(zip(amounts, days, moments, strict=True))
    ]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["id;ts;amount;day", *lines]), encoding="latin-1")
    wanted = duckdb.sql(
        f"SELECT id, amount, day, ts FROM read_csv('{file}', delim=';', encoding='latin-1', "
        "decimal_separator=',', dateformat='%d.%m.%Y', timestampformat='%d.%m.%Y %H:%M', columns="
        "{'id': 'VARCHAR', 'ts': 'TIMESTAMP', 'amount': 'DECIMAL(12,2)', 'day': 'DATE'})"
    ).fetchall()
    form = "dd.MM.yyyy HH:mm"
    fed = Source(
        name="fed", event_time=EventTime("ts", format=form), first_day=date(2026, 1, 1),
        last_day=date(2026, 12, 31), bucket="id",
        columns=(Column("id", "string"), Column("amount", "decimal(12,2)"), Column("day", "date"),
                 Column("ts", "timestamp")),
        read=ReadOptions(encoding="latin-1", delimiter=";", decimal_separator=",",
                         date_format="dd.MM.yyyy", timestamp_format=form),
    )  # fmt: skip
    found, rejects = read(file.read_bytes(), fed)
    assert rejects == {}
    assert [tuple(row.values()) for row in found] == wanted


@pytest.mark.parametrize("kind", ["int", "long", "float", "double", "decimal(12,3)"])
@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"decimal_separator": ",", "thousands": "."},
         {"1.234": "1234", "1.234.567,5": "1234567.5", "12,5": "12.5", "-0,5": "-0.5", "7": "7",
          "1234": "1234", "1.5": None, "1.23.456": None, "12.3456": None, "1,234.5": None,
          "": None}),
        ({"decimal_separator": ","}, {"1,5": "1.5", "1.5": None, "1.234,5": None, "1": "1"}),
        ({"thousands": ","}, {"1,234.50": "1234.5", "1,23": None, "1234": "1234", ",123": None}),
        ({"thousands": "'"}, {"1'234": "1234", "1,234": None}),
        ({"thousands": "\u00a0", "decimal_separator": ","}, {"1\u00a0234,5": "1234.5"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_spelled_numbers(kind: str, options: dict, texts: dict, form: str) -> None:
    if form == "jsonl" and not kind.startswith("decimal"):
        return  # a text of JSON is no number there, however it is spelled
    fed = source(Column("x", kind), delimiter="|" if form == "csv" else None, **options)
    given = [{"id": f"i{n}", "ts": "2026-06-02T10:00", "x": one} for n, one in enumerate(texts)]
    lines = [json.dumps(one) for one in given]
    if form == "csv":
        lines = ["id|ts|x", *("|".join(one.values()) for one in given)]
    rows, rejects = read("\n".join(lines).encode(), fed, f"a.{form}")
    found = {int(row["id"][1:]): row["x"] for row in rows}
    for number, (text, plain) in enumerate(texts.items()):
        if text == "" and form == "csv":
            assert found[number] is None
            continue
        whole = plain is not None and Decimal(plain) == int(Decimal(plain))
        if plain is None or (kind in ("int", "long") and not whole):
            reason, detail = rejects[number + 1 + (form == "csv")]
            assert reason == "type conflict"
            assert all(f"{name}={value!r}" in detail for name, value in options.items())
        else:
            assert Decimal(str(found[number])) == Decimal(plain), text


def test_an_undeclared_number_is_guessed_as_it_is_spelled() -> None:
    fed = Source(
        name="fed", event_time=EventTime("ts"), first_day=DAY, bucket="id",
        read=ReadOptions(delimiter=";", decimal_separator=",", thousands="."),
    )  # fmt: skip
    data = b"id;ts;a;b;c;d\nx;2026-06-02T10:00;1,5;1.5;007;1.234\n"
    index = FileIndex()
    clock = EventClock(fed.event_time, DAY, DAY.replace(day=30))
    for chunk in file_chunks(pa.BufferReader(data), "a.csv", fed):
        index.add(chunk, fed, clock)
    kinds = {name: dict(index.kinds[name]) for name in "abcd"}
    assert kinds == {"a": {"double": 1}, "b": {"string": 1}, "c": {"code": 1}, "d": {"int": 1}}


def test_what_an_option_does_not_take_names_it() -> None:
    fed = source(
        Column("day", "date"), Column("at", "timestamp"), time=EventTime("ts", format="dd.MM.yyyy"),
        date_format="dd.MM.yyyy", timestamp_format="dd.MM.yyyy HH:mm:ss.SSSSSSSSS",
    )  # fmt: skip
    data = (
        b"id,ts,day,at\na,02.06.2026,2026-06-02,\nb,02.06.2026,30.02.2026,\nc,2026-06-02,,\n"
        b"d,31.06.2026,,\ne,02.06.2026,02.06.2026,02.06.2026 10:00:00.123456789\n"
        b"f,02.06.2026,02.06.2026,02.06.2026 10:00:00.123456000\n"
    )
    rows, rejects = read(data, fed)
    assert [(row["id"], row["day"], row["at"]) for row in rows] == [
        ("f", date(2026, 6, 2), datetime.fromisoformat("2026-06-02T10:00:00.123456"))
    ]
    assert rejects[2] == (
        "type conflict", "day: '2026-06-02' is no date by date_format='dd.MM.yyyy'"
    )  # fmt: skip
    assert rejects[3][1].endswith("(by date_format='dd.MM.yyyy')")
    assert rejects[4] == ("event time malformed", "'2026-06-02': not by format='dd.MM.yyyy'")
    assert rejects[5][0] == "event time malformed"
    assert "finer than a microsecond" in rejects[6][1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"encoding": "klingon"}, "encoding='klingon'"),
        ({"encoding": "rot13"}, "encoding='rot13'"),
        ({"encoding": "idna"}, "encoding='idna'"),
        ({"delimiter": ""}, "delimiter=''"),
        ({"delimiter": "||"}, "delimiter="),
        ({"delimiter": "\n"}, "delimiter="),
        ({"delimiter": '"'}, "delimiter="),
        ({"quote": "''"}, "quote="),
        ({"escape": "ab"}, "escape="),
        ({"escape": "\\", "quote": ""}, "escape="),
        ({"header": False, "columns": False}, "header=False"),
        ({"null_values": "NA"}, "null_values='NA'"),
        ({"decimal_separator": ";"}, "decimal_separator=';'"),
        ({"thousands": "."}, "thousands='.'"),
        ({"thousands": "0"}, "thousands='0'"),
        ({"date_format": "dd.mm.yyyy"}, "date_format='dd.mm.yyyy'"),
        ({"date_format": "%d.%m.%Y"}, "date_format="),
        ({"date_format": "dd.MM.yyyy HH:mm"}, "date_format="),
        ({"timestamp_format": "dd.MM. HH:mm"}, "timestamp_format="),
        ({"timestamp_format": "dd.MM.yyyy hh:mm"}, "timestamp_format="),
        ({"timestamp_format": "dd.MM.yyyy [HH:mm"}, "timestamp_format="),
        ({"timestamp_format": "dd.MM.yyyy HH:mm", "kind": "timestamptz"}, "column 'x'"),
        ({"timestamp_format": "dd.MM.yyyy HH:mmXXX", "kind": "timestamp"}, "column 'x'"),
        ({"delimiter": ";", "format": "jsonl"}, "delimiter=';'"),
        ({"time": "dd.MM."}, "event_time.format='dd.MM.'"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict, named: str) -> None:
    options = dict(options)
    columns = options.pop("columns", True)
    kind, form = options.pop("kind", "string"), options.pop("format", "auto")

    def define() -> Source:
        time = EventTime("ts", format=options.pop("time", None))
        return Source(
            name="fed", event_time=time, first_day=DAY, bucket="x", format=form,
            columns=(Column("x", kind),) if columns else (), read=ReadOptions(**options),
        )  # fmt: skip

    with pytest.raises(InvalidInputError, match=re.escape(named)):
        define()


def test_definitions_are_recorded_as_before_where_no_option_is_used() -> None:
    """What existing warehouses recorded stays equal, so that nothing of them is stale."""
    plain = source_definition(source())
    assert plain.keys() & {"read", "rescue", "event_time.format"} == set()
    used = source_definition(source(encoding="cp1252", null_values=("", "NA")))
    assert used == plain | {"read": {"encoding": "cp1252", "null_values": ["", "NA"]}}
    formatted = source_definition(source(time=EventTime("ts", format="dd.MM.yyyy")))
    assert formatted == plain | {"event_time.format": "dd.MM.yyyy"}


def test_every_encoding_that_is_taken_has_lines() -> None:
    """Those that are no ASCII, or have states: none fails in a worker."""
    for name in ("utf-7", "hz", "iso2022_jp", "cp500", "big5", "koi8-r", "euc-kr"):
        data = "id,ts\na,2026-06-02T10:00:00\n".encode(name)
        assert len(read(data, source(encoding=name))[0]) == 1, name
