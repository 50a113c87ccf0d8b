"""Delta's transaction log of a table: read, followed after each commit, checkpointed, cleaned.

Iceberg commits; the log follows. A snapshot of `main` becomes one version of the log, created if
absent, so that two that follow at once write it once. Who follows reads the log's head first and
the table second: what the log shows is never newer than the table that it is compared with. A
writer that dies in between leaves a log that the next commit, or `lakehouse delta sync`, brings up
to date.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from lakehouse.catalog.catalog_decorator import innermost
from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.data.deletes.deletion_vector import Positions, encode_vector
from lakehouse.data.reading.scan_reader import ReadRequest, deleted_positions, read_table
from lakehouse.delta_log.delta_actions import (
    ENGINE,
    LOG_FOLDER,
    VECTOR_FILE_VERSION,
    VECTOR_FOLDER,
    Action,
    Definition,
    add_actions,
    check_expressible,
    commit_info,
    file_key,
    inline_vector,
    remove_action,
    stored_at,
    stored_vector,
    vector_location,
)
from lakehouse.errors import (
    CorruptMetadataError,
    FileAlreadyExistsError,
    NoSuchFileError,
    StorageError,
)
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.manifests.manifest_reader import ManifestReader, load_manifests
from lakehouse.scan.delete_index import DeleteIndex
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile, ManifestEntry
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.spec.metadata.commit_names import batch_of, last_batches
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.schema.iceberg_types import METADATA_COLUMNS
from lakehouse.storage.storage_protocol import Storage

log = logging.getLogger(__name__)

CHECKPOINT_EVERY = 100
"""Versions from one checkpoint to the next: readers replay at most so many small files."""
_YOUNG_MS = 3600 * 1000
_INLINE_BYTES = 1024
"""Vectors up to this size stand in the log itself: no request more for writer and reader."""
_ADDED, _DELETED = 1, 2
NO_BATCH = -1
"""The `txn` of a stream whose batches were rolled back: Delta's number for a stream without one."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a log.

    Attributes:
        version: its number.
        table_uuid: of the Iceberg table that it is of.
        location: of that table then: a copy of the log elsewhere still names other files.
        snapshot_id: of the snapshot that it shows; None: the table had none.
        definition: digest of protocol and schema.
        vectors: whether the log has had deletion vectors.
    """

    version: int
    table_uuid: str
    location: str
    snapshot_id: int | None
    definition: str
    vectors: bool

    @classmethod
    def of(cls, version: int, info: Mapping[str, Any]) -> Head:
        """From what `commitInfo` says of the table."""
        snapshot_id = info["snapshot-id"]
        return cls(
            version,
            info["table-uuid"],
            info["location"],
            None if snapshot_id is None else int(snapshot_id),
            info["definition"],
            info["vectors"],
        )


@dataclass(frozen=True, slots=True)
class LogVersion:
    """One version of a log: when, what, and the snapshot that it shows."""

    version: int
    timestamp_ms: int
    operation: str
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class LogState:
    """What a version of a log shows.

    Attributes:
        definition: `protocol` and `metaData`.
        adds: the `add` of every file, by path and id of its vector.
        transactions: the `txn` of every stream, by its id.
    """

    definition: dict[str, Action]
    adds: dict[tuple[str, str], Action]
    transactions: dict[str, Action]


class DeltaLog:
    """The log of one table.

    Args:
        storage: where it is.
        root: the table's folder.
    """

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = root.rstrip("/")
        self._folder = f"{self._root}/{LOG_FOLDER}"

    def head(self, known: int = 0) -> Head | None:
        """The newest version, None where there is no log.

        Args:
            known: a version that was there: the end is looked for from it on.

        Raises:
            CorruptMetadataError: another engine wrote it.
        """
        number = self._newest(known)
        return None if number is None else self._head(number)

    def versions(self) -> list[LogVersion]:
        """Every version that the log still has, oldest first.

        Raises:
            CorruptMetadataError: another engine wrote one.
        """
        versions = []
        files = (file.location for file in self._storage.list(self._folder))
        for number in sorted(_numbers(files, ".json")):
            info = self._info(number)
            shown = Head.of(number, info[ENGINE]).snapshot_id
            versions.append(LogVersion(number, info["timestamp"], info["operation"], shown))
        return versions

    def write(self, version: int, actions: Iterable[Action]) -> None:
        """Create a version; raises FileAlreadyExistsError: somebody did."""
        data = b"\n".join(orjson.dumps(action) for action in actions) + b"\n"
        self._storage.create(self._location(version), data)

    def state(self) -> LogState:
        """What the newest version shows."""
        _, state, others = self._replayed()
        for add in map(_plain, others["add"].to_pylist()):
            state.adds[file_key(add)] = add
        return state

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version; returns that."""
        newest, state, others = self._replayed()
        rows: list[Action] = [{name: action} for name, action in state.definition.items()]
        rows += [{"txn": action} for action in state.transactions.values()]
        rows += [{"add": action} for action in state.adds.values()]
        table = pa.concat_tables([pa.Table.from_pylist(rows, _CHECKPOINT), others])
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="zstd")
        self._storage.write(self._checkpoint_location(newest), sink.getvalue())
        pointer = orjson.dumps({"version": newest, "size": len(table)})
        self._storage.write(f"{self._folder}/_last_checkpoint", pointer)
        return newest

    def clean(self, metadata: TableMetadata) -> int:
        """Delete versions whose snapshots have expired, up to a checkpoint, and vectors of theirs.

        Vectors that are about as young as the newest version stay: that of which they are may be
        about to be written.

        Returns:
            How many files.
        """
        listed = {file.location: file for file in self._storage.list(self._folder)}
        numbers = sorted(_numbers(listed, ".json"))
        checkpoints = _numbers(listed, ".checkpoint.parquet")
        kept = next((number for number in numbers if self._is_of(number, metadata)), numbers[-1])
        first = max((checkpoint for checkpoint in checkpoints if checkpoint <= kept), default=0)
        old = [self._location(number) for number in numbers if number < first]
        old += [self._checkpoint_location(number) for number in checkpoints if number < first]
        self._storage.delete(old)
        return len(old) + self._clean_vectors(
            [number for number in numbers if number >= first],
            first if first in checkpoints else None,
            listed[self._location(numbers[-1])].modified_ms - _YOUNG_MS,
        )

    def _is_of(self, version: int, metadata: TableMetadata) -> bool:
        shown = self._head(version).snapshot_id
        return shown is not None and metadata.snapshot_or_none(shown) is not None

    def _clean_vectors(self, versions: Sequence[int], point: int | None, cut_ms: int) -> int:
        folder = f"{self._root}/{VECTOR_FOLDER}"
        old = {file.location for file in self._storage.list(folder) if file.modified_ms < cut_ms}
        if not old:
            return 0
        actions = [action for version in versions for action in self._actions(version)]
        if point is not None:
            adds = self._read_checkpoint(point, ["add"])["add"].to_pylist()
            actions += [{"add": add} for add in adds]
        for action in actions:
            for file in (action.get("add"), action.get("remove")):
                vector = (file or {}).get("deletionVector")
                if vector and vector["storageType"] == "u":
                    old.discard(stored_at(vector, self._root))
        self._storage.delete(sorted(old))
        return len(old)

    def cut(self) -> None:
        """Leave a checkpoint and one version, which changes nothing and names no file.

        Raises FileAlreadyExistsError: somebody else wrote that version.
        """
        newest = self._newest()
        if newest is None:
            return
        info = self._info(newest)
        self.write(newest + 1, [commit_info("optimize", info["timestamp"], info[ENGINE])])
        kept = self.checkpoint()
        listed = [file.location for file in self._storage.list(self._folder)]
        old = [self._location(number) for number in _numbers(listed, ".json")]
        old += [
            self._checkpoint_location(number) for number in _numbers(listed, ".checkpoint.parquet")
        ]
        self._storage.delete(
            sorted({*old} - {self._location(kept), self._checkpoint_location(kept)})
        )

    def remove(self) -> None:
        """Delete the log and the vectors beside it: readers find no table of Delta's.

        Raises:
            StorageError: some of them are still there.
        """
        for folder in (self._folder, f"{self._root}/{VECTOR_FOLDER}"):
            locations = [file.location for file in self._storage.list(folder)]
            failed = self._storage.delete(sorted(locations, reverse=True)).failed
            if failed:
                raise StorageError(
                    f"{len(failed)} files in {folder} could not be deleted, such as "
                    f"{next(iter(failed.items()))}. Delete the folder: Delta's readers find rows "
                    "of the past there",
                    location=folder,
                )

    def _newest(self, known: int = 0) -> int | None:
        """Versions are contiguous from the last checkpoint on: doubled steps find the end."""
        start = known or self._last_checkpoint()
        if not self._exists(start):
            return self._newest() if known else None
        step = 1
        while self._exists(start + step):
            start, step = start + step, step * 2
        while step > 1:
            step //= 2
            if self._exists(start + step):
                start += step
        return start

    def _exists(self, version: int) -> bool:
        return self._storage.exists(self._location(version))

    def _last_checkpoint(self) -> int:
        """0: there is none."""
        try:
            data = self._storage.read(f"{self._folder}/_last_checkpoint")
        except NoSuchFileError:
            files = (file.location for file in self._storage.list(self._folder))
            return max(_numbers(files, ".checkpoint.parquet"), default=0)
        return int(orjson.loads(data)["version"])

    def _location(self, version: int) -> str:
        return f"{self._folder}/{version:020}.json"

    def _checkpoint_location(self, version: int) -> str:
        return f"{self._folder}/{version:020}.checkpoint.parquet"

    def _actions(self, version: int) -> list[Action]:
        lines = self._storage.read(self._location(version)).split(b"\n")
        return [orjson.loads(line) for line in lines if line]

    def _info(self, version: int) -> Action:
        data = self._storage.read_range(self._location(version), 0, 65_536)
        info: Action = orjson.loads(data.partition(b"\n")[0]).get("commitInfo", {})
        if ENGINE not in info:
            raise CorruptMetadataError(
                f"{self._location(version)} was written by another engine: the log of Delta that "
                "follows an Iceberg table is written with it alone. Move what was written there "
                "into the Iceberg table, and remove the folder.",
                location=self._location(version),
            )
        return info

    def _head(self, version: int) -> Head:
        return Head.of(version, self._info(version)[ENGINE])

    def _replayed(self) -> tuple[int, LogState, pa.Table]:
        """The newest version, and what it shows, in two parts.

        The second are the rows of the last checkpoint whose files no version has touched since;
        the first lacks these files.
        """
        point = self._last_checkpoint()  # first: the end is not before it
        newest = self._newest(point)
        if newest is None:
            raise NoSuchFileError(f"{self._folder} has no versions", location=self._folder)
        rows = self._read_checkpoint(point) if point else _CHECKPOINT.empty_table()
        versions = range(point + 1 if point else 0, newest + 1)
        actions = [action for version in versions for action in self._actions(version)]
        touched = {
            action[name]["path"] for action in actions for name in {"add", "remove"} & action.keys()
        }
        paths = pc.struct_field(rows["add"], "path")
        is_other = pc.and_(
            pc.is_valid(paths),
            pc.invert(pc.is_in(paths, value_set=pa.array(sorted(touched), pa.string()))),
        )
        state = LogState({}, {}, {})
        for action in chain(rows.filter(pc.invert(is_other)).to_pylist(), actions):
            for name, value in action.items():
                if value is None:
                    continue
                if name == "add":
                    add = _plain(value)
                    state.adds[file_key(add)] = add
                elif name == "remove":
                    state.adds.pop(file_key(value), None)
                elif name == "txn":
                    state.transactions[value["appId"]] = value
                elif name in _CHECKPOINT.names:
                    state.definition[name] = value
        return newest, state, rows.filter(is_other)

    def _read_checkpoint(self, version: int, columns: list[str] | None = None) -> pa.Table:
        data = self._storage.read(self._checkpoint_location(version))
        return pq.read_table(io.BytesIO(data), columns=columns)


