"""Rows that do not fit in memory, in files by their keys: rows of equal keys are in one of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakehouse.dml.merge.source_match import Hashes, KeyColumns, KeyFilter, KeyRange, hashes
from lakehouse.dml.merge.source_rows import SourceRows, SpillFile, SpillFolder

_MOST_PARTS = 256
_WAITING_BYTES = 16 << 20


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
        for one in self._files:
            one.close()
        return self._files

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables([one for one, _ in self._waiting])
        parts = np.concatenate([one for _, one in self._waiting]) % np.uint64(len(self._files))
        self._waiting, self._bytes = [], 0
        order = np.argsort(parts, kind="stable")
        ordered = rows.take(pa.array(order))
        edges = np.searchsorted(parts[order], np.arange(len(self._files) + 1))
        for file, start, end in zip(self._files, edges[:-1], edges[1:], strict=True):
            if end > start:
                file.write(ordered.slice(start, end - start).combine_chunks())


def row_numbers(columns: KeyColumns, keys: list[pa.Array]) -> tuple[Hashes, Hashes]:
    """A number for each row, equal for equal keys, and those of the keys that can match alone."""
    frame = columns.frame(keys)
    found = hashes(frame)
    numbers = np.arange(len(keys[0]), dtype=np.uint64)  # any part will do
    numbers[frame["row"].to_numpy()] = found
    return numbers, found


def split_source(
    source: SourceRows, columns: KeyColumns
) -> tuple[list[SpillFile], KeyFilter, KeyRange]:
    """The source in files of rows that fit in memory, what its keys are not, and their range."""
    parts = min(source.parts + 1, _MOST_PARTS)
    schema = source.rows.schema
    split = KeySplit(source.folder, "source", schema, parts)
    known = KeyFilter(source.num_rows, source.filter_bytes)
    limits = KeyRange(columns.merge)
    for batch in source.batches():
        rows = pa.Table.from_batches([batch])
        keys = columns.of_source(rows)
        numbers, found = row_numbers(columns, keys)
        known.add(found)
        limits.add(keys)
        split.add(rows, numbers)
    return split.close(), known, limits
