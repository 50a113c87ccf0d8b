"""What a tick of the landing sensor finds and touches, against brute force over files."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.counting_storage import CountingStorage
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.errors import NoSuchFileError
from lakehouse.ingestion import ingest, landing_listing
from lakehouse.ingestion.landing_ledger import LandingFile, LedgerRow, ledger_to_arrow
from lakehouse.ingestion.landing_listing import digest, landed, landing_files, list_landing
from lakehouse.ingestion.redefined_source import ledger_property
from lakehouse.ingestion.source_tables import ledger_table, pending_days
from lakehouse.ingestion.workers import index_pass
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.orchestration.automation import landing_state
from lakehouse.orchestration.automation.attempts import Work
from lakehouse.orchestration.automation.landing_state import LEFT_UNREAD, days_ahead, look, waiting
from lakehouse.storage.storage_by_scheme import storage_for
from tests.orchestration.conftest import EVENTS, Pipe, event, june

Version = tuple[str, int, int]
_numbers = itertools.count(1)
NAMES = [
    "1.jsonl",
    "2.jsonl.gz",
    "with space.jsonl",
    "it's.jsonl",
    'quo"te.jsonl',
    "new\nline.jsonl",
    "tab\t1.jsonl",
    "grüße-東京-🚆.jsonl",
    "a\\b.jsonl",
    "100%25.jsonl",
    "..jsonl",
    "_partial.jsonl",
    "plain",
]
FOLDERS = ["", "a/", "a/b/", "dt=2026-06-01/", "x y/ü/", ".tmp/", "a/_tmp/"]
paths = st.builds("{}{}".format, st.sampled_from(FOLDERS), st.sampled_from(NAMES))
days = st.one_of(st.none(), st.integers(1, 4).map(lambda day: dt.date(2026, 6, day)))
files = st.tuples(paths, st.integers(0, 2), st.integers(1, 3).map(lambda n: n * 1_000))
ledger_rows = st.tuples(files, days, st.booleans())
changes = st.lists(
    st.one_of(
        st.tuples(st.just("land"), files),
        st.tuples(st.just("delete"), paths),
        st.tuples(st.just("rename"), paths, paths),
    ),
    max_size=6,
)


@dataclass
class Folder:
    """A landing folder on a disk, and what lies in it."""

    root: Path
    there: dict[str, Version] = field(default_factory=dict)

    def land(self, file: Version) -> None:
        path = self.root / "events" / file[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * file[1])
        os.utime(path, ns=(file[2] * 1_000_000 + 999, file[2] * 1_000_000 + 999))
        self.there[file[0]] = file

    def delete(self, path: str) -> None:
        if self.there.pop(path, None):
            (self.root / "events" / path).unlink()

    def rename(self, old: str, new: str) -> None:
        if old in self.there:
            (_, size, modified) = self.there[old]
            self.delete(old)
            self.land((new, size, modified))

    def looked_at(self, pattern: str) -> set[Version]:
        return {
            file
            for path, file in self.there.items()
            if not any(part.startswith((".", "_")) for part in path.split("/"))
            and fnmatchcase(path, pattern)
        }


def row(file: Version, day: dt.date | None, *, pending: bool) -> LedgerRow:
    path, size, modified = file
    return LedgerRow(
        landing_file=path,
        size_bytes=size,
        modified_ms=modified,
        event_day=day,
        lines=1,
        pending=pending,
    )


def cause(versions: set[Version]) -> str:
    lines = "".join(f"{path}\t{size}\t{at}\n" for path, size, at in sorted(versions))
    return hashlib.blake2b(lines.encode(), digest_size=12).hexdigest()[:12]


@given(
    before=st.lists(files, max_size=10),
    indexed=st.lists(st.tuples(st.integers(0, 9), days, st.booleans()), max_size=15),
    others=st.lists(ledger_rows, max_size=8),
    after=changes,
    commits=st.integers(0, 3),
    pattern=st.sampled_from(["*", "*.jsonl", "a/*", "*[!z]"]),
    seen_ms=st.sampled_from([0, 1_000, 2_000, 5_000]),
    at_once=st.sampled_from([1, 2, 1 << 18]),
)
def test_a_tick_finds_what_brute_force_finds(
    before: list[Version],
    indexed: list[tuple[int, dt.date | None, bool]],
    others: list[tuple[Version, dt.date | None, bool]],
    after: list[tuple],
    commits: int,
    pattern: str,
    seen_ms: int,
    at_once: int,
) -> None:
    """Varied: names, folders, versions, rows of a file, commits of the ledger, rows joined at once.

    The ledger has rows of files as they were before they changed, and of files that never were.
    """
    source = replace(EVENTS, pattern=pattern)
    lake = load_catalog(f"memory://tick-{next(_numbers)}/warehouse")
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(landing_listing, "_JOINED_ROWS", at_once)
        patched.setattr(landing_listing, "_BATCH_ROWS", at_once)
        folder = Folder(Path(name))
        (folder.root / "events").mkdir()
        for file in before:
            folder.land(file)
        landed_before = sorted(folder.there.values())
        rows = [
            row(landed_before[at % len(landed_before)], day, pending=pending)
            for at, day, pending in indexed
            if landed_before
        ]
        rows += [row(file, day, pending=pending) for file, day, pending in others]
        ledger = ledger_table(lake, source) if commits else None
        for number in range(commits - 1):
            some = rows[number :: commits - 1]
            if some:
                ledger.append(ledger_to_arrow(some))
        for what, *how in after:
            getattr(folder, what)(*how)

        unread, pending = look(lake, name, source)
        named = waiting(source, unread, pending, seen_ms)

    rows = rows if commits > 1 else []
    expected = folder.looked_at(pattern) - {
        (one.landing_file, one.size_bytes, one.modified_ms) for one in rows
    }
    # a pending row without a day asks for its file
    asked = {one.landing_file for one in rows if one.pending and one.event_day is None}
    expected |= {file for file in folder.looked_at(pattern) if file[0] in asked}
    assert {(f.path, f.size_bytes, f.modified_ms) for f in landing_files(unread)} == expected
    assert unread.num_rows == len(expected)
    oldest: dict[dt.date | None, Version] = {}
    for one in rows:
        if one.pending and one.event_day is not None:
            version = (one.landing_file, one.size_bytes, one.modified_ms)
            first = oldest.setdefault(one.event_day, version)
            oldest[one.event_day] = min(first, version, key=lambda v: (v[2], v[0], v[1]))
    assert dict(pending) == {day: LandingFile(*file) for day, file in oldest.items()}
    assert len(pending) == len(oldest)
    parts = {
        Work("raw.events_landing"): {file for file in expected if file[2] > seen_ms},
        Work("raw.events_landing", LEFT_UNREAD): {file for file in expected if file[2] <= seen_ms},
    }
    parts |= {Work("raw.events", str(day or "")): {file} for day, file in oldest.items()}
    # a file that was left unread is tried again when the source is defined otherwise
    defined = hashlib.blake2b(repr(ledger_property(source)).encode(), digest_size=4).hexdigest()
    assert named == {
        work: cause(found) + (f"-{defined}" if work.part == LEFT_UNREAD else "")
        for work, found in parts.items()
        if found
    }


def test_two_files_that_the_ledger_cannot_tell_apart_by_name_are_told_apart(tmp_path: Path) -> None:
    """A name that is not UTF-8 is spelled with escapes, as another file may really be called."""
    folder = Folder(tmp_path)
    folder.land(("\\xff.jsonl", 1, 1_000))
    spelled = os.fsencode(tmp_path / "events") + b"/\xff.jsonl"
    Path(os.fsdecode(spelled)).write_bytes(b"xx")
    lake = load_catalog((tmp_path / "warehouse").as_uri())
    source = replace(EVENTS, pattern="*")
    both = landing_files(look(lake, str(tmp_path), source)[0])
    assert [file.path for file in both] == ["\\xff.jsonl", "\\xff.jsonl"]
    for known in both:
        rows = [row((known.path, known.size_bytes, known.modified_ms), None, pending=False)]
        ledger_table(lake, source).overwrite(ledger_to_arrow(rows))
        (left,) = landing_files(look(lake, str(tmp_path), source)[0])
        assert {left, known} == set(both)


def test_a_store_is_listed_as_a_disk_is() -> None:
    root = f"memory://landing-{next(_numbers)}/landing"
    storage = storage_for(root)
    for key in ("1.jsonl", "a/2.jsonl", "_x/4.jsonl", "a/.5.jsonl", "a/6.csv"):
        storage.write(f"{root}/events/{key}", b"xyz")
    storage.write(f"{root}/events_too/7.jsonl", b"")
    listed = landing_files(list_landing(root, replace(EVENTS, pattern="*.jsonl")))
    assert [(file.path, file.size_bytes) for file in listed] == [
        ("1.jsonl", 3),
        ("a/2.jsonl", 3),
    ]
    with pytest.raises(NoSuchFileError, match="does not exist"):
        list_landing(root, replace(EVENTS, name="nothing"))


def test_a_cause_changes_with_every_fact_of_a_version_and_not_with_the_order() -> None:
    one, two = LandingFile("a", 1, 2), LandingFile("b", 1, 2)
    assert digest(landed([one, two])) == digest(landed([two, one]))
    others = [replace(two, path="c"), replace(two, size_bytes=2), replace(two, modified_ms=3)]
    names = {digest(landed([one, *more])) for more in ([], [two], *([other] for other in others))}
    assert len(names) == 5


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """How many objects of each kind were made."""
    made = {"LandingFile": 0, "LedgerRow": 0}
    for kind in (LandingFile, LedgerRow):

        def counted(self: object, *args: object, _made=kind.__init__, **more: object) -> None:
            made[type(self).__name__] += 1
            _made(self, *args, **more)

        monkeypatch.setattr(kind, "__init__", counted)
    return made


def landed_and_indexed(lake: Lakehouse, root: Path, count: int, *, pending: bool) -> Folder:
    """So many files, all of them in the ledger with ten days each."""
    folder = Folder(root)
    versions = [(f"{n % 7}/{n:06}.jsonl.gz", 1, 1_000 + n) for n in range(count)]
    for file in versions:
        folder.land(file)
    all_days: list[dt.date | None] = [None, *june(1, 10)]
    rows = [
        row(file, day, pending=pending and day is not None) for file in versions for day in all_days
    ]
    ledger_table(lake, EVENTS).overwrite(ledger_to_arrow(rows))
    return folder


@pytest.mark.parametrize("count", [50, 1_000])
def test_a_tick_makes_no_object_for_a_file_and_reads_of_the_ledger_only_what_it_compares(
    count: int, tmp_path: Path, objects: dict[str, int]
) -> None:
    """Held fixed: what is new and how many days wait.

    Varied: how many files landed and are known.
    """
    storage = CountingStorage()
    catalog = FilesystemCatalog("memory://tick/warehouse", storage_factory=lambda *_: storage)
    lake = Lakehouse(catalog)
    folder = landed_and_indexed(lake, tmp_path, count, pending=True)
    for number in range(3):
        folder.land((f"new-{number}.jsonl.gz", 1, 9_000_000))
    storage.forget()
    objects.update(LandingFile=0, LedgerRow=0)
    unread, pending = look(lake, str(tmp_path), EVENTS)
    assert (unread.num_rows, len(pending)) == (3, 10)
    assert objects == {"LandingFile": 10, "LedgerRow": 0}, "one for each day that waits"
    assert sum(one.verb != "LIST" for one in storage.requests) <= 40


@pytest.mark.parametrize("count", [50, 1_000])
def test_a_run_makes_objects_of_what_it_works_on(
    count: int, pipe: Pipe, objects: dict[str, int]
) -> None:
    """Held fixed: one new file of one day. Varied: how many files of other days are known."""
    landed_and_indexed(pipe.lake, Path(pipe.landing), count, pending=False)
    pipe.land("new.jsonl.gz", [event(1, 15), event(2, 15)])
    objects.update(LandingFile=0, LedgerRow=0)
    assert pipe.index().files == 1
    assert pending_days(pipe.lake.load_table(EVENTS.ledger_table)) == tuple(june(15))
    outcome = pipe.ingest(june(15), "increment")
    assert outcome.by_day.keys() == set(june(15))
    assert outcome.by_day[june(15)[0]].rows == 2
    assert sum(objects.values()) < 30


@pytest.mark.parametrize("count", [50, 1_000])
def test_a_run_lists_the_landing_folder_once(
    count: int, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days are written of files that are looked at by their names: only what is new is looked for.

    Varied: how many files of other days are known.
    """
    listed: list[int] = []
    scandir = os.scandir

    def counted(at: str | int) -> Iterator[os.DirEntry[str]]:
        if isinstance(at, int):  # a folder that is open, as those of landing files are
            listed.append(at)
        return scandir(at)

    monkeypatch.setattr(os, "scandir", counted)
    folder = landed_and_indexed(pipe.lake, Path(pipe.landing), count, pending=False)
    pipe.land("new.jsonl.gz", [event(1, 15)])
    pipe.index()
    assert len(listed) == 1 + 7
    assert pipe.ingest(june(15), "increment").counts.rows == 1
    assert pipe.ingest(june(15)).counts.rows == 1
    assert len(listed) == 1 + 7
    folder.delete("0/000000.jsonl.gz")  # neither of this day nor pending
    assert pipe.ingest(june(15)).counts.rows == 1
    assert len(listed) == 1 + 7