def _numbers(locations: Iterable[str], ending: str) -> list[int]:
    names = (location.rpartition("/")[2] for location in locations)
    stems = (name.removesuffix(ending) for name in names if name.endswith(ending))
    return [int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal()]


_TEXTS = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "deletionVector": pa.struct(
                    {
                        "storageType": pa.string(),
                        "pathOrInlineDv": pa.string(),
                        "offset": pa.int32(),
                        "sizeInBytes": pa.int32(),
                        "cardinality": pa.int64(),
                    }
                ),
            }
        ),
    }
)


def _plain(add: Action) -> Action:
    """An `add`, of a checkpoint or not, as JSON has it."""
    add["partitionValues"] = dict(add["partitionValues"])
    vector = add.pop("deletionVector", None)
    if vector is not None:
        add["deletionVector"] = {key: value for key, value in vector.items() if value is not None}
    return add


# Following a table


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """Data files of a snapshot, or some of them.

    Attributes:
        adds: their `add` by key.
        puffins: Puffin files whose vectors some of them have, not inline.
    """

    adds: Mapping[tuple[str, str], Action]
    puffins: Collection[str]


NO_FILES = LiveFiles({}, ())


_NAMED = KeptByBytes[str, frozenset[str]](8 << 20)
"""The data files that the deletes of a manifest name, where each of these names one."""
_ENTRY_BYTES = 256


