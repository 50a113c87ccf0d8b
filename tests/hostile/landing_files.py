"""Landing files in the manner of the public, and what each of their records says.

What a text says is parsed here by its specification, RFC 8259 and RFC 4180; what a Parquet file
says are the values that it was written from.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import re
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import cramjam
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from lakehouse.ingestion.read_options import ReadOptions
from lakehouse.ingestion.source import Column, EventTime, Source

TODAY = date(2026, 6, 30)
INTEGERS = (
    "0", "-1", "7", "42", "2147483647", "2147483648", "-2147483649", "9007199254740993",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1" + "0" * 30,
)  # fmt: skip
FRACTIONS = (
    "0.1", "1.10", "1.2", "-2.5e3", "0.30000000000000004", "1234567890.12345678901", "1e-7", "1E+2",
    "0.12345678901234567890123", "1e-400", "123456789012345678.5", "12345678901234567890.25",
    "1.7976931348623157e308", "12.345678901234567890", "123456789012345678e-5", "0.000", "5e-324",
)  # fmt: skip
PLAIN = ("1.20", "84.50", "3", "0.5", "12", "-7.25")
STRINGS = (
    "a", "007", "+49", "0123.5", "1_000", "\uff11\uff12", "1,5", "NaN", "Infinity", " 12", "12 ",
    "\u00e9", "\U0001f600", "\u2028", 'quo"te', "a,b;c\td|e", "back\\slash", "true", "False", "-",
    "2026-06-02", "2026-02-30", "2026-06-02T10:00:00Z", "2026-06-02 10:00:00.123456",
    "2026-06-02T10:00:00.1234567", "10:00:00", "0x1F", "1e5", "1.", ".5", "1e999",
)  # fmt: skip
_FULL_WIDTH = {ord(digit): 0xFEE0 + ord(digit) for digit in "0123456789"}
NESTED = ('{"a":[1,{"b":0.12345678901234567890}]}', "[]", "{}", '[9223372036854775808,"\\u00e9"]')
TYPES = (
    "boolean", "int", "long", "float", "double", "string", "json", "date", "timestamp",
    "timestamptz", "time", "decimal(4,2)", "decimal(20,0)", "decimal(38,20)", "decimal(38,0)",
)  # fmt: skip
BAD_LINES = (
    b"", b"  ", b"{", b"[1]", b"null", b'{"a":NaN}', b'{"a":01}', b'{"a":1,}', b"{'a':1}", b"\0",
    b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":1}{"a":2}', b'{"a":"tab\there"}', b"plain text",
)  # fmt: skip


@dataclass(frozen=True)
class Number:
    """A number of JSON as it is spelled."""

    text: str


@dataclass
class Landed:
    """A file and what it says.

    Attributes:
        path: its name.
        data: its bytes.
        source: how it is read.
        present: columns that the table has from earlier files.
        records: number of each of its lines (records, elements) -> its fields; None: no record.
        problem: what is wrong with the file as a whole; "" if nothing.
        whole: whether `records` are all; else the file may say more beyond them.
        untyped: whether fields are text.
        made_of: what it is, for people to read.
    """

    path: str
    data: bytes
    source: Source
    records: dict[int, dict[str, object] | None]
    problem: str = ""
    whole: bool = True
    untyped: bool = False
    made_of: list[str] = field(default_factory=list)
    present: tuple[Column, ...] = ()


def landed(seed: int) -> Landed:
    """A file, always the same one for a seed."""
    chance = random.Random(seed)
    kind = chance.choice([json_lines, json_lines, csv_text, csv_text, json_array, parquet])
    if seed % 10 in (2, 8):
        return otherwise(random.Random(f"otherwise {seed}"))
    made = large_numbers(chance) if seed % 50 == 7 else kind(chance)
    if not made.source.columns and chance.random() < 0.4:
        kind = chance.choice([*TYPES, "long", "double", "long", "double", "long", "double"])
        made.present = (Column("x0", kind), Column("id", "string"))
        made.source = replace(made.source, bucket="id")
    return made


def source(chance: random.Random, names: Sequence[str], unit: str, **others: object) -> Source:
    """A source of these fields; some of them declared, or none."""
    columns: list[Column] = []
    if chance.random() < 0.6:
        columns = [Column(name, chance.choice(TYPES)) for name in names if chance.random() < 0.7]
        columns.append(Column("id", "string"))
    zone = chance.choice(["UTC", "Europe/Berlin", "America/New_York"])
    return Source(
        name="landed",
        event_time=EventTime("ts", zone, unit),  # type: ignore[arg-type]
        first_day=date(2026, 6, 1),
        bucket="id" if columns else chance.choice(["id", names[0]]),
        columns=tuple(columns),
        max_rejected=100.0,
        **others,  # type: ignore[arg-type]
    )


def event_time(chance: random.Random, unit: str) -> str:
    """The text of an event time, of which few cannot be used."""
    moment = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(
        microseconds=chance.randrange(31 * 86_400 * 10**6)
    )
    if chance.random() < 0.1:
        moment = datetime(2026, 7, chance.choice([1, 1, 2]), 23, 59, 59, 999_999, UTC)
    if chance.random() < 0.1:
        return chance.choice(["", "yesterday", "2026-06-02", "1_000", "\uff11", "1e999"])
    if unit == "iso":
        form = chance.choice(["%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f"])
        return moment.strftime(form) + (chance.choice(["+05:30", ""]) if form[-1] == "S" else "")
    micros = int(moment.timestamp()) * 10**6 + moment.microsecond
    text = str(micros // {"s": 10**6, "ms": 10**3, "us": 1}[unit])
    if chance.random() < 0.03:
        return chance.choice([f"{text[:-3]}_{text[-3:]}", text.translate(_FULL_WIDTH), f" {text}"])
    return text


def values(chance: random.Random) -> Callable[[], str]:
    """Texts of a field: most of one kind, a few strangers."""
    pools = (INTEGERS, FRACTIONS, PLAIN, STRINGS, ("true", "false"), INTEGERS[:4], INTEGERS[7:10])
    main, other = chance.choice(pools), chance.choice(pools)
    strange = chance.choice([0, 0, 0.05, 0.3])
    return lambda: chance.choice(other if chance.random() < strange else main)


# JSON


def json_lines(chance: random.Random) -> Landed:
    """Objects, one a line, and lines that are none."""
    unit = chance.choice(["iso", "iso", "s", "ms", "us"])
    names, texts = json_records(chance, unit)
    for _ in range(chance.choice([0, 0, 1, 4])):
        texts.insert(chance.randrange(len(texts) + 1), chance.choice(BAD_LINES))
    end = chance.choice([b"\n", b"\n", b"\r\n"])
    text = end.join(texts) + chance.choice([end, end, b""])
    if chance.random() < 0.1:
        text = b"\xef\xbb\xbf" + text
    made = Landed(
        chance.choice(["a.jsonl", "a.ndjson", "a.json", "a.log"]),
        text,
        source(chance, names, unit, format=chance.choice(["jsonl", "jsonl", "auto"])),
        {},
        made_of=["JSON lines"],
    )
    if text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] != b"{":
        made.path = "a.jsonl"  # nothing else tells it
    return finished(made, chance, read_json_lines)


def json_records(chance: random.Random, unit: str) -> tuple[list[str], list[bytes]]:
    """Names of fields, and the texts of some objects."""
    names = [f"x{n}" for n in range(chance.randrange(1, 5))]
    makes = {name: values(chance) for name in names}
    as_text = {name: chance.choice([0, 0, 1, 0.5]) for name in names}
    texts = []
    for number in range(chance.randrange(1, 30)):
        time_text = event_time(chance, unit)
        quoted = unit == "iso" or chance.random() < 0.2 or not re.fullmatch(r"[0-9]+", time_text)
        pairs = [("id", json.dumps(f"i{number}"))]
        pairs.append(("ts", json.dumps(time_text) if quoted else time_text))
        for name in names:
            value = makes[name]()
            if value in STRINGS or chance.random() < as_text[name]:
                value = json.dumps(value, ensure_ascii=chance.random() < 0.5)
            if chance.random() < 0.05:
                value = chance.choice([*NESTED, "null", "true"])
            if chance.random() < 0.95:
                pairs.append((name, value))
        if chance.random() < 0.05:
            pairs.append(chance.choice(pairs))
            pairs.append((chance.choice(names), "1"))
        blank = chance.choice(["", " ", "\t"])
        texts.append(
            ("{" + ",".join(f"{blank}{json.dumps(n)}:{blank}{v}" for n, v in pairs) + "}").encode()
        )
    return names, texts


def read_json_lines(text: bytes) -> dict[int, dict[str, object] | None]:
    """The lines of a text by RFC 8259."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return {number: json_object(line) for number, line in enumerate(lines, start=1)}


