"""Row-level deletes of a scan task; each delete file is read once a scan."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lakehouse.data.deletes.deletion_vector import Positions, decode_vector
from lakehouse.errors import CorruptMetadataError
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.spec.types.sorted_numbers import distinct
from lakehouse.storage.storage_protocol import Storage

POSITION_PATH = NestedField(2147483546, "file_path", StringType(), required=True)
POSITION_ROW = NestedField(2147483545, "pos", LongType(), required=True)
POSITION_DELETE_SCHEMA = Schema(POSITION_PATH, POSITION_ROW)

ReadFile = Callable[[DataFile, Schema], pa.Table]

_MOST_CODES = 2**62


@dataclass(frozen=True, slots=True)
class EqualityKeys:
    """Deleted keys of some equality delete files that compare the same columns.

    Attributes:
        field_ids: columns compared.
        table: one row a key, columns named by field id.
    """

    field_ids: tuple[int, ...]
    table: pa.Table

    def matches(self, columns: Mapping[int, pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows equal some key in all columns.

        Null equals null and NaN equals NaN, but `-0.0` does not equal `0.0`.
        """
        rows = len(next(iter(columns.values())))
        keys = np.zeros(self.table.num_rows, dtype=np.int64)
        codes = np.zeros(rows, dtype=np.int64)
        matched = np.ones(rows, dtype=np.bool_)
        size = 1
        for field_id in self.field_ids:
            deleted = _plain(self.table.column(str(field_id)).combine_chunks())
            distinct = deleted.unique()
            if size * max(len(distinct), 1) > _MOST_CODES:
                together = pa.array(np.concatenate([keys, codes])).dictionary_encode()
                dense = together.indices.to_numpy().astype(np.int64)
                keys, codes, size = dense[: len(keys)], dense[len(keys) :], len(together.dictionary)
            here = pc.index_in(_plain(columns[field_id]), value_set=distinct)
            matched &= here.is_valid().to_numpy(zero_copy_only=False)
            codes = codes * len(distinct) + here.fill_null(0).to_numpy(zero_copy_only=False)
            keys = keys * len(distinct) + pc.index_in(deleted, value_set=distinct).to_numpy(
                zero_copy_only=False
            )
            size *= max(len(distinct), 1)
        return matched & np.isin(codes, keys)


