"""Metadata tables (`raw.events.files`) as Spark reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.errors import InvalidInputError
from lakehouse.spark.catalog.table_names import NamedTable
from lakehouse.spark.jvm.answers import Answers, Arguments
from lakehouse.spark.reading.read_options import check_read_options
from lakehouse.spark.spark_types import quoted


class MetadataTableAnswers(Answers):
    """Answers for a metadata table of one version; its rows are made when loaded."""

    def __init__(self, spark: SparkSession, found: NamedTable) -> None:
        super().__init__(
            found.shown,
            {
                "facts": self.facts,
                "rows": self.rows,
                "at": self.at,
                "check_options": self.check_options,
            },
        )
        self._found = found
        request = found.scan().request
        inspected = found.table.inspect.table(found.metadata_table or "", request.snapshot_id)
        self._frame = spark.createDataFrame(as_text(inspected))
        self._bytes = inspected.nbytes

    def facts(self, _told: Arguments, _thing: object) -> dict[str, Any]:
        """For `LakehouseTable.java`."""
        metadata = self._found.table.metadata
        return {
            "name": self._found.shown,
            "id": f"{metadata.table_uuid}.{self._found.metadata_table}",
            "version": f"{metadata.current_snapshot_id}.{metadata.last_updated_ms}",
            "schema": self._frame.schema.json(),
            "properties": {},
            "partitioning": [],
            "metadata_columns": [],
            "bytes": self._bytes,
            "rows": -1,
            "distinct": {},
            "misleading": [],
            "by_workers": True,
            "writable": False,
        }

    def rows(self, told: Arguments, _thing: object) -> Any:
        """The frame with these `columns`."""
        return self._frame.select(*(F.col(quoted(name)) for name in told["columns"]))._jdf

    def at(self, told: Arguments, _thing: object) -> Answers:
        """Metadata tables are read at a point that a statement says."""
        raise InvalidInputError(
            f"{self._found.shown} is read without the option {', '.join(sorted(told))}: SELECT ... "
            "VERSION AS OF a snapshot, branch or tag, or TIMESTAMP AS OF",
            table=self._found.shown,
        )

    def check_options(self, told: Arguments, _thing: object) -> None:
        """Refuse options of a read that would choose rows, and warn of the others."""
        check_read_options(self._found.shown, told)


def as_text(table: pa.Table) -> pa.Table:
    """The table with uuids as text, inside structs too: Spark takes no extension types."""
    columns = [_with_text(column.combine_chunks()) for column in table.columns]
    fields = [
        field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _with_text(array: pa.Array) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.UuidType):
        return pa.array(
            [None if value is None else str(value) for value in array.to_pylist()], pa.string()
        )
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return array
    children = [_with_text(child) for child in array.flatten()]
    fields = [kind.field(position).with_type(child.type) for position, child in enumerate(children)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