def json_object(text: bytes) -> dict[str, object] | None:
    """The fields of an object; None for any other text."""

    def refuse(name: str) -> object:
        raise ValueError(name)

    try:
        value = json.loads(
            text.decode(), parse_constant=refuse, parse_float=Number, parse_int=Number
        )
        json.dumps(value, ensure_ascii=False, default=str).encode()  # no half of a pair
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def large_numbers(chance: random.Random) -> Landed:
    """Ids that no double holds, and a fraction among them."""
    texts = [
        json.dumps({"id": f"i{number}", "ts": event_time(chance, "s")})[:-1]
        + f', "x0": {chance.choice(INTEGERS[7:10])}}}'
        for number in range(chance.randrange(8, 30))
    ]
    texts.append(texts[0].rpartition(" ")[0] + " 0.5}")
    made = replace(source(chance, ["x0"], "s"), columns=(), bucket="id")
    file = Landed("a.jsonl", "\n".join(texts).encode(), made, {}, made_of=["JSON lines", "large"])
    return finished(file, chance, read_json_lines)


def json_array(chance: random.Random) -> Landed:
    """An array of objects, whole or damaged."""
    unit = chance.choice(["iso", "ms"])
    names, texts = json_records(chance, unit)
    if chance.random() < 0.3:
        texts.insert(chance.randrange(1, len(texts) + 1), chance.choice([b"[1]", b"null", b"7"]))
    between, around = chance.choice([b",", b",\n", b" ,\r\n "]), chance.choice([b"", b"\n", b" "])
    text = b"[" + around + between.join(texts) + around + b"]" + chance.choice([b"", b"\n"])
    known, problem = len(texts), ""
    if chance.random() < 0.5:  # damaged within an element
        known = chance.randrange(len(texts))
        at = 1 + len(around) + sum(map(len, texts[:known])) + known * len(between)
        within = at + chance.randrange(1, max(2, len(texts[known])))
        rest = chance.choice([b"", b"\x01" + text[within + 1 :], b"\x01}}]" + text[within:]])
        text, problem = text[:within] + rest, "malformed JSON array"
    made = Landed(
        "a.json",
        text,
        source(chance, names, unit),
        {number: json_object(one) for number, one in enumerate(texts[:known], start=1)},
        problem,
        whole=not problem,
        made_of=["JSON array"],
    )
    if not problem and chance.random() < 0.5:
        compress(made, chance, lambda _: made.records)
    return made


