"""Lines of JSON that Arrow reads: what Python's own parser makes of each, whatever is in them."""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from lakehouse.ingestion.drift import usable_name
from lakehouse.ingestion.reading.file_index import FileIndex
from lakehouse.ingestion.reading.formats import json_lines
from lakehouse.ingestion.reading.formats.line_blocks import BYTE_ORDER_MARK, LineBlock, LineReader
from lakehouse.ingestion.reading.formats.plain_lines import plain_lines
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Records, Rejects
from lakehouse.ingestion.reading.landing_file import with_aliases
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.source import Column, Source
from tests.orchestration.conftest import EVENTS, TODAY, listed

DAYS = frozenset(date(2026, 6, day) for day in (1, 2))
ROUNDS = int(os.environ.get("LAKEHOUSE_FUZZ_ROUNDS", "100"))
CLOCK = EventClock(EVENTS.event_time, EVENTS.first_day, EVENTS.last_day or TODAY)
NAMES = (
    "id", "ts", "x", "y", "Y", "a b", "é", "a.b", "(", "[a-z]", "\\", '"', "x\n", "", "\U0001f600",
    "$", "^", "{2}", "null", "_", "-", "#", "&", "~", "\x7f",
)  # fmt: skip
TEXTS = (
    "", "a", "name-7", "é", "\U0001f600", 'quo"te', "back\\slash", "\x00", "\x1f", "\x7f", "\u2028",
    "2026-06-02T10:00:00", "2026-06-02", "12.50", "007", '":1,"', '"id":1', "}", "{", "\ud7ff",
    "\ufffe", "a" * 300,
)  # fmt: skip
KINDS = (
    "int",
    "long",
    "large",
    "huge",
    "fraction",
    "exact",
    "long fraction",
    "exponent",
    "text",
    "boolean",
)
TYPES = (
    "int", "long", "double", "float", "decimal(20,4)", "string", "json", "boolean", "date",
    "timestamp", "timestamptz", "time", "binary",
)  # fmt: skip
# of text that is no JSON, and of JSON that is no plain object
ODD = (
    '{"id":1,"id":2}', '{"id":1,"x":null,"x":null}', '{"id":1', '{"id":1,', '{"id":01}', "{}", "",
    '{"id":1}{"id":2}', '{"id":1} x', '{"id":+1}', '{"id":1.}', '{"id":.5}', '{"id":1e}', "[1]",
    '{"id":-}', '{"id":-0}', '{"id":-0.0}', '{"id":NaN}', '{"id":1e400}', '{"id":"\\ud800"}',
    '{"id":"\\udc00\\ud800"}', '{"id":"\\ud83d\\ude00"}', '{"id":"\\u00e9\\/"}', '{"id":"\\x"}',
    '{"id":"\t"}', '{"\\u0069d":1}', '{"id":tru}', '{"id":1,}', '{,"id":1}', "null", '{"id" :\t1 }',
    '{"id":1}\r', '{"id":[1,{"a":2}]}', '{"id":{"id":1}}', '{"id":1.5,"x":00.5}', "\ufeff{}",
    '{"id":12345678901234567890.5}', '{"id":0.1234567890123456789}', '{"id":1E5}', '{"id":1e-320}',
    '{"id":100000000000000000000000.0}', '{"id":123456789012345678}', '{"id":999999999999999999}',
    '{"id":-1000000000000000000}', '/* no */{"id":1}', '{"id":\x0b1}', '{"id":"a\x00b"}',
)  # fmt: skip


def number(chance: random.Random, kind: str) -> str:
    digits = "".join(chance.choices("0123456789", k=40))
    sign = chance.choice(["", "", "-"])
    return (
        sign
        + {
            "int": str(chance.randrange(10**6)),
            "long": str(chance.randrange(2**40)),
            "large": str(chance.randrange(2**53, 2**63)),
            "huge": str(chance.randrange(2**63, 2**70)),
            "fraction": f"{chance.randrange(10**5)}.{digits[: chance.randrange(1, 9)]}",
            "exact": repr(abs(chance.gauss(0, 10.0 ** chance.randrange(-8, 12)))),
            "long fraction": f"{chance.randrange(10**5)}.{digits[: chance.randrange(10, 30)]}",
            "exponent": f"{chance.randrange(10 ** chance.randrange(1, 20))}"
            f"{chance.choice(['', '.50'])}{chance.choice('eE')}{chance.randrange(-120, 120)}",
        }[kind]
    )


