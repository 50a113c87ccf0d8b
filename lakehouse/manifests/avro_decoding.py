"""Decodes Avro manifests: in bulk with DataFusion, or entry by entry.

DataFusion trusts its input and is slow at inflating: one small deflate block an entry, as pyiceberg
writes them, takes it longer than everything else. So the blocks are checked and inflated here, and
DataFusion gets one plain block. What is refused in bulk is decoded, or refused, entry by entry. Its
nested rows become flat entry columns, by field id.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
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
from lakehouse.spec.manifests.manifest_entries import BOUNDS, FIXED_COLUMNS, Entries
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import partition_types, physical_type
from lakehouse.spec.types.internal_values import decode_bounds

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
    counts = [batch.num_rows for batch in batches]
    if counts != [rows]:
        raise BulkRefusedError(f"DataFusion read {counts} entries in blocks of {rows}")
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
        return [_kept(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _kept(value) for key, value in schema.items() if key != "fields"}
    if "fields" in schema:
        fields = (field for field in schema["fields"] if not _is_empty_record(field["type"]))
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
        *(np.split(array, steps) for array in (counts, starts, starts + sizes)), strict=True
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


_ENTRY_IDS = {0: "status", 1: "snapshot_id", 3: "sequence_number", 4: "file_sequence_number"}
_FILE_IDS = {
    134: "content",
    100: "file_path",
    101: "file_format",
    103: "record_count",
    104: "file_size_in_bytes",
    131: "key_metadata",
    132: "split_offsets",
    135: "equality_ids",
    140: "sort_order_id",
    142: "first_row_id",
    143: "referenced_data_file",
    144: "content_offset",
    145: "content_size_in_bytes",
}
_MAP_IDS = {
    108: "column_size",
    109: "value_count",
    110: "null_count",
    137: "nan_count",
    125: "lower",
    128: "upper",
}
_REQUIRED = {"status", "file_path", "file_format", "record_count", "file_size_in_bytes"}


def nested_type(avro: Any, named: dict[str, pa.DataType] | None = None) -> pa.DataType:
    """Arrow type for values of an Avro type as `fastavro` returns them without logical types."""
    named = {} if named is None else named
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        if len(branches) != 1:
            raise CorruptMetadataError(
                f"a manifest has no unions but with null, this one has {avro}"
            )
        return nested_type(branches[0], named)
    if isinstance(avro, str):
        kind = named.get(avro) or AVRO_PRIMITIVES.get(avro)
        if kind is None:
            raise CorruptMetadataError(f"unknown Avro type {avro!r} in a manifest")
        return kind
    kind = _nested_complex(avro, named)
    if "name" in avro:
        named[avro["name"]] = kind
    return kind


def _nested_complex(avro: Mapping[str, Any], named: dict[str, pa.DataType]) -> pa.DataType:
    tag = avro.get("type")
    if tag == "record":
        return pa.struct(
            [pa.field(field["name"], nested_type(field["type"], named)) for field in avro["fields"]]
        )
    if tag == "array":
        return pa.list_(nested_type(avro["items"], named))
    if tag == "map":
        return pa.map_(pa.string(), nested_type(avro["values"], named))
    if tag == "fixed":
        return pa.binary(int(avro["size"]))
    if tag == "enum":
        return pa.string()
    return nested_type(tag, named)


AVRO_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}


def flatten(
    rows: pa.RecordBatch | pa.Table,
    schema: Mapping[str, Any],
    spec: PartitionSpec,
    types: FieldTypes,
    location: str,
    *,
    wanted: Collection[str] | None = None,
) -> Entries:
    """Entries from rows that have the fields of the Avro record `schema`.

    Args:
        rows: one row an entry.
        schema: the writer's Avro schema; says which field id stands under which name.
        spec: partition spec of the manifest.
        types: types of bounds and partition sources.
        location: of the manifest, for messages.
        wanted: entry columns to make; None makes all.

    Raises:
        CorruptMetadataError: a required field is missing.
    """
    names = _by_id(schema)
    if 2 not in names:
        raise CorruptMetadataError(
            f"{location} is not a manifest: its records have no data_file", location=location
        )
    data_file = _column(rows, names[2]["name"])
    file_names = _by_id(_record_of(names[2]["type"]))
    picked = _Picker(wanted)
    columns: dict[str, Any] = {}
    for field_id, name in _ENTRY_IDS.items():
        if picked(name) and field_id in names:
            columns[name] = _column(rows, names[field_id]["name"]).cast(FIXED_COLUMNS[name])
    for field_id, name in _FILE_IDS.items():
        if picked(name) and field_id in file_names:
            columns[name] = _child(data_file, file_names[field_id]["name"]).cast(
                FIXED_COLUMNS[name]
            )
    if missing := [name for name in sorted(_REQUIRED) if picked(name) and name not in columns]:
        raise CorruptMetadataError(
            f"{location} lacks the required fields {', '.join(missing)}", location=location
        )
    if "file_format" in columns:
        columns["file_format"] = pc.utf8_lower(columns["file_format"])
    _partitions(columns, data_file, file_names, spec, types, picked, location)
    for field_id, prefix in _MAP_IDS.items():
        if field_id in file_names and picked.any(prefix):
            _spread_map(
                columns, prefix, _child(data_file, file_names[field_id]["name"]), types, picked
            )
    table = (
        pa.table(columns) if columns else pa.table({"status": pa.nulls(rows.num_rows, pa.int32())})
    )
    return Entries(table, spec)


class _Picker:
    """Which columns are wanted."""

    def __init__(self, wanted: Collection[str] | None) -> None:
        self._wanted = None if wanted is None else set(wanted)
        self._prefixes = (
            None if wanted is None else {name.split(".", maxsplit=1)[0] for name in wanted}
        )

    def __call__(self, name: str) -> bool:
        return self._wanted is None or name in self._wanted

    def any(self, prefix: str) -> bool:
        return self._prefixes is None or prefix in self._prefixes

    def ids(self, prefix: str) -> set[int] | None:
        """Field ids wanted of the columns with a prefix; None for all."""
        if self._wanted is None:
            return None
        return {
            int(name[len(prefix) + 1 :]) for name in self._wanted if name.startswith(f"{prefix}.")
        }


def _by_id(record: Any) -> dict[int, dict[str, Any]]:
    return {field["field-id"]: field for field in record.get("fields", ()) if "field-id" in field}


def _record_of(avro: Any) -> Any:
    if isinstance(avro, list):
        return next((branch for branch in avro if isinstance(branch, dict)), {})
    return avro if isinstance(avro, dict) else {}


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return (
        pa.concat_arrays(column.chunks)
        if isinstance(column, pa.ChunkedArray) and column.num_chunks
        else _array(column)
    )


def _array(column: Any) -> pa.Array:
    return pa.array([], column.type) if isinstance(column, pa.ChunkedArray) else column


def _child(struct: pa.StructArray, name: str) -> pa.Array:
    return pc.struct_field(struct, [name])


def _partitions(
    columns: dict[str, Any],
    data_file: pa.StructArray,
    file_names: Mapping[int, Mapping[str, Any]],
    spec: PartitionSpec,
    types: FieldTypes,
    picked: Callable[[str], bool],
    location: str,
) -> None:
    if not spec.fields:
        return
    avro = _by_id(_record_of(file_names[102]["type"])) if 102 in file_names else {}
    # Avro defines a name once: a second field of the same decimal or fixed says no more than that
    named = {kind["name"]: kind for kind in map(_type_of, avro.values()) if "name" in kind}
    kinds = partition_types(spec, types)
    for field in spec.fields:
        name = f"partition.{field.field_id}"
        if not picked(name):
            continue
        if field.field_id not in avro:
            raise CorruptMetadataError(
                f"{location} lacks the partition field {field.name} ({field.field_id})",
                location=location,
            )
        values = _child(_child(data_file, file_names[102]["name"]), avro[field.field_id]["name"])
        kind = _type_of(avro[field.field_id])
        kind = named.get(kind["type"], kind)
        if not _is_of_size(values, kind):
            raise CorruptMetadataError(
                f"{location}: values of {field.name} are not of the length declared",
                location=location,
            )
        columns[name] = _internal(values, kind, kinds[field.field_id])


def _is_of_size(values: pa.Array, avro: Mapping[str, Any]) -> bool:
    """Whether values that were read as bytes have the length that the schema declares, if any."""
    size = avro.get("size")
    lengths = pc.binary_length(values) if pa.types.is_binary(values.type) else None
    return size is None or lengths is None or pc.all(pc.equal(lengths, size)).as_py() is not False


def _type_of(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """The type of a field but null: by its name alone where that is all that is said."""
    avro = field["type"]
    if isinstance(avro, list):
        avro = next((branch for branch in avro if branch != "null"), "null")
    return avro if isinstance(avro, dict) else {"type": avro}


def _internal(values: pa.Array, avro: Mapping[str, Any], kind: Any) -> pa.Array:
    """Partition values in their physical type, whether or not logical types were applied."""
    logical = avro.get("logicalType")
    if logical == "decimal" and pa.types.is_fixed_size_binary(values.type):
        return decode_bounds(values, kind) if kind is not None else values.cast(pa.binary())
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        values = values.cast(pa.int64())
    if kind is None:
        return (
            values.cast(pa.binary())
            if pa.types.is_fixed_size_binary(values.type) and logical != "uuid"
            else values
        )
    target = physical_type(kind)
    return (
        values.cast(pa.binary()).cast(target)
        if pa.types.is_fixed_size_binary(values.type)
        else values.cast(target)
    )


def _spread_map(
    columns: dict[str, Any], prefix: str, maps: pa.Array, types: FieldTypes, picked: _Picker
) -> None:
    """One column a key of a list of (key, value) records."""
    counts = np.asarray(pc.fill_null(pc.list_value_length(maps), 0))
    items = pc.list_flatten(maps)
    if not len(items):
        return
    keys = np.asarray(pc.struct_field(items, [0]))
    values = pc.struct_field(items, [1])
    for field_id, places in _places_of_keys(keys, counts, picked.ids(prefix)):
        column = values.take(places)
        columns[f"{prefix}.{field_id}"] = (
            decode_bounds(column, types.get(field_id))
            if prefix in BOUNDS
            else column.cast(pa.int64())
        )


def _places_of_keys(
    keys: Any, counts: Any, wanted: Collection[int] | None
) -> Iterator[tuple[int, pa.Array]]:
    """For each wanted key: where its value stands for each map, null where it has none."""
    width = int(counts[0])
    if (
        len(keys) == width * len(counts)
        and (counts == width).all()
        and (keys.reshape(-1, width) == keys[:width]).all()
    ):
        # the usual case: every map has the same keys in the same order
        for place, key in enumerate(keys[:width].tolist()):
            if wanted is None or key in wanted:
                yield key, pa.array(np.arange(place, len(keys), width))
        return
    rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    for key in np.unique(keys).tolist() if wanted is None else wanted:
        hits = np.flatnonzero(keys == key)
        if len(hits):
            places = np.full(len(counts), -1, np.int64)
            places[rows[hits]] = hits
            yield key, pa.array(places, mask=places < 0)