# CSV


def csv_text(chance: random.Random) -> Landed:
    """CSV of some dialect, regular or not."""
    unit = chance.choice(["iso", "iso", "s", "ms"])
    delimiter = chance.choice(",;\t|")
    names = [f"x{n}" for n in range(chance.randrange(2, 6))]
    makes = {name: values(chance) for name in names}
    always, end = chance.random() < 0.2, chance.choice(["\n", "\n", "\r\n"])
    odd = chance.choice([0, 0, 0.05, 0.2])
    header = ["id", "ts", *names]
    rows = [delimiter.join(f'"{n}"' if always else f" {n}" for n in header)]
    for number in range(chance.randrange(1, 30)):
        fields = [f"i{number}", event_time(chance, unit), *(makes[name]() for name in names)]
        if chance.random() < odd:
            fields[-1] = chance.choice(["two\nlines", "", "a\r\nb", "nul\0", '"', '""', "x\ny\nz"])
        if chance.random() < odd:
            fields = chance.choice([fields[:-1], [*fields, "more"], fields * 2])
        row = delimiter.join(quoted(one, delimiter, always=always) for one in fields)
        if chance.random() < odd:
            row = chance.choice(
                ["", f'"a"b{delimiter}c', row + '"', f'a"b{row}', f"\r{row}", f'{row}{delimiter}"']
            )
        rows.append(row)
    text = end.join(rows).encode() + chance.choice([end, end, ""]).encode()
    if chance.random() < 0.1:
        at = text.find(b"\n") + 1 + chance.randrange(max(1, len(text) - text.find(b"\n") - 1))
        text = text[:at] + chance.choice([b"\xff", b"\xe9", b"\xc3"]) + text[at:]
    if chance.random() < 0.1:
        text = b"\xef\xbb\xbf" + text
    made = Landed(
        chance.choice(["a.csv", "a.tsv", "a.txt"]),
        text,
        source(chance, names, unit),
        {},
        untyped=True,
        made_of=[f"CSV {delimiter!r}"],
    )
    return finished(made, chance, read_csv)