class TableFiles:
    """The files of a table's snapshots as Delta's actions.

    Args:
        version: the table.
        storage: where its files are.
    """

    def __init__(self, version: TableVersion, storage: Storage) -> None:
        self._metadata = version.metadata
        self._storage = storage
        self._opened: dict[str, Entries] = {}
        self._reader = ManifestReader(
            storage,
            types_of(version.metadata),
            version.metadata.specs(),
            use_columnar=True,
            cache=DEFAULT_CACHE,
        )

    def all(self, snapshot: Snapshot) -> LiveFiles:
        """Every data file of a snapshot."""
        manifests = load_manifests(self._storage, snapshot)
        parts = (
            _alive(self._reader.entries(manifest)) for manifest in manifests if not manifest.content
        )
        return self._live(snapshot, parts, manifests, None)

    def changed(
        self, parent: Snapshot | None, snapshot: Snapshot
    ) -> tuple[LiveFiles, LiveFiles] | None:
        """What a snapshot touched, as it was and as it is; costs what it touched.

        None where deletes do not name their files: deletes by value, or by partition.
        """
        manifests = load_manifests(self._storage, snapshot)
        new = [
            manifest for manifest in manifests if manifest.added_snapshot_id == snapshot.snapshot_id
        ]
        added: list[Entries] = []
        removed: list[Entries] = []
        named: set[str] = set()
        for manifest in new:
            entries = self._reader.entries(manifest)
            own = entries.filter(pc.equal(entries.table["snapshot_id"], snapshot.snapshot_id))
            came, went = (
                own.filter(pc.equal(own.table["status"], status)) for status in (_ADDED, _DELETED)
            )
            if not manifest.content:
                added.append(came)
                removed.append(went)
                continue
            for changes in (came, went):
                paths = changes.named_files()
                if paths.null_count:
                    return None
                named.update(path.decode() for path in paths.to_pylist())
        named -= _paths(added) | _paths(removed)
        stay = self._find(manifests, named)
        touched = _paths(added) | named
        after = self._live(snapshot, added + stay, manifests if named else new, touched)
        if parent is None or not (named or any(map(len, removed))):
            return NO_FILES, after
        others = _paths(removed) | named
        before = load_manifests(self._storage, parent)
        return self._live(parent, removed + stay, before, others), after

    def _live(
        self,
        snapshot: Snapshot,
        parts: Iterable[Entries],
        manifests: Sequence[ManifestFile],
        paths: set[str] | None,
    ) -> LiveFiles:
        """Data files with the deletes of `manifests`, of which those of `paths` are enough."""
        deletes = (self._deletes(manifest, paths) for manifest in manifests if manifest.content)
        index = DeleteIndex(chain.from_iterable(deletes), self._metadata.specs())
        schema = self._metadata.schema_for(snapshot)
        adds: dict[tuple[str, str], Action] = {}
        puffins: set[str] = set()
        for entries in parts:
            vectors: dict[str, Action] = {}
            for entry in () if index.empty or not len(entries) else entries.to_manifest_entries():
                file, sequence_number = entry.data_file, entry.sequence_number or 0
                applied = index.deletes_for(file, sequence_number)
                vector = self._vector(file, applied, sequence_number)
                if vector is not None:
                    vectors[file.file_path] = vector
                    if vector["storageType"] == "u":
                        puffins.add(applied[0].file_path)
            for action in add_actions(
                entries, schema, self._metadata.location, vectors, snapshot.timestamp_ms
            ):
                adds[file_key(action)] = action
        return LiveFiles(adds, puffins)

    def _deletes(self, manifest: ManifestFile, paths: set[str] | None) -> list[ManifestEntry]:
        """Live deletes; with `paths` those that are about these data files, or name none."""
        known = _NAMED.get(manifest.manifest_path)
        if known is not None and paths is not None and known.isdisjoint(paths):
            return []
        entries = self._opened.get(manifest.manifest_path)
        if entries is None:
            entries = _alive(self._reader.entries(manifest))
            self._opened[manifest.manifest_path] = entries
        if paths is not None:
            named = entries.named_files()
            if not named.null_count:
                about_all = frozenset(path.decode() for path in named.to_pylist())
                size = sum(len(path) + _ENTRY_BYTES for path in about_all)
                _NAMED.put(manifest.manifest_path, about_all, size)
            wanted = pa.array([path.encode() for path in paths], pa.binary())
            about = pc.or_(pc.is_null(named), pc.is_in(named, value_set=wanted))
            if not pc.any(about).as_py():
                return []
            entries = entries.filter(about)
        return entries.to_manifest_entries()

    def _find(self, manifests: Sequence[ManifestFile], paths: Collection[str]) -> list[Entries]:
        """The live entries of these data files, looked for where most files are first."""
        missing = set(paths)
        parts: list[Entries] = []
        for manifest in sorted(manifests, key=_files_in, reverse=True):
            if not missing:
                break
            if manifest.content:
                continue
            opened = self._reader.open(manifest)
            table = opened.entries(("file_path",)).table
            wanted = pa.array(sorted(missing), table["file_path"].type)
            mask = pc.and_(
                pc.is_in(table["file_path"], value_set=wanted),
                pc.not_equal(table["status"], _DELETED),
            )
            if pc.any(mask).as_py():
                parts.append(opened.entries(None).filter(mask))
                missing -= _paths(parts[-1:])
        return parts

    def _vector(
        self, file: DataFile, deletes: Sequence[DataFile], sequence_number: int
    ) -> Action | None:
        """What is deleted from a file, as one vector."""
        if not deletes:
            return None
        if len(deletes) == 1 and deletes[0].is_deletion_vector:
            size = deletes[0].content_size_in_bytes or 0
            if size > _INLINE_BYTES:
                return stored_vector(deletes[0])
        positions = self._positions(file, deletes, sequence_number)
        return inline_vector(encode_vector(positions), len(positions)) if len(positions) else None

    def _positions(
        self, file: DataFile, deletes: Sequence[DataFile], sequence_number: int
    ) -> Positions:
        if not any(delete.content == CONTENT_EQUALITY_DELETES for delete in deletes):
            return deleted_positions([(file, deletes)], self._metadata, self._storage)[0]
        task = FileScanTask(
            data_file=file,
            deletes=tuple(deletes),
            length=file.file_size_in_bytes,
            sequence_number=sequence_number,
        )
        request = ReadRequest.of(self._metadata, Schema(METADATA_COLUMNS["_pos"]))
        alive = read_table([task], request, self._storage)["_pos"].to_numpy()
        dead = np.ones(file.record_count, dtype=np.bool_)
        dead[alive] = False
        return np.flatnonzero(dead).astype(np.int64)


