"""Mutated landing files: each line is told once, and right, or a typed error is raised.

`LAKEHOUSE_FUZZ_ROUNDS` sets how many files of each kind are tried.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import resource
import time
import zlib
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.file_index import BeyondLimitsError, FileIndex
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Rejects
from lakehouse.ingestion.reading.landing_file import count_lines, file_chunks
from lakehouse.ingestion.reading.typing.event_time import EventClock
from tests.orchestration.conftest import EVENTS, TODAY, listed

ROUNDS = int(os.environ.get("LAKEHOUSE_FUZZ_ROUNDS", "300"))
SOURCE = replace(EVENTS, columns=(), max_line_bytes=2_000)
CLOCK = EventClock(SOURCE.event_time, SOURCE.first_day, SOURCE.last_day or TODAY)
TOKENS = (
    b"\n", b"\r\n", b'"', b'""', b",", b";", b"\t", b"{", b"}", b"[", b"[" * 300, b"\\", b"\0",
    b"\xff", b"\xc3", b"\xef\xbb\xbf",
    b"9" * 25, b"-9223372036854775809", b"1e999", b"NaN", b"null", b"\\ud800", b"9" * 5_000,
    b'"x":1,', b"\n\n\n", b"x" * 3_000,
)  # fmt: skip


def json_lines(chance: random.Random) -> bytes:
    records = [
        {
            "id": chance.choice([n, 2**63 + n, -(2**70), None]),
            "ts": chance.choice(["2026-06-02T10:00:00", "2026-06-02T10:00:00Z", n, None]),
            "x": chance.choice([1.5, "é\u2028", {"a": [n, {"b": 10**30}]}, [], True]),
            **({f"f{chance.randrange(5)}": n} if chance.random() < 0.3 else {}),
        }
        for n in range(chance.randrange(1, 40))
    ]
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records).encode()


def csv_lines(chance: random.Random) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=chance.choice(",;\t|"), lineterminator="\n")
    writer.writerow(["id", "ts", "x"])
    for n in range(chance.randrange(1, 40)):
        x = chance.choice(["", "plain", 'quo"te', "two\nlines", "a,b;c", "é"])
        writer.writerow([n, "2026-06-02T10:00:00", x])
    return text.getvalue().encode()


def mutated(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        at, to = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        way = chance.randrange(5)
        if way == 0:
            data = data[:at] + chance.choice(TOKENS) + data[at:]
        elif way == 1:
            data = data[:at] + data[min(to, at + 20) :]
        elif way == 2:
            data = data[:at] + data[at : at + 200] * 2 + data[at + 200 :]
        elif way == 3 and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        elif chance.random() < 0.2:
            data = data[:to]
    return data


def read(data: bytes, path: str) -> tuple[list[Chunk], str | None]:
    """Everything in a file, and what is wrong with it as a whole; its index is built on the way."""
    chunks: list[Chunk] = []
    index, began = FileIndex(), time.process_time()
    problem = None
    try:
        for chunk in file_chunks(pa.BufferReader(data), path, SOURCE):
            chunks.append(chunk)
            index.add(Chunk(chunk.records, Rejects()), SOURCE, CLOCK)
    except (UnreadableContentError, BeyondLimitsError) as error:
        problem = error.reason
    assert time.process_time() - began < 10
    timed, records = sum(index.lines.values()), sum(len(good_lines(one)) for one in chunks)
    assert timed + index.undated == records
    return chunks, problem


def good_lines(chunk: Chunk) -> list[int]:
    return [] if chunk.records is None else list(chunk.records.lines)


def told_lines(chunks: list[Chunk]) -> list[int]:
    return sorted(n for one in chunks for n in (*good_lines(one), *one.rejects.lines))


def json_of(line: bytes) -> object:
    """What Python's own parser makes of a line; None where it is no object of JSON."""

    def refuse(text: str) -> object:
        raise ValueError(text)

    def finite(text: str) -> float:
        value = float(text)
        return value if abs(value) != float("inf") else refuse(text)  # type: ignore[return-value]

    try:
        value = json.loads(line.decode(), parse_constant=refuse, parse_float=finite)
        json.dumps(value, ensure_ascii=False).encode()  # no half of a surrogate pair
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def assert_json(data: bytes, chunks: list[Chunk]) -> None:
    mark = b"\xef\xbb\xbf"  # also within: files are put together
    lines = data.removeprefix(mark).split(b"\n")
    expected = {
        number: value
        for number, line in enumerate(lines, start=1)
        if len(line) <= SOURCE.max_line_bytes
        and (value := json_of(line.removeprefix(mark))) is not None
    }
    found: dict[int, dict[str, object]] = {}
    for chunk in chunks:
        if chunk.records is not None:
            columns = {n: listed(chunk.records.column(n)) for n in chunk.records.fields()}
            for at, number in enumerate(chunk.records.lines):
                found[number] = {name: values[at] for name, values in columns.items()}
    assert found.keys() == expected.keys()
    for number, value in found.items():
        kept = {name: one for name, one in value.items() if one is not None}
        assert kept == {name: one for name, one in expected[number].items() if one is not None}