def quoted(text: str, delimiter: str, *, always: bool) -> str:
    """A field as RFC 4180 writes it."""
    if always or any(one in text for one in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


def read_csv(text: bytes) -> dict[int, dict[str, object] | None]:
    """The records of a text by RFC 4180, each under the number of its last line.

    A quote within a field that does not begin with one is a character of it.
    """
    text = text.removeprefix(b"\xef\xbb\xbf")
    first = text.partition(b"\n")[0].decode(errors="replace")
    delimiter = max((",", ";", "\t", "|"), key=first.count)
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    records: dict[int, dict[str, object] | None] = {}
    header: list[str] = []
    at = 0
    while at < len(lines):
        fields, at = _csv_record(lines, at, delimiter)
        if not header:
            if fields is None:
                return {}  # nothing can be told without a header
            header = [name.strip() for name in fields]
        elif fields is None or len(fields) != len(header):
            records[at] = None
        else:
            records[at] = {name: one or None for name, one in zip(header, fields, strict=True)}
    return records


def _csv_record(lines: list[bytes], at: int, delimiter: str) -> tuple[list[str] | None, int]:
    """The fields of the record that begins with a line, and how many lines there are then."""
    fields: list[str] = []
    held, state, good = "", "begin", True
    while at < len(lines):
        raw = lines[at]
        at += 1
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            line, good = raw.decode("latin-1"), False
        if state != "quoted" and not line.removesuffix("\r"):
            return None, at  # blank
        for position, one in enumerate(line):
            last = position == len(line) - 1
            if state == "quoted":
                if one == '"':
                    state = "closed"
                else:
                    held += one
            elif state == "closed" and one == '"':
                held, state = held + '"', "quoted"
            elif one == delimiter:
                fields.append(held)
                held, state = "", "begin"
            elif one == "\r":
                if not last:
                    return None, at
            elif state == "closed":
                return None, at
            elif state == "begin" and one == '"':
                state = "quoted"
            else:
                held, state = held + one, "plain"
        if state != "quoted":
            return ([*fields, held] if good else None), at
        held += "\n"
    return None, at  # the quote is never closed


# Text that read options spell, and records whose rest is kept

# a pattern of Spark's -> the texts that it fits, and how Python spells it
DATES = {
    "dd.MM.yyyy": (r"\d{2}\.\d{2}\.\d{4}", "%d.%m.%Y"),
    "M/d/yyyy": (r"\d{1,2}/\d{1,2}/\d{4}", "%m/%d/%Y"),
    "yyyyMMdd": (r"\d{8}", "%Y%m%d"),
    "dd-MMM-yyyy": (r"\d{2}-[A-Z][a-z]{2}-\d{4}", "%d-%b-%Y"),
}
TIMES = {
    "dd.MM.yyyy HH:mm": (r"\d{2}\.\d{2}\.\d{4} \d{2}:\d{2}", "%d.%m.%Y %H:%M"),
    "MM/dd/yyyy hh:mm:ss a": (
        r"\d{2}/\d{2}/\d{4} \d{2}:\d{2}:\d{2} [AP]M", "%m/%d/%Y %I:%M:%S %p"
    ),
    "yyyy/MM/dd HH:mm:ss.SSSSSS": (
        r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{6}", "%Y/%m/%d %H:%M:%S.%f"
    ),
}  # fmt: skip
ENCODINGS = ("latin-1", "cp1252", "cp1251", "utf-16", "utf-16-be", "utf-32-le", "shift_jis")
COMMAS = ("1,5", "-0,25", "12,50", "7", "1.234,56", "1.234.567", "1.234", "1.5", "1,234.50", "1 2")
ODD_DAYS = ("30.02.2026", "2026-06-02", "1.2.2026", "13/13/2026", "20260230", "", "02.06.2026")


def otherwise(chance: random.Random) -> Landed:
    """CSV or JSON lines as options say, or Parquet; what no column takes is kept, or not."""
    rescue = chance.choice([None, "rest", "rest"])
    drift = chance.choice(["evolve", "quarantine"]) if rescue else "evolve"
    if chance.random() < 0.2:
        made = parquet(chance)
        made.source = replace(made.source, rescue=rescue, drift=drift)
        made.made_of.append("rescued")
        return made
    is_csv = chance.random() < 0.6
    separator = chance.choice([".", ",", ","])
    options: dict[str, object] = {
        "decimal_separator": separator,
        "thousands": chance.choice([None, "." if separator == "," else ",", " "]),
        "date_format": chance.choice([None, *DATES]),
        "timestamp_format": chance.choice([None, *TIMES]),
        "encoding": chance.choice(["utf-8", *ENCODINGS]),
    }
    if is_csv:
        options |= {
            "delimiter": chance.choice([";", "|", "\t", "^"]), "quote": chance.choice(['"', "'"]),
            "null_values": chance.choice([("",), ("", "NA")]), "header": chance.random() < 0.7,
        }  # fmt: skip
    read = ReadOptions(**options)  # type: ignore[arg-type]
    names = [f"x{n}" for n in range(chance.randrange(2, 6))]
    kinds = ["double", "decimal(12,2)", "long", "date", "timestamp", "string", "json", "int"]
    columns = [Column(name, chance.choice(kinds)) for name in names if chance.random() < 0.8]
    columns = [Column("id", "string"), Column("ts", "string"), *columns]
    if not read.header:
        columns = [Column("id", "string"), Column("ts", "string")] + [
            Column(name, chance.choice(kinds)) for name in names
        ]
    form = chance.choice([None, *TIMES, *DATES])
    source = Source(
        name="landed",
        event_time=EventTime("ts", chance.choice(["UTC", "Europe/Berlin"]), format=form),
        first_day=date(2026, 6, 1),
        bucket="id",
        columns=tuple(columns),
        format="csv" if is_csv else "jsonl",
        natural_key=chance.choice([(), ("id",)]),
        max_rejected=100.0,
        read=read,
        rescue=rescue,
        drift=drift,  # type: ignore[arg-type]
    )
    records = [_spelled_record(chance, number, names, form) for number in range(30)]
    write = _csv_otherwise if is_csv else _json_otherwise
    made = Landed("a.txt", b"", source, {}, untyped=is_csv, made_of=["otherwise", source.format])
    write(made, records, chance)
    if chance.random() < 0.3:
        made.data = gzip.compress(made.data)
    return made


def _spelled_record(
    chance: random.Random, number: int, names: Sequence[str], form: str | None
) -> dict[str, str]:
    moment = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(29 * 86_400))
    spelled = "%Y-%m-%dT%H:%M:%S" if form is None else {**DATES, **TIMES}[form][1]
    record = {"id": f"i{number}", "ts": moment.strftime(spelled)}
    if chance.random() < 0.1:
        record["ts"] = chance.choice(["2026-06-02", "31.06.2026 10:00", "soon"])
    for name in names:
        day = moment.strftime(chance.choice([one for _, one in (DATES | TIMES).values()]))
        pools = (COMMAS, COMMAS, (day, day, *ODD_DAYS), PLAIN, STRINGS, INTEGERS[:5], ("NA", "x"))
        record[name] = chance.choice(chance.choice(pools))
    return record