class DeleteLoader:
    """Reads delete files for the tasks of one scan; safe to share between threads.

    Args:
        storage: where they are.
        read_file: reads the columns of a schema from a Parquet delete file, by field id.
        cache_bytes: most bytes of decoded deletes kept for the next task.
    """

    def __init__(
        self, storage: Storage, read_file: ReadFile, cache_bytes: int = 134_217_728
    ) -> None:
        self._storage = storage
        self._read_file = read_file
        self._cache = _Cache(cache_bytes)

    def positions(self, data_file: DataFile, deletes: Sequence[DataFile]) -> Positions | None:
        """Ascending distinct positions deleted from a data file; None if no such delete applies.

        Raises:
            NoSuchFileError: a delete file is missing.
            CorruptMetadataError: a delete file that cannot be read.
            UnsupportedFeatureError: a delete file that is neither Parquet, Avro, ORC nor Puffin.
        """
        vectors = [delete for delete in deletes if delete.is_deletion_vector]
        if vectors:
            # A deletion vector holds everything that older position delete files said.
            return _union([self._vector_of(data_file, vector) for vector in vectors])
        files = [
            delete for delete in deletes if delete.content not in (0, CONTENT_EQUALITY_DELETES)
        ]
        arrays = [self._by_path(file).get(data_file.file_path) for file in files]
        return _union([positions for positions in arrays if positions is not None])

    def named(self, file: DataFile) -> Mapping[str, Positions]:
        """Ascending distinct positions that one file deletes, by the data files that it names.

        Raises:
            NoSuchFileError | CorruptMetadataError | UnsupportedFeatureError: as for `positions`.
        """
        if not file.is_deletion_vector:
            return self._by_path(file)
        if file.referenced_data_file is None:
            raise CorruptMetadataError(
                f"deletion vector in {file.file_path} names no data file", file=file.file_path
            )
        return {file.referenced_data_file: self._vector(file)}

    def equality(
        self, deletes: Sequence[DataFile], fields: Callable[[int], NestedField]
    ) -> list[EqualityKeys]:
        """Keys of the equality delete files among `deletes`, one item for each set of columns.

        Args:
            deletes: delete files of a task.
            fields: field id -> field of the table, optional or not.
        """
        groups: dict[tuple[int, ...], list[DataFile]] = {}
        for delete in deletes:
            if delete.content == CONTENT_EQUALITY_DELETES:
                if not delete.equality_ids:
                    raise CorruptMetadataError(
                        f"equality delete file {delete.file_path} has no equality ids",
                        file=delete.file_path,
                    )
                groups.setdefault(tuple(sorted(set(delete.equality_ids))), []).append(delete)
        return [self._keys(ids, files, fields) for ids, files in groups.items()]

    def _keys(
        self, ids: tuple[int, ...], files: Sequence[DataFile], fields: Callable[[int], NestedField]
    ) -> EqualityKeys:
        wanted = [fields(field_id) for field_id in ids]
        schema = Schema(
            *(
                field.model_copy(update={"name": str(field.field_id), "required": False})
                for field in wanted
            )
        )
        tables = []
        for file in files:
            key = f"equality {file.file_path} {ids}"
            tables.append(self._cache.get(key, partial(self._read_keys, file, schema)))
        return EqualityKeys(ids, pa.concat_tables(tables))

    def _read_keys(self, file: DataFile, schema: Schema) -> tuple[pa.Table, int]:
        table = self._read_file(file, schema)
        return table, int(table.nbytes)

    def _vector_of(self, data_file: DataFile, vector: DataFile) -> Positions:
        named, path = vector.referenced_data_file, data_file.file_path
        if named != path:
            raise CorruptMetadataError(
                f"deletion vector in {vector.file_path} is said to be of data file {path}, and "
                f"names {named}",
                file=vector.file_path,
            )
        positions = self._vector(vector)
        if len(positions) and positions[-1] >= data_file.record_count:
            raise CorruptMetadataError(
                f"deletion vector in {vector.file_path} deletes row {positions[-1]} of {path}, "
                f"which has {data_file.record_count}",
                file=vector.file_path,
            )
        return positions

    def _vector(self, file: DataFile) -> Positions:
        if file.content_offset is None or file.content_size_in_bytes is None:
            raise CorruptMetadataError(
                f"deletion vector in {file.file_path} has no offset or no length",
                file=file.file_path,
            )
        blob = self._storage.read_range(
            file.file_path, file.content_offset, file.content_size_in_bytes
        )
        return decode_vector(blob, file.file_path, file.record_count)

    def _by_path(self, file: DataFile) -> Mapping[str, Positions]:
        by_path: Mapping[str, Positions] = self._cache.get(
            f"position {file.file_path}", partial(self._read_positions, file)
        )
        return by_path

    def _read_positions(self, file: DataFile) -> tuple[Mapping[str, Positions], int]:
        table = self._read_file(file, POSITION_DELETE_SCHEMA)
        if table.num_rows and (least := pc.min(table.column(1)).as_py()) < 0:
            raise CorruptMetadataError(
                f"position delete file {file.file_path} names row {least}: positions begin at 0",
                file=file.file_path,
            )
        paths = table.column(0).combine_chunks().dictionary_encode()
        rows = table.column(1).combine_chunks().to_numpy(zero_copy_only=False)
        codes = paths.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(paths.dictionary)))
        starts = np.concatenate([[0], ends[:-1]])
        result = {
            path: distinct(rows[order[start:end]])
            for path, start, end in zip(paths.dictionary.to_pylist(), starts, ends, strict=True)
        }
        return result, int(rows.nbytes) + 200 * len(result)


def alive(deleted: Positions, start: int, count: int) -> npt.NDArray[np.bool_] | None:
    """Which of the rows [start, start + count) are not deleted; None when all are alive."""
    first, last = np.searchsorted(deleted, [start, start + count])
    if first == last:
        return None
    mask = np.ones(count, dtype=np.bool_)
    mask[deleted[first:last] - start] = False
    return mask


def _union(parts: Sequence[Positions]) -> Positions | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else distinct(np.concatenate(parts))


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_floating(array.type):
        # By bits with one NaN: Java, which writes equality deletes, tells -0.0 from 0.0.
        one_nan = pc.if_else(pc.is_nan(array), pa.scalar(math.nan, array.type), array)
        return one_nan.view(f"int{array.type.bit_width}")
    return array


class _Cache:
    """Decoded files by key, so many bytes of them, but always the last one.

    Each key is loaded once even when several threads ask for it together.
    """

    def __init__(self, bytes_max: int) -> None:
        self._kept: KeptByBytes[str, Any] = KeptByBytes(bytes_max)
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}

    def get(self, key: str, load: Callable[[], tuple[Any, int]]) -> Any:
        value = self._kept.get(key)
        if value is not None:
            return value
        with self._lock:
            one_at_a_time = self._loading.setdefault(key, threading.Lock())
        with one_at_a_time:
            value = self._kept.get(key)
            if value is None:
                value, size = load()
                self._kept.put(key, value, min(size, self._kept.bytes_max))
                with self._lock:
                    self._loading.pop(key, None)
        return value
