"""A trial: a table's layouts, tried on a sample in memory with the queries that were recorded.

Nothing is written to the warehouse, so a trial that is killed leaves nothing there.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType
from rich.console import RenderableType

from lakehouse.data.reading.bloom_filters import askable
from lakehouse.data.reading.scan_reader import ReadRequest, RowReader
from lakehouse.data.writing.data_file_writer import RowSorter, WriteRequest, write_all
from lakehouse.data.writing.parquet_writer import (
    DELTA_TEXT,
    encoding_options,
    encodings_of,
    plain_columns,
)
from lakehouse.errors import InvalidInputError, LakehouseError, UnsupportedFeatureError
from lakehouse.expressions.bound_filter import TRUE, And, Bound, Leaf, Op, columns, leaves
from lakehouse.expressions.filter_binding import bind
from lakehouse.expressions.transforms.partition_transforms import transform_array
from lakehouse.maintenance.health.scan_use import predicate_shape
from lakehouse.maintenance.shown_plan import Report, human_bytes, listing
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.reports.listeners import silenced
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata, refuse_unwritable
from lakehouse.spec.partitioning.coarser_partitions import is_time
from lakehouse.spec.partitioning.partition_terms import parse_sort_order
from lakehouse.spec.partitioning.sort_order import SortDirection, SortOrder
from lakehouse.spec.schema.iceberg_types import fields_of, find_path
from lakehouse.spec.table_properties import (
    BLOOM_PREFIX,
    ENCODING_PREFIX,
    METRICS_COLUMN_PREFIX,
    TableProperties,
)
from lakehouse.spec.types.arrow_types import column_at, schema_to_arrow, to_physical
from lakehouse.storage.memory import MemoryStorage
from lakehouse.table import Table
from lakehouse.tuning.layouts import (
    GROUP_ROWS,
    SLOWER,
    Choices,
    Layout,
    Measured,
    Prices,
    Query,
    QueryCost,
    Verdict,
    finalists,
    judge,
    search,
)
from lakehouse.tuning.sample import MOST_FILES, SORTED, in_small, take_sample

_LEAST_ROWS = 100
_GOOD_FILE = 32 << 20
_FEW_PERIODS = 12
_MOST_QUERIES, _MOST_FOOTERS = 20, 16
_DAY_MS = 24 * 3600 * 1000
_EVERYTHING = "true"
_SMALLER, _SLOW = 0.97, 0.88
_TIMES = (DateType, TimestampType, TimestamptzType)
_NUMBER_NS, _TEXT_NS, _NESTED_NS = 1.5, 18.0, 40.0
_NUMBER_BYTE_NS, _TEXT_BYTE_NS = 1.1, 0.4
"""Of a value, and of each byte that it takes encoded: runs of a dictionary take next to none."""
_LEAST_PAIRS, _ROWS_OF_A_KEY, _MOSTLY_RUNS = 20, 4, 0.5
_TURNS, _CLEARLY, _LEAST_TIMED = 20, 1.5, 2_000
_LEAST_FOUND, _BLOOM_ERRORS = 3, 0.01
_TIMED_TURNS, _MOST_TIMED, _WHOLE_BYTES = 12, 256 << 20, 64 << 20


class Meter:
    """Measures layouts on some rows of a table, and predicts what they are for all.

    Args:
        metadata: of the table.
        strata: rows.
        files: of the table, in the order in which they came, with their bounds.
        live_bytes, rows: of the table.
        workload: queries and their filters, bound.
        share: of the table's bytes, of the columns that the rows have; others stay as they are.

    Attributes:
        small: the table in small, see `in_small`.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        strata: Sequence[pa.Table],
        files: Sequence[DataFile],
        *,
        live_bytes: int,
        rows: int,
        workload: Sequence[tuple[Query, Bound]],
        share: float = 1.0,
    ) -> None:
        self._metadata, self._share = metadata, share
        self._schema = _part_of(metadata.schema(), strata[0].column_names)
        filtered = {name for _, where in workload for name in _names(where)}
        self.small = in_small(strata, files, metadata.schema(), filtered)
        self._strata = list(strata)
        self._rows = pa.concat_tables(strata).combine_chunks()
        self._live_bytes, self._all_rows = live_bytes, rows
        self._partitions_now = len({file.partition_key for file in files})
        self._workload = workload
        self._target = TableProperties(metadata.properties).target_file_size_bytes
        self._known: dict[tuple[str, ...], dict[str, float]] = {}

    def today(self, files: int, queries: Sequence[QueryCost]) -> Measured:
        """The table as it is: the sample tells only the cost of a row."""
        return Measured(
            layout=layout_of(self._metadata),
            bytes=self._live_bytes,
            files=files,
            row_ns=self._row_ns,
            write_ns=self._now[1] / self._share,
            queries=tuple(queries),
        )

    @cached_property
    def _now(self) -> tuple[int, float, tuple[bytes, DataFile, MemoryStorage]]:
        return self._written(self._rows, {})

    @cached_property
    def _row_ns(self) -> float:
        return self._row_ns_of(self._now[2][0])

    def _row_ns_of(self, data: bytes) -> float:
        return _row_ns(schema_to_arrow(self._metadata.schema()), data)

    def decodes_slower(self, layout: Layout) -> bool:
        """Whether a clock says that rows of a layout clearly take longer to decode than today."""
        if self._rows.num_rows < _LEAST_TIMED:
            return False
        _, _, data = self._written(self.arranged(layout), layout.properties)
        return _decodes_slower(data, self._now[2])

    @cached_property
    def _bytes_now(self) -> int:
        """Of the sample as it is laid out today: each stratum for itself."""
        return sum(self._written(stratum, {})[0] for stratum in self._strata if stratum.num_rows)

    def measure(self, layout: Layout) -> Measured:
        """Bytes, files and queries of a layout."""
        arranged = self.arranged(layout)
        size, write_ns, (data, file, _) = self._written(arranged, layout.properties)
        runs = self._runs(layout)
        shrunk = size - sum(
            file.column_sizes.get(self._schema.find_field(name).field_id, 0) * (1 - left)
            for name, left in runs.items()
        )
        ratio = shrunk / max(1, self._bytes_now)
        whole = self._live_bytes * (1 - self._share + self._share * ratio)
        files = max(self._partitions(layout), math.ceil(whole / self._target))
        return Measured(
            layout=layout,
            bytes=whole,
            files=files,
            row_ns=self._row_ns_of(data),
            write_ns=write_ns / self._share,
            queries=tuple(self._queries(layout, files)),
        )

    def arranged(self, layout: Layout) -> pa.Table:
        """The rows in the order of a layout."""
        return self._sorted(self._rows, layout)

    def _sorted(self, rows: pa.Table, layout: Layout) -> pa.Table:
        schema = _part_of(self._schema, rows.column_names)
        terms = [term for term in (*layout.partition_by, *layout.sort_by) if _is_term(term, schema)]
        if not terms:
            return rows
        return rows.take(RowSorter(parse_sort_order(terms, schema), schema).indices(rows))

    def encodings(self, layout: Layout) -> dict[str, str]:
        """For each column the encoding that makes it smallest, where it is not a dictionary."""
        return self._encodings(self.arranged(layout), layout)

    def _encodings(self, rows: pa.Table, layout: Layout) -> dict[str, str]:
        runs = self._runs(layout)
        group = int(layout.properties.get(GROUP_ROWS, self._group_rows))
        return {
            f"{ENCODING_PREFIX}{name}": chosen
            for name in rows.column_names
            if (runs.get(name, 1.0) > _MOSTLY_RUNS)
            and (chosen := _encoding(rows.select([name]), group)) is not None
        }

    def _runs(self, layout: Layout) -> Mapping[str, float]:
        """What an order leaves of the bytes of columns that become runs of equal values.

        In a sample rows of equal keys are few; in the whole table, sorted, they are many and stand
        together. So columns that a key decides shrink to one value a key. How much a key decides a
        column, and how many keys there are, pairs of rows tell.
        """
        names = self._names(layout.sort_by)
        left: dict[str, float] = {}
        for end in range(1, len(names) + 1):
            key = names[:end]
            for name, part in self._after(key).items():
                left[name] = min(part, left.get(name, 1.0))
        return left

    def _names(self, terms: Sequence[str]) -> tuple[str, ...]:
        """The columns by which rows are sorted, up to the first that is transformed."""
        names = []
        for field in parse_sort_order(terms, self._schema).fields:
            name = self._schema.find_column_name(field.source_id)
            if str(field.transform) != "identity" or name not in self._codes:
                break
            names.append(name)
        return tuple(names)

    @cached_property
    def _codes(self) -> dict[str, npt.NDArray[np.int64]]:
        """Equal values by equal numbers, for columns that rows can be sorted by."""
        if self.small is None:
            return {}
        sampled = set(self._rows.column_names)
        return _codes(self._rows.select([n for n in self.small.column_names if n in sampled]))

    @cached_property
    def _codes_in_small(self) -> dict[str, npt.NDArray[np.int64]]:
        return {} if self.small is None else _codes(self.small)

    def _after(self, key: tuple[str, ...]) -> dict[str, float]:
        if key in self._known:
            return self._known[key]
        groups = _joined([self._codes[name] for name in key])
        pairs = _pairs(groups)
        keys_of_all = _joined([self._codes_in_small[name] for name in key])
        alike = _pairs(keys_of_all)
        shares: dict[str, float] = {}
        if pairs >= _LEAST_PAIRS and alike >= _LEAST_PAIRS:
            keys = len(keys_of_all) * (len(keys_of_all) - 1) / 2 / alike
            read_share = min(1.0, _ROWS_OF_A_KEY * keys / max(1, self._all_rows))
            count = len(groups)
            for name, codes in self._codes.items():
                same = _pairs(_joined([groups, codes])) / pairs
                by_chance = _pairs(codes) / (count * (count - 1) / 2)
                decided = (same - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
                if decided > 0:
                    shares[name] = 1 - decided + decided * read_share
        self._known[key] = shares
        return shares

    @property
    def _group_rows(self) -> int:
        read = TableProperties(self._metadata.properties)
        width = max(1.0, self._rows.nbytes / max(1, self._rows.num_rows)) / self._share
        return max(
            1, min(read.parquet_row_group_limit, int(read.parquet_row_group_size_bytes / width))
        )

    def _partitions(self, layout: Layout) -> int:
        """How many partitions the table would have, by the range of the sample."""
        if _is_bound_to_its_spec(self._metadata):
            return self._partitions_now
        count = 1
        for field in parse_sort_order(layout.partition_by, self._schema).fields:
            path, source = find_path(self._schema, field.source_id)
            small = self.small
            if small is not None and len(path) == 1 and source.name in small.column_names:
                column = small[source.name]
            else:
                column = column_at(self._rows, path)
            values = transform_array(field.transform, column, source.field_type)
            if isinstance(field.transform, BucketTransform):
                count *= field.transform.num_buckets
            elif pa.types.is_integer(values.type) and "identity" not in str(field.transform):
                ends = pc.min_max(values).as_py()
                count *= 1 + (ends["max"] - ends["min"] if ends["max"] is not None else 0)
            else:
                count *= max(1, pc.count_distinct(values, mode="all").as_py())
        return min(count, max(1, self._all_rows))

    def _written(
        self, rows: pa.Table, properties: Mapping[str, str], schema: Schema | None = None
    ) -> tuple[int, float, tuple[bytes, DataFile, MemoryStorage]]:
        storage = MemoryStorage(files={})
        encoded = {
            **{
                name: text
                for name, text in self._metadata.properties.items()
                if not name.startswith(METRICS_COLUMN_PREFIX)
            },
            **properties,
            # the size of every column is counted
            TableProperties.metrics_default.name: "truncate(16)",
            TableProperties.metrics_max_inferred.name: str(1 << 30),
            TableProperties.target_file_size_bytes.name: str(1 << 60),
            TableProperties.write_buffer_bytes.name: str(1 << 40),
        }
        request = WriteRequest(
            schema=schema or self._schema,
            spec=UNPARTITIONED_PARTITION_SPEC,
            location="memory://trial/data",
            properties=encoded,
            format_version=self._metadata.format_version,
            write_id="trial",
        )
        start = time.process_time_ns()
        # several only where readers disagree on the order of UUIDs
        files = write_all(rows, request, storage)
        spent = time.process_time_ns() - start
        size = sum(sum(file.column_sizes.values()) for file in files)
        file = max(files, key=lambda file: file.record_count)
        data = storage.read(file.file_path)
        if any(name.startswith(BLOOM_PREFIX) for name in encoded):
            size += _bloom_bytes(data)
        return size, spent / rows.num_rows, (data, file, storage)

    def _queries(self, layout: Layout, files: float) -> Iterator[QueryCost]:
        """What each query would read: of as many row groups as the whole table would have."""
        group = int(layout.properties.get(GROUP_ROWS, self._group_rows))
        groups = max(math.ceil(self._all_rows / min(group, max(1, self._all_rows))), files)
        filtered = {name for _, where in self._workload for name in _names(where)}
        opened: tuple[RowReader, DataFile] | None = None
        small = self.small
        sampled_names = set() if small is None else set(small.column_names)
        if small is not None and filtered & sampled_names:
            sampled = min(groups, MOST_FILES)
            arranged = self._sorted(small, layout)
            rows = arranged.select([name for name in small.column_names if name in filtered])
            whole = self._metadata.schema()
            schema = _part_of(whole, rows.column_names)
            held = rows.num_rows * min(group, self._all_rows / files) / self._all_rows
            limit = {GROUP_ROWS: str(max(math.ceil(held), rows.num_rows // sampled))}
            plain = {"write.parquet.compression-codec": "uncompressed", **limit}
            _, _, (_, file, storage) = self._written(rows, plain, schema)
            read = ReadRequest(schema=schema, table_schema=whole)
            opened = RowReader(read, storage), file
        for query, where in self._workload:
            part = share = 1.0
            # a column that is not in the small table would be taken for one without values
            if opened is not None and where != TRUE and sampled_names.issuperset(_names(where)):
                reader, file = opened
                row_groups = reader.open(
                    replace(FileScanTask.whole(file), residual=where)
                ).row_groups
                part = len(row_groups) / max(1, len(file.split_offsets or (0,)))
                share = sum(group.rows for group in row_groups) / file.record_count
            blooms = 0.0
            if equated := _equated(where, layout.bloom_filters()):
                blooms = part * groups * len(equated)
                left = min(self._held(name, values, groups) for name, values in equated)
                part, share = min(part, left), min(share, left)
            # a file is opened where one of its row groups is read, one at least to find none
            touched = min(files, max(1.0, part * files))
            yield QueryCost(
                files=touched,
                footers=groups * touched / files,
                groups=part * groups,
                rows=share * self._all_rows,
                share=share_of(query, self._metadata.schema()),
                width=width_of(self._metadata.schema()),
                manifests=touched,
                blooms=blooms,
            )

    def _held(self, name: str, values: Sequence[Any], groups: float) -> float:
        """The share of row groups that hold one of some values, if these lie anywhere."""
        column = self._rows[name]
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.cast(column.type.storage_type)
        rows = len(column)
        _, counts = np.unique(
            pc.fill_null(column.dictionary_encode().combine_chunks().indices, -1),
            return_counts=True,
        )
        pairs = float((counts * (counts - 1.0)).sum() / 2)
        keys = rows * (rows - 1) / 2 / max(pairs, 0.5)
        holders = 0.0
        for value in values:
            sampled = pc.sum(pc.equal(column, pa.scalar(to_physical(value), column.type))).as_py()
            known = (sampled or 0) >= _LEAST_FOUND
            share = sampled / rows if known else 1 / keys
            holders += max(1.0, share * self._all_rows)
        return min(1.0, 1 - math.exp(-holders / groups) + _BLOOM_ERRORS)


def _equated(where: Bound, names: Collection[str]) -> list[tuple[str, Sequence[Any]]]:
    """Columns that a row which passes has one of some values in, of those with some names."""
    parts = where.parts if isinstance(where, And) else (where,)
    return [
        (part.path[0], part.value if part.op is Op.IN else (part.value,))
        for part in parts
        if isinstance(part, Leaf) and askable(part) and part.path[0] in names
    ]


def _bloom_bytes(data: bytes) -> int:
    footer = pq.ParquetFile(pa.BufferReader(data), arrow_extensions_enabled=False).metadata
    chunks = [
        footer.row_group(group).column(at)
        for group in range(footer.num_row_groups)
        for at in range(footer.num_columns)
    ]
    return sum(chunk.bloom_filter_length or 0 for chunk in chunks)


def _codes(rows: pa.Table) -> dict[str, npt.NDArray[np.int64]]:
    return {
        name: pc.fill_null(
            rows[name].combine_chunks().dictionary_encode(null_encoding="encode").indices, -1
        )
        .to_numpy(zero_copy_only=False)
        .astype(np.int64)
        for name in rows.column_names
    }


def _joined(columns: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Equal rows of several columns by equal numbers."""
    joined = columns[0]
    for column in columns[1:]:
        _, joined = np.unique(joined * (int(column.max()) + 2) + column, return_inverse=True)
    return joined.astype(np.int64)


def _pairs(codes: npt.NDArray[np.int64]) -> float:
    """How many pairs of rows are equal."""
    _, counts = np.unique(codes, return_counts=True)
    return float((counts * (counts - 1.0)).sum() / 2)


def share_of(query: Query, schema: Schema) -> float:
    """How many of the columns a query reads, 0 to 1."""
    return 1.0 if query.columns is None else min(1.0, query.columns / max(1, len(schema.fields)))


def width_of(schema: Schema) -> int:
    """Columns that are stored, those inside of others counted."""
    return sum(field.field_type.is_primitive for field in fields_of(schema).values())


def _names(where: Bound) -> Iterator[str]:
    return (column.path[0] for column in columns(where))


def _row_ns(schema: pa.Schema, data: bytes | None) -> float:
    """Processor time of decoding a row, by types and encoded bytes: a clock would sway choices.

    Args:
        schema: of the table.
        data: a Parquet file of rows of it, which may lack columns; None: there is none.
    """
    values = sum(_value_ns(column.type) for column in schema)
    if data is None:
        return values
    footer = pq.ParquetFile(pa.BufferReader(data), arrow_extensions_enabled=False).metadata
    encoded = 0.0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at in range(group.num_columns):
            chunk = group.column(at)
            is_text = chunk.physical_type == "BYTE_ARRAY"
            byte_ns = _TEXT_BYTE_NS if is_text else _NUMBER_BYTE_NS
            encoded += byte_ns * chunk.total_uncompressed_size
    ns: float = values + encoded / max(1, footer.num_rows)
    return ns


def _value_ns(kind: pa.DataType) -> float:
    if pa.types.is_nested(kind):
        fields = [kind.field(at).type for at in range(kind.num_fields)]
        return _NESTED_NS + sum(map(_value_ns, fields))
    return _NUMBER_NS if pa.types.is_primitive(kind) else _TEXT_NS


def _decodes_slower(
    proposed: tuple[bytes, DataFile, MemoryStorage], today: tuple[bytes, DataFile, MemoryStorage]
) -> bool:
    """Whether decoding takes clearly longer; the least times of turns, for other work is done."""
    least = [math.inf, math.inf]
    for turn in range(_TURNS):
        for at, (data, _, _) in enumerate((proposed, today)):
            start = time.process_time_ns()
            pq.ParquetFile(pa.BufferReader(data), arrow_extensions_enabled=False).read(
                use_threads=False
            )
            least[at] = min(least[at], time.process_time_ns() - start)
        if turn and least[0] <= _CLEARLY * least[1]:
            return False
    return True


def _encoding(column: pa.Table, group_rows: int) -> str | None:
    """The encoding of a column that saves enough beside the writer's own; None: its own."""
    field = column.schema.field(0)
    name, kind = field.name, field.type
    if isinstance(kind, pa.BaseExtensionType) or "`" in name:
        return None

    def size(encoding: str | None, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        options = encoding_options(
            rows.schema, {} if encoding is None else {name: encoding}, plain_columns(rows)
        )
        pq.write_table(
            rows, sink, compression="zstd", write_statistics=False, store_schema=False,
            store_decimal_as_integer=True, row_group_size=group_rows, **options,
        )  # fmt: skip
        return int(sink.tell())

    def rate(encoding: str | None) -> float:
        """Bytes; of large row groups those of the second half, to which dictionaries are known."""
        whole = size(encoding, column)
        if group_rows < 2 * column.num_rows:
            return float(whole)
        return 2.0 * (whole - size(encoding, column.slice(0, column.num_rows // 2)))

    encodings = encodings_of(kind)
    if not encodings or not column.num_rows:
        return None
    best, chosen = _SMALLER * rate(None), None
    for encoding in encodings:
        cost = rate(encoding) / (_SLOW if encoding == DELTA_TEXT else 1.0)
        if cost < best:
            best, chosen = cost, encoding
    return chosen


def layout_of(metadata: TableMetadata) -> Layout:
    """The layout that a table's writers follow today."""
    schema = metadata.schema()
    return Layout(
        partition_by=spec_terms(metadata.spec(), schema),
        sort_by=order_terms(metadata.write_sort_order(), schema),
    )


def bound_columns(metadata: TableMetadata) -> set[str]:
    """Columns at the top that partition spec and sort order are made of."""
    schema = metadata.schema()
    ids = [field.source_id for field in metadata.spec().fields]
    ids += [field.source_id for field in metadata.write_sort_order().fields]
    names = [schema.find_column_name(field_id) for field_id in ids]
    return {
        field.name
        for field in schema.fields
        if any(name and (name == field.name or name.startswith(f"{field.name}.")) for name in names)
    }


def spec_terms(spec: PartitionSpec, schema: Schema) -> tuple[str, ...]:
    """A spec as terms; those of columns that are gone, and `void`, are left out."""
    terms = (_term(field.source_id, field.transform, schema) for field in spec.fields)
    return tuple(term for term in terms if term is not None)


def order_terms(order: SortOrder, schema: Schema) -> tuple[str, ...]:
    """A sort order as terms."""
    terms = []
    for field in order.fields:
        term = _term(field.source_id, field.transform, schema)
        if term is not None:
            way = " desc" if field.direction == SortDirection.DESC else ""
            terms.append(f"{term}{way} {str(field.null_order.name).lower().replace('_', ' ')}")
    return tuple(terms)


def _term(source_id: int, transform: Any, schema: Schema) -> str | None:
    name = schema.find_column_name(source_id)
    text = str(transform)
    if name is None or text in ("void", "unknown"):
        return None
    quoted = column_term(name)
    if isinstance(transform, BucketTransform):
        return f"bucket({transform.num_buckets}, {quoted})"
    if isinstance(transform, TruncateTransform):
        return f"truncate({transform.width}, {quoted})"
    return quoted if text == "identity" else f"{text}({quoted})"


def column_term(name: str) -> str:
    """A column's name as a term has it."""
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def workload_of(
    reports: Iterable[Mapping[str, Any]], table: str, schema: Schema
) -> list[tuple[Query, Bound]]:
    """The recorded queries of a table, the most frequent first; a read of all where none was.

    Queries that differ in their literals alone are one, by the last of them. What cannot be bound
    to the schema any more is left out.
    """
    last: dict[tuple[str, int | None], str] = {}
    counts: Counter[tuple[str, int | None]] = Counter()
    times: list[int] = []
    for report in reports:
        if report.get("table") != table:
            continue
        where = str(report.get("predicate") or _EVERYTHING)
        projection = report.get("projection")
        key = (predicate_shape(where), len(projection) if projection else None)
        last[key] = where
        counts[key] += 1
        at = report.get("planned_at")
        times.append(
            int(report.get("timestamp_ms") or 0) if at is None else int(at.timestamp() * 1000)
        )
    days = max(1.0, (max(times) - min(times)) / _DAY_MS) if times else 1.0
    queries = []
    for key, count in counts.most_common(_MOST_QUERIES):
        try:
            bound = bind(last[key], schema)
        except LakehouseError:
            continue
        query = Query(where=last[key], columns=key[1], runs=count / days)
        queries.append((query, bound))
    return queries or [(Query(where=_EVERYTHING), TRUE)]


def query_of(
    where: str, schema: Schema, runs: float = 24.0, columns: int | None = None
) -> tuple[Query, Bound]:
    """A query by its filter. Raises InvalidExpressionError."""
    return Query(where=where, columns=columns, runs=runs), bind(where, schema)


def choices_of(
    metadata: TableMetadata,
    rows: pa.Table,
    small: pa.Table | None,
    workload: Sequence[tuple[Query, Bound]],
    live_bytes: int,
    all_rows: int,
) -> Choices:
    """What may be tried, by the types of the columns, the queries and the size of the table."""
    schema = _part_of(metadata.schema(), rows.column_names)
    used: Counter[str] = Counter()
    for query, where in workload:
        for name in set(_names(where)):
            used[name] += max(1, round(query.runs))
    sortable = [field for field in schema.fields if isinstance(field.field_type, SORTED)]
    sortable = [field for field in sortable if _is_term(column_term(field.name), schema)]
    filtered = [
        name for name, _ in used.most_common() if name in {field.name for field in sortable}
    ]
    asked = Counter(
        leaf.path[0]
        for _, where in workload
        for leaf in leaves(where)
        if len(leaf.path) == 1 and askable(leaf) and leaf.path[0] in schema.column_names
    )
    counts = {
        field.name: pc.count_distinct(rows[field.name], mode="all").as_py()
        for field in sortable
        if field.name not in filtered
    }
    others = sorted((name for name, count in counts.items() if count > 1), key=lambda n: counts[n])
    read = TableProperties(metadata.properties)
    return Choices(
        partitions=tuple(_partitions(metadata, filtered, sortable, small, live_bytes)),
        filtered=tuple(map(column_term, filtered)),
        others=tuple(map(column_term, others)),
        equated=tuple(name for name, _ in asked.most_common()),
        group_rows=read.parquet_row_group_limit,
        rows=all_rows,
        codec=read.parquet_compression,
        level=None
        if read.parquet_compression_level is None
        else str(read.parquet_compression_level),
    )


def _is_term(term: str, schema: Schema) -> bool:
    try:
        parse_sort_order([term], schema)
    except LakehouseError:
        return False
    return True


def _part_of(schema: Schema, names: Sequence[str]) -> Schema:
    """Of the columns at the top of a schema those with some names."""
    return Schema(*(field for field in schema.fields if field.name in set(names)))


def _partitions(
    metadata: TableMetadata,
    filtered: Sequence[str],
    sortable: Sequence[NestedField],
    rows: pa.Table | None,
    live_bytes: int,
) -> Iterator[tuple[str, ...]]:
    """Today's spec, none, coarser ones; and finer ones whose files would be large enough."""
    schema = metadata.schema()
    today = spec_terms(metadata.spec(), schema)
    yield today
    if _is_bound_to_its_spec(metadata):
        return
    seen = {today}
    candidates: list[tuple[str, ...]] = [()]
    candidates += [
        tuple(
            f"{grain}({term.split('(', 1)[1]}" if is_time(field) else term
            for field, term in zip(metadata.spec().fields, today, strict=True)
            if is_time(field)
        )
        for grain in ("month", "year")
        if len(today) == len(metadata.spec().fields) and any(map(is_time, metadata.spec().fields))
    ]
    most = live_bytes // _GOOD_FILE
    times = [field for field in sortable if isinstance(field.field_type, _TIMES)]
    times.sort(key=lambda field: field.name not in filtered)
    for field in times[:1] if rows is not None else ():
        grains = ("year", "month", "day", "hour")
        candidates += [
            (f"{grain}({column_term(field.name)})",)
            for grain in grains
            if not (grain == "hour" and isinstance(field.field_type, DateType))
            and 2 <= _periods(rows, field.name, grain) <= max(most, _FEW_PERIODS)
        ]
    bucketed = next(
        (n for n in filtered if n not in {field.name for field in times} and most >= 4), None
    )
    if bucketed is not None:
        candidates.append((f"bucket({min(64, most // 4 * 2)}, {column_term(bucketed)})",))
    for terms in candidates:
        if terms not in seen:
            seen.add(terms)
            yield terms


def _is_bound_to_its_spec(metadata: TableMetadata) -> bool:
    """Layout by age names the spec; equality deletes reach rows of their own spec alone."""
    return bool(TableProperties(metadata.properties).maintenance_layout_by_age) or any(
        snapshot.summary.get("total-equality-deletes", "0") != "0"
        for snapshot in metadata.snapshots
    )


def _periods(rows: pa.Table, name: str, grain: str) -> float:
    ends = pc.min_max(rows[name]).as_py()
    if ends["min"] is None:
        return 0
    hours: float = (ends["max"] - ends["min"]).total_seconds() / 3600
    return 1 + hours / {"hour": 1, "day": 24, "month": 730, "year": 8760}[grain]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Report):
    """What was tried on a table, and what came of it.

    Attributes:
        snapshot_id: sampled; None: the table is empty.
        live_bytes, rows: of the table.
        sampled_bytes, sampled_rows: read for it.
        workload: queries.
        today: as the table is.
        tried: on the rows to choose by, in the order of trying.
        proposed: the best, on rows that did not choose it; refused where the verdict is against it;
            None: nothing was tried.
        trial_ms: processor time of the trial.
    """

    identifier: Identifier
    snapshot_id: int | None
    live_bytes: int
    rows: int
    sampled_bytes: int
    sampled_rows: int
    workload: tuple[Query, ...]
    today: Measured | None
    tried: tuple[Measured, ...]
    proposed: Measured | None
    verdict: Verdict
    trial_ms: float

    def title(self) -> str:
        return f"Trial of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "snapshot_id": self.snapshot_id,
            "adopt": self.verdict.adopt,
            "why": self.verdict.why,
            "benefit_dollars": self.verdict.benefit,
            "cost_dollars": self.verdict.cost,
            "bytes": self.live_bytes,
            "rows": self.rows,
            "sampled_bytes": self.sampled_bytes,
            "sampled_rows": self.sampled_rows,
            "trial_ms": round(self.trial_ms, 1),
            "queries": [
                {"where": query.where, "columns": query.columns, "runs_a_day": round(query.runs, 3)}
                for query in self.workload
            ],
            "today": None if self.today is None else self.today.to_dict(),
            "proposed": None if self.proposed is None else self.proposed.to_dict(),
            "tried": [measured.to_dict() for measured in self.tried],
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "verdict", f"{'adopt' if self.verdict.adopt else 'keep'}: {self.verdict.why}"
        if self.today is not None:
            yield "today", self.today.layout.text()
        if self.proposed is not None and self.verdict.adopt:
            yield "proposed", self.proposed.layout.text()
        part = self.sampled_bytes / max(1, self.live_bytes)
        yield (
            "sample",
            f"{self.sampled_rows:,} of {self.rows:,} rows, {human_bytes(self.sampled_bytes)} "
            f"({part:.1%}) read",
        )
        yield "tried", f"{len(self.tried)} layouts in {self.trial_ms / 1000:.1f} s of processor"

    def detail(self) -> RenderableType | None:
        """Today and what is proposed, for the whole table."""
        today, proposed = self.today, self.proposed
        if today is None or proposed is None:
            return None
        rows: list[tuple[object, ...]] = [
            ("bytes", *_pair(today.bytes, proposed.bytes, lambda size: human_bytes(int(size)))),
            ("files", *_pair(today.files, proposed.files, lambda count: f"{count:,.0f}")),
        ]
        pairs = zip(self.workload, today.times(), proposed.times(), strict=True)
        rows += [
            (
                f"{query.where} ({query.runs:.3g} a day)",
                *_pair(before, after, lambda t: f"{t:,.1f} ms"),
            )
            for query, before, after in pairs
        ]
        write = (today.write_ns, proposed.write_ns)
        rows.append(("writing a million rows", *_pair(*write, lambda ns: f"{ns / 1000:,.2f} s")))
        last = "#proposed" if self.verdict.adopt else "#refused"
        return listing(("", "#today", last, "#x"), rows)


def _pair(before: float, after: float, shown: Any) -> tuple[str, str, str]:
    return shown(before), shown(after), f"{after / before:.2f}" if before else ""


def tune(
    table: Table,
    workload: Sequence[tuple[Query, Bound]] | None = None,
    *,
    reports: Iterable[Mapping[str, Any]] = (),
    prices: Prices | None = None,
) -> Trial:
    """Try layouts on a sample of a table; changes nothing.

    Args:
        table: the version to sample.
        workload: queries with their filters; by default those of the reports.
        reports: scan reports, of this table and of others.
        prices: and the horizon.

    Raises:
        StorageError, NoSuchFileError, CorruptMetadataError: the sample cannot be read.
    """
    start = time.process_time()
    metadata, storage = table.metadata, table.storage
    bound_queries = list(workload or workload_of(reports, table.name, metadata.schema()))
    queries = tuple(query for query, _ in bound_queries)
    plan = plan_scan(
        ScanRequest(metadata=metadata, current_schema=True, include_metrics=True), storage
    )
    tasks = sorted(plan.tasks, key=lambda task: (task.sequence_number, task.data_file.file_path))
    files = [task.data_file for task in tasks]
    live = sum(task.data_file.file_size_in_bytes for task in tasks)
    rows = sum(task.data_file.record_count for task in tasks)
    names = Counter(name for _, where in bound_queries for name in set(_names(where)))
    sample = take_sample(
        metadata,
        tasks,
        storage,
        bound=bound_columns(metadata),
        filtered=[name for name, _ in names.most_common()],
    )

    def trial(
        verdict: Verdict,
        today: Measured | None = None,
        tried: Sequence[Measured] = (),
        proposed: Measured | None = None,
    ) -> Trial:
        return Trial(
            identifier=table.identifier,
            snapshot_id=plan.snapshot_id,
            live_bytes=live,
            rows=rows,
            sampled_bytes=sample.bytes,
            sampled_rows=sample.rows,
            workload=queries,
            today=today,
            tried=tuple(tried),
            proposed=proposed,
            verdict=verdict,
            trial_ms=(time.process_time() - start) * 1000,
        )

    try:
        refuse_unwritable(metadata, table.current_snapshot())
    except UnsupportedFeatureError as error:
        return trial(Verdict(adopt=False, why=error.message, benefit=0.0, cost=0.0))
    costs = [cost_today(table, query, where) for query, where in bound_queries]
    if not sample.strata and rows >= _LEAST_ROWS and live <= _WHOLE_BYTES:
        untried = _as_it_is(metadata, live, len(tasks), costs)
        why = "no page is within 2 % of the table: its first files decide"
        return trial(Verdict(adopt=True, why=why, benefit=0.0, cost=0.0), untried, (), untried)
    if sample.rows < _LEAST_ROWS:
        why = f"{sample.rows} rows to sample are too few to choose by"
        return trial(Verdict(adopt=False, why=why, benefit=0.0, cost=0.0))
    chooses, judges = (
        Meter(
            metadata,
            part,
            files,
            live_bytes=live,
            rows=rows,
            workload=bound_queries,
            share=sample.share,
        )
        for part in sample.halves()
    )
    now = layout_of(metadata)
    today = chooses.today(len(tasks), costs)
    choices = choices_of(
        metadata, pa.concat_tables(sample.strata), chooses.small, bound_queries, live, rows
    )
    tried = search(choices, now, today, queries, chooses.measure, chooses.encodings)
    before = judges.today(len(tasks), costs)
    verdict, proposed = None, None
    for layout in finalists(tried, today, queries):
        proposed = judges.measure(layout)
        verdict = judge(
            proposed, before, queries, live_bytes=live, rows=rows, prices=prices or Prices()
        )
        if verdict.adopt and chooses.decodes_slower(layout):
            verdict = replace(verdict, adopt=False, why="its rows take longer to decode")
        if verdict.adopt:
            break
    if verdict is None:
        raise AssertionError("there is always a layout to judge")
    return trial(verdict, before, tried, proposed)


def _as_it_is(
    metadata: TableMetadata, size: int, files: int, costs: Sequence[QueryCost]
) -> Measured:
    """A table without a sample; a row is taken to cost as much to write as to read."""
    row_ns = _row_ns(schema_to_arrow(metadata.schema()), None)
    return Measured(
        layout=layout_of(metadata),
        bytes=size,
        files=files,
        row_ns=row_ns,
        write_ns=row_ns,
        queries=tuple(costs),
    )


@dataclass(frozen=True, slots=True)
class Live:
    """Bytes and number of the live data files."""

    bytes: int
    files: int


def measure_today(
    table: Table, workload: Sequence[tuple[Query, Bound]], without: Collection[str]
) -> tuple[int, Live, list[QueryCost]]:
    """Rows and files of the real table, and what the queries read of it, by footers alone.

    Args:
        table: as it is.
        workload: queries with their filters.
        without: paths of files that do not count.
    """
    with silenced():
        files = [file for file in table.scan().plan().files if file.file_path not in without]
    live = Live(sum(file.file_size_in_bytes for file in files), len(files))
    paths = frozenset(file.file_path for file in files)
    costs = [cost_today(table, query, where, paths) for query, where in workload]
    return sum(file.record_count for file in files), live, costs


def cost_today(
    table: Table, query: Query, where: Bound, paths: Collection[str] | None = None
) -> QueryCost:
    """What a query reads today: by its plan, and the footers of some of the files.

    Args:
        table: as it is.
        query: its columns count.
        where: its filter.
        paths: of the only files that count; None: all.
    """
    with silenced():
        plan = table.scan(where=where).plan()
        tasks = [task for task in plan.tasks if paths is None or task.data_file.file_path in paths]
    metadata = table.metadata
    reader = RowReader(ReadRequest.of(metadata, metadata.schema()), table.storage)
    looked = tasks[:: max(1, len(tasks) // _MOST_FOOTERS)]
    footers = groups = read = listed = blooms = 0
    for task in looked:
        opened = reader.open(task)
        row_groups = opened.row_groups
        blooms += opened.bloom_filters
        footers += max(1, len(task.data_file.split_offsets or (0,)))
        groups += len(row_groups)
        read += sum(group.rows for group in row_groups)
        listed += task.data_file.record_count
    scale = len(tasks) / max(1, len(looked))
    planned = sum(task.data_file.record_count for task in tasks)
    return QueryCost(
        files=len(tasks),
        footers=footers * scale,
        groups=groups * scale,
        rows=planned * read / max(1, listed),
        share=share_of(query, metadata.schema()),
        width=width_of(metadata.schema()),
        manifests=plan.report.data_manifests.read,
        blooms=blooms * scale,
    )


def slower_by_clock(
    table: Table, workload: Sequence[tuple[Query, Bound]], snapshot_id: int
) -> list[str]:
    """Queries that take clearly more processor time now than on a snapshot, by their filters.

    Both are asked in turns, and the least times count. What reads much is left to its counts.
    """
    slower = []
    left = _MOST_TIMED
    for query, where in workload:
        versions = (snapshot_id, None)
        with silenced():
            left -= sum(
                file.file_size_in_bytes
                for at in versions
                for file in table.scan(where=where, snapshot_id=at).plan().files
            )
            if left < 0:
                break
            least = [math.inf, math.inf]
            for turn in range(_TIMED_TURNS):
                for at, version in enumerate(versions):
                    start = time.process_time_ns()
                    # planned anew, as who asks does
                    table.scan(where=where, snapshot_id=version).to_arrow()
                    least[at] = min(least[at], time.process_time_ns() - start)
                if turn and least[1] <= least[0]:
                    break
        if least[1] > SLOWER * least[0]:
            slower.append(query.where)
    return slower


def check_queries(named: Sequence[str], schema: Schema) -> list[tuple[Query, Bound]]:
    """Queries that a user names. Raises InvalidInputError for one that cannot be bound."""
    bound = []
    for where in named:
        try:
            bound.append(query_of(where, schema))
        except LakehouseError as error:
            raise InvalidInputError(f"query {where!r}: {error.message}") from error
    return bound
