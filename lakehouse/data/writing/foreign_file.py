"""Parquet files of other writers, without field ids, as data files of a table.

They are described from their footers and never rewritten.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    NestedField,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from lakehouse.data.conversion.columns_by_id import find_path
from lakehouse.data.conversion.leaf_field_ids import leaf_field_ids
from lakehouse.data.conversion.parquet_bounds import decode_statistic
from lakehouse.data.reading.column_projection import Projection
from lakehouse.data.reading.file_columns import FileColumn, file_columns
from lakehouse.data.reading.parquet_footer import load_footer, open_parquet, readable
from lakehouse.data.writing.column_metrics import footer_metrics, metrics_modes
from lakehouse.errors import InvalidExpressionError, InvalidInputError, InvalidSchemaError
from lakehouse.expressions.transforms.transformed_values import transform_value
from lakehouse.expressions.typed_literals import cast_literal
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.partitioning.hive_path import folder_texts
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.spec.types.internal_value import to_internal
from lakehouse.storage.storage_protocol import FileInfo, Storage

_NAIVE = TimestampType | TimestampNanoType
_ZONED = TimestamptzType | TimestamptzNanoType


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
        InvalidSchemaError: the file has field ids, a column that the table lacks or that cannot be
            read as the table's type, or lacks a required one.
        InvalidInputError: its rows lie in more than one partition, or nobody can tell in which.
        CorruptMetadataError | NoSuchFileError: it is no Parquet file, or not there.
    """
    probe = DataFile(file_path=info.location, record_count=0, file_size_in_bytes=info.size)
    found = load_footer(storage, probe, counted=False)
    footer, file = found.parsed, open_parquet(storage, probe, found)
    with readable(info.location):
        if any(one is not None for one in leaf_field_ids(footer)):
            raise InvalidSchemaError(
                f"{info.location} has field ids, which say what its columns are in the table it "
                f"was written for; {request.table} takes files without ids",
                file=info.location,
            )
        columns = file_columns(file.schema_arrow, request.name_mapping, info.location)
    file.close()
    facts = _Facts(info.location, footer, columns, request)
    values = facts.values_of({**facts.texts_of_folders(), **(texts or {})})
    facts.check(values)
    partition = tuple(facts.partition_value(one, values) for one in request.spec.fields)
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
        self._fields = index_by_id(request.schema)
        self.leaf_ids: list[int | None] = [None] * footer.num_columns
        _note_leaves(columns, self.leaf_ids)

    def texts_of_folders(self) -> dict[str, str | None]:
        """Those `column=value` folders above the file that name a column it lacks."""
        there = {one.field_id for one in self._columns}
        lacking = {one.name for one in self._request.schema.fields if one.field_id not in there}
        return {name: text for name, text in folder_texts(self._path).items() if name in lacking}

    def values_of(self, texts: Mapping[str, str | None]) -> dict[int, Any]:
        """Field id -> value of columns that the path names."""
        identity = {
            one.source_id
            for one in self._request.spec.fields
            if isinstance(one.transform, IdentityTransform)
        }
        values: dict[int, Any] = {}
        for name, text in texts.items():
            one = next((field for field in self._request.schema.fields if field.name == name), None)
            if one is None or one.field_id not in identity:
                problem = "is no column of" if one is None else "is no identity partition field of"
                raise InvalidInputError(
                    f"{self._path}: the folder column {name!r} {problem} {self._request.table}, "
                    "so its values would be lost",
                    file=self._path,
                    column=name,
                )
            values[one.field_id] = self._parsed(one, text)
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

    def _check_zones(self) -> None:
        """That instants come from instants, and local times from local times.

        INT96, and timestamps of writers that did not know the difference, are taken for either.
        """
        for leaf, field_id in enumerate(self.leaf_ids):
            kind = None if field_id is None else self._fields[field_id].field_type
            column = self._footer.schema.column(leaf)
            found = json.loads(column.logical_type.to_json())
            if not isinstance(kind, _NAIVE | _ZONED) or found.get("Type") != "Timestamp":
                continue
            zoned = found["isAdjustedToUTC"]
            if not found["is_from_converted_type"] and zoned != isinstance(kind, _ZONED):
                what = "instants (adjusted to UTC)" if zoned else "times without a zone"
                raise InvalidSchemaError(
                    f"{self._path}: column {column.path!r} holds {what}, and is {kind} in "
                    f"{self._request.table}. Read it, say in which zone the times are, and append "
                    "its rows.",
                    file=self._path,
                    column=column.path,
                )

    def partition_value(self, one: PartitionField, values: Mapping[int, Any]) -> Any:
        """The one partition value of all rows."""
        source = find_path(self._request.schema, one.source_id)[1]
        if one.source_id in values:
            return values[one.source_id]
        if one.source_id not in self.leaf_ids:
            low = high = to_internal(source.initial_default, source.field_type)
        else:
            low, high = self._range(source)
        if low == high:
            return transform_value(one.transform, low, source.field_type)
        if low is not None and high is not None and one.transform.preserves_order:
            first, last = (
                transform_value(one.transform, value, source.field_type) for value in (low, high)
            )
            if first == last:
                return first
        raise InvalidInputError(
            f"{self._path} has rows of more than one partition {one.name} ({source.name} from "
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
                    for one in self._statistics(leaf)
                    if one and one.has_min_max
                    for bound in (one.min, one.max)
                ]
                if any(math.isnan(bound) for bound in bounds):
                    unsure.add(field_id)
        return unsure

    def _parsed(self, one: NestedField, text: str | None) -> Any:
        if text is None or not isinstance(one.field_type, PrimitiveType):
            return None
        try:
            position = cast_literal(text, one.field_type, one.name)
        except InvalidExpressionError as error:
            raise self._no_value(one, text) from error
        if not position.exact:
            raise self._no_value(one, text)
        return position.value

    def _no_value(self, one: NestedField, text: str) -> InvalidInputError:
        what = f"{text!r} is no value of column {one.name!r} of type {one.field_type}"
        return InvalidInputError(f"{self._path}: {what}", file=self._path, column=one.name)

    def _range(self, one: NestedField) -> tuple[Any, Any]:
        """Least and greatest value of a column; (None, None) when all are null.

        Raises:
            InvalidInputError: some are null, some are not; or the footer does not tell.
        """
        kind, leaf = one.field_type, self.leaf_ids.index(one.field_id)
        unclear = InvalidInputError(
            f"{self._path}: the footer does not tell which partition its rows belong to (column "
            f"{one.name!r} has nulls among its values, or no statistics): read it and append its "
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


def _internal(value: Any, kind: PrimitiveType) -> Any:
    if value is not None and isinstance(kind, DecimalType):
        return Decimal((value < 0, tuple(int(digit) for digit in str(abs(value))), -kind.scale))
    return UUID(bytes=value) if isinstance(value, bytes) and isinstance(kind, UUIDType) else value


def _stray(
    columns: Sequence[FileColumn], known: Mapping[int, NestedField], parent: str = ""
) -> Iterator[str]:
    """Columns that are none of the table's, nested ones too: nobody would ever read them."""
    for one in columns:
        if one.field_id not in known:
            yield f"{parent}{one.name}"
        else:
            yield from _stray(one.children, known, f"{parent}{one.name}.")


def _note_leaves(columns: Sequence[FileColumn], ids: list[int | None]) -> None:
    for one in columns:
        if one.children:
            _note_leaves(one.children, ids)
        else:
            ids[one.leaves[0]] = one.field_id
