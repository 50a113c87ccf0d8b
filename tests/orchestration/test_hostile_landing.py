"""Landing files made to exhaust or confuse a worker: limits, exact numbers, odd names, links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from lakehouse.ingestion.landing_listing import landing_files, list_landing
from lakehouse.ingestion.reading.formats.record_chunks import Rejects
from lakehouse.ingestion.reading.landing_file import file_chunks
from lakehouse.ingestion.reading.typing.event_time import EventClock
from lakehouse.ingestion.reading.typing.typed_rows import RowTyper
from lakehouse.ingestion.source import Column
from tests.orchestration.conftest import BY_EACH_ENGINE, EVENTS, TODAY, Pipe, event, june

MEBIBYTE = 1 << 20
TIME = '{"id":1,"ts":"2026-06-01T00:00:00Z","user":"u",'


def a_gzip_of_newlines() -> bytes:
    squeeze = zlib.compressobj(9, wbits=31)
    return b"".join(squeeze.compress(b"\n" * MEBIBYTE) for _ in range(64)) + squeeze.flush()


def a_gzip_of_one_line() -> bytes:
    squeeze = zlib.compressobj(9, wbits=31)
    return b"".join(squeeze.compress(b"a" * MEBIBYTE) for _ in range(256)) + squeeze.flush()


def many_fields(files_fields: int, a_record: int) -> bytes:
    records = []
    for start in range(0, files_fields, a_record):
        fields = ",".join(f'"c{number}":1' for number in range(start, start + a_record))
        records.append(f"{TIME}{fields}}}".encode())
    return b"\n".join(records)


def a_wide_table() -> bytes:
    names = ",".join(["ts", *(f"c{number}" for number in range(5_000))])
    return f"{names}\n2026-06-01T00:00:00Z{',' * 5_000}\n".encode()


def deep() -> bytes:
    return f'{TIME}"x":{"[" * 9_000}{"]" * 9_000}}}'.encode()


def long_names() -> bytes:
    return b"".join(f'{TIME}"{n}{"n" * MEBIBYTE}":1}}\n'.encode() for n in range(200))


# name of the file, its bytes, what is wrong with it as a whole, how many lines it has
REJECTS, FIELDS = "too many rejected lines", "too many fields"
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str, int]] = {
    "empty lines": ("a.json", lambda: b"\n" * (4 * MEBIBYTE), REJECTS, 4 * MEBIBYTE),
    "gzip of newlines": ("a.json.gz", a_gzip_of_newlines, REJECTS, 64 * MEBIBYTE),
    "gzip of one line": ("a.json.gz", a_gzip_of_one_line, "", 1),
    "no records": ("a.json", lambda: b"x\n" * 2_000_000, REJECTS, 2_000_000),
    "fields": ("a.json", lambda: many_fields(300_000, 1_000), FIELDS, 300),
    "fields of a record": ("a.json", lambda: many_fields(300_000, 300_000), FIELDS, 1),
    "a wide table": ("a.csv", a_wide_table, FIELDS, 2),
    "an open quote": ("a.csv", lambda: b'ts,id\n1,"' + b"a\n" * 20_000_000, REJECTS, 20_000_001),
    "an array": ("a.json", lambda: b"[" + b"{}," * 5_000_000 + b"{}]", REJECTS, 5_000_001),
    "a long array": ("a.json", lambda: b"[" + b"{}," * 20_000_000, "unsupported file", 0),
    "deep": ("a.json", deep, "", 1),
    "numbers": ("a.json", lambda: f'{TIME}"x":{"9" * 5 * MEBIBYTE}}}\n'.encode() * 3, "", 3),
    "long names": ("a.json", long_names, "", 200),
}
READ = """
import json, os, resource, sys, time
from dataclasses import replace
from pathlib import Path
from lakehouse.lake import load_catalog
from lakehouse.ingestion.workers.index_pass import FilePiece, index_files
from lakehouse.ingestion.landing_listing import landing_files, list_landing
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.ingestion.workers.quarantine_files import TableFiles
from lakehouse.ingestion.source_tables import quarantine_table
from tests.orchestration.conftest import EVENTS, TODAY

SOURCE = replace(EVENTS, columns=(), pattern="*", max_line_bytes=8 << 20)

