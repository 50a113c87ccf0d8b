"""Ingestion: no line is lost, none is doubled, whatever lands and whatever dies."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from copy import copy
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lakehouse.cli import app
from lakehouse.errors import InvalidSchemaError, NoSuchFileError
from lakehouse.ingestion import duplicates, ingest
from lakehouse.ingestion.landing_ledger import ledger_to_arrow
from lakehouse.ingestion.source import Column, EventTime
from lakehouse.ingestion.source_tables import source_columns
from lakehouse.table import Table
from tests.orchestration.conftest import BY_EACH_ENGINE, Pipe, event, june

pytestmark = BY_EACH_ENGINE
WIKI = (
    Path(
        os.environ.get(
            "LAKEHOUSE_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data"
        )
    )
    / "wiki-edits-2015-09-12.json.gz"
)


def test_every_line_becomes_a_row_a_reject_or_a_duplicate(pipe: Pipe) -> None:
    first = [event(n, 1 + n % 3) for n in range(30)]
    spoiled = [
        b'{"id": 100, "ts"',
        b"",
        event(101, 1, ts="2026-06-01T10:00:00+99:00"),
        event(102, 1, ts="1969-07-20T10:00:00Z"),
        event(103, 1, ts="2262-04-12T10:00:00Z"),
        event(104, 1, ts=None),
        event(99, 1, id=None),
        event(105, 1, amount="much"),
        event(106, 1, text="x" * (1 << 20)),
        first[3],
        first[3],
    ]
    late = [event(200, 2), event(201, 19), event(202, 2, 1), first[5]]
    pipe.land("1.jsonl.gz", first + spoiled)
    pipe.land("2.jsonl.gz", late, modified=2_000_000_000)
    pipe.land("3.jsonl.gz", [])
    (pipe.folder / "4.jsonl.gz").write_bytes(b"")
    whole = gzip.compress(
        b"\n".join(event(n, 5, noise=str(n * n)) for n in range(300, 330)), mtime=0
    )
    (pipe.folder / "5.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (pipe.folder / "6.jsonl.gz").write_bytes(b"this is no gzip\n")
    pipe.land(".7.jsonl.gz", [event(1, 1)])
    pipe.land("8.txt", [event(1, 1)])

    found = pipe.index()
    assert {file: problem.split(" after")[0] for file, problem in found.problems.items()} == {
        "4.jsonl.gz": "empty file",
        "5.jsonl.gz": "truncated gzip",
    }
    outcome = pipe.ingest(june(1, 20))
    kept_of_cut = [row[0] for row in pipe.rows() if row[0] >= 300]
    assert pipe.rows() == sorted(
        [(n,) for n in range(30)] + [(200,), (201,), (202,)] + [(n,) for n in kept_of_cut]
    )
    days = dict(pipe.rows("id", "event_ts"))
    assert days[200] == datetime(2026, 6, 2, 10, tzinfo=UTC)
    assert days[202] == datetime(2026, 6, 1, 23, tzinfo=UTC), (
        "local time before 2 o'clock is the day before in UTC"
    )
    reasons = Counter(
        reason
        for file, line, reason in pipe.quarantine()
        if file == "1.jsonl.gz" and line is not None
    )
    assert reasons == {
        "malformed JSON": 1,
        "blank line": 1,
        "event time malformed": 1,
        "event time out of range": 2,
        "event time missing": 1,
        "null key": 1,
        "type conflict": 1,
        "line too long": 1,
    }
    assert ("3.jsonl.gz", 1, "blank line") in pipe.quarantine()
    assert ("6.jsonl.gz", 1, "malformed JSON") in pipe.quarantine(), "text, whatever its name says"
    assert outcome.counts.duplicates == 3
    cut_lines = sum(row.lines for row in pipe.ledger() if row.landing_file == "5.jsonl.gz")
    pipe.assert_conserved(len(first) + len(spoiled) + len(late) + 2 + cut_lines)
    assert pipe.snapshots() == 1, "a run over twenty days is one snapshot"


def test_running_again_changes_nothing_and_replaces_a_day(pipe: Pipe) -> None:
    pipe.land("1.jsonl.gz", [event(n, 1 + n % 2) for n in range(10)] + [event(50, 1, id=None)])
    pipe.index()
    pipe.ingest(june(1, 2))
    before, ledger_before = pipe.rows("id", "landing_file", "landing_line"), pipe.ledger()
    snapshot = pipe.lake.load_table(pipe.source.ledger_table).metadata.current_snapshot_id
    again = pipe.index()
    assert (again.files, again.snapshot.snapshot_id) == (0, snapshot)
    outcome = pipe.ingest(june(2))
    assert (
        outcome.snapshot.summary["deleted-records"]
        == outcome.snapshot.summary["added-records"]
        == "5"
    )
    assert pipe.rows("id", "landing_file", "landing_line") == before
    assert pipe.ledger() == ledger_before
    pipe.assert_conserved(11)


def test_increments_append_and_end_where_a_replacement_ends(pipe: Pipe) -> None:
    pipe.land("a.jsonl.gz", [event(n, 3) for n in range(10)], modified=1_000_000_000)
    pipe.index()
    pipe.ingest(june(3), "increment")
    for number in range(3):
        lines = [
            event(10 + number, 3),
            event(number, 3, amount=-1),
            event(60 + number, 3, amount="x"),
        ]
        pipe.land(f"{9 - number}.jsonl.gz", lines, modified=1_000_000_100 + number)
        pipe.index()
        assert pipe.ingest(june(1, 5), "increment").snapshot.operation == "append"
    assert pipe.ingest(june(1, 5), "increment").days == ()
    pipe.assert_conserved(19)
    rows, rejects, ledger = (
        pipe.rows("id", "amount", "landing_file", "landing_line"),
        pipe.quarantine(),
        pipe.ledger(),
    )
    pipe.ingest(june(3))
    assert (
        pipe.rows("id", "amount", "landing_file", "landing_line"),
        pipe.quarantine(),
        pipe.ledger(),
    ) == (
        rows,
        rejects,
        ledger,
    )


def test_a_file_that_changes_is_taken_again_and_its_old_days_with_it(pipe: Pipe) -> None:
    pipe.land("1.jsonl.gz", [event(1, 1), event(2, 2), b"broken"], modified=1_000_000_000)
    pipe.land("2.jsonl.gz", [event(3, 2)])
    pipe.index()
    pipe.ingest(june(1, 5))
    pipe.land("1.jsonl.gz", [event(4, 1), event(5, 4)], modified=1_000_000_001)
    assert pipe.index().days == (date(2026, 6, 1), date(2026, 6, 2), date(2026, 6, 4))
    pipe.ingest(june(1, 20), "increment")
    assert pipe.rows() == [(3,), (4,), (5,)]
    assert pipe.quarantine() == []
    pipe.assert_conserved(3)


def test_files_that_vanish_are_named_and_the_other_days_are_written(pipe: Pipe) -> None:
    kept = pipe.land("1.jsonl.gz", [event(1, 1), event(2, 2)])
    gone = pipe.land("2.jsonl.gz", [event(3, 2), event(4, 3)])
    pipe.index()
    pipe.ingest(june(1, 3))
    gone.unlink()
    kept.touch()
    with pytest.raises(NoSuchFileError, match=r"2\.jsonl\.gz"):
        pipe.index() and pipe.ingest(june(1, 3))
    assert pipe.rows() == [(1,), (2,), (3,), (4,)], "days that need the file are as they were"
    kept.unlink()
    pipe.folder.rmdir()
    with pytest.raises(NoSuchFileError, match="landing folder"):
        pipe.index()


def test_a_file_that_was_deleted_before_it_was_ingested_blocks_no_day(pipe: Pipe) -> None:
    pipe.land("1.jsonl.gz", [event(1, 1), event(2, 2)])
    gone = pipe.land("2.jsonl.gz", [event(3, 2), event(4, 3)])
    pipe.index()
    gone.unlink()
    assert pipe.ingest(june(1, 3), "increment").days == tuple(june(1, 2))
    assert pipe.rows() == [(1,), (2,)]
    assert not any(row.pending for row in pipe.ledger())
    assert pipe.index().problems == {"2.jsonl.gz": "deleted before all of it was ingested"}
    pipe.assert_conserved(2)


def test_rows_of_a_run_that_died_stay_when_their_file_is_deleted(pipe: Pipe) -> None:
    gone = pipe.land("1.jsonl.gz", [event(1, 1), event(2, 1), event(3, 1, id=None)])
    pipe.index()
    pipe.ingest(june(1))
    rows = [replace(row, pending=True, rows=0, quarantined=0) for row in pipe.ledger()]
    pipe.lake.load_table(pipe.source.ledger_table).overwrite(ledger_to_arrow(rows))
    gone.unlink()
    pipe.ingest(june(1), "increment")
    assert pipe.rows() == [(1,), (2,)]
    assert not any(row.pending for row in pipe.ledger())
    pipe.assert_conserved(3)


def test_a_folder_that_vanishes_while_it_is_read(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pipe.land("1.jsonl.gz", [event(1, 1)])
    pipe.land("2.jsonl.gz", [event(2, 1)])
    listed = ingest.list_landing(pipe.landing, pipe.source)
    path.unlink()
    monkeypatch.setattr(ingest, "list_landing", lambda *_: listed)
    with pytest.raises(NoSuchFileError, match=r"1\.jsonl\.gz"):
        pipe.index()
    monkeypatch.undo()
    pipe.ingest(june(1))
    assert pipe.rows() == [(2,)]


def test_drift_adds_columns_promotes_types_and_quarantines_the_rest(pipe: Pipe) -> None:
    pipe.land("1.jsonl.gz", [event(n, n) for n in range(1, 5)])
    pipe.index()
    first = pipe.ingest(june(1, 4)).snapshot
    pipe.land(
        "2.jsonl.gz",
        [
            event(5, 5, device="phone", score=1, tags=["a"]),
            event(6, 6, amount=2**40, score=0.5),
            event(7, 7, amount=1.5),
            event(8, 8, device=17),
            event(9, 9, User="case"),
            event(10, 10, **{"a.b": 1}),
        ],
    )
    pipe.index()
    outcome = pipe.ingest(june(1, 20), "increment")
    assert outcome.drift.added == (
        Column("device", "string"),
        Column("score", "double"),
        Column("tags", "json"),
    )
    assert outcome.drift.promoted == (Column("amount", "long"),)
    table = pipe.lake.load_table(pipe.source.table)
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert sorted(rows) == [1, 2, 3, 4, 5, 6]
    assert [rows[n]["device"] for n in (4, 5, 6)] == [None, "phone", None]
    assert (rows[5]["score"], rows[5]["tags"], rows[6]["amount"]) == (1.0, '["a"]', 2**40)
    assert "device" not in table.scan(snapshot_id=first.snapshot_id).to_arrow().schema.names
    assert sorted(reason for _, _, reason in pipe.quarantine()) == [
        "type conflict", "type conflict", "unexpected column", "unusable column name",
    ]  # fmt: skip
    pipe.assert_conserved(10)
    pipe.ingest(june(1, 20))
    assert len(pipe.rows()) == 6


def redeclared(pipe: Pipe, **types: str | None) -> Pipe:
    """The source with other types of columns; None leaves one out."""
    kept = {column.name: column.type for column in pipe.source.columns} | types
    columns = tuple(Column(name, kind) for name, kind in kept.items() if kind is not None)
    again = copy(pipe)
    again.source = replace(pipe.source, columns=columns)
    return again


@pytest.mark.parametrize("drift", ["evolve", "quarantine"])
@pytest.mark.parametrize(
    ("before", "after", "stored"),
    [
        ("int", "long", "long"),
        ("long", "int", "long"),
        ("float", "double", "double"),
        ("decimal(9,2)", "decimal(12,2)", "decimal(12,2)"),
        ("long", "string", None),
        ("string", "json", None),
        ("json", "string", None),
        ("decimal(12,2)", "decimal(12,3)", None),
        ("decimal(12,2)", "double", None),
        ("date", "timestamptz", None),
        ("timestamptz", "timestamp", None),
    ],
)
def test_a_changed_type_is_promoted_or_refused_never_ignored(
    pipe: Pipe, before: str, after: str, stored: str | None, drift: str
) -> None:
    old = redeclared(pipe.with_source(drift=drift), extra=before)
    old.land("1.jsonl.gz", [event(1, 1)])
    old.index()
    old.ingest(june(1))
    new = redeclared(old, extra=after)
    new.land("2.jsonl.gz", [event(2, 1)])
    new.index()
    head = new.lake.load_table(new.source.table).metadata_location
    if stored is None:
        told = f"'extra' as .*{before[:4]}.* again; or drop .*lakehouse sql"
        with pytest.raises(InvalidSchemaError, match=told) as refused:
            new.ingest(june(1), "increment")
        assert new.lake.load_table(new.source.table).metadata_location == head
        (statement,) = re.findall('lakehouse sql "(.+?)"', str(refused.value))
        done = CliRunner().invoke(app, ["sql", statement, "--catalog", new.warehouse])
        assert done.exit_code == 0, done.output
        new.ingest(june(1))
        assert new.rows() == [(1,), (2,)]
        return
    new.ingest(june(1), "increment")
    (extra,) = [c for c in source_columns(new.lake, new.source) if c.name == "extra"]
    assert extra.type == stored
    assert new.rows() == [(1,), (2,)]


def test_a_column_that_is_declared_later_is_added_and_one_left_out_stays(pipe: Pipe) -> None:
    strict = pipe.with_source(drift="quarantine")
    strict.land("1.jsonl.gz", [event(1, 1)])
    strict.index()
    strict.ingest(june(1))
    wider = redeclared(strict, extra="string")
    wider.land("2.jsonl.gz", [event(2, 1, extra="x")])
    wider.index()
    outcome = wider.ingest(june(1), "increment")
    assert outcome.drift.added == (Column("extra", "string"),)
    assert wider.rows() == [(1,), (2,)]
    strict.ingest(june(1), "increment")
    assert "extra" in [column.name for column in source_columns(strict.lake, strict.source)]


@pytest.mark.parametrize("at_first", [True, False])
def test_fields_named_like_partition_fields_become_no_columns(pipe: Pipe, at_first: bool) -> None:
    """Iceberg's Java would not open a table that has such a column."""
    if not at_first:
        pipe.land("0.jsonl.gz", [event(1, 1)])
        pipe.index()
        pipe.ingest(june(1))
    odd = [event(2, 2, event_ts_day=1), event(3, 2, **{f"{pipe.source.bucket}_bucket": 1})]
    pipe.land("1.jsonl.gz", [*odd, event(4, 2)])
    pipe.index()
    pipe.ingest(june(2), "increment")
    assert pipe.rows() == ([(4,)] if at_first else [(1,), (4,)])
    assert [reason for _, _, reason in pipe.quarantine()] == ["unexpected column"] * 2
    pipe.assert_conserved(3 if at_first else 4)