def value(chance: random.Random, kind: str) -> str:
    if chance.random() < 0.05:
        return "null"
    if kind == "boolean":
        return chance.choice(["true", "false"])
    if kind == "text":
        return json.dumps(chance.choice(TEXTS), ensure_ascii=chance.random() < 0.5)
    return number(chance, kind)


def document(chance: random.Random) -> bytes:
    """Lines whose fields have a kind or two each, and some that are otherwise."""
    names = chance.sample(NAMES, k=chance.randrange(1, 7))
    kinds = {name: chance.choices(KINDS, k=chance.choice([1, 1, 2, 3])) for name in names}
    gaps, odd = chance.choice([0, 0, 0.3]), chance.choice([0, 0.01, 0.3])
    comma, colon = chance.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")])
    lines = []
    for at in range(chance.choice([3, 70, 300, 700])):
        if chance.random() < odd:
            lines.append(chance.choice(ODD))
            continue
        fields = [
            f"{json.dumps(name, ensure_ascii=chance.random() < 0.2)}{colon}"
            f"{value(chance, chance.choice(kinds[name]))}"
            for name in names
            if chance.random() >= gaps
        ]
        if chance.random() < gaps:
            chance.shuffle(fields)
        fields.append(f'"ts"{colon}"2026-06-0{1 + at % 3}T10:00:00"')
        lines.append("{" + comma.join(fields) + "}")
    text = chance.choice(["\n", "\n", "\r\n"]).join(lines).encode("utf-8", "surrogatepass")
    if chance.random() < 0.1:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + bytes([chance.randrange(256)]) + text[at:]
    return text + chance.choice([b"", b"\n"])


def object_of(line: bytes) -> dict[str, object] | None:
    """What Python's own parser makes of a line, numbers with all digits; None for no object."""

    def fraction(text: str) -> object:
        if not math.isfinite(float(text)):
            raise ValueError(text)
        return "fraction", Decimal(text)

    try:
        read = json.loads(
            line.removeprefix(BYTE_ORDER_MARK).decode(),
            parse_constant=lambda text: ("fraction", text),
            parse_float=fraction,
        )
        json.dumps(read, ensure_ascii=False, default=str).encode()  # no half of a surrogate pair
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def as_text(field: object) -> object:
    """A value that was read, as `object_of` gives it."""
    if isinstance(field, float):
        return "fraction", Decimal(str(field)) if math.isfinite(field) else json.dumps(field)
    if isinstance(field, dict):
        return {name: as_text(inner) for name, inner in field.items()}
    return [as_text(inner) for inner in field] if isinstance(field, list) else field


def chunks_of(text: bytes) -> Iterator[Chunk]:
    return json_lines.json_chunks(LineReader([text], max_line_bytes=10_000))


def documents(seed: int) -> Iterator[tuple[random.Random, bytes]]:
    for at in range(seed, seed + 5):
        chance = random.Random(at)
        yield chance, document(chance)


@pytest.mark.parametrize("seed", range(0, ROUNDS, 5))
def test_each_line_is_what_pythons_parser_makes_of_it(seed: int) -> None:
    for _, text in documents(seed):
        body = text.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\n")
        lines = body.split(b"\n") if text else []
        objects = {number: object_of(line) for number, line in enumerate(lines, 1)}
        read: dict[int, dict[str, object]] = {}
        rejected: list[int | None] = []
        for chunk in chunks_of(text):
            rejected += chunk.rejects.lines
            if chunk.records is None:
                continue
            names, numbers = [*chunk.records.fields()], chunk.records.lines
            texts = [chunk.records.text(at) for at in range(len(numbers))]
            assert texts == [lines[number - 1] for number in numbers]
            columns = {name: listed(chunk.records.column(name)) for name in names}
            for at, number in enumerate(numbers):
                read[number] = {name: as_text(values[at]) for name, values in columns.items()}
        assert sorted([*read, *rejected]) == [*objects]
        assert {number: with_values(record) for number, record in read.items()} == {
            number: with_values(record) for number, record in objects.items() if record is not None
        }