def index(root):
    table = quarantine_table(load_catalog((root / "warehouse").as_uri()), SOURCE)
    target = TableFiles(table.write_request(), dict(table.storage.properties))
    reader = LandingReader(str(root / "landing" / "events"), SOURCE, TODAY, {})
    began = time.process_time()
    files = landing_files(list_landing(str(root / "landing"), SOURCE))
    result = index_files([FilePiece(one) for one in files], reader, target, "0")
    (one,) = result.files
    lines = 0 if one.index is None else sum(one.index.lines.values())
    return {
        "problem": one.problem,
        "lines": lines + one.undated,
        "rejects": sum(file.record_count for file in result.rejects),
        "seconds": time.process_time() - began,
        "mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }

for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        (Path(name) / "found.json").write_text(json.dumps(index(Path(name))))
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """Each file indexed by a process of its own, whose peak of memory is measured."""
    roots = {name: tmp_path_factory.mktemp("hostile") for name in HOSTILE}
    for name, (path, data, _, _) in HOSTILE.items():
        folder = roots[name] / "landing" / "events"
        folder.mkdir(parents=True)
        (folder / path).write_bytes(data())
    command = [sys.executable, "-c", READ, *map(str, roots.values())]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True)
    return {name: json.loads((root / "found.json").read_text()) for name, root in roots.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_small_file_exhausts_no_worker(indexed: dict[str, dict], name: str) -> None:
    _, _, problem, lines = HOSTILE[name]
    found = indexed[name]
    if problem:
        assert found["problem"].startswith(problem)
        assert found["rejects"] == 1, "one line of the quarantine stands for the whole file"
    else:
        assert found["problem"] is None
    assert found["lines"] == lines
    assert found["mebibytes"] < 1_000


@BY_EACH_ENGINE
def test_what_is_no_file_of_the_feed_is_never_opened_and_breaks_nothing(pipe: Pipe) -> None:
    """Held fixed: one good file. Varied: what lies beside it."""
    pipe.land("good.jsonl.gz", [event(1, 1)])
    secret = pipe.root / "secret"
    secret.write_bytes(event(2, 1))
    (pipe.folder / "out.jsonl.gz").symlink_to(secret)
    (pipe.folder / "folder.jsonl.gz").symlink_to(pipe.root)
    (pipe.folder / "in.jsonl.gz").symlink_to(pipe.folder / "good.jsonl.gz")
    (pipe.folder / "nowhere.jsonl.gz").symlink_to(pipe.folder / "missing")
    (pipe.folder / "loop.jsonl.gz").symlink_to(pipe.folder / "loop.jsonl.gz")
    os.mkfifo(pipe.folder / "pipe.jsonl.gz")
    Path(os.fsdecode(os.fsencode(pipe.folder) + b"/\xff.jsonl.gz")).write_bytes(event(3, 1))

    listing = list_landing(pipe.landing, pipe.source)
    refused = {file.path: file.refused for file in landing_files(listing)}
    assert refused == {
        "good.jsonl.gz": None,
        "in.jsonl.gz": None,
        "out.jsonl.gz": "it is a link out of the landing folder: copy the file",
        "folder.jsonl.gz": "it is no regular file",
        "pipe.jsonl.gz": "it is no regular file",
        "loop.jsonl.gz": "it cannot be looked at: Too many levels of symbolic links",
        "\\xff.jsonl.gz": "its name is not UTF-8: rename it",
    }
    found = pipe.index()
    assert (found.files, found.lines) == (7, 2)
    assert sorted(found.problems) == sorted(path for path, why in refused.items() if why)
    assert pipe.index().files == 0
    pipe.ingest(june(1))
    assert pipe.rows() == [(1,)]
    assert pipe.quarantine() == []


@pytest.mark.parametrize(
    "text",
    [
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "123456789012345678901234567890",
    ],
)
@pytest.mark.parametrize(
    "column_type",
    [
        "int",
        "long",
        "float",
        "double",
        "string",
        "json",
        "boolean",
        "date",
        "timestamp",
        "binary",
        "decimal(38,0)",
        "decimal(10,2)",
    ],
)
@pytest.mark.parametrize("shape", ["{}", "[{}]", '{{"a":[1,{{"b":{}}}]}}'])
def test_an_integer_of_any_size_is_itself_or_rejected(
    text: str, column_type: str, shape: str
) -> None:
    """Judged by Python's `json`, whose integers have no bounds."""
    value = shape.format(text)
    line = f'{{"id":1,"ts":"2026-06-02T10:00:00","user":"u","x":{value}}}'.encode()
    source = replace(EVENTS, columns=(), drift="quarantine")
    ((chunk,), rejects) = (list(file_chunks(pa.BufferReader(line), "a.json", source)), Rejects())
    columns = [Column("id", "long"), Column("ts", "string"), Column("user", "string")]
    typer = RowTyper(
        source,
        [*columns, Column("x", column_type)],
        EventClock(source.event_time, source.first_day, TODAY),
    )
    rows = typer.rows(chunk.records, "a.json", {date(2026, 6, 2)}, Counter(), rejects)
    if rows is None:
        assert rejects.reasons == ["type conflict"]
        assert column_type != "json", "JSON text has room for every integer"
        return
    (kept,) = rows.column("x").to_pylist()
    assert (json.loads(kept) if column_type == "json" else kept) == json.loads(value)
