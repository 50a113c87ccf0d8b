"""One Parquet file being written: durable, measured, invisible until complete.

Parquet orders UUIDs by their bytes; Java's reader compares what it finds in the order of signed
halves and skips row groups that hold matching rows. So a UUID column has statistics only in files
all of whose row groups both orders agree on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType

from lakehouse.data.statistics.column_metrics import (
    FileMetrics,
    GeometryBounds,
    MetricsMode,
    count_nans,
    footer_metrics,
)
from lakehouse.data.writing.logical_types import logical_types, with_logical_types
from lakehouse.data.writing.shredded_variants import ShreddedVariants
from lakehouse.data.writing.threaded_parquet import ThreadedParquetWriter
from lakehouse.errors import InvalidPropertyError, StorageError
from lakehouse.spec.schema.iceberg_types import fields_of
from lakehouse.spec.table_properties import (
    BLOOM_FPP_PREFIX,
    BLOOM_NDV_PREFIX,
    BLOOM_PREFIX,
    DICTIONARY_PREFIX,
    PARQUET_ENCODINGS,
    STATISTICS_PREFIX,
    TableProperties,
    boolean,
    positive,
    probability,
)
from lakehouse.spec.types.arrow_types import field_id_of, leaf_field_ids
from lakehouse.spec.types.internal_values import is_ordered_alike
from lakehouse.storage.storage_protocol import OutputStream, Storage

_TOGETHER_BYTES = 65_536
_LOOKED_AT = 8_192
_LONG_DIGITS = 18
PLAIN, STREAM_SPLIT, DELTA, DELTA_LENGTH, DELTA_TEXT = PARQUET_ENCODINGS
_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "lz4": "lz4",
    "uncompressed": "none",
    "none": "none",
}


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """How files are encoded, from the table's properties.

    Attributes:
        codec: pyarrow's name of the compression codec.
        level: compression level; the codec's own default when None.
        page_bytes: target size of a data page.
        dictionary_bytes: limit of a dictionary page.
        row_group_bytes: target size of a row group in memory, before encoding.
        row_group_rows: most rows of a row group.
        encodings: of columns by dotted name; those of other columns are the writer's.
        page_rows: most rows of a data page.
        page_version: 1 or 2, of data pages.
        plain: columns without a dictionary, by dotted name.
        unmeasured: columns without statistics, by dotted name.
        bloom_filters: by dotted name (false positives, distinct values) of columns with a filter;
            None: twice those of the first row group, for later ones may have more; inside of others
            as many as `bloom_bytes` hold.
        bloom_bytes: most bytes of a Bloom filter.
        shredding_rows: first rows of a file by which it is decided what of its variants is
            shredded; 0: nothing is.
    """

    codec: str
    level: int | None
    page_bytes: int
    dictionary_bytes: int
    row_group_bytes: int
    row_group_rows: int
    encodings: Mapping[str, str] = field(default_factory=dict)
    page_rows: int = 20_000
    page_version: int = 1
    plain: frozenset[str] = frozenset()
    unmeasured: frozenset[str] = frozenset()
    bloom_filters: Mapping[str, tuple[float, int | None]] = field(default_factory=dict)
    bloom_bytes: int = 1 << 20
    shredding_rows: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ParquetOptions:
        """Raises InvalidPropertyError for an unknown codec or level, or a number that is none."""
        read = TableProperties(properties)
        codec = _CODECS[read.parquet_compression]
        return cls(
            codec=codec,
            level=_level(codec, read.parquet_compression_level),
            page_bytes=read.parquet_page_size_bytes,
            dictionary_bytes=read.parquet_dict_size_bytes,
            row_group_bytes=read.parquet_row_group_size_bytes,
            row_group_rows=read.parquet_row_group_limit,
            encodings=read.encodings(),
            page_rows=read.parquet_page_row_limit,
            page_version=int(read.parquet_page_version[1:]),
            plain=_columns(read, DICTIONARY_PREFIX, wanted=False),
            unmeasured=_columns(read, STATISTICS_PREFIX, wanted=False),
            bloom_filters=_bloom_filters(read),
            bloom_bytes=read.parquet_bloom_filter_max_bytes,
            shredding_rows=read.parquet_variant_buffer if read.parquet_shred_variants else 0,
        )

    def bloom_options(
        self, schema: pa.Schema, rows: pa.Table | None = None
    ) -> dict[str, dict[str, float]] | None:
        """What pyarrow takes as `bloom_filter_options`: of columns of a type that can have one.

        Args:
            schema: of the file.
            rows: of its first row group; None: they are not known, and filters have `bloom_bytes`.
        """
        options: dict[str, dict[str, float]] = {}
        leaves = dict(leaf for field in schema for leaf in _leaves(field.name, field))
        for path in self.bloom_filters.keys() & leaves.keys():
            if not pa.types.is_boolean(leaves[path]):
                fpp, ndv = self.bloom_filters[path]
                most = max(1, int(self.bloom_bytes * 8 * math.log(2) ** 2 / -math.log(fpp)))
                if ndv is None and rows is not None and path in rows.column_names:
                    ndv = max(1, 2 * _distinct(rows[path]))
                options[path] = {"ndv": min(ndv or most, most), "fpp": fpp}
        return options or None


def _distinct(column: pa.ChunkedArray) -> int:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    return int(pc.count_distinct(column).as_py())


def _columns(read: TableProperties, prefix: str, *, wanted: bool) -> frozenset[str]:
    switches = read.by_column(prefix, boolean)
    return frozenset(name for name, value in switches.items() if value is wanted)


def _bloom_filters(read: TableProperties) -> dict[str, tuple[float, int | None]]:
    false_positives = read.by_column(BLOOM_FPP_PREFIX, probability)
    distinct = read.by_column(BLOOM_NDV_PREFIX, positive)
    return {
        name: (false_positives.get(name, 0.01), distinct.get(name))
        for name in sorted(_columns(read, BLOOM_PREFIX, wanted=True))
    }


def _level(codec: str, level: int | None) -> int | None:
    """The level of a codec; None for those that have no levels, as for other engines."""
    if level is None or codec == "none" or not pa.Codec.supports_compression_level(codec):
        return None
    least = pa.Codec.minimum_compression_level(codec)
    most = pa.Codec.maximum_compression_level(codec)
    if not least <= level <= most:
        name = TableProperties.parquet_compression_level.name
        raise InvalidPropertyError(
            f"Property {name} = {str(level)!r}: {codec} has levels from {least} to {most}. Set "
            "another value, or remove the property.",
            property=name,
        )
    return level


class ParquetFileWriter:
    """Writes row groups to one new file; `close` makes it durable and measures it.

    Args:
        storage: where.
        location: of the new file.
        arrow_schema: of the tables written, with field ids.
        schema: the same as an Iceberg schema.
        modes: metrics per field id.
        options: encoding.
        footer_properties: extra key-value metadata of the footer.
        misread: UUID columns without statistics, see `misread_columns`; their nulls are counted.
        plain: columns without a dictionary, see `plain_columns`.
        variants: columns of variants, of the rows that `write` is given; None: there are none.
        threaded: whether several threads encode each row group; the bytes are the same. One thread
            writes files with Bloom filters.
        first_rows: those of the first row group, by which Bloom filters get their size.

    Raises:
        StorageError: every method, when I/O fails.
    """

    def __init__(
        self,
        storage: Storage,
        location: str,
        arrow_schema: pa.Schema,
        schema: Schema,
        modes: Mapping[int, MetricsMode],
        options: ParquetOptions,
        footer_properties: Mapping[str, str] | None = None,
        misread: Collection[str] = (),
        plain: Collection[str] = (),
        variants: ShreddedVariants | None = None,
        threaded: bool = False,
        first_rows: pa.Table | None = None,
    ) -> None:
        self.location = location
        self._misread = set(misread)
        self._null_counts: dict[int, int] = {}
        self._schema, self._modes, self._options = schema, modes, options
        self._nan_counts: dict[int, int] = dict.fromkeys(_float_ids(schema, modes), 0)
        self._geometries = GeometryBounds(schema, modes)
        self._variants = variants
        self._stream: OutputStream = storage.open_output(location)
        self._sink = _Sink(self._stream)
        self._logical_types = logical_types(schema)
        unmeasured = self._misread | options.unmeasured | _unordered(arrow_schema, schema)
        if variants is not None:
            arrow_schema = variants.arrow
            unmeasured |= variants.unordered()
        self.rows = 0
        try:
            # pyarrow writes each page and its header for itself
            self._out = pa.BufferedOutputStream(
                pa.PythonFile(self._sink, mode="w"), _TOGETHER_BYTES
            )
            bloom_filters = options.bloom_options(arrow_schema, first_rows)
            several = threaded and bloom_filters is None
            self._writer: Any = (ThreadedParquetWriter if several else pq.ParquetWriter)(
                self._out,
                arrow_schema,
                compression=options.codec,
                compression_level=options.level,
                data_page_size=options.page_bytes,
                dictionary_pagesize_limit=options.dictionary_bytes,
                store_schema=False,
                store_decimal_as_integer=True,
                data_page_version=f"{options.page_version}.0",
                max_rows_per_page=options.page_rows,
                bloom_filter_options=bloom_filters,
                write_statistics=statistics_columns(arrow_schema, unmeasured),
                **encoding_options(arrow_schema, options.encodings, {*plain, *options.plain}),
                write_page_index=True,
                write_page_checksum=True,
            )
            if footer_properties:
                self._writer.add_key_value_metadata(dict(footer_properties))
        except BaseException:
            self._sink.forget()
            self._stream.abort()
            raise

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._out.tell())

    def takes(self, table: pa.Table) -> bool:
        """Whether nobody misreads the statistics of a row group of these rows in this file."""
        return misread_columns(table) <= self._misread

    def write(self, table: pa.Table) -> None:
        """Append one row group."""
        for field_id, nulls in uuid_nulls(table, self._misread).items():
            self._null_counts[field_id] = self._null_counts.get(field_id, 0) + nulls
        for batch in table.to_batches():
            count_nans(batch, self._schema, self._modes, self._nan_counts)
        self._geometries.add(table)
        if self._variants is not None:
            table = self._variants.rows(table)
        self._guard(lambda: self._writer.write_table(table, row_group_size=max(table.num_rows, 1)))
        self.rows += table.num_rows

    def close(self) -> tuple[FileMetrics, int]:
        """Publish the file durably; its metrics and size in bytes."""
        if self._logical_types:
            self._guard(self._out.flush)
            self._sink.hold()
        self._guard(self._writer.close)
        self._guard(self._out.close)
        if self._logical_types:
            self._guard(lambda: self._sink.release(self._logical_types))
        size = self._stream.tell()
        try:
            self._stream.close()
        except BaseException:
            self._stream.abort()
            raise
        written = self._writer
        footer = (
            written.metadata
            if isinstance(written, ThreadedParquetWriter)
            else written.writer.metadata
        )
        metrics = footer_metrics(
            footer, leaf_field_ids(footer), self._schema, self._modes, self._nan_counts
        )
        metrics.null_value_counts.update(
            {id_: self._null_counts[id_] for id_ in metrics.value_counts.keys() & self._null_counts}
        )
        self._geometries.put_into(metrics)
        if self._variants is not None:
            self._variants.put_into(metrics)
        return metrics, size

    def abort(self) -> None:
        """Forget the file; harmless after `close`."""
        self._sink.forget()
        self._writer.is_open = False
        self._stream.abort()

    def _guard(self, step: Any) -> None:
        try:
            step()
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                f"cannot write {self.location}: {error}", file=self.location
            ) from error


class _Sink:
    """The stream as pyarrow sees it.

    Closing the Parquet writer must not publish a file that is not finished, and whatever pyarrow
    writes while it forgets an unfinished writer goes nowhere.
    """

    def __init__(self, stream: OutputStream) -> None:
        self._stream: OutputStream | None = stream
        self._held: list[bytes] | None = None
        self._written = 0
        self.closed = False

    def hold(self) -> None:
        """Keep what is written from now on, the end of the file, until `release`."""
        self._held = []

    def release(self, kinds: Mapping[int, bytes]) -> None:
        """Write what was kept, with the logical types of columns by id."""
        end, self._held = b"".join(self._held or ()), None
        if self._stream is not None:
            self._stream.write(with_logical_types(end, kinds))

    def forget(self) -> None:
        self._stream = None

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self._written += len(data)
        if self._held is not None:
            self._held.append(bytes(data))
            return len(data)
        return len(data) if self._stream is None else self._stream.write(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _unordered(arrow: pa.Schema, schema: Schema) -> set[str]:
    """Paths of geometries and geographies, whose bytes have no order."""
    paths = {
        name
        for field_id, field in fields_of(schema).items()
        if isinstance(field.field_type, GeometryType | GeographyType)
        and (name := schema.find_column_name(field_id)) is not None
    }
    if not paths:
        return paths
    # parts of lists and maps are called otherwise in Parquet
    leaves = [path for field in arrow for path, _ in _leaves(field.name, field)]
    return {
        path
        for path in leaves
        if path.replace(".list.element", ".element").replace(".key_value.", ".") in paths
    }


def _float_ids(schema: Schema, modes: Mapping[int, MetricsMode]) -> Sequence[int]:
    floats = {"float", "double"}
    return [
        field_id
        for field_id, mode in modes.items()
        if mode.counts and str(schema.find_type(field_id)) in floats
    ]


def misread_columns(rows: pa.Table) -> set[str]:
    """Paths of the UUID columns on whose order readers of a row group of these rows disagree.

    Lists and maps are left out: nobody filters row groups by what is inside.
    """
    return {path for path, _, column in _uuids_of(rows) if not is_ordered_alike(column.storage)}


def uuid_nulls(rows: pa.Table, paths: Collection[str]) -> dict[int, int]:
    """Nulls by field id of the UUID columns named, which footers do not count."""
    return {
        field_id: column.null_count
        for path, field_id, column in _uuids_of(rows)
        if path in paths and field_id is not None
    }


def statistics_columns(schema: pa.Schema, left_out: Collection[str]) -> bool | list[str]:
    """What pyarrow takes as `write_statistics`: paths of the leaf columns that have statistics."""
    if not left_out:
        return True
    return [
        path for field in schema for path, _ in _leaves(field.name, field) if path not in left_out
    ]


def encoding_options(
    schema: pa.Schema, encodings: Mapping[str, str], plain: Collection[str] = ()
) -> dict[str, Any]:
    """What pyarrow takes as `use_dictionary` and `column_encoding`.

    Args:
        schema: of the file.
        encodings: by column; one that is not for the column's type is passed over.
        plain: columns without a dictionary.
    """
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field)]
    chosen = {
        path: encodings[path]
        for path, kind in leaves
        if path in encodings and encodings[path] in encodings_of(kind)
    }
    without = {*chosen, *plain}
    if not without:
        return {}
    return {
        "use_dictionary": [path for path, _ in leaves if path not in without],
        "column_encoding": chosen,
    }


def plain_columns(rows: pa.Table) -> set[str]:
    """Paths of the columns of a row group that a dictionary makes larger, outside lists and maps.

    Arrow keeps every dictionary that has room; Parquet's Java writer looks at its first page.
    """
    while any(pa.types.is_struct(kind) for kind in rows.schema.types):
        rows = rows.flatten()
    return {
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if not pa.types.is_nested(column.type) and _is_larger_by_dictionary(column)
    }


def _is_larger_by_dictionary(column: pa.ChunkedArray) -> bool:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    values = column.drop_null() if column.null_count else column
    count = len(values)
    if not count:
        return False
    step = -(-count // _LOOKED_AT)
    seen = values if step == 1 else values.take(pa.array(np.arange(0, count, step)))
    distinct = float(pc.count_distinct(seen).as_py())
    if step > 1:
        # a pair of equal values is seen once in step ** 2
        distinct = count / (1 + 2 * count * (len(seen) - distinct) / len(seen) ** 2)
    width = seen.nbytes / len(seen)
    return bool(distinct * width + count * math.log2(distinct) / 8 >= count * width)


def encodings_of(kind: pa.DataType) -> tuple[str, ...]:
    """The encodings of Parquet that files may have instead of dictionaries, by a column's type."""
    if pa.types.is_floating(kind):
        return (PLAIN, STREAM_SPLIT)
    if pa.types.is_decimal(kind):
        # wider ones are byte arrays of a fixed length
        return (PLAIN, DELTA) if kind.precision <= _LONG_DIGITS else (PLAIN,)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return (PLAIN, DELTA)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (PLAIN, DELTA_LENGTH, DELTA_TEXT)
    return ()


def _uuids_of(rows: pa.Table) -> Iterator[tuple[str, int | None, pa.ExtensionArray]]:
    """Path, field id and values of each UUID column."""
    for member, column in zip(rows.schema, rows.columns, strict=True):
        if isinstance(member.type, pa.UuidType) or pa.types.is_struct(member.type):
            yield from _uuids(member.name, member, column.combine_chunks())


def _uuids(
    path: str, field: pa.Field, column: pa.Array
) -> Iterator[tuple[str, int | None, pa.ExtensionArray]]:
    if isinstance(field.type, pa.UuidType):
        yield path, field_id_of(field), column
    elif pa.types.is_struct(field.type):
        for child, values in zip(field.type, column.flatten(), strict=True):
            yield from _uuids(f"{path}.{child.name}", child, values)


def _leaves(path: str, field: pa.Field) -> Iterator[tuple[str, pa.DataType]]:
    kind = field.type
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_field)
        yield from _leaves(f"{path}.key_value.value", kind.item_field)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_field)
    else:
        yield path, kind