def with_values(record: dict[str, object]) -> dict[str, object]:
    return {name: field for name, field in record.items() if field is not None}


@pytest.mark.parametrize("seed", range(0, ROUNDS, 5))
def test_rows_rejects_and_kinds_are_those_of_lines_read_one_by_one(seed: int, monkeypatch) -> None:
    for chance, text in documents(seed):
        names = [
            name for name in NAMES if chance.random() < 0.7 and usable_name(name) and name != "Y"
        ]
        columns = [Column(name, chance.choice(TYPES)) for name in names]
        if names and chance.random() < 0.3:
            others = {name for name in NAMES if usable_name(name)} - {"Y", "ts", *names}
            columns[0] = replace(columns[0], aliases=tuple(sorted(others)[:2]))
        source = replace(
            EVENTS,
            columns=tuple(columns),
            bucket=None,
            natural_key=tuple(names[: chance.randrange(2)]),
            rescue=chance.choice([None, "rest"]),
        )
        by_columns = outcome(text, source, columns)
        with monkeypatch.context() as patch:
            patch.setattr(json_lines, "plain_lines", one_by_one)
            assert outcome(text, source, columns) == by_columns


def one_by_one(block: LineBlock, start: int) -> tuple[list[Records], range]:
    return [], range(start, len(block.lines))


def outcome(text: bytes, source: Source, columns: list[Column]) -> tuple[object, ...]:
    """What both passes make of a text."""
    index, undated, misfits, lines = FileIndex(), Rejects(), Rejects(), Counter[date]()
    typer = RowTyper(source, columns, CLOCK)
    rows: list[dict[str, object]] = []
    for chunk in with_aliases(chunks_of(text), source):
        if chunk.records is not None:
            batch = typer.rows(chunk.records, "a.jsonl", DAYS, lines, misfits)
            rows += [] if batch is None else batch.to_pylist()
    for chunk in with_aliases(chunks_of(text), source):
        rejects = index.add(chunk, source, CLOCK)
        for column in ("days", "lines", "reasons", "details", "texts", "sizes"):
            getattr(undated, column).extend(getattr(rejects, column))
    kinds = {name: [*counted.items()] for name, counted in index.kinds.items()}
    shown = [repr(row) for row in sorted(rows, key=lambda row: row["landing_line"])]
    return (
        shown,
        sorted(reject_texts(undated)),
        sorted(reject_texts(misfits)),
        index.lines,
        lines,
        kinds,
    )


def reject_texts(rejects: Rejects) -> list[str]:
    columns = (rejects.days, rejects.reasons, rejects.details, rejects.texts, rejects.sizes)
    return [f"{line:06} {rest}" for line, *rest in zip(rejects.lines, *columns, strict=True)]


def test_lines_that_are_plain_are_read_as_columns() -> None:
    """Where they are not, no result tells, but reading takes three times as long."""
    mixed = b"".join(
        b'{"a": %s, "b": "x", "c": %s}\n' % (a, c)
        for a in (b"1", b"-2.50", b"0.1234567890123456")
        for c in (b"true", b'"t\\u00e9"')
        for _ in range(500)
    )
    odd = b'{"a":1,"b":"x","c":{"d":1}}\nno json\n{"a":0.12345678901234567890}\n{"a":'
    records, others = plain_lines(LineBlock(1, mixed + odd, {}))
    assert [*others] == [3000, 3001, 3002, 3003]
    assert [len(plain.lines) for plain in records] == [500, 500, 1000, 1000]
