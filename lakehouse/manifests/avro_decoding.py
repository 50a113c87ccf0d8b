"""Decodes Avro manifests: in bulk with DataFusion, or entry by entry.

DataFusion trusts its input and is slow at inflating: one small deflate block an entry, as pyiceberg
writes them, takes it longer than everything else. So the blocks are checked and inflated here, and
DataFusion is given one plain block. What is refused in bulk is decoded, or found damaged, entry by
entry.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import isal_zlib
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError, LakehouseError
from lakehouse.kept_by_bytes import MadeOnce
from lakehouse.spec.manifests.avro_container import (
    AVRO_SCHEMA,
    DECODING_ERRORS,
    INFLATED_FLOOR_BYTES,
    INFLATED_RATIO,
    SYNC_BYTES,
    Header,
    container_head,
    inflated_blocks,
    read_header,
    write_long,
)
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.manifests.manifest_rows import flatten, nested_type
from lakehouse.spec.schema.iceberg_types import FieldTypes

Integers: TypeAlias = "npt.NDArray[np.int64]"
_Piece: TypeAlias = "tuple[int, bytes]"
"""How many entries, and their encoding."""

_InflateError = cast("type[Exception]", isal_zlib.error)
_DEFLATE_RATIO = 1032
_SMALL_BLOCK_BYTES = 4096
_INFLATED_GUESS = 1024
_STEP_BYTES = 65_536
"""Small blocks are inflated up to this size (compressed) before the budget is checked.

At most 64 MiB too much are inflated.
"""
_CHUNK_BYTES = 8 << 20
_INFLATING = threading.Lock()


class BulkRefusedError(LakehouseError):
    """This manifest is not for bulk decoding; the message says why. Decode it entry by entry."""


def bulk_decode(
    files: Sequence[tuple[str, bytes]],
    spec: PartitionSpec,
    types: FieldTypes,
    *,
    wanted: Collection[str] | None = None,
) -> tuple[Entries, list[int]]:
    """Entries before inheritance of manifests of one writer, and how many each has.

    Args:
        files: location and content of each manifest.
        spec: their partition spec.
        types: field types of the table.
        wanted: entry columns to make; None makes all.

    Raises:
        BulkRefusedError: see there.
        CorruptMetadataError: a manifest is damaged.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    headers = [read_header(data, location) for location, data in files]
    first = headers[0]
    if any(header.schema_text != first.schema_text for header in headers):
        raise BulkRefusedError("their Avro schemas differ")
    if schema_with_lengths(first.schema_text) is not None:
        raise BulkRefusedError(
            "partition values of an Avro fixed may have their length before them"
        )
    counts: list[int] = []
    budget = INFLATED_FLOOR_BYTES + INFLATED_RATIO * sum(len(data) for _, data in files)
    batches: list[pa.RecordBatch] = []
    chunks = _chunks(_pieces(files, headers, counts))
    while True:
        # many small blocks are many small calls: two threads would spend their time handing the
        # interpreter to each other
        with _INFLATING:
            chunk = next(chunks, None)
        if chunk is None:
            break
        batches.append(_decode(first, *chunk))
        budget -= batches[-1].nbytes
        if budget < 0:
            location = files[0][0]
            raise CorruptMetadataError(
                f"{location} inflates to far more than its size", location=location
            )
    if not batches:
        raise BulkRefusedError("it has no entries")
    try:
        rows = pa.Table.from_batches(batches)
        return flatten(rows, first.schema, spec, types, files[0][0], wanted=wanted), counts
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        if isinstance(error, LakehouseError):
            raise
        raise BulkRefusedError(f"its columns are unusual: {error!r}") from error


def _pieces(
    files: Sequence[tuple[str, bytes]], headers: Sequence[Header], counts: list[int]
) -> Iterator[_Piece]:
    """The blocks of all files; `counts` gets how many entries each file has."""
    for (location, data), header in zip(files, headers, strict=True):
        counts.append(0)
        for count, plain in _inflated(data, header, location):
            counts[-1] += count
            yield count, plain


def _decode(header: Header, rows: int, plain: bytes) -> pa.RecordBatch:
    """The entries that `plain` encodes.

    DataFusion 55 never returns from a block that holds more bytes than its records take. So the
    block is said to hold more records than it can, and the batch ends where they should: what is
    left then is an error or one batch more, and refused.
    """
    # takes most of a second to import, for manifests without columnar ones alone
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415

    session = SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(rows))
    with _plain_file(header, rows + len(plain) + 1, plain) as path:
        try:
            batches = [
                batch.to_pyarrow()
                for batch in itertools.islice(session.read_avro(path).execute_stream(), 2)
            ]
        except Exception as error:
            raise BulkRefusedError(f"DataFusion cannot read it: {error}") from error
    found = [batch.num_rows for batch in batches]
    if found != [rows]:
        raise BulkRefusedError(f"DataFusion found {found} entries in blocks of {rows}")
    batch: pa.RecordBatch = batches[0]
    return batch


