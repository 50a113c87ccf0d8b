"""Applies the files of a change feed: each one batch, one commit, and then a line of the ledger.

The commit of a batch is named by the version of its file, so a run that died between the two
commits is finished by the next one, which finds the batch applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakehouse.errors import InvalidInputError, LakehouseError
from lakehouse.ingestion.feeds.change_feed import ChangeFeed
from lakehouse.ingestion.landing_ledger import LandingFile, landing_folder
from lakehouse.ingestion.landing_listing import (
    digest,
    landed,
    landing_files,
    list_landing,
    unindexed,
)
from lakehouse.ingestion.reading.content import UnreadableContentError
from lakehouse.ingestion.reading.formats.record_chunks import Records
from lakehouse.ingestion.reading.landing_file import file_chunks
from lakehouse.ingestion.reading.typing.observed_kinds import column_kinds
from lakehouse.ingestion.reading.typing.spelled_text import SpelledText
from lakehouse.ingestion.reading.typing.typed_columns import typed_column
from lakehouse.ingestion.reading.typing.value_kinds import inferred
from lakehouse.ingestion.source_tables import indexed_versions
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.ingestion.workers.landing_reader import LandingReader
from lakehouse.lake import Lakehouse
from lakehouse.row_changes.change_data.debezium_events import debezium_changes
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.table import Table
from lakehouse.table.write_result import ApplyResult

_COUNTS = ("changes", "superseded", "ignored", "rows_inserted", "rows_updated", "rows_deleted")
FEED_LEDGER_SCHEMA = pa.schema(
    [
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("modified_ms", pa.int64(), nullable=False),
        pa.field("snapshot_id", pa.int64()),
        *(pa.field(name, pa.int64(), nullable=False) for name in _COUNTS),
    ]
)


@dataclass
class AppliedFiles:
    """What a run did.

    Attributes:
        files: that were applied.
        counts: what became of their changes, by the names of `ApplyResult`.
        left: files that were left alone, with the reason.
    """

    files: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    left: dict[str, str] = field(default_factory=dict)


def waiting_files(lake: Lakehouse, landing_root: str, feed: ChangeFeed) -> list[LandingFile]:
    """Versions of files that were not applied yet, by path.

    Raises:
        NoSuchFileError: the landing folder does not exist.
    """
    listing = list_landing(landing_root, feed.reading())
    indexed = (
        indexed_versions(lake.load_table(feed.ledger_table))
        if lake.table_exists(feed.ledger_table)
        else ()
    )
    return landing_files(unindexed(listing, indexed))


def apply_feed(
    lake: Lakehouse,
    landing_root: str,
    feed: ChangeFeed,
    stamp: RunStamp,
    progress: Callable[[str], None],
) -> AppliedFiles:
    """Apply what waits, in the order of paths.

    Raises:
        NoSuchFileError: the landing folder does not exist.
        CommitError: see `lakehouse.errors`; what was applied stays so.
    """
    done = AppliedFiles()
    folder, source = landing_folder(landing_root, feed.reading()), feed.reading()
    properties = dict(storage_for(folder).properties)
    reader = LandingReader(folder, source, source.first_day, properties)
    waiting = waiting_files(lake, landing_root, feed)
    for number, file in enumerate(waiting, start=1):
        if file.refused is not None:
            done.left[file.path] = file.refused
            continue
        try:
            with reader.open(file) as stream:
                changes = change_records(stream, file.path, feed)
            applied = _apply(lake, feed, file, changes, stamp)
        except (UnreadableContentError, OSError) as error:
            done.left[file.path] = str(error)
            continue
        except LakehouseError as error:
            if error.retryable:
                raise
            done.left[file.path] = error.message
            continue
        done.files.append(file.path)
        for name in _COUNTS:
            done.counts[name] += getattr(applied, name)
        again = ", applied before" if applied.replayed else ""
        progress(
            f"{number} of {len(waiting)} files: {file.path}, {changes.num_rows} changes{again}"
        )
    return done


def _apply(
    lake: Lakehouse, feed: ChangeFeed, file: LandingFile, changes: pa.Table, stamp: RunStamp
) -> ApplyResult:
    table = _table(lake, feed, changes)
    applied = table.apply_changes(
        changes,
        list(feed.keys),
        list(feed.sequence_columns),
        feed.deletes,
        summary=stamp.summary(),
        commit_id=f"{feed.name}:{digest(landed([file]))}",
    )
    row = {
        "landing_file": file.path,
        "size_bytes": file.size_bytes,
        "modified_ms": file.modified_ms,
        "snapshot_id": applied.snapshot_id,
        **{name: getattr(applied, name) for name in _COUNTS},
    }
    ledger = (
        lake.load_table(feed.ledger_table)
        if lake.table_exists(feed.ledger_table)
        else lake.create_table(feed.ledger_table, FEED_LEDGER_SCHEMA)
    )
    ledger.append(pa.Table.from_pylist([row], FEED_LEDGER_SCHEMA), summary=stamp.summary())
    return applied


def _table(lake: Lakehouse, feed: ChangeFeed, changes: pa.Table) -> Table:
    """The table; a new one has the columns of key and sequence, and gets the others with rows."""
    if lake.table_exists(feed.table):
        return lake.load_table(feed.table)
    names = list(dict.fromkeys([*feed.keys, *feed.sequence_columns]))
    missing = [name for name in names if name not in changes.schema.names]
    if missing:
        raise InvalidInputError(
            f"{feed.table}: the changes have no column {', '.join(missing)}; they have "
            f"{', '.join(changes.schema.names)}"
        )
    return lake.create_table(feed.table, changes.select(names).schema)


def change_records(stream: pa.NativeFile, path: str, feed: ChangeFeed) -> pa.Table:
    """All changes of a file, in order, in memory.

    Columns of rows have the type of their values; Parquet's and Avro's are their own.

    Raises:
        InvalidInputError: a line that is no change; the message names file and line.
        InvalidSchemaError: values of one column that have no type in common.
        UnreadableContentError: what is wrong with the file as a whole.
        OSError: the file cannot be read.
    """
    chunks: list[Records] = []
    for chunk in file_chunks(stream, path, feed.reading()):
        if len(chunk.rejects):
            rejects = chunk.rejects
            why = f"{rejects.reasons[0]} {rejects.details[0]}".strip()
            raise InvalidInputError(f"{path}, line {rejects.lines[0]}: {why}")
        if chunk.records is not None:
            chunks.append(chunk.records)
    if feed.envelope == "rows":
        return _rows(chunks, path, SpelledText(feed.read))
    events = [
        records.text(position) for records in chunks for position in range(len(records.lines))
    ]
    try:
        return debezium_changes(events, list(feed.keys), add_fields=list(feed.sequence_by))
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error.message}") from error


def _rows(chunks: Sequence[Records], path: str, spelled: SpelledText) -> pa.Table:
    kinds: dict[str, Counter[str]] = {}
    for records in chunks:
        for name, values in records.fields().items():
            of = kinds.setdefault(name, Counter())
            of.update(column_kinds(values, untyped=records.untyped, spelled=spelled))
    types = {name: kind for name, of in kinds.items() if (kind := inferred(of)) is not None}
    tables = []
    for records in chunks:
        columns = {}
        for name, kind in types.items():
            values, misspelled = spelled.usual(records.column(name), kind)
            columns[name], bad = typed_column(values, kind, from_text=records.untyped)
            for position, why in sorted((bad | misspelled).items()):
                raise InvalidInputError(
                    f"{path}, line {records.lines[position]}: {name} is a {kind} in the other "
                    f"lines: {why}"
                )
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)
