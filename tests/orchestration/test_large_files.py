"""Large files in parts: what a file gives does not depend on how it is cut."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.file_index import FileIndex
from lakehouse.ingestion.reading.file_parts import FilePart, look_at, parts_of, read_chunks
from lakehouse.ingestion.reading.formats.record_chunks import Chunk, Rejects
from lakehouse.ingestion.workers import worker_stages, workers
from tests.orchestration.conftest import EVENTS, Pipe, event, june, listed
from tests.orchestration.test_fuzzed_landing import (
    CLOCK,
    ROUNDS,
    SOURCE,
    csv_lines,
    json_lines,
    mutated,
)

Told = dict[int, tuple[object, ...]]


def told(data: bytes, path: str, parts: list[FilePart | None]) -> tuple[Told, FileIndex]:
    """What each line is: its values or why it is no record; and the index of the file."""
    found: Told = {}
    index = FileIndex()
    for part in parts:
        own = FileIndex()
        for chunk in read_chunks(pa.BufferReader(data), path, SOURCE, part):
            own.add(Chunk(chunk.records, Rejects()), SOURCE, CLOCK)
            add(found, chunk)
        index.join(own, SOURCE)
    return found, index


def add(found: Told, chunk: Chunk) -> None:
    if chunk.records is not None:
        for at, number in enumerate(chunk.records.lines):
            assert number not in found
            one = chunk.records.only([at])
            values = {name: listed(one.column(name)) for name in one.fields()}
            held = sorted(item for item in values.items() if item[1] != [None])
            found[number] = (str(held), one.text(0))
    bad = chunk.rejects
    for number, *why in zip(bad.lines, bad.reasons, bad.details, bad.texts, bad.sizes, strict=True):
        assert number not in found
        found[number] = tuple(why)


def cut(data: bytes, path: str, chance: random.Random) -> list[FilePart]:
    size = chance.randrange(1, len(data) + 2)
    shown = [
        look_at(pa.BufferReader(data), path, SOURCE, range(at, min(at + size, len(data))))
        for at in range(0, len(data), size)
    ]
    return parts_of(shown, len(data))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("path", ["a.jsonl", "a.csv"])
def test_parts_give_what_the_whole_gives(path: str, seed: int) -> None:
    several = whole = 0
    for number in range(seed, ROUNDS, 2):
        chance = random.Random(f"parts {path} {number}")
        text = json_lines(chance) if path == "a.jsonl" else csv_lines(chance)
        if path == "a.csv" and chance.random() < 0.5:
            text = text.replace(b'"', b"")
        data = mutated(text, chance)
        try:
            expected, index = told(data, path, [None])
        except UnreadableContentError:
            continue
        parts = cut(data, path, chance)
        assert [one.start for one in parts[1:]] == [one.end for one in parts[:-1]]
        several, whole = several + (len(parts) > 1), whole + (not parts)
        if parts:
            assert (parts[0].start, parts[-1].end) == (0, len(data))
            found, of_parts = told(data, path, parts)
            assert found == expected, number
            assert (of_parts.lines, of_parts.undated, of_parts.kinds) == (
                index.lines,
                index.undated,
                index.kinds,
            )
    assert several > ROUNDS // 8
    assert path == "a.jsonl" or whole > ROUNDS // 20, "records that span lines are not cut"


def test_a_byte_order_mark_and_a_quoted_header_are_those_of_the_first_line() -> None:
    header = b'\xef\xbb\xbf"id";"ts"\r\n'
    data = header + b"".join(b"%d;2026-06-02T10:00:00\r\n" % n for n in range(500))
    parts = cut_in(data, "a.csv", 1_000)
    assert len(parts) > 5
    found, index = told(data, "a.csv", parts)
    assert list(found) == list(range(2, 502))
    assert set(index.kinds) == {"id", "ts"}


def cut_in(data: bytes, path: str, size: int) -> list[FilePart]:
    spans = [range(at, min(at + size, len(data))) for at in range(0, len(data), size)]
    shown = [look_at(pa.BufferReader(data), path, SOURCE, span) for span in spans]
    return parts_of(shown, len(data))


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("a.json", b"[" + b'{"id": 1},\n' * 300 + b"{}]"),
        ("a.csv", b"id,ts\n" + b'1,"two\nlines"\n' * 300),
        ("a.csv", b'"id\n",ts\n' + b"1,2\n" * 300),
        ("a.jsonl", b"\x1f\x8b" + b"x\n" * 300),
    ],
)
def test_files_that_have_to_be_read_whole(path: str, data: bytes) -> None:
    assert cut_in(data, path, 100) == []


def test_lines_longer_than_a_part_and_than_allowed() -> None:
    lines = [b'{"id": %d}' % n for n in range(20)]
    lines[7] = b'{"id": "' + b"x" * 3_000 + b'"}'
    lines[12] = b'{"id": "' + b"y" * 900 + b'"}'
    data = b"\n".join(lines)
    expected, _ = told(data, "a.jsonl", [None])
    for size in (1, 7, 100, 1_000):
        assert told(data, "a.jsonl", list(cut_in(data, "a.jsonl", size)))[0] == expected
    assert expected[8][0] == "line too long"


def land(pipe: Pipe) -> int:
    """Three large files with lines of every kind, and a small one; how many lines."""
    bad = {100: b"{", 700: b"", 1_500: event(1, 3, ts=None), 2_200: event(2, 3, amount="much")}
    lines = [bad[n] if n in bad else event(n, 2 + n % 3) for n in range(3_000)]
    pipe.land("1.jsonl", lines)
    header = b"id,ts,user,amount"
    rows = [
        b'%d,2026-06-0%dT12:00:00,"u%d",%d' % (n, 2 + n % 3, n % 5, n) for n in range(3_000, 6_000)
    ]
    rows[1_234] = b"1,2"
    rows[2_345] = b"9,2026-06-02T12:00:00,u,?"
    pipe.land("2.csv", [header, *rows])
    pipe.land("3.jsonl", [b"x" * 30] * 3_000)
    pipe.land("4.jsonl.gz", [event(9_000, 2), event(6, 2)])
    return 3_000 + 3_000 + 3_000 + 2


@pytest.mark.spark
def test_large_files_land_as_small_ones_do(
    tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = replace(EVENTS, pattern="*", max_rejects=2_000)
    whole, cut_up = (Pipe(tmp_path / name, spark, source) for name in ("whole", "parts"))
    seen: list[int] = []
    cut = worker_stages.large_file_parts

    def large_file_parts(*arguments: object) -> dict[object, list[FilePart]]:
        parts = cut(*arguments)  # type: ignore[arg-type]
        seen.extend(map(len, parts.values()))
        return parts

    for pipe in (whole, cut_up):
        if pipe is cut_up:
            monkeypatch.setattr(worker_stages, "PART_BYTES_MIN", 1 << 10)
            monkeypatch.setattr(workers, "TASK_BYTES", 20 << 10)
            monkeypatch.setattr(worker_stages, "large_file_parts", large_file_parts)
        landed = land(pipe)
        assert pipe.index().problems.keys() == {"3.jsonl"}
        pipe.ingest(june(1, 20))
        (lost,) = [one for one in pipe.ledger() if one.problem]
        assert lost.lines == 3_000
        rejected = [one for one in pipe.quarantine() if one[1] is not None]
        assert len(rejected) == 6
        assert len(pipe.rows()) == landed - 3_000 - len(rejected) - 1, "one is a duplicate"
    assert len(seen) == 5, "three files to index, two of them to ingest"
    assert min(seen) > 3
    columns = ("id", "event_ts", "user", "amount", "landing_file", "landing_line")
    assert cut_up.rows(*columns) == whole.rows(*columns)
    assert cut_up.quarantine() == whole.quarantine()
    told_of = [
        sorted(
            (one.landing_file, str(one.event_day), one.lines, one.rows, one.quarantined, one.kinds)
            for one in pipe.ledger()
        )
        for pipe in (whole, cut_up)
    ]
    assert told_of[0] == told_of[1]
    files = list((cut_up.root / "warehouse").rglob("raw/events_quarantine/data/**/*.parquet"))
    known = cut_up.lake.load_table(source.quarantine_table).scan().plan().files
    assert len(files) == len(list(known)), "what parts wrote in vain is deleted"
