"""Decoding whole Avro manifests in bulk with DataFusion's reader, for tables whose manifests have no columnar twin.

The reader trusts its input, so the container is checked before: block sizes and counts against the file, and what large blocks
inflate to. Small blocks are bounded by the size of a batch. What is refused here is decoded, or found damaged, entry by entry.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs
from datafusion import SessionConfig, SessionContext
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError, LakehouseError
from lakehouse.spec.avro_container import (
    INFLATED_FLOOR_BYTES,
    INFLATED_RATIO,
    SYNC_BYTES,
    Header,
    inflate_block,
    read_header,
)
from lakehouse.spec.entries import Entries
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.manifest_rows import flatten
from lakehouse.storage.protocol import Storage

_DEFLATE_RATIO = 1032
_SMALL_BLOCK_BYTES = 4096
_BATCH_BYTES = 256 * 1024 * 1024
_BATCH_ROWS = 8192
_PLAIN_PATH = re.compile(r"[\w/.\-=+,@ ]+")


class BulkRefusedError(LakehouseError):
    """This manifest is not for bulk decoding; the message says why. Decode it entry by entry."""


def bulk_decode(
    storage: Storage,
    location: str,
    data: bytes,
    spec: PartitionSpec,
    types: FieldTypes,
    *,
    wanted: Collection[str] | None = None,
) -> Entries:
    """Entries of a manifest before inheritance; `data` is the manifest at `location`.

    Raises:
        BulkRefusedError: see there.
        CorruptMetadataError: the manifest is damaged.
    """
    header = read_header(data, location)
    rows, batch_rows = _check(data, header, location)
    with _local_file(storage, location, data) as path:
        table = _collect(path, rows, batch_rows, INFLATED_FLOOR_BYTES + INFLATED_RATIO * len(data), location)
    try:
        return flatten(table, header.schema, spec, types, location, wanted=wanted)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        if isinstance(error, LakehouseError):
            raise
        raise BulkRefusedError(f"its columns are unusual: {error!r}") from error


def _collect(path: str, rows: int, batch_rows: int, budget: int, location: str) -> pa.Table:
    batches = []
    try:
        for batch in _session(batch_rows).read_avro(path, file_extension=Path(path).suffix).execute_stream():
            batches.append(batch.to_pyarrow())
            budget -= batches[-1].nbytes
            if budget < 0:
                break
    except Exception as error:
        raise BulkRefusedError(f"DataFusion cannot read it: {error}") from error
    if budget < 0:
        raise CorruptMetadataError(f"{location} inflates to far more than its size", location=location)
    found = sum(batch.num_rows for batch in batches)
    if found != rows or not batches:
        raise BulkRefusedError(f"DataFusion found {found} entries, the blocks hold {rows}")
    return pa.Table.from_batches(batches)


@lru_cache(maxsize=8)
def _session(batch_rows: int) -> SessionContext:
    return SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(batch_rows))


@contextlib.contextmanager
def _local_file(storage: Storage, location: str, data: bytes) -> Iterator[str]:
    """A path that DataFusion can open: the file itself when it is local and plainly named, else a temporary copy."""
    filesystem, path = storage.filesystem(location)
    if isinstance(filesystem, pafs.LocalFileSystem) and _PLAIN_PATH.fullmatch(path) and Path(path).suffix:
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=".avro") as copy:
        copy.write(data)
        copy.flush()
        yield copy.name


def _check(data: bytes, header: Header, location: str) -> tuple[int, int]:
    """(entries, rows a batch may have so that memory stays bounded)."""
    if header.codec not in ("null", "deflate"):
        raise BulkRefusedError(f"codec {header.codec}")
    counts, starts, sizes = _blocks(data, header)
    if (counts > np.maximum(sizes, 1) * _DEFLATE_RATIO).any():
        raise CorruptMetadataError(f"{location}: a block claims more records than it can hold", location=location)
    budget = INFLATED_FLOOR_BYTES + INFLATED_RATIO * len(data)
    if header.codec == "null":
        return int(counts.sum()), _BATCH_ROWS
    for position in np.flatnonzero(sizes > _SMALL_BLOCK_BYTES):
        start = int(starts[position])
        count, size = int(counts[position]), int(sizes[position])
        budget -= len(inflate_block(header, count, memoryview(data)[start : start + size], budget, location))
    small = int(sizes[sizes <= _SMALL_BLOCK_BYTES].max(initial=1))
    return int(counts.sum()), min(_BATCH_ROWS, max(_BATCH_BYTES // (small * _DEFLATE_RATIO), 16))


def _blocks(data: bytes, header: Header) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(records, offset of the content, size) of every block, found by their sync markers all at once."""
    ends = np.fromiter((match.start() for match in re.finditer(re.escape(header.sync), data)), np.int64)
    ends = ends[ends >= header.first_block]
    if not len(ends) or ends[-1] + SYNC_BYTES != len(data):
        raise BulkRefusedError("it does not end with a block")
    heads = np.concatenate([[header.first_block], ends[:-1] + SYNC_BYTES])
    raw = np.frombuffer(data, "u1")
    counts, after = _longs_at(raw, heads)
    sizes, starts = _longs_at(raw, after)
    if (counts < 0).any() or (sizes < 0).any() or (starts + sizes != ends).any():
        raise BulkRefusedError("its blocks do not fit their sync markers")
    return counts, starts, sizes


def _longs_at(raw: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """(zig-zag numbers of at most five bytes at the offsets, offsets after them); longer ones give -1."""
    window = raw[np.minimum(offsets[:, None] + np.arange(5), len(raw) - 1)].astype(np.int64)
    ends = window < 0x80
    lengths = ends.argmax(axis=1) + 1
    used = np.arange(5) < lengths[:, None]
    values = ((window & 0x7F) << (7 * np.arange(5))).sum(axis=1, where=used)
    return np.where(ends.any(axis=1), (values >> 1) ^ -(values & 1), -1), offsets + lengths
