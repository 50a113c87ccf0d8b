"""Decoding whole Avro manifests in bulk with DataFusion's reader, for tables whose manifests have no columnar twin.

The reader trusts its input and is slow at inflating: one small deflate block an entry, as pyiceberg writes them, takes it longer
than everything else. So the blocks are checked and inflated here, and the reader is given one plain block. What is refused here
is decoded, or found damaged, entry by entry.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import zlib
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError, LakehouseError
from lakehouse.spec.avro_container import (
    INFLATED_FLOOR_BYTES,
    INFLATED_RATIO,
    SYNC_BYTES,
    Header,
    container_head,
    inflated_blocks,
    read_header,
    write_long,
)
from lakehouse.spec.entries import Entries
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.manifest_rows import flatten

Integers: TypeAlias = "npt.NDArray[np.int64]"

_DEFLATE_RATIO = 1032
_SMALL_BLOCK_BYTES = 4096
_INFLATED_GUESS = 1024
_STEP_BYTES = 65_536
"""So many compressed bytes of small blocks are inflated before the budget is looked at: at most 64 MiB too much."""
_BATCH_ROWS = 8192


class BulkRefusedError(LakehouseError):
    """This manifest is not for bulk decoding; the message says why. Decode it entry by entry."""


def bulk_decode(
    location: str, data: bytes, spec: PartitionSpec, types: FieldTypes, *, wanted: Collection[str] | None = None
) -> Entries:
    """Entries of a manifest before inheritance; `data` is the manifest at `location`.

    Raises:
        BulkRefusedError: see there.
        CorruptMetadataError: the manifest is damaged.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    header = read_header(data, location)
    rows, plain = _inflated(data, header, location)
    with _plain_file(header, rows, plain) as path:
        del plain
        table = _collect(path, rows, INFLATED_FLOOR_BYTES + INFLATED_RATIO * len(data), location)
    try:
        return flatten(table, header.schema, spec, types, location, wanted=wanted)
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        if isinstance(error, LakehouseError):
            raise
        raise BulkRefusedError(f"its columns are unusual: {error!r}") from error


def _collect(path: str, rows: int, budget: int, location: str) -> pa.Table:
    batches = []
    try:
        for batch in _session().read_avro(path).execute_stream():
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


@lru_cache(maxsize=1)
def _session() -> SessionContext:
    return SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(_BATCH_ROWS))


@contextlib.contextmanager
def _plain_file(header: Header, rows: int, plain: bytes) -> Iterator[str]:
    """A temporary Avro file of one plain block: DataFusion reads files only."""
    pairs = {"avro.schema": header.metadata["avro.schema"], "avro.codec": b"null"}
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".avro"))
            file.writelines((container_head(pairs, header.sync), write_long(rows), write_long(len(plain)), plain, header.sync))
            file.flush()
        except OSError as error:
            raise BulkRefusedError(f"no room for a temporary file: {error}") from error
        yield file.name


def _inflated(data: bytes, header: Header, location: str) -> tuple[int, bytes]:
    """(entries, the content of all blocks), within the limits of `inflated_blocks`."""
    counts, starts, sizes = _blocks(data, header)
    if (counts > np.maximum(sizes, 1) * _DEFLATE_RATIO).any():
        raise CorruptMetadataError(f"{location}: a block claims more records than it can hold", location=location)
    rows = int(counts.sum())
    if header.codec == "deflate" and (sizes <= _SMALL_BLOCK_BYTES).all():
        plain = _inflate_small(data, starts, sizes, location)
        if rows > len(plain):
            raise CorruptMetadataError(f"{location} claims {rows} entries in {len(plain)} bytes", location=location)
        return rows, plain
    return rows, b"".join(plain for _, plain in inflated_blocks(data, header, location))


def _inflate_small(data: bytes, starts: Integers, sizes: Integers, location: str) -> bytes:
    """Many small deflate blocks: what they can inflate to is bounded by their size, so one call each without a limit will do."""
    budget = INFLATED_FLOOR_BYTES + INFLATED_RATIO * len(data)
    view, inflate = memoryview(data), zlib.decompress
    steps = np.flatnonzero(np.diff(np.cumsum(sizes) // _STEP_BYTES)) + 1
    parts = []
    for begins, ends in zip(np.split(starts, steps), np.split(starts + sizes, steps), strict=True):
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        try:
            parts.append(b"".join([inflate(view[begin:end], -15, _INFLATED_GUESS) for begin, end in spans]))
        except zlib.error as error:
            raise CorruptMetadataError(f"{location}: a block does not decompress: {error}", location=location) from error
        budget -= len(parts[-1])
        if budget < 0:
            raise CorruptMetadataError(f"{location} inflates to far more than its size", location=location)
    return b"".join(parts)


def _blocks(data: bytes, header: Header) -> tuple[Integers, Integers, Integers]:
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


def _longs_at(raw: npt.NDArray[np.uint8], offsets: Integers) -> tuple[Integers, npt.NDArray[Any]]:
    """(zig-zag numbers of at most five bytes at the offsets, offsets after them); longer ones give -1."""
    window = raw[np.minimum(offsets[:, None] + np.arange(5), len(raw) - 1)].astype(np.int64)
    ends = window < 0x80
    lengths = ends.argmax(axis=1) + 1
    used = np.arange(5) < lengths[:, None]
    values = ((window & 0x7F) << (7 * np.arange(5))).sum(axis=1, where=used)
    return np.where(ends.any(axis=1), (values >> 1) ^ -(values & 1), -1), offsets + lengths
