"""What metadata says of a table now, and what changed since a snapshot.

Reads manifests, never data.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.semantics.binding import TableNames
from lakehouse.semantics.facts import Change, TableFacts, field_names, lineage_since, table_facts
from lakehouse.spec.manifests.data_file import STATUS_DELETED
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import CONTENT_DATA_MANIFEST
from lakehouse.table import Table


def table_names(table: Table) -> TableNames:
    """How the table and its fields are called now."""
    fields = {path: field_id for field_id, path in field_names(table.schema()).items()}
    return TableNames(table.name, table.metadata.table_uuid, fields)


@dataclass(frozen=True, slots=True)
class _Files:
    """Live files of a snapshot: data files by spec, and the paths of delete files."""

    data: list[Entries]
    deletes: frozenset[str]

    def paths(self) -> frozenset[str]:
        return frozenset(path for part in self.data for path in part.table["file_path"].to_pylist())


@dataclass
class Gatherer:
    """Facts and changes of one version of a table; what was read once is kept.

    Attributes:
        table: the version.
        wanted: field ids to say something of; all of them when None.
    """

    table: Table
    wanted: Collection[int] | None = None
    _files: dict[int | None, _Files] = field(default_factory=dict, repr=False)
    _facts: TableFacts | None = field(default=None, repr=False)
    _changes: dict[int | None, Change] = field(default_factory=dict, repr=False)

    def facts(self) -> TableFacts:
        """Of the current snapshot."""
        if self._facts is None:
            current = self.table.metadata.current_snapshot_id
            files = self._of(current)
            self._facts = table_facts(
                self.table.name,
                self.table.metadata,
                current,
                files.data,
                deletes=bool(files.deletes),
                wanted=self.wanted,
            )
        return self._facts

    def change(self, since: int | None) -> Change:
        """What happened after a snapshot; None: ever."""
        if since not in self._changes:
            self._changes[since] = self._change(since)
        return self._changes[since]

    def _change(self, since: int | None) -> Change:
        metadata = self.table.metadata
        lineage = lineage_since(metadata, since)
        if lineage.known and lineage.first is None:
            return Change(after=self.facts(), same_rows=True, append_only=True)
        if not lineage.known:
            return Change(after=self.facts(), same_rows=False, since=lineage.first)
        before, after = self._of(since), self._of(metadata.current_snapshot_id)
        same_deletes = before.deletes == after.deletes
        old, new = before.paths(), after.paths()
        return Change(
            after=self.facts(),
            same_rows=False,
            since=lineage.first,
            added=new - old if same_deletes else None,
            removed=old - new if same_deletes else None,
            append_only=lineage.append_only,
            repacked=lineage.repacked,
        )

    def _of(self, snapshot_id: int | None) -> _Files:
        if snapshot_id not in self._files:
            self._files[snapshot_id] = self._read(snapshot_id)
        return self._files[snapshot_id]

    def _read(self, snapshot_id: int | None) -> _Files:
        metadata, storage = self.table.metadata, self.table.storage
        data: list[Entries] = []
        deletes: set[str] = set()
        if snapshot_id is None:
            return _Files(data, frozenset())
        reader = ManifestReader.of(storage, metadata, DEFAULT_CACHE)
        for manifest in load_manifests(storage, metadata.snapshot(snapshot_id)):
            entries = _live(reader.entries(manifest))
            if manifest.content == CONTENT_DATA_MANIFEST:
                data.append(entries)
            else:
                deletes |= set(entries.table["file_path"].to_pylist())
        return _Files(data, frozenset(deletes))


def _live(entries: Entries) -> Entries:
    status = entries.table["status"]
    if not np.any(np.asarray(status) == STATUS_DELETED):
        return entries
    return entries.filter(pc.not_equal(status, pa.scalar(STATUS_DELETED, pa.int32())))