@contextlib.contextmanager
def _plain_file(header: Header, rows: int, plain: bytes) -> Iterator[str]:
    """A temporary Avro file of one plain block: DataFusion reads files only."""
    try:
        schema = _without_empty_records(header.schema_text)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BulkRefusedError(f"its schema is unusual: {error!r}") from error
    pairs = {"avro.schema": schema, "avro.codec": b"null"}
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".avro"))
            file.writelines(
                (
                    container_head(pairs, header.sync),
                    write_long(rows),
                    write_long(len(plain)),
                    plain,
                    header.sync,
                )
            )
            file.flush()
        except OSError as error:
            raise BulkRefusedError(f"no room for a temporary file: {error}") from error
        yield file.name


_WITHOUT_EMPTY: MadeOnce[bytes] = MadeOnce()


def _without_empty_records(schema: bytes) -> bytes:
    """The schema without records of no fields, such as an unpartitioned table's partition.

    They take no bytes, and DataFusion refuses them.
    """
    return _WITHOUT_EMPTY.of(
        (),
        schema,
        lambda: json.dumps(_kept(json.loads(schema))).encode(),
        lambda _: 3 * len(schema),
    )


def _kept(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_kept(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _kept(value) for key, value in schema.items() if key != "fields"}
    if "fields" in schema:
        fields = (one for one in schema["fields"] if not _is_empty_record(one["type"]))
        kept["fields"] = [_kept(field) for field in fields]
    return kept


def _is_empty_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record" and not schema["fields"]


def _chunks(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """The pieces joined to some megabytes each, to check in between what they decode to."""
    waiting: list[_Piece] = []
    size = 0
    for piece in pieces:
        if piece[0]:
            waiting.append(piece)
            size += len(piece[1])
        if size >= _CHUNK_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    rows, plains = zip(*pieces, strict=True)
    return sum(rows), b"".join(plains)


def _inflated(data: bytes, header: Header, location: str) -> Iterator[_Piece]:
    """Pieces block by block or some blocks together, within the limits of `inflated_blocks`."""
    counts, starts, sizes = _blocks(data, header)
    if (counts > np.maximum(sizes, 1) * _DEFLATE_RATIO).any():
        raise CorruptMetadataError(
            f"{location}: a block claims more records than it can hold", location=location
        )
    if header.codec == "deflate" and (sizes <= _SMALL_BLOCK_BYTES).all():
        return _inflated_small(data, counts, starts, sizes, location)
    return inflated_blocks(data, header, location)


def _inflated_small(
    data: bytes, counts: Integers, starts: Integers, sizes: Integers, location: str
) -> Iterator[_Piece]:
    """Inflate many small deflate blocks, one call each: their size bounds what they inflate to."""
    budget = INFLATED_FLOOR_BYTES + INFLATED_RATIO * len(data)
    view, inflate = memoryview(data), isal_zlib.decompress
    steps = np.flatnonzero(np.diff(np.cumsum(sizes) // _STEP_BYTES)) + 1
    for rows, begins, ends in zip(
        *(np.split(one, steps) for one in (counts, starts, starts + sizes)), strict=True
    ):
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        try:
            blocks = [inflate(view[begin:end], -15, _INFLATED_GUESS) for begin, end in spans]
        except _InflateError as error:
            raise CorruptMetadataError(
                f"{location}: a block does not decompress: {error}", location=location
            ) from error
        plain = b"".join(blocks)
        budget -= len(plain)
        if budget < 0:
            raise CorruptMetadataError(
                f"{location} inflates to far more than its size", location=location
            )
        if rows.sum() > len(plain):
            raise CorruptMetadataError(
                f"{location} claims {rows.sum()} entries in {len(plain)} bytes", location=location
            )
        yield int(rows.sum()), plain


def _blocks(data: bytes, header: Header) -> tuple[Integers, Integers, Integers]:
    """(records, offset of the content, size) of every block, by searching sync markers."""
    ends = np.fromiter(
        (match.start() for match in re.finditer(re.escape(header.sync), data)), np.int64
    )
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
    """(zig-zag numbers at the offsets, offsets after them); -1 for more than five bytes."""
    window = raw[np.minimum(offsets[:, None] + np.arange(5), len(raw) - 1)].astype(np.int64)
    ends = window < 0x80
    lengths = ends.argmax(axis=1) + 1
    used = np.arange(5) < lengths[:, None]
    values = ((window & 0x7F) << (7 * np.arange(5))).sum(axis=1, where=used)
    return np.where(ends.any(axis=1), (values >> 1) ^ -(values & 1), -1), offsets + lengths


# Entry by entry

_DAMAGE = (*DECODING_ERRORS, pa.ArrowException)
_WITH_LENGTHS: MadeOnce[bytes | None] = MadeOnce()
_READERS: MadeOnce[tuple[Any, pa.DataType]] = MadeOnce()


def decode_entries(
    data: bytes,
    location: str,
    spec: PartitionSpec,
    types: FieldTypes,
    *,
    wanted: Collection[str] | None = None,
) -> Entries:
    """Entries of a v1, v2 or v3 manifest one by one, as it has them: nothing is inherited.

    Deleted entries are included. `wanted` are the columns to make; None makes all.

    Raises:
        CorruptMetadataError: not a manifest, truncated, or a block that claims or inflates to more
            than it may.
        UnsupportedFeatureError: an unknown Avro codec.
    """
    return _decode_rows(data, read_header(data, location), location, spec, types, wanted)


def manifest_spec_id(data: bytes, location: str) -> int:
    """The partition spec that a manifest says it was written with; 0 when it does not say (v1).

    Raises:
        CorruptMetadataError: not a manifest.
    """
    text = read_header(data, location).text("partition-spec-id")
    return int(text) if text is not None and text.isdigit() else 0


def _decode_rows(
    data: bytes,
    header: Header,
    location: str,
    spec: PartitionSpec,
    types: FieldTypes,
    wanted: Collection[str] | None,
) -> Entries:
    schema = header.metadata["avro.schema"]
    with_lengths = schema_with_lengths(schema)
    if with_lengths is not None:
        # all columns: that the lengths are right can be seen of partition values only
        with contextlib.suppress(CorruptMetadataError):
            return _decode_as(with_lengths, data, header, location, spec, types, None)
    return _decode_as(schema, data, header, location, spec, types, wanted)


def schema_with_lengths(schema: bytes) -> bytes | None:
    """What Java may mean by a manifest's Avro schema; None where it cannot mean anything else.

    Before a partition value that is an Avro `fixed` Iceberg's Java library writes the length, as if
    it were `bytes`. Such a manifest is decoded entry by entry: as Java means it if all lengths are
    right, else as its schema says. (The other way round a value that ends with a byte above 0x7f
    may swallow what follows it, and nobody notices.)
    """

    def make() -> bytes | None:
        plain = json.loads(schema)
        changed = _fixed_as_bytes(plain, set())
        return None if changed == plain else json.dumps(changed).encode()

    return _WITH_LENGTHS.of((), schema, make, lambda _: 3 * len(schema))


def _fixed_as_bytes(schema: Any, names: set[str]) -> Any:
    """The schema with `bytes` for each fixed, by its definition or, further on, by its name."""
    if isinstance(schema, list):
        return [_fixed_as_bytes(branch, names) for branch in schema]
    if not isinstance(schema, dict):
        return "bytes" if schema in names else schema
    if schema.get("type") == "fixed" and "logicalType" not in schema:
        names.add(schema["name"])
        return "bytes"
    return {
        key: _fixed_as_bytes(value, names)
        if key in ("type", "fields", "items", "values")
        else value
        for key, value in schema.items()
    }


def _decode_as(
    schema: bytes,
    data: bytes,
    header: Header,
    location: str,
    spec: PartitionSpec,
    types: FieldTypes,
    wanted: Collection[str] | None,
) -> Entries:
    try:
        records = _records(schema, data, header, location)
        rows = pa.Table.from_struct_array(pa.array(records, _reader(schema)[1]))
        return flatten(rows, header.schema, spec, types, location, wanted=wanted)
    except _DAMAGE as error:
        raise CorruptMetadataError(
            f"{location} cannot be read as a manifest: {error!r}", location=location
        ) from error


def _records(schema: bytes, data: bytes, header: Header, location: str) -> list[Any]:
    reader_schema, _ = _reader(schema)
    records: list[Any] = []
    for count, plain in inflated_blocks(data, header, location):
        stream = io.BytesIO(plain)
        records += [fastavro.schemaless_reader(stream, reader_schema, None) for _ in range(count)]
        if stream.tell() != len(plain):
            raise CorruptMetadataError(
                f"{location}: a block holds more than its {count} records", location=location
            )
    return records


def _reader(schema: bytes) -> tuple[Any, pa.DataType]:
    """What reads records of a writer's schema, and the type that holds them.

    Manifests of one writer share it.
    """

    def make() -> tuple[Any, pa.DataType]:
        plain = _without_logical_types(json.loads(schema))
        return fastavro.parse_schema(plain), nested_type(plain)

    return _READERS.of((), schema, make, lambda _: AVRO_SCHEMA * len(schema))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, Mapping):
        return {
            key: _without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema
