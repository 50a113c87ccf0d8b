"""Metadata tables (`raw.events.files`) as Spark reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.errors import InvalidInputError
from lakehouse.spark.catalog.table_names import NamedTable
from lakehouse.spark.jvm.answers import Answers, Arguments
from lakehouse.spark.reading.read_options import read_options
from lakehouse.spark.reading.table_facts import UNKNOWN_SIZE
from lakehouse.spark.shown_values import shown_array
from lakehouse.spark.spark_types import quoted
from lakehouse.spec.metadata.table_metadata import TableMetadata


class MetadataTableAnswers(Answers):
    """Answers for a metadata table of one version; its rows are made when loaded."""

    def __init__(self, spark: SparkSession, named: NamedTable) -> None:
        super().__init__(
            named.shown,
            {
                "facts": self.facts,
                "rows": self.rows,
                "at": self.at,
                "options": self.options,
            },
        )
        self._named = named
        request = named.scan().request
        inspected = named.table.inspect.table(named.metadata_table or "", request.snapshot_id)
        self._frame = spark.createDataFrame(as_text(inspected))
        self._bytes = inspected.nbytes

    def facts(self, _args: Arguments, _java: object) -> dict[str, Any]:
        """For `LakehouseTable.java`."""
        facts = unpruned_facts(
            self._named.shown, self._named.metadata_table or "", self._named.table.metadata
        )
        return {**facts, "schema": self._frame.schema.json(), "bytes": self._bytes}

    def rows(self, args: Arguments, _java: object) -> Any:
        """The frame with these `columns`."""
        return self._frame.select(*(F.col(quoted(name)) for name in args["columns"]))._jdf

    def at(self, args: Arguments, _java: object) -> Answers:
        """Metadata tables are read at a point that a statement says."""
        raise InvalidInputError(
            f"{self._named.shown} is read without the option {', '.join(sorted(args))}: SELECT ... "
            "VERSION AS OF a snapshot, branch or tag, or TIMESTAMP AS OF",
            table=self._named.shown,
        )

    def options(self, args: Arguments, _java: object) -> dict[str, int]:
        """Options of a read, of which none matters: a metadata table is made in one piece."""
        return read_options(self._named.shown, args)


def unpruned_facts(name: str, part: str, metadata: TableMetadata) -> dict[str, Any]:
    """Facts of rows that come as a frame in one piece, but for their `schema`."""
    return {
        "name": name,
        "id": f"{metadata.table_uuid}.{part}",
        "version": f"{metadata.current_snapshot_id}.{metadata.last_updated_ms}",
        "properties": {},
        "partitioning": [],
        "metadata_columns": [],
        "bytes": UNKNOWN_SIZE,
        "rows": -1,
        "distinct": {},
        "splits": {},
        "misleading": [],
        "for_workers": [],
        "by_workers": True,
        "writable": False,
    }


def as_text(table: pa.Table) -> pa.Table:
    """The table with uuids and nanoseconds as text, at any depth: Spark has no such types."""
    fields = [_with_text(field) for field in table.schema]
    columns = [
        shown_array(column.combine_chunks(), field.type)
        for column, field in zip(table.columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _with_text(field: pa.Field) -> pa.Field:
    kind = field.type
    if isinstance(kind, pa.UuidType) or (pa.types.is_timestamp(kind) and kind.unit == "ns"):
        return field.with_type(pa.string())
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_with_text(child) for child in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_with_text(kind.value_field)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_with_text(kind.key_field), _with_text(kind.item_field)))
    return field