def _csv_otherwise(made: Landed, records: list[dict[str, str]], chance: random.Random) -> None:
    read, names = made.source.read, list(records[0])
    lines = [str(read.delimiter).join(names)] if read.header else []
    for record in records:
        fields = [in_encoding(one, read.encoding) for one in record.values()]
        if chance.random() < 0.1:
            fields[-1] += "\nmore"
        special = (str(read.delimiter), read.quote, "\n")
        lines += (
            str(read.delimiter)
            .join(
                read.quote + one.replace(read.quote, read.quote * 2) + read.quote
                if any(sign in one for sign in special) or chance.random() < 0.1
                else one
                for one in fields
            )
            .split("\n")
        )
        said = dict(zip(names, fields, strict=True))
        made.records[len(lines)] = {
            name: None if one in read.null_values else one for name, one in said.items()
        }
    made.data = "\n".join(lines).encode(read.encoding)


def _json_otherwise(made: Landed, records: list[dict[str, str]], chance: random.Random) -> None:
    lines = []
    for number, record in enumerate(records, start=1):
        texts = {
            n: json.dumps(one, ensure_ascii=chance.random() < 0.3) for n, one in record.items()
        }
        for name in list(texts)[2:]:
            if chance.random() < 0.3:
                texts[name] = chance.choice([*INTEGERS[:8], "1.5", "null", "true", *NESTED])
        line = "{" + ",".join(f'"{name}":{one}' for name, one in texts.items()) + "}"
        line = in_encoding(line, made.source.read.encoding)
        lines.append(line)
        made.records[number] = json_object(line.encode())
    made.data = "\n".join(lines).encode(made.source.read.encoding)