def _paths(parts: Iterable[Entries]) -> set[str]:
    return {path for part in parts for path in part.table["file_path"].to_pylist()}


def _files_in(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _alive(entries: Entries) -> Entries:
    return entries.filter(pc.not_equal(entries.table["status"], _DELETED))


@dataclass(frozen=True, slots=True)
class Step:
    """The next version of a log.

    Attributes:
        actions: what it holds.
        head: of the log, with it.
        is_last: whether the log then shows the table as it is.
    """

    actions: Sequence[Action]
    head: Head
    is_last: bool


def next_step(
    head: Head | None, version: TableVersion, storage: Storage, delta: DeltaLog
) -> Step | None:
    """The version of the log that follows `head`; None: it shows the table as it is.

    Raises:
        UnsupportedFeatureError: Delta cannot show the table.
        CorruptMetadataError: the log is of another table.
    """
    metadata, table = version.metadata, str(version.identifier)
    check_expressible(metadata, table)
    if head is not None and head.table_uuid != metadata.table_uuid:
        raise CorruptMetadataError(
            f"Table {table}: the Delta log in its folder is of another table, {head.table_uuid}. "
            f"Remove the folder {LOG_FOLDER}.",
            table=table,
        )
    current = metadata.current_snapshot()
    shown = None if head is None else head.snapshot_id
    snapshot, (before, after) = current, (NO_FILES, NO_FILES)
    batches: Mapping[str, int] = {}
    moved = head is not None and head.location != metadata.location
    if head is None or moved or shown != metadata.current_snapshot_id:
        files = TableFiles(version, storage)
        snapshot, (before, after), batches = _changes(head, metadata, files, delta)
    snapshot_id = None if snapshot is None else snapshot.snapshot_id
    is_last = snapshot is None or snapshot_id == metadata.current_snapshot_id
    vectors = (head is not None and head.vectors) or any(
        "deletionVector" in add for add in after.adds.values()
    )
    schema = metadata.schema() if is_last else metadata.schema_for(snapshot)
    definition = Definition.of(schema, metadata.table_uuid, table, vectors=vectors)
    is_defined = head is not None and head.definition == definition.digest
    if is_defined and snapshot_id == shown and not moved:
        return None
    _copy_puffins(after.puffins, metadata.location, storage)
    operation = "alter" if snapshot is None or snapshot_id == shown else snapshot.operation
    time_ms = metadata.last_updated_ms if snapshot is None or is_last else snapshot.timestamp_ms
    changes_data = {"dataChange": operation != "replace"}
    info = {
        "table-uuid": metadata.table_uuid,
        "location": metadata.location,
        "snapshot-id": None if snapshot_id is None else str(snapshot_id),
        "definition": definition.digest,
        "vectors": vectors,
    }
    actions = [
        commit_info(operation or "append", time_ms, info),
        *(() if is_defined else definition.actions),
        *(
            {"txn": {"appId": query_id, "version": batch, "lastUpdated": time_ms}}
            for query_id, batch in batches.items()
        ),
        *(
            {"remove": remove_action(add, time_ms) | changes_data}
            for key, add in before.adds.items()
            if key not in after.adds
        ),
        *({"add": add | changes_data} for key, add in after.adds.items() if key not in before.adds),
    ]
    number = 0 if head is None else head.version + 1
    return Step(actions, Head.of(number, info), is_last)


def _changes(
    head: Head | None, metadata: TableMetadata, files: TableFiles, delta: DeltaLog
) -> tuple[Snapshot | None, tuple[LiveFiles, LiveFiles], Mapping[str, int]]:
    """The snapshot to show next, the files it changes, and the batches of streams that are new.

    The log itself tells where names do not.
    """
    current = metadata.current_snapshot()
    if head is not None and head.location == metadata.location and current is not None:
        parent, line = None, []
        for snapshot in metadata.ancestors(current.snapshot_id):
            if snapshot.snapshot_id == head.snapshot_id:
                parent = snapshot
                break
            line.append(snapshot)
        begins = head.snapshot_id is None and line[-1].is_first
        if parent is not None or begins:
            changes = files.changed(parent, line[-1])
            if changes is None:
                changes = LiveFiles(delta.state().adds, ()), files.all(line[-1])
            batch = batch_of(line[-1])
            return line[-1], changes, {} if batch is None else dict((batch,))
    state = LogState({}, {}, {}) if head is None else delta.state()
    shown = {query_id: txn["version"] for query_id, txn in state.transactions.items()}
    batches = dict.fromkeys(shown, NO_BATCH) | last_batches(metadata)
    new = {query_id: batch for query_id, batch in batches.items() if shown.get(query_id) != batch}
    after = NO_FILES if current is None else files.all(current)
    return current, (LiveFiles(state.adds, ()), after), new


def _copy_puffins(puffins: Collection[str], root: str, storage: Storage) -> None:
    copies = {vector_location(puffin, root): puffin for puffin in puffins}
    missing = {copy: puffin for copy, puffin in copies.items() if not storage.exists(copy)}
    if missing:
        storage.write_new(
            {copy: VECTOR_FILE_VERSION + storage.read(puffin) for copy, puffin in missing.items()}
        )


_KNOWN = KeptByBytes[str, int](1 << 20)
"""The newest version of each log when this process saw it last: its end is looked for from there.

What it says is read again: others may have written more, or the log be gone or another.
"""


def follow(catalog: Catalog, version: TableVersion) -> Head | None:
    """Bring a table's log up to date, one version for each snapshot since its head.

    Args:
        catalog: has the table. A branch of the lake, which shows its rows as main, is passed over.
        version: one of its versions; the newest is loaded.

    Returns:
        The head of the log.

    Raises:
        CorruptMetadataError: another engine wrote to the log.
        UnsupportedFeatureError: Delta cannot show the table.
        StorageError: the log could not be read or written.
    """
    inner = innermost(catalog)
    if inner is not catalog:
        catalog, version = inner, inner.load(version.identifier)
    root = version.metadata.location
    storage = catalog.storage(root)
    delta = DeltaLog(storage, root)
    while True:
        head = delta.head(_KNOWN.get(root) or 0)
        version = catalog.refresh(version)  # after the head: the table is not older than it
        step = next_step(head, version, storage, delta)
        if step is None:
            return head
        try:
            delta.write(step.head.version, step.actions)
        except FileAlreadyExistsError:  # others follow, too
            continue
        _KNOWN.put(root, step.head.version, _ENTRY_BYTES)
        if step.head.version and step.head.version % CHECKPOINT_EVERY == 0:
            delta.checkpoint()
            delta.clean(version.metadata)
        if step.is_last:
            return step.head


def cut_log(catalog: Catalog, version: TableVersion) -> None:
    """Bring a table's log up to date, and leave nothing in it of files that the table has not.

    Raises as `follow` does.
    """
    root = version.metadata.location
    delta = DeltaLog(catalog.storage(root), root)
    while delta.head() is not None:
        follow(catalog, version)
        try:
            delta.cut()
        except FileAlreadyExistsError:  # others follow, too
            continue
        return


def forget(catalog: Catalog, version: TableVersion) -> None:
    """Remove the log of a table that keeps none any more: what it shows would be of the past."""
    root = version.metadata.location
    DeltaLog(catalog.storage(root), root).remove()
