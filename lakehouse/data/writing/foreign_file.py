"""Parquet files of other writers, without field ids, as data files of a table.

They are described from their footers and never rewritten.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lakehouse.data.reading.column_projection import FileColumn, Projection, file_columns
from lakehouse.data.reading.parquet_reader import WholeParquet, load_footer, open_parquet, readable
from lakehouse.data.statistics.column_metrics import decode_statistic, footer_metrics, metrics_modes
from lakehouse.errors import InvalidExpressionError, InvalidInputError, InvalidSchemaError
from lakehouse.expressions.transforms.partition_transforms import transform_value
from lakehouse.expressions.typed_literals import cast_literal
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.partitioning.partition_terms import folder_texts
from lakehouse.spec.schema.iceberg_types import VariantType, fields_of, find_path
from lakehouse.spec.types.arrow_types import leaf_field_ids, schema_to_arrow
from lakehouse.spec.types.internal_values import to_internal
from lakehouse.storage.storage_protocol import FileInfo, Storage

_NAIVE = TimestampType | TimestampNanoType
_ZONED = TimestamptzType | TimestamptzNanoType
_TICKS = {"milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}

_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True, kw_only=True)
class ForeignRequest:
    """What has to be known about the table that takes files in.

    Attributes:
        schema: its schema.
        spec: partition spec that the files are to belong to.
        properties: table properties (metrics modes).
        name_mapping: JSON that names every column of the schema.
        table: name, for messages.
    """

    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    name_mapping: str
    table: str


def describe_file(
    info: FileInfo,
    request: ForeignRequest,
    storage: Storage,
    texts: Mapping[str, str | None] | None = None,
) -> DataFile:
    """Describe a Parquet file of another writer as a data file, without rewriting it.

    Its partition comes from `texts`, where they name the source of an identity field, else from the
    statistics in its footer, else, where the file lacks the column, from the folders it lies in.

    Args:
        info: the file.
        request: the table.
        storage: where the file is.
        texts: column -> text of its value in all rows, from a Hive path; None is null.

    Raises:
        InvalidSchemaError: the file has field ids, two columns for one of the table, one that the
            table lacks or that cannot be read as the table's type, values that do not fit, nulls in
            a required column, or lacks a required one.
        InvalidInputError: its rows lie in more than one partition, or nobody can tell in which.
        CorruptMetadataError | NoSuchFileError: it is no Parquet file, or not there.
    """
    probe = DataFile(file_path=info.location, record_count=0, file_size_in_bytes=info.size)
    loaded = load_footer(storage, probe, counted=False)
    footer, file = loaded.parsed, open_parquet(storage, probe, loaded)
    with readable(info.location):
        if any(field_id is not None for field_id in leaf_field_ids(footer)):
            raise InvalidSchemaError(
                f"{info.location} has field ids, which say what its columns are in the table it "
                f"was written for; {request.table} takes files without ids",
                file=info.location,
            )
        columns = file_columns(file.schema_arrow, request.name_mapping, info.location)
        _refuse_twins(columns, info.location)
        facts = _Facts(info.location, footer, columns, request)
        values = facts.values_of({**facts.texts_of_folders(), **(texts or {})})
        facts.check(values)
        facts.read_doubtful(file, values)
    file.close()
    partition = tuple(facts.partition_value(field, values) for field in request.spec.fields)
    modes = metrics_modes(request.schema, request.properties)
    metrics = footer_metrics(footer, facts.leaf_ids, request.schema, modes)
    for field_id in facts.fields_with_nan_bounds():
        metrics.lower_bounds.pop(field_id, None)
        metrics.upper_bounds.pop(field_id, None)
    return metrics.data_file(
        file_path=info.location,
        partition=partition,
        spec_id=request.spec.spec_id,
        file_size_in_bytes=info.size,
    )


class _Facts:
    """What the footer of one file tells."""

    def __init__(
        self,
        path: str,
        footer: pq.FileMetaData,
        columns: Sequence[FileColumn],
        request: ForeignRequest,
    ) -> None:
        self._path, self._footer, self._columns, self._request = path, footer, columns, request
        self._fields = fields_of(request.schema)
        self.leaf_ids: list[int | None] = [None] * footer.num_columns
        _note_leaves(columns, self.leaf_ids)

    def texts_of_folders(self) -> dict[str, str | None]:
        """Those `column=value` folders above the file that name a column it lacks."""
        there = {column.field_id for column in self._columns}
        lacking = {
            field.name for field in self._request.schema.fields if field.field_id not in there
        }
        return {name: text for name, text in folder_texts(self._path).items() if name in lacking}

    def values_of(self, texts: Mapping[str, str | None]) -> dict[int, Any]:
        """Field id -> value of columns that the path names."""
        identity = {
            field.source_id
            for field in self._request.spec.fields
            if isinstance(field.transform, IdentityTransform)
        }
        values: dict[int, Any] = {}
        for name, text in texts.items():
            named = next(
                (field for field in self._request.schema.fields if field.name == name), None
            )
            if named is None or named.field_id not in identity:
                problem = (
                    "is no column of" if named is None else "is no identity partition field of"
                )
                raise InvalidInputError(
                    f"{self._path}: the folder column {name!r} {problem} {self._request.table}, "
                    "so its values would be lost",
                    file=self._path,
                    column=name,
                )
            values[named.field_id] = self._parsed(named, text)
        return values

    def check(self, values: Mapping[int, Any]) -> None:
        """Check that each file column fits one of the table, and none required is missing."""
        stray = list(_stray(self._columns, self._fields))
        if stray:
            raise InvalidSchemaError(
                f"{self._path} has columns that {self._request.table} lacks: {', '.join(stray)}. "
                "Add them first, with update_schema() and union_by_name().",
                file=self._path,
            )
        self._check_zones()
        schema = self._request.schema
        Projection(self._columns, schema.fields, list(schema_to_arrow(schema)), values, self._path)
        for field_id, value in values.items():
            if field_id in self.leaf_ids and self._range(self._fields[field_id]) != (value, value):
                raise InvalidInputError(
                    f"{self._path}: column {self._fields[field_id].name!r} is in the path and, "
                    "otherwise, in the file",
                    file=self._path,
                )

    def read_doubtful(self, file: WholeParquet, values: Mapping[int, Any]) -> None:
        """Read those columns of which the footer does not tell that a scan can read them."""
        there = {column.field_id: column for column in self._columns}
        doubtful = [
            field
            for field in self._request.schema.fields
            if field.field_id in there and self._doubtful(there[field.field_id], field.required)
        ]
        if not doubtful:
            return
        targets = list(schema_to_arrow(Schema(*doubtful)))
        projection = Projection(self._columns, doubtful, targets, values, self._path)
        # pyarrow puts dictionaries of several row groups together at the top alone
        batches = (
            batch
            for group in range(self._footer.num_row_groups)
            for batch in file.reader.iter_batches(
                _ROWS_AT_A_TIME, [group], column_indices=projection.leaves
            )
        )
        for batch in batches:
            columns = projection.columns(batch, batch.num_rows)
            for field, column in zip(doubtful, columns, strict=True):
                try:
                    column.validate(full=True)
                except pa.ArrowInvalid as error:
                    raise InvalidSchemaError(
                        f"{self._path}: column {field.name!r} holds a value that is not a valid "
                        f"{field.field_type}: {error}",
                        file=self._path,
                        column=field.name,
                    ) from error

    def _doubtful(self, column: FileColumn, required: bool, depth: int = 0) -> bool:
        """Whether there may be nulls where none belong, or values beyond the table's type."""
        if column.children:
            field = self._fields.get(cast("int", column.field_id))
            if field is not None and isinstance(field.field_type, VariantType):
                return required
            return (required and depth == 0) or any(
                self._doubtful(child, self._requires(child), depth + 1) for child in column.children
            )
        statistics = self._statistics(column.leaves[0])
        counted = all(
            statistic is not None and statistic.has_null_count for statistic in statistics
        )
        nulls = sum(statistic.null_count for statistic in statistics) if counted else None
        return (required and (nulls is None or nulls > 0)) or not self._fits(column, statistics)

    def _requires(self, column: FileColumn) -> bool:
        field = None if column.field_id is None else self._fields.get(column.field_id)
        return field is not None and field.required

    def _fits(self, column: FileColumn, statistics: Sequence[Any]) -> bool:
        """Whether the statistics show that all values are in the range of the table's type."""
        leaf, kind = column.leaves[0], self._fields[cast("int", column.field_id)].field_type
        schema = self._footer.schema.column(leaf)
        logical = json.loads(schema.logical_type.to_json())
        if isinstance(kind, StringType):
            ends = [
                end
                for statistic in statistics
                if statistic and statistic.has_min_max
                for end in _raw_ends(statistic)
            ]
            return all(decode_statistic(end, schema, kind) is not None for end in ends)
        ticks = 1
        if isinstance(kind, _NAIVE | _ZONED | TimeType) and "timeUnit" in logical:
            nanos = isinstance(kind, TimestampNanoType | TimestamptzNanoType)
            ticks = _TICKS[logical["timeUnit"]] // (1 if nanos else 1000)
        unsigned = logical.get("isSigned") is False
        if not unsigned and ticks <= 1:
            return True
        bits = 32 if isinstance(kind, IntegerType) else 64
        for statistic in statistics:
            if statistic is None or not statistic.has_min_max:
                if statistic is None or statistic.num_values:
                    return False
                continue
            for end in _raw_ends(statistic):
                value = end % (1 << logical["bitWidth"]) if unsigned else end * ticks
                if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                    return False
        return True

    def _check_zones(self) -> None:
        """That instants come from instants, and local times from local times.

        INT96, and timestamps of writers that did not know the difference, are taken for either.
        """
        for leaf, field_id in enumerate(self.leaf_ids):
            kind = None if field_id is None else self._fields[field_id].field_type
            column = self._footer.schema.column(leaf)
            logical = json.loads(column.logical_type.to_json())
            if not isinstance(kind, _NAIVE | _ZONED) or logical.get("Type") != "Timestamp":
                continue
            zoned = logical["isAdjustedToUTC"]
            if not logical["is_from_converted_type"] and zoned != isinstance(kind, _ZONED):
                what = "instants (adjusted to UTC)" if zoned else "times without a zone"
                raise InvalidSchemaError(
                    f"{self._path}: column {column.path!r} holds {what}, and is {kind} in "
                    f"{self._request.table}. Read it, say in which zone the times are, and append "
                    "its rows.",
                    file=self._path,
                    column=column.path,
                )

    def partition_value(self, part: PartitionField, values: Mapping[int, Any]) -> Any:
        """The one partition value of all rows."""
        source = find_path(self._request.schema, part.source_id)[1]
        if part.source_id in values:
            return values[part.source_id]
        if part.source_id not in self.leaf_ids:
            low = high = to_internal(source.initial_default, source.field_type)
        else:
            low, high = self._range(source)
        if low == high:
            return transform_value(part.transform, low, source.field_type)
        if low is not None and high is not None and part.transform.preserves_order:
            first, last = (
                transform_value(part.transform, value, source.field_type) for value in (low, high)
            )
            if first == last:
                return first
        raise InvalidInputError(
            f"{self._path} has rows of more than one partition {part.name} ({source.name} from "
            f"{low!r} to {high!r}): read it and append its rows, or partition "
            f"{self._request.table} otherwise.",
            file=self._path,
        )

    def fields_with_nan_bounds(self) -> set[int]:
        """Floating-point fields whose statistics hold a NaN: old writers' bounds, worth nothing."""
        unsure: set[int] = set()
        for leaf, field_id in enumerate(self.leaf_ids):
            if field_id is not None and isinstance(
                self._fields[field_id].field_type, FloatType | DoubleType
            ):
                bounds = [
                    bound
                    for statistic in self._statistics(leaf)
                    if statistic and statistic.has_min_max
                    for bound in (statistic.min, statistic.max)
                ]
                # those of half floats are bytes, and are not taken over
                if any(isinstance(bound, float) and math.isnan(bound) for bound in bounds):
                    unsure.add(field_id)
        return unsure

    def _parsed(self, field: NestedField, text: str | None) -> Any:
        if text is None or not isinstance(field.field_type, PrimitiveType):
            return None
        try:
            position = cast_literal(text, field.field_type, field.name)
        except InvalidExpressionError as error:
            raise self._no_value(field, text) from error
        if not position.exact:
            raise self._no_value(field, text)
        return position.value

    def _no_value(self, field: NestedField, text: str) -> InvalidInputError:
        what = f"{text!r} is no value of column {field.name!r} of type {field.field_type}"
        return InvalidInputError(f"{self._path}: {what}", file=self._path, column=field.name)

    def _range(self, field: NestedField) -> tuple[Any, Any]:
        """Least and greatest value of a column; (None, None) when all are null.

        Raises:
            InvalidInputError: some are null, some are not; or the footer does not tell.
        """
        kind, leaf = field.field_type, self.leaf_ids.index(field.field_id)
        unclear = InvalidInputError(
            f"{self._path}: the footer does not tell which partition its rows belong to (column "
            f"{field.name!r} has nulls among its values, or no statistics): read it and append its "
            "rows.",
            file=self._path,
        )
        if not isinstance(kind, PrimitiveType) or isinstance(kind, FloatType | DoubleType):
            raise unclear
        statistics = self._statistics(leaf)
        if any(group is None or not group.has_null_count for group in statistics):
            raise unclear
        nulls = sum(group.null_count for group in statistics)
        if nulls == self._footer.num_rows:
            return None, None
        if nulls or not all(group.has_min_max for group in statistics):
            raise unclear
        column = self._footer.schema.column(leaf)
        lows = [
            _internal(decode_statistic(group.min_raw, column, kind), kind) for group in statistics
        ]
        highs = [
            _internal(decode_statistic(group.max_raw, column, kind), kind) for group in statistics
        ]
        if any(value is None for value in (*lows, *highs)):
            raise unclear
        return min(lows), max(highs)

    def _statistics(self, leaf: int) -> list[Any]:
        groups = (self._footer.row_group(number) for number in range(self._footer.num_row_groups))
        return [group.column(leaf).statistics for group in groups if group.num_rows]


