"""Reading landing files: every line is told, whatever is wrong with the file."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import math
import random
import re
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from random import Random
from zoneinfo import ZoneInfo

import cramjam
import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.reading.content import UnreadableContentError, plain_blocks
from lakehouse.ingestion.reading.file_index import FileIndex
from lakehouse.ingestion.reading.formats.json_lines import object_lines
from lakehouse.ingestion.reading.formats.json_text import exact_json
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Rejects
from lakehouse.ingestion.reading.landing_file import file_chunks
from lakehouse.ingestion.reading.typing.event_time import (
    BadEventTime,
    EventClock,
    LocalTime,
    instant_parser,
)
from lakehouse.ingestion.reading.typing.typed_columns import typed_column
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.reading.typing.value_kinds import fits, inferred, kinds_of, promoted
from lakehouse.ingestion.source import Column, EventTime, Source
from tests.orchestration.conftest import listed

TODAY = date(2026, 6, 30)
EVENTS = Source(
    name="events",
    event_time=EventTime("ts", zone="Europe/Berlin"),
    first_day=date(2026, 1, 1),
    bucket="user",
    natural_key=("id",),
    max_line_bytes=1 << 20,
)
CLOCK = EventClock(EVENTS.event_time, EVENTS.first_day, TODAY)


def chunks_of(data: bytes, path: str = "a.jsonl") -> tuple[list[Chunk], list[str]]:
    """Everything in a file, and what is wrong with the file as a whole."""
    chunks = []
    try:
        chunks.extend(file_chunks(pa.BufferReader(data), path, EVENTS))
    except UnreadableContentError as error:
        return chunks, [error.reason]
    return chunks, []


def lines_of(data: bytes, path: str = "a.jsonl") -> tuple[list[tuple[int, str | None]], list[str]]:
    """(line, reason or None) of every line, and what is wrong with the file as a whole."""
    chunks, problems = chunks_of(data, path)
    told = [(n, None) for chunk in chunks if chunk.records for n in chunk.records.lines]
    for chunk in chunks:
        told += zip(chunk.rejects.lines, chunk.rejects.reasons, strict=True)
    return sorted(told), problems


def rows_of(data: bytes, columns: list[Column], path: str = "a.jsonl") -> tuple[pa.Table, Rejects]:
    """Rows of the second of June, and its lines that become none."""
    rejects, lines = Rejects(), Counter()
    typer = RowTyper(EVENTS, columns, CLOCK)
    batches = [
        typer.rows(chunk.records, path, {date(2026, 6, 2)}, lines, rejects)
        for chunk in chunks_of(data, path)[0]
        if chunk.records
    ]
    table = pa.Table.from_batches([b for b in batches if b is not None], typer.schema)
    assert sum(lines.values()) == table.num_rows + len(rejects)
    return table, rejects


def event(**fields: object) -> bytes:
    return orjson.dumps({"id": 1, "ts": "2026-06-02T10:00:00", "user": "a", **fields})


@given(
    st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b" ")), max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_each_line_is_told_exactly_once(lines: list[bytes], zipped: bool, ends: bool) -> None:
    # what is looked at to tell the format is text
    data = b"\n".join([b"first " * 100, *lines]) + (b"\n" if ends else b"")
    expected = data.count(b"\n") + (0 if data.endswith(b"\n") else 1)
    told, problems = lines_of(gzip.compress(data) if zipped else data)
    assert [line for line, _ in told] == list(range(1, expected + 1))
    assert problems == []


@given(st.integers(1, 400))
def test_a_truncated_gzip_gives_its_complete_lines_and_says_so(cut: int) -> None:
    rows = [event(id=i, text=str(i * 7919 % 1000)) for i in range(200)]
    whole = gzip.compress(b"\n".join(rows) + b"\n", mtime=0)
    told, problems = lines_of(whole[: max(11, len(whole) - cut)])
    good = [line for line, reason in told if reason is None]
    assert good == list(range(1, len(good) + 1))
    assert [reason for line, reason in told if reason] in ([], ["truncated line"])
    assert problems == ["truncated gzip"]


def test_gzip_of_several_members_larger_than_a_block_and_padded() -> None:
    rows = b"".join(event(id=i, text="x" * 50) + b"\n" for i in range(60_000))
    data = gzip.compress(rows[:1_000_003]) + gzip.compress(rows[1_000_003:]) + b"\0" * 100
    told, problems = lines_of(data)
    assert len(told) == 60_000
    assert all(reason is None for _, reason in told)
    assert problems == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "empty file"),
        (gzip.compress(b"", mtime=0), "empty file"),
        (gzip.compress(b"PK\x03\x04 and so on", mtime=0), "unsupported file"),
        (b"\xff\xfe{\x00}\x00", "unsupported file"),
        (b"\x1f\x8b", "truncated gzip"),
    ],
)
def test_files_that_hold_nothing_are_named(data: bytes, problem: str) -> None:
    assert lines_of(data) == ([], [problem])


@pytest.mark.parametrize("rows", [3, 20_000])
def test_a_wrong_checksum_loses_no_line(rows: int) -> None:
    text = b"".join(event(id=number) + b"\n" for number in range(rows))
    for data in (bytearray(gzip.compress(text)), bytearray(zlib.compress(text))):
        data[-5 if data[0] == 0x1F else -1] ^= 1
        told, problems = lines_of(bytes(data))
        assert len(told) == rows
        assert problems == ["corrupt gzip" if data[0] == 0x1F else "corrupt zlib"]


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_damage_in_a_single_member_gives_the_lines_that_zlib_gives_byte_by_byte(at: float) -> None:
    noise = Random(1)
    text = b"".join(event(id=noise.randrange(10**9)) + b"\n" for _ in range(20_000))
    data = bytearray(gzip.compress(text))
    start = int(len(data) * at)
    data[start : start + 300] = noise.randbytes(300)
    inflater, plain = zlib.decompressobj(31), b""
    with suppress(zlib.error):
        for number in range(len(data)):
            plain += inflater.decompress(data[number : number + 1])
    told, problems = lines_of(bytes(data))
    assert problems == ["corrupt gzip"]
    assert len(told) >= plain.count(b"\n") > 1_000


def test_what_is_compressed_twice_and_zlib_are_read() -> None:
    text = b"".join(event(id=number) + b"\n" for number in range(1_000))
    once = gzip.compress(text)
    for data in (gzip.compress(once), zlib.compress(text), gzip.compress(zlib.compress(text))):
        told, problems = lines_of(data)
        assert (len(told), problems) == (1_000, [])
    cut = gzip.compress(gzip.compress(text)[:-20])
    assert lines_of(cut)[1] == ["truncated gzip"]
    assert lines_of(gzip.compress(gzip.compress(gzip.compress(once))))[1] == ["unsupported file"]


def compressed(text: bytes, kind: str) -> bytes:
    if kind == "zstd":
        return zstandard.ZstdCompressor(write_checksum=True).compress(text)
    squeeze = {"gzip": gzip.compress, "zlib": zlib.compress, "bzip2": lambda t: bz2.compress(t, 1)}
    return bytes(cramjam.snappy.compress(text)) if kind == "snappy" else squeeze[kind](text)


@pytest.mark.parametrize("kind", ["gzip", "zlib", "bzip2", "zstd", "snappy"])
@pytest.mark.parametrize("noise", [True, False])
def test_members_one_after_the_other_are_read_once_each(kind: str, noise: bool) -> None:
    # of noise the second member begins within what a call was given, and is no small part of it
    chance = Random(1)
    text = b"".join(
        event(id=chance.randrange(10**9) if noise else 1) + b"\n" for _ in range(30_000)
    )
    for members in (2, 3):
        told, problems = lines_of(compressed(text, kind) * members)
        assert (len(told), problems) == (30_000 * members, [])
    if kind != "snappy":
        assert lines_of(compressed(text, kind) + bytes(3 << 20))[1] == []


@pytest.mark.parametrize("kind", [pytest.param("bzip2", marks=pytest.mark.slow), "zstd", "snappy"])
def test_damage_gives_the_blocks_before_it(kind: str) -> None:
    text = b"".join(event(id=1, text="x" * 20) + b"\n" for _ in range(60_000))
    whole = compressed(text, kind)
    for at in range(len(whole) // 4, len(whole) - 8, len(whole) // 7):
        data = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        told, problems = lines_of(data)
        expected = len(before_damage(data, kind).split(b"\n")) - 1
        assert problems == [f"corrupt {kind}"]
        assert len(told) >= expected > 5_000


def before_damage(data: bytes, kind: str) -> bytes:
    """What a decompressor gives that is given byte by byte, or chunk by chunk."""
    plain = b""
    if kind == "snappy":
        at = 10
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at + 1 : at + 4], "little")
            try:
                plain += bytes(cramjam.snappy.decompress(data[:10] + data[at:end]))
            except cramjam.DecompressionError:
                return plain
            at = end
    inflater = (
        bz2.BZ2Decompressor() if kind == "bzip2" else zstandard.ZstdDecompressor().decompressobj()
    )
    with suppress(OSError, zstandard.ZstdError):
        for number in range(len(data)):
            plain += inflater.decompress(data[number : number + 1])
    return plain


def test_frames_that_zstd_skips_may_come_first() -> None:
    skipped = b"\x5a\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"
    data = skipped + compressed(event() + b"\n", "zstd") + skipped
    assert lines_of(data) == ([(1, None)], [])


def test_storage_that_fails_is_no_damage_of_the_file() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 1 << 16:
                raise OSError("unreachable")
            return super().read(min(size or 0, 1 << 15))

    text = b"".join(event(id=Random(n).randrange(10**9)) + b"\n" for n in range(60_000))
    for kind in ("gzip", "bzip2", "zstd", "snappy"):
        with pytest.raises(OSError, match="unreachable"):
            list(plain_blocks(Failing(compressed(text, kind)), kind))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", event().decode().encode("utf-16-le")),
        ("a.csv", b"id,ts\n1,2\n".decode().encode("utf-16-be")),
        ("a.jsonl", b"id,ts\n".decode().encode("utf-32")),
        # as Spark writes it for `snappy`: Hadoop's blocks, which have no magic
        ("a.snappy", b"\0\0\1\0\0\0\0\x40" + bytes(cramjam.snappy.compress_raw(event() * 9))),
        ("a.csv.br", bytes(cramjam.brotli.compress(b"id,ts\n" + b"1,2026-06-02T10:00:00\n" * 9))),
        ("a.csv.lz4", bytes(cramjam.lz4.compress(b"id,ts\n1,2\n"))),
        ("a.csv.xz", lzma.compress(b"id,ts\n1,2\n")),
        ("a.csv.lzma", lzma.compress(b"id,ts\n1,2\n", format=lzma.FORMAT_ALONE)),
        ("a.csv.gz", b"\x1e" + gzip.compress(b"id,ts\n1,2\n", mtime=0)[1:]),
    ],
    ids=["utf-16-le", "utf-16-be", "utf-32", "snappy", "br", "lz4", "xz", "lzma", "gz"],
)
def test_what_is_no_text_is_refused_as_a_file(name: str, data: bytes) -> None:
    assert lines_of(data, name) == ([], ["unsupported file"])


def test_a_damaged_gzip_keeps_what_came_before() -> None:
    data = bytearray(
        gzip.compress(
            b"".join(event(id=i, noise=str(hash((i, "x")))) + b"\n" for i in range(50_000)), mtime=0
        )
    )
    data[len(data) // 2] ^= 0xFF
    told, problems = lines_of(bytes(data))
    assert problems[0].startswith("corrupt gzip")
    assert told


def test_a_line_of_ten_megabytes_is_quarantined_with_its_beginning() -> None:
    long = event(text="y" * (10 << 20))
    data = gzip.compress(event() + b"\n" + long + b"\n" + event(id=3) + b"\n")
    chunks, _ = chunks_of(data)
    (rejects,) = [chunk.rejects for chunk in chunks if len(chunk.rejects)]
    assert (rejects.lines, rejects.reasons, rejects.sizes) == ([2], ["line too long"], [len(long)])
    assert rejects.texts[0].startswith(b'{"id":1')
    assert len(rejects.texts[0]) == 64 << 10
    assert lines_of(data)[0] == [(1, None), (2, "line too long"), (3, None)]


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
    assert lines_of(data)[0] == [
        (1, None),
        (2, "blank line"),
        (3, "malformed JSON"),
        (4, "not a JSON object"),
        (5, "malformed JSON"),
        (6, "malformed JSON"),
    ]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("between", [b",", b",\n", b",\r\n"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_json_array_with_a_mark_or_on_a_line_of_its_own(
    mark: bytes, between: bytes, end: bytes
) -> None:
    data = mark + b"[" + event() + between + event(id=2) + b"]" + end
    for path in ("a.json", "a.txt"):
        for content in (data, gzip.compress(data)):
            assert lines_of(content, path)[0] == [(1, None), (2, None)]


_CONSTANTS = st.sampled_from([math.nan, math.inf, -math.inf, 1.5, None, "NaN", 'a"Infinity\\', {}])


@given(
    st.recursive(
        _CONSTANTS, lambda of: st.lists(of) | st.dictionaries(st.text(), of), max_leaves=9
    ),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from([*'"\\,:[{N-0 aud8']))),
)
def test_nan_and_infinity_are_what_python_and_spark_read(
    value: object, typed: list[tuple[int, str]]
) -> None:
    """As Python's `json` writes them, whose reader is the judge; damaged, none is another value."""
    text = json.dumps({"v": value})
    assert repr(exact_json(text.encode())) == repr(json.loads(text))
    for at, character in typed:
        text = text[:at] + character + text[at + 1 :]
        with suppress(ValueError):
            assert repr(exact_json(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize("torn", [b'\\"x', b'NaN\\"', b"[", b"\\\\"])
def test_a_torn_line_with_nan_is_refused_at_once(torn: bytes) -> None:
    """A string of megabytes that nothing closes, as JSON within JSON is: each byte is read once."""
    with pytest.raises(ValueError, match="line 1 column"):
        exact_json(b'{"a":NaN,"p":"' + torn * 1_000_000)


@pytest.mark.parametrize("kind", ["double", "float", "long", "decimal(9,2)", "string", "json",
                                  "boolean", "date", "timestamptz", "time", "binary"])  # fmt: skip
@pytest.mark.parametrize("array", [True, False])
def test_nan_and_infinity_fit_floating_point_columns_alone(kind: str, array: bool) -> None:
    numbers = [math.nan, 1.0, math.inf, -math.inf]
    objects = [event().decode()[:-1] + f', "x": {json.dumps(number)}}}' for number in numbers]
    data = f"[{','.join(objects)}]" if array else "\n".join(objects)
    columns = [Column("id", "long"), *(Column(name, "string") for name in ("ts", "user"))]
    columns.append(Column("x", kind))
    table, rejects = rows_of(data.encode(), columns)
    kept = table["x"].to_pylist()
    if kind in ("double", "float"):
        assert repr(kept) == repr(numbers)
    else:
        assert [*map(str, kept)] == (["1.00"] if "decimal" in kind else ["1.0"]) * len(kept)
        assert {1, 3, 4} <= {*rejects.lines}
        assert {*rejects.reasons} == {"type conflict"}


def test_json_lines_with_a_mark_are_told_by_their_first_character() -> None:
    assert lines_of(b"\xef\xbb\xbf" + event() + b"\n", "a.log")[0] == [(1, None)]
    assert lines_of(b"[1]\n" + event() + b"\n")[0] == [(1, "not a JSON object"), (2, None)]


def test_csv_with_quotes_ragged_rows_and_an_open_quote() -> None:
    data = (
        b'id,ts,user\n1,2026-06-02T10:00:00,"a\nb"\n2,2026-06-02T10:00:00\n'
        b'3,2026-06-02T10:00:00,c\n\n4,2026-06-02T10:00:00,"open'
    )
    told, _ = lines_of(data, "a.csv")
    assert told == [
        (3, None),
        (4, "malformed CSV"),
        (5, None),
        (6, "blank line"),
        (7, "malformed CSV"),
    ]
    columns = [Column("id", "long"), Column("ts", "string"), Column("user", "string")]
    rows = rows_of(data, columns, "a.csv")[0].select(["id", "user"]).to_pylist()
    assert rows == [{"id": 1, "user": "a\nb"}, {"id": 3, "user": "c"}]


def test_columns_of_csv_without_a_name_or_with_one_of_another_are_told_apart() -> None:
    data = b"id,a,,a,,a_2\n1,b,c,d,e,f\n"
    names = {"id": "1", "a": "b", "": "c", "a_3": "d", "column_2": "e", "a_2": "f"}
    fields = next(chunk.records.fields() for chunk in chunks_of(data, "a.csv")[0] if chunk.records)
    assert {name: one.to_pylist()[0] for name, one in fields.items()} == names


def test_thousands_of_columns_with_one_name_are_told_apart_at_once() -> None:
    """Looked for from the first number each, they would take hours."""
    data = b"x\n".join([b"a," * 30_000, b"1," * 30_000, b""])
    (chunk,) = (chunk for chunk in chunks_of(data, "a.csv")[0] if chunk.records)
    assert len(chunk.records.fields()) == 30_001
    assert not chunk.rejects


@pytest.mark.parametrize("between", ["\n", ",\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("indent", [1, 4, "\t"])
def test_objects_over_several_lines_are_those_of_lines(between: str, indent) -> None:
    """As programs print them; one that is damaged, and the last one cut off, are told."""
    objects = [{"id": n, "of": {"x": [1, {"y": "}\n{"}]}, "ts": "2026-06-02"} for n in range(9)]
    pretty = [json.dumps(one, indent=indent).replace("\n", between[-2:].strip(",\n") + "\n")
              for one in objects]  # fmt: skip
    broken = [*pretty[:4], pretty[4].replace("[", "[,"), *pretty[5:]]

    def of(texts: list[str]) -> tuple[list[int], list[str]]:
        data = between.join(texts).encode()
        ids, reasons = list[int](), list[str]()
        for chunk in chunks_of(data)[0]:
            ids += [] if chunk.records is None else listed(chunk.records.column("id"))
            reasons += chunk.rejects.reasons
        return ids, reasons

    assert of(pretty) == ([*range(9)], [])
    assert of(pretty[:1]) == ([0], [])
    assert of(broken) == ([0, 1, 2, 3, 5, 6, 7, 8], ["malformed JSON"])
    assert of([*pretty[:-1], pretty[-1][:-3]]) == ([*range(8)], ["malformed JSON"])


@pytest.mark.parametrize("between", ["", " ", "\n\n", ",", ", "])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_objects_side_by_side_are_those_of_lines(between: str, size: int) -> None:
    """As Amazon's Firehose writes them; damaged ones take no other with them."""
    objects = [{"id": n, "of": ["}{", "é\n}", {"y": [{}]}]} for n in range(9)]
    texts = [json.dumps(one, ensure_ascii=False, indent=n % 3) for n, one in enumerate(objects)]

    def lines(texts: list[str], most: int = 1000) -> list[bytes]:
        data = between.join(texts).encode()
        blocks = (data[at : at + size] for at in range(0, len(data), size))
        found = b"".join(object_lines(blocks, most))
        assert re.sub(rb"[\s,]", b"", found) == re.sub(rb"[\s,]", b"", data), "nothing is lost"
        return found.splitlines()

    def of(texts: list[str]) -> list[object]:
        return [lenient(line) for line in lines(texts)]

    def lenient(line: bytes) -> object:
        try:
            return json.loads(line)
        except ValueError:
            return None

    assert of(texts) == objects
    told = of([*texts[:8], texts[8][:-3]])  # where it has "}{", two are told
    assert (told[:8], {*map(str, told[8:])}) == (objects[:8], {"None"})
    broken = [*texts[:4], texts[4].replace("[", "[,", 1), *texts[5:]]
    after = 5 if between in ("", " ", "\n\n") else 6  # a comma may stand within, too
    told = of(broken)
    assert told[:5] == [*objects[:4], None]
    assert told[-(9 - after) :] == objects[after:]
    assert len(lines(broken, most=10)) > 1, "what is longer than most ends somewhere"


def test_lines_of_which_the_first_has_two_objects_are_lines() -> None:
    """As where files were put together without a line end: numbers are those of the lines."""
    texts = [json.dumps({"id": n, "ts": "2026-06-02"}) for n in range(4)]
    for first in ("".join(texts[:2]), f"{texts[0]},", "{"):
        told, _ = lines_of("\n".join([first, *texts[2:]]).encode(), "a.jsonl")
        assert told == [(1, "malformed JSON"), (2, None), (3, None)]


def test_firehose_files_are_read() -> None:
    texts = [json.dumps({"id": n, "ts": "2026-06-02", "of": "x" * 600}) for n in range(5000)]
    for between in ("", " ", ",\n"):
        text = between.join(texts).encode()
        data = text if between else gzip.compress(text)
        ids = list[int]()
        for chunk in chunks_of(data)[0]:
            assert not chunk.rejects
            ids += listed(chunk.records.column("id")) if chunk.records else []
        assert ids == [*range(5000)]


def test_csv_that_is_not_utf_8_is_rejected_and_not_respelled() -> None:
    data = b"id,ts,user\n1,2026-06-02T10:00:00,caf\xe9\n2,2026-06-02T10:00:00,caf\xc3\xa9\n"
    told, _ = lines_of(data, "a.csv")
    assert told == [(2, "malformed CSV"), (3, None)]
    columns = [Column("id", "long"), Column("ts", "string"), Column("user", "string")]
    assert rows_of(data, columns, "a.csv")[0]["user"].to_pylist() == ["caf\u00e9"]
    spanning = data.replace(b",caf\xe9\n", b',"caf\xe9\n3,2026-06-02T10:00:00,a"\n')
    assert lines_of(spanning, "a.csv")[0] == [(3, "malformed CSV"), (4, None)]
    assert chunks_of(data.replace(b"user", b"us\xe9r"), "a.csv") == ([], ["malformed CSV header"])


def test_parquet_rows_and_a_file_that_is_none() -> None:
    table = pa.table(
        {
            "ts": [datetime(2026, 6, 2, tzinfo=UTC), None],
            "user": ["a", "b"],
            "amount": [Decimal("1.20"), Decimal("3.45")],
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    index = FileIndex()
    ((chunk,), _) = chunks_of(sink.getvalue())
    rejects = index.add(chunk, EVENTS, CLOCK)
    assert (index.lines, index.undated) == ({date(2026, 6, 2): 1}, 1)
    assert (rejects.lines, rejects.reasons) == ([2], ["event time missing"])
    assert index.kinds["amount"] == {"decimal(3,2)": 1}
    assert chunks_of(b"PAR1nonsense") == ([], ["unreadable Parquet"])


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xffa")]
)


@pytest.mark.parametrize(
    "values",
    [
        NOT_UTF8,
        pa.StructArray.from_arrays([NOT_UTF8], ["a"]),
        pa.array([1 << 60, 0], pa.timestamp("us")),
        pa.array([-(1 << 50), 0], pa.timestamp("ms", "UTC")),
        pa.array([1 << 30, 0], pa.date32()),
        pa.array([[1 << 60], [0]], pa.list_(pa.timestamp("us"))),
    ],
    ids=["text", "text in a struct", "timestamp", "before year 1", "date", "in a list"],
)
def test_a_parquet_value_that_no_column_can_have_rejects_its_record(values: pa.Array) -> None:
    times = pa.array(["2026-06-02T10:00:00"] * 2)
    for data in (parquet(ts=times, x=values), parquet(ts=values)):
        ((chunk,), problems) = chunks_of(data, "a.parquet")
        told = FileIndex().add(chunk, EVENTS, CLOCK)
        assert (told.lines[0], told.reasons[0], problems) == (1, "malformed Parquet", [])
        assert list(chunk.records.lines) == [2], "the other record is taken"


def test_parquet_instants_need_no_zone_that_is_known() -> None:
    instants = pa.array([1780394400000000, 253402300799999999, 0], pa.timestamp("us", "Mars/X"))
    ((chunk,), _) = chunks_of(parquet(ts=instants), "a.parquet")
    told = FileIndex()
    assert told.add(chunk, EVENTS, CLOCK).reasons == ["event time out of range"] * 2
    assert told.lines == {date(2026, 6, 2): 1}


def test_parquet_structs_with_two_fields_of_one_name_are_refused_as_a_file() -> None:
    twins = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    for values in (twins, pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), twins)):
        data = parquet(ts=pa.array(["2026-06-02T10:00:00"]), x=values)
        assert chunks_of(data, "a.parquet") == ([], ["unreadable Parquet"])


AVRO = {
    "type": "record",
    "name": "event",
    "fields": [{"name": "id", "type": "long"}, {"name": "ts", "type": "string"}],
}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy"])
def test_a_damaged_avro_file_is_named_whatever_its_codec_raises(codec: str) -> None:
    events = [{"id": number, "ts": f"2026-06-02T10:00:{number % 60:02}"} for number in range(500)]
    sink = io.BytesIO()
    fastavro.writer(sink, AVRO, events, codec=codec, sync_interval=2_000)
    data = sink.getvalue()
    assert chunks_of(data, "a.avro")[1] == []
    for at in range(4, len(data), 61):
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        assert set(chunks_of(damaged, "a.avro")[1]) <= {"unreadable Avro", "empty file"}, at
    chunks, problems = chunks_of(data[:-40], "a.avro")
    assert problems == ["unreadable Avro"]
    assert chunks, "what came before is kept"


def test_an_avro_time_that_python_has_not_is_no_end_of_the_run() -> None:
    far = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "ts", "type": "long"}]
    sink, record = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(record, {**AVRO, "fields": fields}, {"ts": 1 << 61})
    fastavro.writer(sink, {**AVRO, "fields": [{"name": "ts", "type": far}]}, [])
    body = record.getvalue()
    block = bytes([2, 2 * len(body)]) + body + sink.getvalue()[-16:]
    assert chunks_of(sink.getvalue() + block, "a.avro") == ([], ["unreadable Avro"])


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
    [("s", 1372656600), ("ms", 1372656600000), ("us", "1372656600000000"), ("s", 1372656600.0),
     ("epoch", 1372656600), ("epoch", "1372656600000"), ("epoch", 1372656600000000.0)],
)  # fmt: skip
def test_event_times_as_numbers(unit: str, value: object) -> None:
    event_time = EventTime("ts", unit=unit)  # type: ignore[arg-type]
    parse = instant_parser(event_time, date(2013, 1, 1), date(2013, 12, 31))
    assert parse(value) == datetime(2013, 7, 1, 5, 30, tzinfo=UTC)
    for odd in (True, 10**30, "soon", "2013-07-01", {"a": 1}, float("nan"), "2013-07-01T25:00:00"):
        assert isinstance(parse(odd), BadEventTime), odd
    # devices of two makes write one feed: text that is no number needs no unit
    mixed: list[object] = [value, "2013-07-01T07:30:00+02:00", "2013-07-01T05:30:00", "soon", None]
    clock = EventClock(event_time, date(2013, 1, 1), date(2013, 12, 31))
    texts = [None if one is None else str(one) for one in mixed]
    for column in (mixed, texts, pa.array(texts)):
        found, bad = clock.instants(column)
        assert found[:3].tolist() == [1_372_656_600_000_000] * 3
        assert {at: one.reason for at, one in bad.items()} == {
            3: "event time malformed", 4: "event time missing",
        }  # fmt: skip
    times = pa.array([1_372_656_600_000_000_000] * 2, pa.timestamp("ns"))
    assert clock.instants(times)[0].tolist() == [1_372_656_600_000_000] * 2


