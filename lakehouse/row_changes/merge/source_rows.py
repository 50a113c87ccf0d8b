"""The source of a MERGE: rows held in memory, or in temporary files where they are too many."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lakehouse.data.writing.input_columns import ArrowData, coerce
from lakehouse.errors import InvalidInputError, StorageError, UnsupportedTypeError
from lakehouse.row_changes.merge.key_matching import Hashes
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.spec.types.arrow_types import (
    field_to_arrow,
    schema_from_arrow,
    schema_to_arrow,
    type_from_arrow,
    type_to_arrow,
)

DEFAULT_MEMORY_BYTES = 1 << 30
_LEAST_MEMORY_BYTES = 1 << 10
# Beside the rows of a part there are, at the same time, their keys, the rows of the table that they
# meet, both side by side, and what waits to be written.
_PARTS_IN_MEMORY = 8
_WAITING_BYTES = 16 << 20
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class SpillFolder:
    """A temporary folder, made when the first file goes there."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def file(self, name: str) -> Path:
        """Where a file of the name is to be written."""
        if self._path is None:
            with _spilling(Path(tempfile.gettempdir())):
                self._path = Path(tempfile.mkdtemp(prefix="lakehouse-merge-"))
        return self._path / name

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        if self._path is not None:
            shutil.rmtree(self._path)
            self._path = None


class SpillFile:
    """Batches of one schema in a file, in the order in which they came.

    Raises StorageError where the disk is full.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self.schema = schema
        self.num_rows = 0
        with _spilling(path):
            self._writer = pa.ipc.new_stream(str(path), schema, options=_COMPRESSED)

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows."""
        self.num_rows += rows.num_rows
        with _spilling(self._path):
            self._writer.write(rows)

    def close(self) -> None:
        """End the file: it can be read then, as often as needed."""
        with _spilling(self._path):
            self._writer.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the closed file."""
        with _spilling(self._path), pa.OSFile(str(self._path)) as source:
            yield from pa.ipc.open_stream(source)

    def table(self) -> pa.Table:
        """All rows at once."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)


