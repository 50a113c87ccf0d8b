"""Makes snapshots: manifests, manifest lists and summaries.

An operation says as data what its snapshot is to be (`SnapshotPlan`); the producer writes the
manifests and the manifest list, once for all attempts where they depend on no version.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec

from lakehouse.catalog.confinement import check_locations
from lakehouse.environment import Environment
from lakehouse.manifests.commit_files import CommitFiles
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_merging import plan_merges
from lakehouse.manifests.manifest_reader import ManifestReader, inherit, load_manifests
from lakehouse.manifests.manifest_writer import (
    FileKey,
    ManifestWriter,
    Partition,
    carried,
    file_key,
    has_live,
    keys_by_kind,
    live,
    manifest_content,
    mark_deleted,
    may_hold,
    with_counts,
)
from lakehouse.spec.manifests.columnar_manifest import columnar_path
from lakehouse.spec.manifests.data_file import (
    CONTENT_DATA,
    CONTENT_EQUALITY_DELETES,
    STATUS_DELETED,
    DataFile,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import (
    CONTENT_DELETE_MANIFEST,
    ManifestFile,
    has_counts,
    numbered_manifests,
    write_manifest_list,
)
from lakehouse.spec.metadata.snapshot import CARRIED, OPERATION_REPLACE, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_unwritable
from lakehouse.spec.partitioning.partition_terms import summary_path
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

T = TypeVar("T")

_SMALL_ENTRIES = 16
"""Manifests with so many are read and written together with others."""


RETRIES = "lakehouse.retries"


PARTITIONS = "changed-partition-count"


PARTITIONS_LISTED = "partition-summaries-included"


PARTITION_PREFIX = "partitions."


_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


@dataclass(slots=True)
class SummaryBuilder:
    """Counts what one snapshot adds and removes.

    Attributes:
        counts: by their names in the summary.
        partitions: files by changed partition, and whether each is added; None: nobody counts them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    partitions: dict[tuple[object, ...], list[tuple[DataFile, bool]]] | None = field(
        default_factory=dict
    )

    @classmethod
    def of(
        cls, *, added: Iterable[DataFile] = (), removed: Iterable[DataFile] = ()
    ) -> SummaryBuilder:
        """The counts of a snapshot that adds and removes these files."""
        summary = cls()
        summary.add(added)
        summary.remove(removed)
        return summary

    def add(self, files: Iterable[DataFile]) -> None:
        """Count files that the snapshot adds."""
        for file in files:
            self._count(file, added=True)

    def remove(self, files: Iterable[DataFile]) -> None:
        """Count files that the snapshot removes."""
        for file in files:
            self._count(file, added=False)

    def build(self, parent: Mapping[str, str] | None, metadata: TableMetadata) -> dict[str, str]:
        """The summary's entries.

        Totals continue the parent's (None: there is no parent), and are left out where it has none.
        The table's metadata say of how many partitions at most the counts are listed.
        """
        entries = {name: str(value) for name, value in self.counts.items() if value}
        entries |= self._of_partitions(metadata)
        for total, (plus, minus) in _TOTALS.items():
            before = "0" if parent is None else parent.get(total, "")
            if before.isdigit():
                value = int(before) + self.counts[plus] - self.counts[minus]
                if value >= 0:
                    entries[total] = str(value)
        return entries

    def _of_partitions(self, metadata: TableMetadata) -> dict[str, str]:
        """How many there are and, where these are few enough, the counts of each by its path."""
        if self.partitions is None:
            return {}
        limit = TableProperties(metadata.properties).summary_partition_limit
        if limit == 0:
            return {PARTITIONS: str(len(self.partitions))}
        specs, schema = metadata.specs(), metadata.schema()
        by_path: dict[str, Counter[str]] = {}
        for files in self.partitions.values():
            first, _ = files[0]
            path = summary_path(specs[first.spec_id], schema, first.partition)
            counts = by_path.setdefault(path, Counter())
            for file, added in files:
                counts.update(_counts_of(file, added=added))
        entries = {PARTITIONS: str(len(by_path))}
        if 0 < len(by_path) <= limit:
            entries[PARTITIONS_LISTED] = "true"
            for path, counts in by_path.items():
                texts = (f"{name}={value}" for name, value in counts.items() if value)
                entries[f"{PARTITION_PREFIX}{path}"] = ",".join(texts)
        return entries

    def _count(self, file: DataFile, *, added: bool) -> None:
        if self.partitions is not None:
            self.partitions.setdefault(file.partition_key, []).append((file, added))
        for name, value in _counts_of(file, added=added).items():
            self.counts[name] += value


