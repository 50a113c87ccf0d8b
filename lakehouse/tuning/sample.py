"""A sample of a table: rows of at most 2 % of its bytes, and the table in small."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakehouse.data.reading.parquet_reader import PARQUET_OPTIONS, load_footer, readable
from lakehouse.data.reading.scan_reader import ReadRequest, read_table
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.spec.types.internal_values import decode_bounds
from lakehouse.storage.arrow_filesystem import StorageFile
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.storage_protocol import Storage

SHARE = 0.02
MOST_FILES = 512
_MOST_BYTES, _MOST_ROWS, _PAGE_ROWS, _READ_AHEAD = 64 << 20, 250_000, 20_000, 8_192
_HELD_OUT = 3
_SMALL_ROWS, _LEAST_OF_FILE = 20_000, 8
_PHYSICAL = {32: pa.int32(), 64: pa.int64()}
_NUMBERS = (
    DateType, DoubleType, FloatType, IntegerType, LongType, TimestampType, TimestamptzType,
)  # fmt: skip
SORTED = (*_NUMBERS, BooleanType, DecimalType, StringType)
"""Types of columns that rows may be sorted by."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a table, stratum by stratum, by partition and age.

    Attributes:
        strata: rows that are together in the table.
        bytes: of data pages that were read for them.
        share: of a table's bytes, of the columns that were read.
    """

    strata: tuple[pa.Table, ...]
    bytes: int
    share: float = 1.0

    @property
    def rows(self) -> int:
        """In all strata."""
        return sum(stratum.num_rows for stratum in self.strata)

    def halves(self) -> tuple[tuple[pa.Table, ...], tuple[pa.Table, ...]]:
        """Rows to choose by, and a third of them to judge by."""
        held = self.strata[_HELD_OUT - 1 :: _HELD_OUT]
        if 2 * _HELD_OUT * sum(stratum.num_rows for stratum in held) >= self.rows:
            return tuple(
                stratum for at, stratum in enumerate(self.strata) if at % _HELD_OUT != _HELD_OUT - 1
            ), held
        cut = [stratum.num_rows - stratum.num_rows // _HELD_OUT for stratum in self.strata]
        pairs = list(zip(self.strata, cut, strict=True))
        parts = (
            [stratum.slice(0, at) for stratum, at in pairs],
            [stratum.slice(at) for stratum, at in pairs],
        )
        chooses, judges = (tuple(stratum for stratum in part if stratum.num_rows) for part in parts)
        return chooses, judges


def take_sample(
    metadata: TableMetadata,
    tasks: Sequence[FileScanTask],
    storage: Storage,
    *,
    bound: Collection[str] = (),
    filtered: Sequence[str] = (),
) -> Sample:
    """Rows of at most 2 % of a table's bytes, of row groups over all partitions and ages.

    A row group that is larger than what is left gives its first pages, the least that can be read
    of a column. Where those of all columns are more than the share, some columns are left out;
    where no column has a page within the share, there are no rows.

    Args:
        metadata: of the table.
        tasks: its live files.
        storage: of the table.
        bound: columns that are always read.
        filtered: columns that are read before others, which come by their size.
    """
    live = sum(task.data_file.file_size_in_bytes for task in tasks)
    left = min(int(live * SHARE), _MOST_BYTES)
    ordered = sorted(
        (task for task in tasks if task.data_file.file_format.lower() == "parquet"),
        key=lambda task: (
            str(task.data_file.partition),
            task.sequence_number,
            task.data_file.file_path,
        ),
    )
    strata: list[tuple[int, pa.Table]] = []
    names: list[str] = []
    share = 1.0
    read = rows = 0
    for position in _spread(len(ordered)):
        source = _Source.of(metadata, ordered[position], storage, position)
        if source is None:
            continue
        whole = {name: size for name, (size, _) in source.sizes.items()}
        least = {name: size for name, (_, size) in source.sizes.items()}
        if not strata:
            names = _affordable(least, bound, filtered, left)
            share = sum(whole.get(name, 0) for name in names) / max(1, sum(whole.values()))
            if not names:
                break
        entire = sum(whole.get(name, 0) for name in names) <= left - read
        size = sum((whole if entire else least).get(name, 0) for name in names)
        if strata and (read + size > left or rows >= _MOST_ROWS):
            break
        wanted = _MOST_ROWS if entire else _PAGE_ROWS
        table, size = source.read(metadata, names, wanted, storage)
        strata.append((position, table))
        read, rows = read + size, rows + table.num_rows
    return Sample(
        tuple(table for _, table in sorted(strata, key=lambda placed: placed[0])), read, share
    )


def _affordable(
    sizes: Mapping[str, int], bound: Collection[str], filtered: Sequence[str], left: int
) -> list[str]:
    """The columns to read, in the order of the table."""
    chosen = {name for name in sizes if name in bound}
    spent = sum(sizes[name] for name in chosen)
    for name in [*filtered, *sorted(sizes, key=lambda name: sizes[name])]:
        if name in sizes and name not in chosen and spent + sizes[name] <= left:
            chosen.add(name)
            spent += sizes[name]
    return [name for name in sizes if name in chosen]


def _spread(count: int) -> Iterator[int]:
    """0 to count - 1, so that any beginning of them lies over all."""
    bits = max(1, (max(count, 1) - 1).bit_length())
    for number in range(1 << bits):
        position = int(f"{number:0{bits}b}"[::-1], 2)
        if position < count:
            yield position


@dataclass(frozen=True, slots=True)
class _Source:
    """A row group to sample.

    Attributes:
        sizes: by the columns of the table, in its order: bytes of all pages, and of the first ones.
        paths: the names of these columns in the file.
    """

    file: DataFile
    footer: pq.FileMetaData
    group: int
    sizes: Mapping[str, tuple[int, int]]
    paths: Mapping[str, str]

    @classmethod
    def of(
        cls, metadata: TableMetadata, task: FileScanTask, storage: Storage, seed: int
    ) -> _Source | None:
        """A row group of a file; None: it has no rows."""
        footer = load_footer(storage, task.data_file).parsed
        filled = [at for at in range(footer.num_row_groups) if footer.row_group(at).num_rows]
        if not filled:
            return None
        group = filled[seed % len(filled)]
        described = footer.row_group(group)
        part = min(1.0, _PAGE_ROWS / described.num_rows)
        by_id = {
            int((field.metadata or {}).get(b"PARQUET:field_id", -1)): field.name
            for field in footer.schema.to_arrow_schema()
        }
        paths = {
            field.name: by_id.get(field.field_id, field.name) for field in metadata.schema().fields
        }
        whole, first = Counter[str](), Counter[str]()
        inside = set(paths.values())
        for at in range(described.num_columns):
            column = described.column(at)
            dictionary = 0
            if column.dictionary_page_offset is not None:
                dictionary = max(0, column.data_page_offset - column.dictionary_page_offset)
            size = column.total_compressed_size
            least = dictionary + math.ceil((size - dictionary) * part) + _READ_AHEAD * (part < 1)
            path = column.path_in_schema
            name = path if path in inside else path.partition(".")[0]
            whole[name] += size
            first[name] += min(size, least)
        sizes = {name: (whole[inner], first[inner]) for name, inner in paths.items()}
        return cls(task.data_file, footer, group, sizes, paths)

    def read(
        self, metadata: TableMetadata, names: Sequence[str], rows: int, storage: Storage
    ) -> tuple[pa.Table, int]:
        """So many rows, with some columns of the table's schema; deleted rows are among them."""
        file = self.file
        source = StorageFile(storage, file.file_path, file.file_size_in_bytes)
        with readable(file.file_path):
            opened = pq.ParquetFile(
                pa.PythonFile(source, mode="r"),
                metadata=self.footer,
                pre_buffer=False,
                buffer_size=_READ_AHEAD,
                **PARQUET_OPTIONS,
            )
            batches = opened.iter_batches(
                min(rows, self.footer.row_group(self.group).num_rows),
                row_groups=[self.group],
                columns=[self.paths[name] for name in names],
                use_threads=False,
            )
            rows_read = pa.Table.from_batches([next(batches)])
        # written again in memory: the reader finds columns by their ids, whatever they were called
        memory = MemoryStorage(files={})
        sink = pa.BufferOutputStream()
        pq.write_table(rows_read, sink, store_schema=False, compression="none")
        data = sink.getvalue().to_pybytes()
        path = "memory://trial/stratum.parquet"
        memory.write(path, data)
        copied = replace(
            file,
            file_path=path,
            file_size_in_bytes=len(data),
            record_count=rows_read.num_rows,
            split_offsets=None,
        )
        schema = metadata.schema()
        wanted = Schema(*(field for field in schema.fields if field.name in set(names)))
        request = ReadRequest(schema=wanted, table_schema=schema)
        return read_table([FileScanTask.whole(copied)], request, memory), source.bytes_read