@contextmanager
def _spilling(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StorageError(
            f"cannot keep rows of a merge in {path}: {error}; TMPDIR names another folder, "
            "memory_bytes lets more of them stay in memory"
        ) from error


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Source rows that can be read as often as a merge is decided on.

    Attributes:
        schema: theirs, in the types that Iceberg has for what was given.
        rows: all of them, in memory or in a file.
        num_rows: how many.
        parts: into how many parts they have to be split to be handled in memory; 1 when they are
            there.
        filter_bytes: what marks of its keys may take.
        folder: for files.
    """

    schema: Schema
    rows: pa.Table | SpillFile
    num_rows: int
    parts: int
    filter_bytes: int
    folder: SpillFolder

    @classmethod
    def in_memory(cls, schema: Schema, rows: pa.Table) -> SourceRows:
        """Rows of the schema that are there, and stay there."""
        return cls(schema, rows, rows.num_rows, 1, DEFAULT_MEMORY_BYTES, SpillFolder())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the order in which they were given."""
        yield from (
            self.rows.to_batches() if isinstance(self.rows, pa.Table) else (self.rows.batches())
        )


@contextmanager
def held_rows(
    data: ArrowData, table: str, memory_bytes: int, target: Schema
) -> Iterator[SourceRows]:
    """The rows of a source, read once and held until the block ends.

    Args:
        data: rows.
        table: name of the table that they are merged into, for messages.
        target: its schema: columns of types that Iceberg lacks take those of their names there.
        memory_bytes: what the merge may take; with more rows than an eighth of that they go to a
            temporary folder, which is removed whatever happens.

    Raises:
        InvalidInputError: too little memory to work in.
        InvalidSchemaError: types that Iceberg does not have.
        StorageError: no room in the temporary folder.
    """
    if memory_bytes < _LEAST_MEMORY_BYTES:
        raise InvalidInputError(
            f"{table}: a merge needs memory_bytes of {_LEAST_MEMORY_BYTES} at least, not "
            f"{memory_bytes}",
            table=table,
        )
    limit = memory_bytes // _PARTS_IN_MEMORY
    folder = SpillFolder()
    try:
        yield _held(data, table, limit, folder, target)
    finally:
        folder.remove()


def whole_source(data: ArrowData, table: str) -> tuple[Schema, pa.Table]:
    """All rows of a source in memory, and their schema; errors as `held_rows`."""
    given, data = _arrow_schema(data)
    schema = schema_from_arrow(given)
    batches = coerce(data, schema, table=table)
    return schema, pa.Table.from_batches(batches, schema=schema_to_arrow(schema))


def _held(
    data: ArrowData, table: str, limit: int, folder: SpillFolder, target: Schema
) -> SourceRows:
    given, data = _arrow_schema(data)
    schema = schema_from_arrow(_storable(given, target))
    arrow = schema_to_arrow(schema)
    batches = coerce(data, schema, table=table)
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > limit:
            break
    else:
        rows = pa.Table.from_batches(waiting, schema=arrow)
        return SourceRows(schema, rows, rows.num_rows, 1, limit, folder)
    file = SpillFile(folder.file("source.arrows"), arrow)
    for batch in waiting:
        file.write(batch)
    waiting.clear()
    for batch in batches:
        size += batch.nbytes
        file.write(batch)
    file.close()
    return SourceRows(schema, file, file.num_rows, size // limit + 1, limit, folder)


def _storable(given: pa.Schema, target: Schema) -> pa.Schema:
    """Arrow types, with the target's for those that Iceberg lacks but an append takes."""
    known = {field.name: field for field in target.fields if field.field_type.is_primitive}

    def kept(field: pa.Field) -> pa.Field:
        if field.name in known and isinstance(known[field.name].field_type, VariantType):
            return field_to_arrow(known[field.name], field_ids=False).with_nullable(True)
        try:
            type_from_arrow(field.type, column=field.name)
        except UnsupportedTypeError:
            if field.name not in known:
                raise
            return field.with_type(type_to_arrow(known[field.name].field_type))
        return field

    return pa.schema([kept(field) for field in given])


def _arrow_schema(data: ArrowData) -> tuple[pa.Schema, ArrowData]:
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data.schema, data
    batches: Iterable[pa.RecordBatch] = data
    first = next(iterator := iter(batches), None)
    if first is None:
        raise InvalidInputError("rows without a schema: give a table, or a stream with a schema")
    return first.schema, itertools.chain([first], iterator)


class KeySplit:
    """Rows of one schema in as many files as there are parts.

    Args:
        folder: where.
        name: of the files.
        schema: of the rows.
        parts: how many.
    """

    def __init__(self, folder: SpillFolder, name: str, schema: pa.Schema, parts: int) -> None:
        self._files = [
            SpillFile(folder.file(f"{name}-{number}.arrows"), schema) for number in range(parts)
        ]
        self._waiting: list[tuple[pa.Table, Hashes]] = []
        self._bytes = 0

    def add(self, rows: pa.Table, numbers: Hashes) -> None:
        """Take in rows with a number each: equal for equal keys."""
        self._waiting.append((rows, numbers))
        self._bytes += rows.nbytes
        if self._bytes > _WAITING_BYTES:
            self._write()

    def close(self) -> list[SpillFile]:
        """The files, which can be read now."""
        self._write()
        for file in self._files:
            file.close()
        return self._files

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables([waiting for waiting, _ in self._waiting])
        parts = np.concatenate([numbers for _, numbers in self._waiting]) % np.uint64(
            len(self._files)
        )
        self._waiting, self._bytes = [], 0
        order = np.argsort(parts, kind="stable")
        ordered = rows.take(pa.array(order))
        edges = np.searchsorted(parts[order], np.arange(len(self._files) + 1))
        for file, start, end in zip(self._files, edges[:-1], edges[1:], strict=True):
            if end > start:
                file.write(ordered.slice(start, end - start).combine_chunks())