def test_strict_sources_quarantine_what_was_not_declared(pipe: Pipe) -> None:
    strict = pipe.with_source(drift="quarantine")
    strict.land("1.jsonl.gz", [event(1, 1), event(2, 1, device="phone"), event(3, 1, device=None)])
    strict.index()
    strict.ingest(june(1))
    assert strict.rows() == [(1,), (3,)]
    assert [reason for _, _, reason in strict.quarantine()] == ["unexpected column"]


def test_inferred_columns_whole_row_duplicates_csv_and_parquet(pipe: Pipe) -> None:
    csv = pipe.with_source(
        pattern="*.csv",
        natural_key=(),
        columns=(),
        event_time=EventTime("ts"),
    )
    csv.land(
        "1.csv",
        [
            b"ts,user,amount,code",
            *[
                f"2026-06-0{1 + n % 2}T10:00:00Z,u{n % 2},{n % 3},00{n % 2}".encode()
                for n in range(12)
            ],
        ],
    )
    csv.index()
    csv.ingest(june(1, 2))
    assert len(csv.rows("user", "amount", "code")) == 6
    assert [type(v) for v in csv.rows("user", "amount", "code")[0]] == [str, int, str], (
        "00 is a code, not a number"
    )
    assert combined_duplicates(csv) == 6

    parquet = pipe.with_source(pattern="*.parquet", natural_key=(), columns=())
    moments = [
        datetime(2026, 6, 1, 10, tzinfo=UTC),
        datetime(2026, 6, 1, 10, tzinfo=UTC),
        datetime(2026, 6, 2, tzinfo=UTC),
    ]
    pq.write_table(
        pa.table(
            {"ts": moments, "user": ["a", "a", None], "amount": pa.array([1, 1, 2], pa.int32())}
        ),
        parquet.folder / "1.parquet",
    )
    (parquet.folder / "2.parquet").write_bytes(b"PAR1 but not really")
    assert list(parquet.index().problems) == ["2.parquet"]
    parquet.ingest(june(1, 2))
    assert parquet.rows("amount") == [(1,), (2,)]
    assert combined_duplicates(parquet) == 1