def assert_csv(data: bytes, chunks: list[Chunk]) -> None:
    """Where Python's reader takes the whole text, each of its rows is a row or a reject here."""
    text = data.decode().removeprefix("\ufeff")
    delimiter = max(",;\t|", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header, *rows = list(reader)
    except csv.Error:
        return
    fitting = [[one or None for one in row] for row in rows if len(row) == len(header)]
    found = [
        list(row)
        for chunk in chunks
        if chunk.records is not None
        for row in zip(*(chunk.records.column(n.strip()).to_pylist() for n in header), strict=True)
    ]
    assert found == fitting
    assert sum(len(one.rejects) for one in chunks) == len(rows) - len(fitting)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_json_lines(seed: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(seed, ROUNDS, 4):
        chance = random.Random(f"json {number}")
        data = b"{}\n" + mutated(json_lines(chance), chance)
        chunks, problem = read(data, "a.jsonl")
        assert problem is None, number
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        assert told_lines(chunks) == list(range(1, lines + 1)), number
        assert count_lines(pa.BufferReader(data), "a.jsonl", SOURCE) == lines
        assert_json(data, chunks)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20, "1 GiB"


@pytest.mark.parametrize("seed", range(4))
def test_mutated_csv(seed: int) -> None:
    for number in range(seed, ROUNDS, 4):
        chance = random.Random(f"csv {number}")
        data = mutated(csv_lines(chance), chance)
        chunks, problem = read(data, "a.csv")
        told = told_lines(chunks)
        assert len(set(told)) == len(told), number
        assert problem in (None, "empty file", "malformed CSV header", "unsupported file"), number
        if problem is None and _plain(data):
            assert_csv(data, chunks)


def _plain(data: bytes) -> bool:
    """Whether Python's reader and ours promise the same: nothing too long, line ends as on Unix."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return "\r" not in text and "\0" not in text and len(data) < 1_500 and bool(text.split("\n")[0])


@pytest.mark.parametrize("make", [json_lines, csv_lines])
@pytest.mark.parametrize("seed", range(2))
def test_mutated_gzip(make: Callable[[random.Random], bytes], seed: int) -> None:
    """What zlib inflates without an error is read as the same text; else the problem is named."""
    path = "a.jsonl.gz" if make is json_lines else "a.csv.gz"
    for number in range(seed, ROUNDS, 2):
        chance = random.Random(f"gzip {number}")
        plain = make(chance)
        data = mutated(gzip.compress(plain, mtime=0), chance)
        if not data.startswith(b"\x1f\x8b"):
            continue
        chunks, problem = read(data, path)
        try:
            inflated = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            assert problem is not None, number
            named = ("truncated", "corrupt", "empty", "malformed")  # the last: the header of CSV
            assert problem.split()[0] in named, number
            told = told_lines(chunks)
            assert len(set(told)) == len(told), number
        else:
            same, problem_of_text = read(inflated, path.removesuffix(".gz"))
            assert (told_lines(chunks), problem) == (told_lines(same), problem_of_text), number