def in_small(
    strata: Sequence[pa.Table],
    files: Sequence[DataFile],
    schema: Schema,
    filtered: Collection[str] = (),
) -> pa.Table | None:
    """The table in small: some rows for each file, in the range that its bounds tell.

    A sample of few files would say nothing about time: what each file holds of it, metadata tell.
    Texts are taken as they are in the sample. None: there is no column that can be sorted.

    Args:
        strata: of the sample.
        files: of the table, in the order in which they came, with their bounds.
        schema: of the table.
        filtered: columns that the sample may lack: spread evenly within the bounds, where all files
            have some.
    """
    files = files[:: -(-len(files) // MOST_FILES)]
    sampled = set(strata[0].column_names)
    lacking = [
        field
        for field in schema.fields
        if field.name in filtered
        and field.name not in sampled
        and isinstance(field.field_type, _NUMBERS)
        and all(
            field.field_id in bounds
            for file in files
            for bounds in (file.lower_bounds, file.upper_bounds)
        )
    ]
    sorted_fields = [
        field
        for field in schema.fields
        if isinstance(field.field_type, SORTED) and field.name in sampled
    ] + lacking
    if not sorted_fields:
        return None
    for column in lacking:
        strata = [_with_even(stratum, column) for stratum in strata]
    all_rows = max(1, sum(file.record_count for file in files))
    chosen = []
    for number, file in enumerate(files):
        stratum = strata[number * len(strata) // len(files)]
        count = max(_LEAST_OF_FILE, round(_SMALL_ROWS * file.record_count / all_rows))
        chosen.append(np.linspace(0, stratum.num_rows - 1, count).astype(np.int64))
    arrays = [
        _ranged(strata, chosen, files, field).cast(schema_to_arrow(Schema(field)).field(0).type)
        for field in sorted_fields
    ]
    return pa.table(arrays, schema=schema_to_arrow(Schema(*sorted_fields)))


def _with_even(rows: pa.Table, field: NestedField) -> pa.Table:
    """Rows with a column of numbers that are spread evenly, in no order."""
    kind = schema_to_arrow(Schema(field)).field(0).type
    order = np.random.default_rng(field.field_id).permutation(rows.num_rows)
    if not pa.types.is_floating(kind):
        order = order.astype(f"int{kind.bit_width}")
    return rows.append_column(field.name, pa.array(order).cast(kind))


def _ranged(
    strata: Sequence[pa.Table],
    chosen: Sequence[npt.NDArray[np.int64]],
    files: Sequence[DataFile],
    field: NestedField,
) -> pa.ChunkedArray:
    values = pa.chunked_array(
        [
            strata[number * len(strata) // len(files)][field.name].take(pa.array(rows)).chunk(0)
            for number, rows in enumerate(chosen)
        ]
    )
    kind = values.type
    if not isinstance(field.field_type, _NUMBERS):
        return values
    ends = [
        decode_bounds(
            pa.array([bounds.get(field.field_id) for bounds in side], pa.binary()), field.field_type
        )
        for side in ([file.lower_bounds for file in files], [file.upper_bounds for file in files])
    ]
    if any(bound.null_count for bound in ends):
        return values
    whole = pa.types.is_floating(kind)
    plain = values if whole else values.cast(_PHYSICAL[kind.bit_width])
    least, most = (
        bound.cast(_PHYSICAL[kind.bit_width]).to_numpy(zero_copy_only=False).astype(np.float64)
        if not whole
        else bound.to_numpy(zero_copy_only=False).astype(np.float64)
        for bound in ends
    )
    arrays = []
    for number, chunk in enumerate(plain.chunks):
        numbers = chunk.to_numpy(zero_copy_only=False).astype(np.float64)
        stratum = strata[number * len(strata) // len(files)][field.name]
        low, high = (_number(stratum, end, kind) for end in ("min", "max"))
        if low is None or high is None or not math.isfinite(high - low) or high == low:
            share = np.zeros(len(numbers))
        else:
            share = (numbers - low) / (high - low)
        with np.errstate(invalid="ignore"):  # of infinite ends
            moved = least[number] + share * (most[number] - least[number])
        mask = chunk.is_null().to_numpy(zero_copy_only=False)
        if whole:
            with np.errstate(over="ignore"):
                arrays.append(pa.array(moved.astype(kind.to_pandas_dtype()), mask=mask))
        else:
            moved = np.clip(np.nan_to_num(np.rint(moved)), least[number], most[number])
            # doubles do not hold the ends of 64 bits
            limit = 2.0 ** (kind.bit_width - 1) - 1024
            moved = np.clip(moved, -limit, limit)
            exact = np.where(mask, 0, moved).astype(np.int64)
            arrays.append(pa.array(exact, mask=mask).cast(_PHYSICAL[kind.bit_width]).cast(kind))
    return pa.chunked_array(arrays, kind)


def _number(values: pa.ChunkedArray, end: str, kind: pa.DataType) -> float | None:
    extreme = pc.min_max(values)[end]
    if not extreme.is_valid:
        return None
    plain = extreme if pa.types.is_floating(kind) else extreme.cast(_PHYSICAL[kind.bit_width])
    return float(plain.as_py())
