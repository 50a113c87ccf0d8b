"""Which delete files and deletion vectors apply to a data file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile, ManifestEntry
from lakehouse.spec.partitioning.partition_terms import is_unpartitioned


@dataclass(frozen=True, slots=True)
class _Delete:
    file: DataFile
    sequence_number: int


class DeleteIndex:
    """Finds the deletes of a data file.

    A deletion vector of a data file stands for all its position deletes; position deletes apply to
    files that are not newer, equality deletes to files that are older; both stay within their
    partition, but equality deletes of an unpartitioned spec apply to every file, and position
    deletes that name their one data file apply to it whatever partition they are listed under:
    DuckDB lists them under the present spec also when the data file has an older one.

    Args:
        entries: live entries of delete manifests, with sequence numbers.
        specs: partition specs by id.

    Raises:
        CorruptMetadataError: a deletion vector that names no data file, or a second one for a file.
    """

    def __init__(
        self, entries: Iterable[ManifestEntry], specs: Mapping[int, PartitionSpec]
    ) -> None:
        self._vectors: dict[str, _Delete] = {}
        self._by_path: dict[str, list[_Delete]] = {}
        self._by_partition: dict[tuple[Any, ...], list[_Delete]] = {}
        self._equality: dict[tuple[Any, ...], list[_Delete]] = {}
        self._global: list[_Delete] = []
        for entry in entries:
            self._add(_Delete(entry.data_file, entry.sequence_number or 0), specs)
        self.empty = not (
            self._vectors or self._by_path or self._by_partition or self._equality or self._global
        )

    def deletes_for(self, file: DataFile, sequence_number: int) -> tuple[DataFile, ...]:
        """The deletes for a data file, oldest first, by its data sequence number.

        Raises:
            CorruptMetadataError: its deletion vector is older than the file, or deletes more rows
                than this has.
        """
        if self.empty:
            return ()
        key = file.partition_key
        equality = (*self._global, *self._equality.get(key, ()))
        deletes = [delete for delete in equality if sequence_number < delete.sequence_number]
        vector = self._vectors.get(file.file_path)
        if vector is not None:
            _check_vector(vector, file, sequence_number)
            deletes.append(vector)
        else:
            deletes += [
                delete
                for delete in self._by_path.get(file.file_path, ())
                if sequence_number <= delete.sequence_number
            ]
            positions = self._by_partition.get(key, ())
            deletes += [
                position
                for position in positions
                if sequence_number <= position.sequence_number
                and position.file.may_name(file.file_path)
            ]
        in_order = sorted(deletes, key=lambda delete: delete.sequence_number)
        return tuple(delete.file for delete in in_order)

    def _add(self, delete: _Delete, specs: Mapping[int, PartitionSpec]) -> None:
        file = delete.file
        key = file.partition_key
        if file.content == CONTENT_EQUALITY_DELETES:
            if is_unpartitioned(specs[file.spec_id]):
                self._global.append(delete)
            else:
                self._equality.setdefault(key, []).append(delete)
        elif file.is_deletion_vector:
            self._add_vector(delete)
        elif (named := file.named_file) is not None:
            self._by_path.setdefault(named, []).append(delete)
        else:
            self._by_partition.setdefault(key, []).append(delete)

    def _add_vector(self, delete: _Delete) -> None:
        named, path = delete.file.referenced_data_file, delete.file.file_path
        if not named:
            raise CorruptMetadataError(
                f"deletion vector in {path} names no data file (referenced_data_file): which rows "
                "are deleted is not known",
                file=path,
            )
        other = self._vectors.setdefault(named, delete)
        if other is not delete:
            raise CorruptMetadataError(
                f"data file {named} has two deletion vectors, in {other.file.file_path} at "
                f"{other.file.content_offset} and in {path} at {delete.file.content_offset}: one "
                "stands for all deletes, and which one is not known",
                file=named,
            )


def _check_vector(vector: _Delete, file: DataFile, sequence_number: int) -> None:
    about = f"deletion vector in {vector.file.file_path} of data file {file.file_path}"
    if vector.sequence_number < sequence_number:
        raise CorruptMetadataError(
            f"{about} has sequence number {vector.sequence_number}, the file {sequence_number}: a "
            "vector cannot be older than its file",
            file=file.file_path,
        )
    if vector.file.record_count > file.record_count:
        raise CorruptMetadataError(
            f"{about} deletes {vector.file.record_count} rows, the file has {file.record_count}",
            file=file.file_path,
        )