@pytest.mark.slow
def test_numbers_of_several_units_are_told_apart_by_their_size() -> None:
    """The judge: the instant that each number was made of; whole columns and one by one."""
    chance, wanted, numbers = random.Random(4), [], []
    for _ in range(300):
        micros = chance.randrange(120_000_000_000_000, 4_000_000_000_000_000)
        size = chance.choice((1, 1_000, 1_000_000))
        wanted.append(micros // size * size)
        numbers.append(micros // size)
    clock = EventClock(EventTime("ts", unit="epoch"), date(1973, 3, 4), date(2100, 1, 1))
    for column in (
        numbers,
        list(map(float, numbers)),
        pa.array(numbers),
        pa.array(map(str, numbers)),
    ):
        found, bad = clock.instants(column)
        assert (found.tolist(), bad) == (wanted, {})


def test_a_source_says_what_is_wrong_with_it() -> None:
    for wrong, word in [
        ({"event_time": EventTime("ts", zone="Mars/Phobos")}, "Mars/Phobos"),
        ({"name": "../x"}, "../x"),
        ({"columns": (Column("id", "integer"),)}, "integer"),
        ({"columns": (Column("id", "int"), Column("ID", "int"))}, "case"),
        ({"columns": (Column("id", "int"),)}, "user"),
        ({"last_day": date(2025, 1, 1)}, "before"),
    ]:
        with pytest.raises(InvalidInputError, match=r"source") as caught:
            replace(EVENTS, **wrong)  # type: ignore[arg-type]
        assert word in caught.value.message


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
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
            assert json.loads(kept) == value
        elif column_type in ("boolean", "int", "long", "double", "string"):
            assert kept == value
            assert (type(kept) is bool) == (type(value) is bool)
        else:
            assert kept is not None


@pytest.mark.parametrize(
    ("column_type", "kept", "refused"),
    [
        ("timestamp", "2026-06-01T10:00:00.123456000", "2026-06-01T10:00:00.123456789"),
        ("timestamptz", "2026-06-01T10:00:00.1234560Z", "2026-06-01T10:00:00.1234567Z"),
        ("time", "10:00:00.123456000", "10:00:00.1234560001"),
        ("time", "10:00:00", "10:00:00+02:00"),
    ],
)
def test_no_digit_and_no_offset_of_a_time_is_dropped(
    column_type: str, kept: str, refused: str
) -> None:
    for from_text in (False, True):
        array, bad = typed_column([kept, refused], column_type, from_text=from_text)
        assert list(bad) == [1], "Python reads it without what does not fit"
        assert array.is_valid().to_pylist() == [True, False]


def test_parquet_times_of_day_in_nanoseconds_are_kept_or_rejected() -> None:
    array, bad = typed_column(pa.array([1_000, 1_001, None], pa.time64("ns")), "time")
    assert array.to_pylist() == [time(0, 0, 0, 1), None, None]
    assert list(bad) == [1]


@given(st.lists(VALUES, max_size=20))
@example([2**63])
@example([1, 2**63])
def test_the_inferred_type_keeps_most_values(values: list[object]) -> None:
    kinds = kinds_of(values)
    column_type = inferred(kinds)
    assert (column_type is None) == (not kinds)
    if column_type is not None:
        assert sum(count for kind, count in kinds.items() if fits(kind, column_type)) * 2 >= max(
            kinds.values()
        )


def test_whole_numbers_beyond_64_bits_are_decimals_together_with_the_smaller() -> None:
    kinds = kinds_of([1, 2**64, 3])
    assert inferred(kinds) == "decimal(38,0)"
    array, bad = typed_column([1, 2**64, 10**38 - 1, 10**38, -(2**70)], "decimal(38,0)")
    assert array.to_pylist() == [1, 2**64, 10**38 - 1, None, -(2**70)]
    assert list(bad) == [3]


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
    rows, rejects = rows_of(data, columns)
    assert rows["landing_line"].to_pylist() == [1, 5]
    assert list(zip(rejects.lines, rejects.reasons, strict=True)) == [
        (2, "null key"),
        (3, "type conflict"),
        (4, "unexpected column"),
    ]


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1, max_size=8))
@example([-1, 0, 1, 1_700_000_000_123_456_789])
def test_nanoseconds_are_kept_whatever_they_come_as(values: list[int]) -> None:
    """The judge: numpy, which writes them as text."""
    texts = [str(np.datetime64(value, "ns")) for value in values]
    wanted = pa.array(values, pa.timestamp("ns"))
    for given_values in (texts, pa.array(texts), wanted, wanted.to_pylist()):
        array, bad = typed_column(given_values, "timestamp_ns")
        assert (array.equals(wanted), bad) == (True, {})
    aware = wanted.cast(pa.timestamp("ns", "UTC"))
    zoned = [f"{text}Z" for text in texts]
    for given_values, from_text in ((zoned, True), (pa.array(zoned), False), (aware, False)):
        array, bad = typed_column(given_values, "timestamptz_ns", from_text=from_text)
        assert (array.equals(aware), bad) == (True, {})