def in_encoding(text: str, encoding: str) -> str:
    """What of a text the encoding has, read as it is written."""
    return text.encode(encoding, "ignore").decode(encoding)


# How files are packed


def finished(
    made: Landed,
    chance: random.Random,
    read: Callable[[bytes], dict[int, dict[str, object] | None]],
) -> Landed:
    """With its records; some files are compressed, some in another encoding."""
    text = made.data
    made.records = read(text)
    if chance.random() < 0.05:
        text = text.replace(b"x", chance.choice(["x", "\u0142", "\u044f"]).encode())
        form = chance.choice(["utf-16", "utf-16-le", "utf-16-be", "utf-32-le"])
        made.data = text.decode(errors="replace").encode(form, errors="replace")
        made.records, made.problem, made.made_of = {}, "unsupported file", [*made.made_of, form]
    elif chance.random() < 0.4:
        compress(made, chance, read)
    return made


def compress(
    made: Landed,
    chance: random.Random,
    read: Callable[[bytes], dict[int, dict[str, object] | None]],
) -> None:
    """Compressed, perhaps twice or in members, perhaps cut off or damaged."""
    kind = chance.choice(["gzip", "gzip", "zlib", "bzip2", "zstd", "snappy"])
    text = made.data
    at = chance.randrange(len(text) + 1)
    alone = kind in ("zlib", "snappy") or chance.random() < 0.7
    members = [text] if alone else [text[:at], text[at:]]
    data = b"".join(_PACK[kind](one) for one in members if one)
    made.made_of.append(kind)
    if chance.random() < 0.1:
        data = gzip.compress(data)
        made.made_of.append("in gzip")
    elif made.whole and "JSON array" not in made.made_of and chance.random() < 0.4:
        way = chance.choice(["truncated", "corrupt", "checksum"])
        if way == "truncated":
            data = data[: max(12, len(data) - chance.randrange(1, 40))]
        elif way == "checksum" and kind in ("gzip", "zlib"):
            end = len(data) - (1 if kind == "zlib" else 5)
            data = data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :]
        else:
            at = chance.randrange(min(20, len(data) - 1), len(data))
            data = data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]
        plain, damaged = before_damage(data, kind)
        if damaged:
            made.made_of.append(way)
            complete = plain[: plain.rfind(b"\n") + 1]
            made.records = read(complete) if complete.count(b"\n") else {}
            if made.records.get(complete.count(b"\n"), {}) is None:
                del made.records[complete.count(b"\n")]  # a quote that may be closed later
            made.problem, made.whole = "damaged", False
        else:
            made.records = read(plain)
    made.data = data
    if chance.random() < 0.5:
        made.path += {"gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst"}.get(kind, "")


_PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bzip2": bz2.compress,
    "zstd": lambda text: zstandard.ZstdCompressor(write_checksum=True).compress(text),
    "snappy": lambda text: bytes(cramjam.snappy.compress(text)),
}


def before_damage(data: bytes, kind: str) -> tuple[bytes, bool]:
    """What a decompressor gives that is given byte by byte, and whether there is a damage."""
    if kind == "snappy":
        return _snappy_before_damage(data)
    make: Callable[[], object] = {
        "gzip": lambda: zlib.decompressobj(31),
        "zlib": lambda: zlib.decompressobj(15),
        "bzip2": bz2.BZ2Decompressor,
        "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
    }[kind]
    plain, inflater, fresh = bytearray(), make(), True
    with suppress(OSError, zlib.error, zstandard.ZstdError):
        for number in range(len(data)):
            one = data[number : number + 1]
            if fresh and plain and one == b"\0":
                continue  # padding
            plain += inflater.decompress(one)  # type: ignore[attr-defined]
            fresh = False
            if inflater.eof:  # type: ignore[attr-defined]
                inflater, fresh = make(), True
        return bytes(plain), not fresh
    return bytes(plain), True


def _snappy_before_damage(data: bytes) -> tuple[bytes, bool]:
    plain, at = b"", 10
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at + 1 : at + 4], "little")
        try:
            plain += bytes(cramjam.snappy.decompress(data[:10] + data[at:end]))
        except cramjam.DecompressionError:
            return plain, True
        if end > len(data):
            return plain, True
        at = end
    return plain, False


# Parquet


def parquet(chance: random.Random) -> Landed:
    """Rows as pandas, Polars, DuckDB, Arrow and Spark write them."""
    count = chance.randrange(1, 30)
    columns = {f"x{n}": arrow_column(chance, count) for n in range(chance.randrange(1, 5))}
    writer = chance.choice(["arrow", "pandas", "polars", "duckdb", "int96"])
    moments = [
        datetime(2026, 6, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(31 * 86_400))
        for _ in range(count)
    ]
    aware = writer == "int96" or chance.random() < 0.5
    unit = chance.choice(["us", "ms", "ns"])
    kind = pa.timestamp(unit, "UTC" if aware else None)
    times = pa.array([one if aware else one.replace(tzinfo=None) for one in moments], kind)
    ids = pa.array([f"i{number}" for number in range(count)])
    table = pa.table({"id": ids, "ts": times, **columns})
    sink = io.BytesIO()
    if writer == "pandas":
        table.to_pandas(types_mapper=None).to_parquet(sink)
        table = pq.read_table(io.BytesIO(sink.getvalue()))
    elif writer == "polars":
        frame = pl.from_arrow(table)
        frame.write_parquet(sink)  # type: ignore[union-attr]
        table = frame.to_arrow()  # type: ignore[union-attr]
    elif writer == "duckdb":
        table = _by_duckdb(table, sink)
    else:
        pq.write_table(
            table,
            sink,
            use_deprecated_int96_timestamps=writer == "int96",
            compression=chance.choice(["snappy", "zstd", "none", "gzip"]),
        )
    instants = writer == "int96"
    rows = [
        {name: _python(table[name][at], instants) for name in table.column_names}
        for at in range(count)
    ]
    made = source(chance, list(columns), "iso", nanoseconds=chance.choice(["reject", "cut"]))
    records = dict(enumerate(rows, start=1))
    return Landed("a.parquet", sink.getvalue(), made, records, made_of=["Parquet", writer])  # type: ignore[arg-type]