@pytest.mark.parametrize("engine", ["python"])
def test_a_file_that_is_indexed_while_days_are_written_is_not_taken_for_deleted(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.land("1.jsonl.gz", [event(1, 1)])
    pipe.index()

    def listed_before_another_lands(*arguments: object) -> pa.Table:
        monkeypatch.undo()
        listing = list_landing(*arguments)
        pipe.land("2.jsonl.gz", [event(2, 2)])
        pipe.index()
        return listing

    monkeypatch.setattr(ingest, "list_landing", listed_before_another_lands)
    pipe.ingest(june(1))
    assert [row.pending for row in pipe.ledger() if row.event_day] == [False, True]
    pipe.ingest(june(2))
    assert pipe.rows() == [(1,), (2,)]
    pipe.assert_conserved(2)


def test_a_store_is_asked_for_the_folder_of_the_named_files() -> None:
    storage = CountingStorage()
    keys = [f"{day}/{number}.jsonl" for day in june(1, 9) for number in range(3)]
    for key in keys:
        storage.write(f"memory://named/landing/events/{key}", b"xyz")
    storage.forget()
    below = f"{june(1)[0]}/"
    there = landing_listing._in_store(storage, "memory://named/landing/events", below)
    assert sorted(facts[0] for facts in there) == [key for key in keys if key.startswith(below)]
    assert [request.size for request in storage.requests] == [3]


def test_a_file_of_a_store_is_there_whatever_its_key() -> None:
    root = f"memory://keys-{next(_numbers)}/landing"
    keys = ["a/b/2.jsonl", "a/b/1.jsonl", "a/bc/1.jsonl", "a./b/1.jsonl", "1.jsonl"]
    for key in keys:
        storage_for(root).write(f"{root}/events/{key}", b"xyz")
    for number in (1, 2):
        for named in itertools.combinations(keys, number):
            listed = landing_files(list_landing(root, replace(EVENTS, pattern="*"), named))
            assert set(named) <= {file.path for file in listed}


@given(
    before=st.lists(files, max_size=10),
    after=changes,
    named=st.lists(paths, max_size=6, unique=True),
    links=st.lists(st.tuples(st.sampled_from(FOLDERS), st.sampled_from(FOLDERS)), max_size=2),
    pattern=st.sampled_from(["*", "*.jsonl", "a/*", "*[!z]"]),
    scheme=st.sampled_from(["file", "memory"]),
)
def test_named_files_are_what_a_listing_says_of_them(
    before: list[Version],
    after: list[tuple[str, ...]],
    named: list[str],
    links: list[tuple[str, str]],
    pattern: str,
    scheme: str,
) -> None:
    """Also below links, where files are that no listing shows, and under names it escapes."""
    source = replace(EVENTS, pattern=pattern)
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(Path(path))
        root = path if scheme == "file" else f"memory://named-{next(_numbers)}"
        (Path(path) / "events").mkdir()
        for file in before:
            folder.land(file)
        for what, *arguments in after:
            getattr(folder, what)(*arguments)
        if scheme == "memory":
            for name, (_, size, _) in folder.there.items():
                storage_for(root).write(f"{root}/events/{name}", b"x" * size)
        for number, (at, target) in enumerate(links):
            (folder.root / "events" / at).mkdir(parents=True, exist_ok=True)
            link = folder.root / "events" / at / f"link-{number}"
            link.symlink_to(folder.root / "events" / target)
            named = [*named, *(f"{at}link-{number}/{name}" for name in ("1.jsonl", "plain"))]
            named.append(f"{at}link-{number}")
        (folder.root / "events" / os.fsdecode(b"\xff.jsonl")).write_bytes(b"xx")
        named = [*named, "\\xff.jsonl", "../events/1.jsonl"]
        if scheme == "memory" and not folder.there:
            return  # no store has a folder of nothing
        everything = landing_files(list_landing(root, source))
        there = {file for file in everything if file.path in named}
        told = landing_files(list_landing(root, source, named))
    assert {file for file in told if file.path in named} == there
    assert set(told) <= set(everything)


@pytest.mark.parametrize("engine", ["python"])
def test_days_of_what_is_little_are_known_before_it_is_indexed(pipe: Pipe) -> None:
    def ahead() -> set[dt.date]:
        unread, _ = look(pipe.lake, pipe.landing, pipe.source)
        return set(days_ahead(pipe.landing, pipe.source, unread))

    pipe = pipe.with_source(pattern="*")
    pipe.land("a.jsonl.gz", [event(n, 1 + n % 3) for n in range(9)] + [b"no json", event(1, 29)])
    pipe.land("b.csv", [b"id,ts,user,amount", b"1,2026-06-09T12:00:00,u,1", b"2,never,u,1"])
    pipe.land("none.jsonl", [b"[]"])
    (pipe.folder / "cut.jsonl.gz").write_bytes((pipe.folder / "a.jsonl.gz").read_bytes()[:30])
    (pipe.folder / "nowhere.jsonl").symlink_to(pipe.folder / "missing")
    found = ahead()
    assert {*june(1, 3), *june(9)} <= found
    assert pipe.index().files == 4
    assert found == {row.event_day for row in pipe.ledger() if row.event_day}
    assert ahead() == set()
    for number in range(51):
        pipe.land(f"{number}.jsonl", [event(100 + number, 4)])
    assert ahead() == set()
    (pipe.folder / "50.jsonl").unlink()
    assert ahead() == set(june(4))
    pipe.land("big.jsonl", [event(number, 5, note="x" * 99) for number in range(9_000)])
    assert ahead() == set()


@pytest.mark.parametrize("engine", ["python"])
def test_a_file_that_unpacks_to_much_is_not_read_to_its_end_by_a_tick(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_pass, "_MOST_LINES", 10)
    lines = [event(1, 1)] * 40_000 + [event(1, 2)]
    path = pipe.land("a.jsonl.gz", lines)
    pipe.land("b.jsonl.gz", [event(1, 3)])
    assert path.stat().st_size < (1 << 20) // 8
    unread, _ = look(pipe.lake, pipe.landing, pipe.source)
    assert days_ahead(pipe.landing, pipe.source, unread) == set(june(1))


@pytest.mark.parametrize("engine", ["python"])
def test_what_waits_is_read_once_for_its_days(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    days_in = landing_state.days_in
    monkeypatch.setattr(
        landing_state,
        "days_in",
        lambda files, reader: read.append([file.path for file in files]) or days_in(files, reader),
    )

    def ahead() -> set[dt.date]:
        unread, _ = look(pipe.lake, pipe.landing, pipe.source)
        return set(days_ahead(pipe.landing, pipe.source, unread))

    pipe.land("a.jsonl.gz", [event(1, 1)], modified=1_000_000_000)
    assert ahead() == ahead() == set(june(1))
    pipe.land("b.jsonl.gz", [event(1, 2)], modified=1_000_000_000)
    assert ahead() == ahead() == set(june(1, 2))
    pipe.land("a.jsonl.gz", [event(1, 3)], modified=1_000_000_001)
    assert ahead() == ahead() == set(june(2, 3))
    assert read == [["a.jsonl.gz"], ["a.jsonl.gz", "b.jsonl.gz"], ["a.jsonl.gz", "b.jsonl.gz"]]
