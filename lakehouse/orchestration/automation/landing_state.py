"""What of a source waits for a run: files not read, days not written, stale derived days."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.ingestion.landing_ledger import LandingFile
from lakehouse.ingestion.landing_listing import digest, landed, landing_files, list_landing
from lakehouse.ingestion.redefined_source import ledger_property
from lakehouse.ingestion.source import Source
from lakehouse.ingestion.source_tables import oldest_pending, unread
from lakehouse.ingestion.workers.index_pass import days_in
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.ingestion.workplace import text_bytes
from lakehouse.lake import Lakehouse
from lakehouse.orchestration.asset_results import today
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.staleness import Staleness
from lakehouse.orchestration.automation.attempts import Work

# files that a successful run could have read, but that are not in the ledger
LEFT_UNREAD = "unread"

Pending = tuple[date | None, LandingFile]

_FEW_FILES, _FEW_BYTES = 50, 1 << 20
_MOST_KNOWN = 200
_KNOWN: dict[tuple[str, ...], Staleness] = {}
_AHEAD: dict[str, tuple[tuple[LandingReader, tuple[LandingFile, ...]], frozenset[date]]] = {}
"""By landing folder: what was read of it last, and the days that were found."""


def source_work(
    lake: Lakehouse,
    landing_root: str,
    source: Source,
    derived: Sequence[DerivedTable],
    seen_ms: int,
) -> dict[Work, str]:
    """What waits, of what landed (see `waiting`) and of the tables that derive from it.

    Args:
        lake: the tables.
        landing_root: where the landing folders are.
        source: whose work it is.
        derived: tables that follow from this source alone.
        seen_ms: files that landed before were there for a run that succeeded.

    Raises:
        NoSuchFileError: the landing folder does not exist.
    """
    unread, pending = look(lake, landing_root, source)
    ahead = days_ahead(landing_root, source, unread)
    return waiting(source, unread, pending, seen_ms, ahead) | stale(lake, source, derived)


def days_ahead(landing_root: str, source: Source, unread: pa.Table) -> frozenset[date]:
    """The days of unread files where these are few and small: one run indexes and ingests them.

    Others are not read here: a run indexes them, and the next one writes the days that it found.
    """
    files = landing_files(unread.slice(0, _FEW_FILES + 1))
    if len(files) > _FEW_FILES or text_bytes(files) > _FEW_BYTES:
        return frozenset()
    readable = [file for file in files if file.refused is None]
    reader = LandingReader.of(landing_root, source, today())
    read = (reader, tuple(readable))
    if _AHEAD.get(reader.folder, (None,))[0] != read:  # as long as they wait, ticks see them again
        _AHEAD[reader.folder] = (read, days_in(readable, reader))
    return _AHEAD[reader.folder][1]


def stale(lake: Lakehouse, source: Source, derived: Sequence[DerivedTable]) -> dict[Work, str]:
    """Derived tables, or their days, that no longer follow from their inputs; metadata alone."""
    works: dict[Work, str] = {}
    for table in derived:
        if not all(lake.table_exists(name) for name in table.inputs):
            continue
        staleness = _staleness(lake, table)
        if table.day_column is None:
            works |= {Work(table.name): staleness.cause} if staleness.whole else {}
            continue
        last = source.last_day or today()
        works |= {
            Work(table.name, day): cause
            for day, cause in staleness.partitions.items()
            if str(source.first_day) <= day <= str(last)
        }
    return works


def _staleness(lake: Lakehouse, table: DerivedTable) -> Staleness:
    """Measured once for each version of the table and its inputs in this process."""
    names = [name for name in (table.name, *table.inputs) if lake.table_exists(name)]
    where = (
        table.name,
        table.definition,
        *(lake.load_table(name).metadata_location for name in names),
    )
    if where not in _KNOWN:
        _KNOWN[where] = table.staleness(lake)
        while len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN)), None)
    return _KNOWN[where]


def look(lake: Lakehouse, landing_root: str, source: Source) -> tuple[pa.Table, Sequence[Pending]]:
    """What of the landing folder is to be read, and what the ledger knows to be pending.

    Returns:
        Landing files whose present version is not in the ledger, or was read by a definition that
        does not hold any more, as a listing has them; and each pending day with the oldest of its
        pending files.

    Raises:
        NoSuchFileError: the landing folder does not exist.
    """
    listing = list_landing(landing_root, source)
    if not lake.table_exists(source.ledger_table):
        return listing, []
    ledger = lake.load_table(source.ledger_table)
    last = source.last_day or today()
    # events of clocks that are ahead wait until their day has come
    come = [
        pending for pending in oldest_pending(ledger) if pending[0] is None or pending[0] <= last
    ]
    return unread(source, ledger, listing), come


def waiting(
    source: Source,
    unread: pa.Table,
    pending: Iterable[Pending],
    seen_ms: int,
    ahead: Iterable[date] = (),
) -> dict[Work, str]:
    """What waits, each with a name for its cause, which changes when something new may help. Pure.

    Args:
        source: whose work it is.
        unread: landing files that the ledger does not know, as a listing has them.
        pending: days, each with the oldest file whose lines of that day are not in the raw table.
        seen_ms: files that landed before were there for a run that succeeded.
        ahead: days that unread files are known to have.
    """
    is_new = pc.greater(unread["modified_ms"], seen_ms)
    parts = {
        Work(source.ledger_table): unread.filter(is_new),
        Work(source.ledger_table, LEFT_UNREAD): unread.filter(pc.invert(is_new)),
    }
    for day, file in pending:
        parts[Work(source.table, "" if day is None else day.isoformat())] = landed([file])
    causes = {work: digest(files)[:12] for work, files in parts.items() if files.num_rows}
    if new := causes.get(Work(source.ledger_table)):
        for day in ahead:
            causes.setdefault(Work(source.table, day.isoformat()), new)
    left = Work(source.ledger_table, LEFT_UNREAD)
    if left in causes:  # another definition may read what this one could not
        definition = repr(ledger_property(source)).encode()
        causes[left] += f"-{hashlib.blake2b(definition, digest_size=4).hexdigest()}"
    return causes