@pytest.mark.parametrize("most_rows", [7, 40, 8_000_000], ids=["parts of a day", "days", "all"])
@pytest.mark.parametrize("repeated", [0.02, 0.7])
def test_of_each_event_the_line_that_landed_first_stays(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, most_rows: int, repeated: float
) -> None:
    """SQLite says which; however many rows a worker compares at a time."""
    monkeypatch.setattr(duplicates, "_MOST_ROWS", most_rows)
    chance = random.Random(most_rows)
    with closing(sqlite3.connect(":memory:")) as landed:
        landed.execute("CREATE TABLE landed (run, modified, file, line, day, id, amount)")
        for run in range(3):
            for file in range(3):
                name, modified = (
                    f"{run}{chance.random()}.jsonl.gz",
                    1_780_000_000 + run * 9 + file % 2,
                )
                known = landed.execute("SELECT day, id, amount FROM landed").fetchall()
                events = []
                for line in range(1, 50):
                    if known and chance.random() < repeated:
                        day, number, amount = chance.choice(known)
                        amount = chance.choice([amount, line])
                    else:
                        day, number, amount = chance.randrange(2, 7), chance.randrange(9_999), line
                    events.append(event(number, day, amount=amount, user=f"u{amount % 5}"))
                    known.append((day, number, amount))
                    row = (run, modified, name, line, day, number, amount)
                    landed.execute("INSERT INTO landed VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                pipe.land(name, events, modified=modified)
            pipe.index()
            pipe.ingest(june(1, 20), "increment")
        first = landed.execute(
            "SELECT id, amount, file, line FROM (SELECT *, row_number() OVER ("
            "PARTITION BY day, id ORDER BY run, modified, file, line) AS rank FROM landed) "
            "WHERE rank = 1"
        ).fetchall()
        lines = landed.execute("SELECT count(*) FROM landed").fetchone()[0]
    assert pipe.rows("id", "amount", "landing_file", "landing_line") == sorted(first)
    assert combined_duplicates(pipe) == lines - len(first)


def combined_duplicates(pipe: Pipe) -> int:
    return sum(row.duplicates for row in pipe.ledger())


def test_a_run_that_dies_before_the_ledger_knows_doubles_nothing(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.land("1.jsonl.gz", [event(n, 1) for n in range(5)])
    pipe.index()
    pipe.ingest(june(1))
    pipe.land("2.jsonl.gz", [event(n, 1) for n in range(3, 9)] + [event(90, 1, amount="x")])
    pipe.index()
    overwrite = Table.overwrite

    def dies(self: Table, *arguments: object, **named: object) -> object:
        if self.name == pipe.source.ledger_table:
            raise KeyboardInterrupt
        return overwrite(self, *arguments, **named)

    monkeypatch.setattr(Table, "overwrite", dies)
    with pytest.raises(KeyboardInterrupt):
        pipe.ingest(june(1), "increment")
    monkeypatch.undo()
    assert len(pipe.rows()) == 9
    pipe.ingest(june(1), "increment")
    assert pipe.rows() == [(n,) for n in range(9)]
    pipe.assert_conserved(12)


@pytest.mark.skipif(
    not WIKI.exists(),
    reason=f"{WIKI.name} is not beside the checkout (LAKEHOUSE_SHARED_DATA names its folder)",
)
def test_a_second_source_by_definition_alone(pipe: Pipe) -> None:
    from assets.wiki.source import WIKI_EDITS

    source = replace(WIKI_EDITS, engine=pipe.source.engine)
    pipe = Pipe(pipe.root / "wiki", pipe.spark, source)
    shutil.copyfile(WIKI, pipe.folder / WIKI.name)
    found = pipe.index()
    assert (found.files, found.lines, len(found.days)) == (1, 39_244, 46)
    pipe.ingest(found.days)
    table = pipe.lake.load_table(WIKI_EDITS.table).scan().to_arrow()
    with gzip.open(WIKI) as file:
        lines = [orjson.loads(line) for line in file]
    distinct = {orjson.dumps(line, option=orjson.OPT_SORT_KEYS) for line in lines}
    assert table.num_rows == len(distinct)
    assert sum(table["delta"].to_pylist()) == sum(orjson.loads(line)["delta"] for line in distinct)
    assert len(lines) == table.num_rows + sum(
        row.duplicates + row.quarantined for row in pipe.ledger()
    )
    twelfth = sum(
        1 for moment in table["event_ts"].to_pylist() if moment.date() == date(2015, 9, 12)
    )
    assert twelfth == sum(
        1 for line in distinct if orjson.loads(line)["time"].startswith("2015-09-12")
    )