def _raw_ends(statistics: Any) -> tuple[Any, Any]:
    return statistics.min_raw, statistics.max_raw


def _internal(value: Any, kind: PrimitiveType) -> Any:
    if value is not None and isinstance(kind, DecimalType):
        return Decimal((value < 0, tuple(int(digit) for digit in str(abs(value))), -kind.scale))
    return UUID(bytes=value) if isinstance(value, bytes) and isinstance(kind, UUIDType) else value


def _stray(
    columns: Sequence[FileColumn], known: Mapping[int, NestedField], parent: str = ""
) -> Iterator[str]:
    """Columns that are none of the table's, nested ones too: nobody would ever read them."""
    for column in columns:
        field = None if column.field_id is None else known.get(column.field_id)
        if field is None:
            yield f"{parent}{column.name}"
        elif not isinstance(field.field_type, VariantType):
            yield from _stray(column.children, known, f"{parent}{column.name}.")


def _refuse_twins(columns: Sequence[FileColumn], path: str, parent: str = "") -> None:
    """Refuse two columns of one name, or of two names that the table has for one column."""
    names: dict[str, FileColumn] = {}
    ids: dict[int, FileColumn] = {}
    for column in columns:
        other = names.setdefault(column.name, column)
        if other is column and column.field_id is not None:
            other = ids.setdefault(column.field_id, column)
        if other is not column:
            raise InvalidSchemaError(
                f"{path} has two columns for one of the table, {parent}{other.name} and "
                f"{parent}{column.name}: write it again with one of them, or read it and append "
                "its rows.",
                file=path,
                column=f"{parent}{column.name}",
            )
        _refuse_twins(column.children, path, f"{parent}{column.name}.")


def _note_leaves(columns: Sequence[FileColumn], ids: list[int | None]) -> None:
    for column in columns:
        if column.children:
            _note_leaves(column.children, ids)
        else:
            ids[column.leaves[0]] = column.field_id
