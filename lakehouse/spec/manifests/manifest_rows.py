"""From the nested rows of an Avro manifest to flat entry columns, fields found by id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.manifests.bounds_columns import decode_bounds
from lakehouse.spec.manifests.manifest_entries import BOUNDS, FIXED_COLUMNS, Entries
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.spec.types.arrow_types import partition_types, physical_type

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
        kind = named.get(avro) or _AVRO_PRIMITIVES.get(avro)
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


_AVRO_PRIMITIVES = {
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