def _by_duckdb(table: pa.Table, sink: io.BytesIO) -> pa.Table:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        file = Path(folder) / "a.parquet"
        connection.sql("SET TimeZone='UTC'")
        connection.register("given", table)
        connection.sql(f"COPY given TO '{file}' (FORMAT parquet)")
        sink.write(file.read_bytes())
    return pq.read_table(io.BytesIO(sink.getvalue()))


def _python(value: pa.Scalar, instants: bool) -> object:
    """The value; a time of nanoseconds as `numpy` has it, and whether it is an instant."""
    kind = value.type
    if value.is_valid and pa.types.is_timestamp(kind):
        if kind.unit == "ns" and not instants:
            return (np.datetime64(value.value, "ns"), kind.tz is not None)
        if kind.unit == "ns":  # INT96 has them, and they are cut
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value.value // 1_000)
        return value.as_py().replace(tzinfo=UTC) if instants else value.as_py()
    if value.is_valid and pa.types.is_time64(kind) and kind.unit == "ns":
        return np.timedelta64(value.value, "ns")
    return value.as_py()


def arrow_column(chance: random.Random, count: int) -> pa.Array:
    """Values of one type at its ends."""
    kind, pool = chance.choice(_ARROW)
    return pa.array([chance.choice([*pool, None]) for _ in range(count)], kind)


def _integers(kind: pa.DataType, low: int, high: int) -> tuple[pa.DataType, list[object]]:
    return kind, [low, high, 0, 1]


_MIDNIGHT = np.datetime64("2026-06-02", "ns")
_FULL = datetime(2026, 6, 2, 10, 0, 0, 123456, UTC)
_ARROW: tuple[tuple[pa.DataType, list[object]], ...] = (
    _integers(pa.int8(), -128, 127),
    _integers(pa.int16(), -(2**15), 2**15 - 1),
    _integers(pa.int32(), -(2**31), 2**31 - 1),
    _integers(pa.int64(), -(2**63), 2**63 - 1),
    _integers(pa.uint8(), 0, 255),
    _integers(pa.uint32(), 0, 2**32 - 1),
    _integers(pa.uint64(), 0, 2**64 - 1),
    (pa.float32(), [0.5, -3.0e38, 1.5]),
    (pa.float64(), [0.1, 1.7976931348623157e308, 5e-324, float("inf"), float("nan")]),
    (pa.bool_(), [True, False]),
    (pa.string(), ["a", "", "007", "\u00e9"]),
    (pa.large_string(), ["a", "1.20"]),
    (pa.binary(), [b"", b"\xff\0"]),
    (pa.decimal128(10, 2), [Decimal("1.20"), Decimal("-99999999.99")]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(0)]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(2026, 6, 2)]),
    (pa.timestamp("us"), [_FULL, -62_135_596_800_000_000, 253_402_300_799_999_999]),
    (pa.timestamp("ms"), [1_780_394_400_123]),
    (pa.timestamp("ns"), [np.datetime64("2026-06-02T10:00:00.123456789")] * 2 + [_MIDNIGHT]),
    (pa.timestamp("us", "UTC"), [_FULL]),
    (pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    (pa.list_(pa.int64()), [[1, 2**63 - 1], [], [None]]),
    (pa.struct([("a", pa.string())]), [{"a": "x"}, {"a": None}]),
)  # fmt: skip