def _counts_of(file: DataFile, *, added: bool) -> dict[str, int]:
    """What a summary counts of a file that comes or goes, by name."""
    verb, rows = ("added" if added else "removed"), file.record_count
    size = {f"{verb}-files-size": file.content_size_in_bytes or file.file_size_in_bytes}
    if file.content == CONTENT_DATA:
        verb = "added" if added else "deleted"
        return {**size, f"{verb}-data-files": 1, f"{verb}-records": rows}
    kind = "equality" if file.content == CONTENT_EQUALITY_DELETES else "position"
    files = f"{verb}-dvs" if file.is_deletion_vector else f"{verb}-{kind}-delete-files"
    return {**size, f"{verb}-delete-files": 1, files: 1, f"{verb}-{kind}-deletes": rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotManifests:
    """The manifests of a snapshot, and what its summary says.

    Attributes:
        manifests: new ones first, then those kept; emptied ones of earlier snapshots are left out.
        summary: counts.
        extra: further entries of its summary.
        merge: whether small manifests may be merged, as `commit.manifest-merge.enabled` says.
        removed: data files that it removes.
        missing: locations of files that it was to remove, and that are not live.
        vectors: of the file with its deletion vectors; None where it has none.
    """

    manifests: Sequence[ManifestFile]
    summary: SummaryBuilder = field(default_factory=SummaryBuilder)
    extra: Mapping[str, str] = field(default_factory=dict)
    merge: bool = True
    removed: Sequence[DataFile] = ()
    missing: Collection[str] = ()
    vectors: str | None = None


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot that is to be made.

    Attributes:
        number: of the operation that makes it, in the change.
        metadata: of the table, with what earlier operations of the change did to it.
        parent: None: it is the first.
        draw: gives its id.
    """

    number: int
    metadata: TableMetadata
    parent: Snapshot | None
    draw: Callable[[], int]

    @property
    def snapshot_id(self) -> int:
        """Its id, the same on every attempt; a plan with nothing to do asks for none."""
        return self.draw()


class SnapshotPlan(ABC):
    """What one snapshot is to be, as data, whatever the version that it is built on.

    Attributes:
        operation: append, replace, overwrite or delete.
        snapshot_id: chosen before; None: the producer draws one.
    """

    operation: str
    snapshot_id: int | None = None

    @abstractmethod
    def write(self, producer: SnapshotProducer, new: NewSnapshot) -> SnapshotManifests | None:
        """Write the manifests, each once for all attempts; None where there is nothing to do."""

    def write_ahead(self, producer: SnapshotProducer, new: NewSnapshot) -> None:
        """Write before the turn what a commit on this version needs."""
        self.write(producer, new)


@dataclass(frozen=True, slots=True)
class Filtered:
    """Manifests after a removal.

    Attributes:
        manifests: in the order given; those that listed removed files replaced.
        removed: removed files, as the manifests know them.
        missing: keys of files that were not live.
    """

    manifests: list[ManifestFile]
    removed: list[DataFile]
    missing: set[FileKey]


class SnapshotProducer:
    """The files of one commit.

    Args:
        storage: keeps the table's files.
        environment: clock and ids.
        roots: folders below which tables may lie; none: the catalog's server decides.

    Attributes:
        files: of this commit.
        manifest_writer: writes its manifests.
        regrouped: manifests that each operation regrouped in its last attempt.
    """

    def __init__(self, storage: Storage, environment: Environment, roots: tuple[str, ...]) -> None:
        self.storage = storage
        self.environment = environment
        self._roots = roots
        self.files = CommitFiles(storage, str(environment.new_uuid()))
        self.manifest_writer = ManifestWriter(self.files)
        self.regrouped: dict[int, frozenset[str]] = {}
        self._made: dict[Hashable, object] = {}
        self._lists: dict[tuple[int, str], list[ManifestFile]] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value made for `key` once, for all attempts.

        The key says all that it depends on, beside what no attempt changes (the operations, files
        that are there). A snapshot's id stands for its operation.

        | key | made | depends on |
        |---|---|---|
        | snapshot id, number | by `new_snapshot` | the operation |
        | added, snapshot, files | manifests of new files | these: they inherit what a base tells |
        | filtered, snapshot, manifests, keys | manifests without files | these |
        | merged, snapshot, manifests | one manifest of several | these |
        | rewritten, number, manifests | regrouped manifests | these |
        | columnar, manifest | the manifest with a columnar one | it |
        | change, snapshot, content | entries that another commit wrote | its snapshot |
        | vectors, snapshot, files and deletes | deletion vectors | deletes that are there |
        | deleted, files and deletes | positions that they delete | these |
        | row ids, file | of the rows that were decided on | the file |
        | phantoms, number, file | if it holds rows that an operation decides on | the file |
        """
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]

    # Snapshots

    def new_snapshot(
        self, number: int, plan: SnapshotPlan, metadata: TableMetadata, parent: Snapshot | None
    ) -> NewSnapshot:
        """The snapshot that an operation is to make, the `number`th of its change.

        Raises:
            InvalidLocationError: nothing may be written where the table's metadata says.
        """
        check_locations(metadata, self._roots)
        return NewSnapshot(
            number, metadata, parent, partial(self._snapshot_id, number, plan, metadata)
        )

    def _snapshot_id(self, number: int, plan: SnapshotPlan, metadata: TableMetadata) -> int:
        if plan.snapshot_id is not None:
            return plan.snapshot_id
        return self.once(("snapshot id", number), partial(self._unused_id, metadata))

    def _unused_id(self, metadata: TableMetadata) -> int:
        while True:
            drawn = self.environment.new_snapshot_id()
            if metadata.snapshot_or_none(drawn) is None:
                return drawn

    def make_snapshot(
        self,
        operation: str,
        written: SnapshotManifests,
        new: NewSnapshot,
        *,
        further: Mapping[str, str],
        now_ms: int,
    ) -> tuple[Snapshot, bytes]:
        """A snapshot of manifests that are written, and its manifest list.

        Args:
            operation: append, replace, overwrite or delete.
            written: the manifests.
            new: its id and its parent.
            further: the last entries of its summary.
            now_ms: milliseconds since 1970.

        Raises:
            UnsupportedFeatureError: a v1 table, for which no manifest lists are written, or an
                encrypted one.
        """
        metadata, parent, snapshot_id = new.metadata, new.parent, new.snapshot_id
        refuse_unwritable(metadata, parent)
        parent_id = None if parent is None else parent.snapshot_id
        manifests = [
            manifest
            for manifest in written.manifests
            if manifest.added_snapshot_id == snapshot_id or has_live(manifest)
        ]
        if written.merge and TableProperties(metadata.properties).manifest_merge_enabled:
            manifests = self._merged(metadata, manifests, snapshot_id)
        first_row_id, version = metadata.next_row_id, metadata.format_version
        numbers: dict[str, Any] = {
            "snapshot_id": snapshot_id,
            "sequence_number": metadata.next_sequence_number(),
            "format_version": version,
            "first_row_id": first_row_id if version >= 3 else None,
        }
        listed, next_row_id = numbered_manifests(manifests, **numbers)
        data, _ = write_manifest_list(listed, parent_snapshot_id=parent_id, **numbers)
        before = None if parent is None else parent.summary
        kept = before if before is not None and operation == OPERATION_REPLACE else {}
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=numbers["sequence_number"],
            timestamp_ms=metadata.next_timestamp_ms(now_ms, parent_id),
            manifest_list=self.files.manifest_list_location(metadata, snapshot_id),
            summary={
                "operation": operation,
                **written.summary.build(before, metadata),
                **{key: kept[key] for key in CARRIED if key in kept},
                **written.extra,
                **further,
            },
            schema_id=metadata.current_schema_id,
            first_row_id=None if next_row_id is None else first_row_id,
            added_rows=None if next_row_id is None else next_row_id - (first_row_id or 0),
        )
        self._lists[_list_key(snapshot)] = list(listed)
        DEFAULT_CACHE.keep_list(data, listed)
        return snapshot, data

    def _merged(
        self, metadata: TableMetadata, manifests: Sequence[ManifestFile], snapshot_id: int
    ) -> list[ManifestFile]:
        """The same live entries in fewer manifests."""
        write = self.manifest_writer.write

        def merge(members: list[ManifestFile]) -> ManifestFile:
            parts = self.entries_of_all(members, metadata)
            entries = Entries.concat([carried(part, snapshot_id) for part in parts])
            content = members[0].content
            return write(entries, metadata, content=content, snapshot_id=snapshot_id)

        merged: list[ManifestFile] = []
        for members in plan_merges(metadata, manifests):
            key = ("merged", snapshot_id, tuple(member.manifest_path for member in members))
            alone = len(members) == 1
            merged.append(members[0] if alone else self.once(key, partial(merge, members)))
        return merged

    # Manifests

    def manifests_of_added(
        self,
        new: NewSnapshot,
        files: Sequence[DataFile],
        *,
        data_sequence_number: int | None = None,
    ) -> list[ManifestFile]:
        """The manifests of the files that a snapshot adds, written once.

        Args:
            new: of which table; knows the files' partition specs.
            files: data files, delete files or both.
            data_sequence_number: for data files that replace older ones; None: inherited from the
                commit.
        """
        return self.once(
            ("added", new.snapshot_id, tuple(map(file_key, files))),
            lambda: self.manifest_writer.write_added(
                new.metadata,
                files,
                snapshot_id=new.snapshot_id,
                data_sequence_number=data_sequence_number,
            ),
        )

    def without_files(self, new: NewSnapshot, removed: Sequence[DataFile]) -> Filtered:
        """The parent's manifests, with files marked as deleted that the snapshot removes.

        With them go deletes that are about removed data files alone.

        A deletion vector must not outlive its data file (spec: Deletion Vectors). A manifest is
        rewritten once, also over several attempts; small ones of a spec become one. Large ones that
        are older than all of the files are read only if the others lack some.
        """
        metadata, snapshot_id, manifests = new.metadata, new.snapshot_id, self.manifests(new.parent)
        removed = (*removed, *self._deletes_about(metadata, manifests, removed))
        wanted = keys_by_kind(removed)
        partitions: dict[int, set[Partition]] = {}
        oldest: dict[tuple[int, int], int] = {}
        for file in removed:
            partitions.setdefault(file.spec_id, set()).add(file.partition)
            kind = (manifest_content(file), file.spec_id)
            number = file.data_sequence_number or 0
            oldest[kind] = min(number, oldest.get(kind, number))

        write = self.manifest_writer.write

        def rewrite(
            manifest: ManifestFile, keys: set[FileKey]
        ) -> tuple[ManifestFile, list[DataFile]]:
            entries, files = mark_deleted(live(self.entries(manifest, metadata)), keys, snapshot_id)
            if not files:
                return manifest, files
            content = manifest.content
            return write(entries, metadata, content=content, snapshot_id=snapshot_id), files

        def rewritten(manifest: ManifestFile, keys: set[FileKey]) -> ManifestFile:
            key = ("filtered", snapshot_id, manifest.manifest_path, frozenset(keys))
            replaced, files = self.once(key, partial(rewrite, manifest, keys))
            gone.extend(files)
            return replaced

        kept: list[ManifestFile] = []
        gone: list[DataFile] = []
        older: list[int] = []
        small: dict[tuple[int, int], list[ManifestFile]] = {}
        for manifest in manifests:
            spec_id = manifest.partition_spec_id
            keys = wanted.get((manifest.content, spec_id))
            if (
                not keys
                or not has_live(manifest)
                or not may_hold(manifest, metadata, partitions[spec_id])
            ):
                kept.append(manifest)
                continue
            if _entries_of(manifest) <= _SMALL_ENTRIES:
                small.setdefault((manifest.content, spec_id), []).append(manifest)
                continue
            listed_at = manifest.sequence_number  # None: by this commit
            if listed_at is not None and listed_at < oldest[manifest.content, spec_id]:
                older.append(len(kept))
                kept.append(manifest)
                continue
            kept.append(rewritten(manifest, keys))
        for kind, members in small.items():
            paths = tuple(member.manifest_path for member in members)
            together, files = self.once(
                ("filtered", snapshot_id, paths, frozenset(wanted[kind])),
                partial(self._rewrite_small, new, members, wanted[kind], rewrite),
            )
            kept.extend(together)
            gone.extend(files)
        missing = set().union(*wanted.values()) - {file_key(file) for file in gone}
        for at in older if missing else ():
            kind = (kept[at].content, kept[at].partition_spec_id)
            kept[at] = rewritten(kept[at], wanted[kind])
        return Filtered(kept, gone, missing - {file_key(file) for file in gone})

    def _rewrite_small(
        self,
        new: NewSnapshot,
        members: list[ManifestFile],
        keys: set[FileKey],
        rewrite: Callable[[ManifestFile, set[FileKey]], tuple[ManifestFile, list[DataFile]]],
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """Small manifests of a spec without files: those that listed some become one."""
        metadata, snapshot_id = new.metadata, new.snapshot_id
        parts = [live(part) for part in self.entries_of_all(members, metadata)]
        entries, files = mark_deleted(Entries.concat(parts), keys, snapshot_id)
        untouched, touched, at = [], [], 0
        for member in members:
            size = (member.added_files_count or 0) + (member.existing_files_count or 0)
            part, at = entries.slice(at, size), at + size
            if pc.any(pc.equal(part.table["status"], STATUS_DELETED)).as_py():
                touched.append(part)
            else:
                untouched.append(member)
        if at != len(entries):  # the manifest list has wrong counts
            each = [rewrite(member, keys) for member in members]
            return [manifest for manifest, _ in each], [file for _, gone in each for file in gone]
        if not touched:
            return members, []
        written = self.manifest_writer.write_split(
            Entries.concat(touched),
            metadata,
            content=members[0].content,
            snapshot_id=snapshot_id,
        )
        return [*written, *untouched], files

    def _deletes_about(
        self,
        metadata: TableMetadata,
        manifests: Sequence[ManifestFile],
        removed: Sequence[DataFile],
    ) -> list[DataFile]:
        """Deletes about removed data files alone that are not removed themselves."""
        data = [file for file in removed if file.content == CONTENT_DATA]
        listed = {file_key(file) for file in removed}
        deletes = self.deletes_naming(metadata, manifests, data) if data else []
        return [file for file in deletes if file_key(file) not in listed]

    def deletes_naming(
        self,
        metadata: TableMetadata,
        manifests: Sequence[ManifestFile],
        files: Sequence[DataFile],
    ) -> list[DataFile]:
        """Live position deletes and deletion vectors that are about one of the data files alone.

        Args:
            metadata: knows their partition specs.
            manifests: of the snapshot looked at.
            files: data files, or delete files of their partitions that name them.
        """
        paths = {file.named_file or file.file_path for file in files}
        partitions = {file.partition for file in files}
        specs = {file.spec_id for file in files}
        deletes: list[DataFile] = []
        for manifest in manifests:
            if manifest.content != CONTENT_DELETE_MANIFEST or not has_live(manifest):
                continue
            # Engines list deletes under the present spec also when their data file has an older one
            alone = specs == {manifest.partition_spec_id}
            if alone and not may_hold(manifest, metadata, partitions):
                continue
            entries = live(self.entries(manifest, metadata))
            deletes += entries.filter(entries.naming(paths)).to_data_files()
        return deletes

    def manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        """The manifests of a snapshot with all their counts, read once."""
        if snapshot is None:
            return []
        key = _list_key(snapshot)
        if key not in self._lists:
            self._lists[key] = [
                manifest if has_counts(manifest) else self._count(manifest)
                for manifest in load_manifests(self.storage, snapshot)
            ]
        return self._lists[key]

    def _count(self, manifest: ManifestFile) -> ManifestFile:
        spec = PartitionSpec(spec_id=manifest.partition_spec_id)
        reader = ManifestReader(self.storage, {}, {spec.spec_id: spec})
        return with_counts(manifest, reader.entries(manifest, ("status", "record_count")))

    def entries(self, manifest: ManifestFile, metadata: TableMetadata) -> Entries:
        """All entries of a manifest, deleted ones too.

        Sequence numbers are null in manifests of this commit that no manifest list carries yet.
        """
        if self.manifest_writer.wrote(manifest):
            own = self.manifest_writer.entries_of(manifest)
            return own if manifest.sequence_number is None else inherit(own, manifest)
        return ManifestReader.of(self.storage, metadata, DEFAULT_CACHE).entries(manifest)

    def entries_of_all(
        self, manifests: Sequence[ManifestFile], metadata: TableMetadata
    ) -> list[Entries]:
        """`entries` of manifests in their order; small ones of one writer come together."""
        parts: list[Entries] = []
        reader = ManifestReader.of(self.storage, metadata, DEFAULT_CACHE)
        for is_own, group in itertools.groupby(manifests, self.manifest_writer.wrote):
            if is_own:
                parts += [self.entries(manifest, metadata) for manifest in group]
            else:
                parts += reader.entries_of_all(list(group))
        return parts

    def keep_only(self, snapshots: Sequence[Snapshot], vectors: Collection[str]) -> None:
        """Delete what was written, except what the snapshots that landed refer to.

        Args:
            snapshots: of the attempt that landed.
            vectors: files with deletion vectors that they name.
        """
        if not snapshots:  # a change of metadata alone
            self.files.delete_all()
            return
        kept = {snapshot.manifest_list for snapshot in snapshots} | set(vectors)
        for snapshot in snapshots:
            kept.update(manifest.manifest_path for manifest in self.manifests(snapshot))
        if self.files.is_more_than(kept):
            kept |= {columnar_path(location) for location in kept if location.endswith(".avro")}
        self.files.delete_all_but(kept)


def _entries_of(manifest: ManifestFile) -> int:
    """How many entries a manifest has, whose counts are known."""
    counts = (
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
    )
    return sum(count or 0 for count in counts)


def _list_key(snapshot: Snapshot) -> tuple[int, str]:
    """Each attempt makes the same snapshot id, with a manifest list of its own."""
    return snapshot.snapshot_id, snapshot.manifest_list