@pytest.mark.parametrize(
    ("column_type", "value", "why"),
    [
        ("timestamp_ns", "2026-06-01T10:00:00.1234567891", "finer than a nanosecond"),
        ("timestamp_ns", "2026-06-01T10:00:00.123456789Z", "has an offset"),
        ("timestamptz_ns", "2026-06-01T10:00:00.123456789", "has no offset"),
        ("timestamp_ns", "2300-01-01T00:00:00", "out of the range"),
        ("timestamp_ns", datetime.fromisoformat("1600-01-01"), "out of the range"),
        ("timestamp_ns", 17, "int does not fit"),
        ("timestamp_ns", "soon", "Invalid isoformat"),
    ],
)
def test_what_is_no_time_in_nanoseconds_is_refused_by_value(column_type, value, why) -> None:
    fitting = "2026-06-01T10:00:00.000000001" + ("Z" if column_type == "timestamptz_ns" else "")
    array, bad = typed_column([fitting, value, None], column_type)
    assert (array.is_valid().to_pylist(), list(bad)) == ([True, False, False], [1])
    assert why in bad[1]
    assert array.cast(pa.int64())[0].as_py() % 1000 == 1


def test_a_transform_has_no_nanoseconds() -> None:
    columns = (Column("at", "timestamp_ns"),)
    with pytest.raises(InvalidInputError, match="Spark has no nanoseconds"):
        replace(EVENTS, columns=columns, natural_key=(), bucket=None, transform=lambda rows: rows)


@pytest.mark.parametrize("zone", ["UTC", "Etc/GMT+5"])
def test_years_of_a_zone_of_one_offset_cost_what_a_day_costs(zone, monkeypatch):
    asked = Counter()

    class Asked(ZoneInfo):
        def utcoffset(self, when):
            asked["offsets"] += 1
            return super().utcoffset(when)

    def offsets(days):
        asked.clear()
        local = LocalTime(zone, last - days * 86_400, last)
        return local, asked["offsets"]

    monkeypatch.setattr("lakehouse.ingestion.reading.typing.event_time.ZoneInfo", Asked)
    last = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
    (_, of_a_day), (years, of_years) = offsets(1), offsets(3_650)
    assert of_years == of_a_day
    times = [(2016, 2, 29, 23, 59, 59), (2024, 7, 1), (2024, 12, 30, 12)]
    wall = [datetime(*parts, tzinfo=UTC).timestamp() * 1e6 for parts in times]
    instants, none = years.instants(np.array(wall, np.int64))
    assert not none.any()
    there = [datetime(*parts, tzinfo=ZoneInfo(zone)).timestamp() * 1e6 for parts in times]
    assert instants.tolist() == there
