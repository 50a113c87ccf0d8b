"""One table opened by both: what either does to it, and what each then reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.transforms import parse_transform

import lakehouse as lh
from lakehouse.spec.schema.schema_json import schema_to_json
from tests.conformance.java.json_rows import Row, rows_of, sorted_maps, table_of
from tests.conformance.java.judge import Judge

LINEAGE = ("_row_id", "_last_updated_sequence_number")
JAVA_ROW_ID, JAVA_UPDATED = "2147483540", "2147483539"


class BothEngines:
    """A catalog that both open, with one table.

    Args:
        judge: Java.
        folder: empty; everything lies in it.
        kind: `hadoop` or `jdbc`.
    """

    def __init__(self, judge: Judge, folder: Path, kind: str) -> None:
        self._judge = judge
        self._name = folder.name
        self.table_name = "db.t"
        warehouse = f"file://{folder}/warehouse"
        properties = {"warehouse": warehouse}
        if kind == "jdbc":
            properties |= {
                "uri": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=60000",
                "jdbc.schema-version": "V1",
            }
            self.lake = lh.load_catalog(
                f"sqlite:///{folder}/catalog.db", warehouse=warehouse, name=self._name
            )
        else:
            self.lake = lh.load_catalog(warehouse, name=self._name)
        judge("open", kind=kind, catalog=self._name, properties=properties)
        self._folder = folder

    def java(self, do: str, **fields: Any) -> Any:
        """Java does something to the table."""
        return self._judge(do, catalog=self._name, table=self.table_name, **fields)

    def table(self) -> lh.Table:
        """The table as it is now, opened by us."""
        return self.lake.load_table(self.table_name)

    def pyiceberg(self) -> PyIcebergTable:
        """The table as it is now, opened by pyiceberg; in a catalog of kind `jdbc`."""
        catalog = SqlCatalog(
            self._name,
            uri=f"sqlite:///{self._folder}/catalog.db",
            warehouse=f"file://{self._folder}/warehouse",
        )
        return catalog.load_table(self.table_name)

    def create(
        self,
        schema: Schema,
        terms: list[tuple[str, str]],
        properties: dict[str, str],
        *,
        by_java: bool,
    ) -> None:
        """Create the table; `terms` are (transform, column) of its partition spec."""
        if by_java:
            self.java(
                "create",
                schema=schema_to_json(schema),
                spec=json.loads(spec_of(schema, terms).model_dump_json(by_alias=True)),
                properties=properties,
            )
        else:
            self.lake.create_table(
                self.table_name,
                schema,
                partition_by=[f"{term(*one)} as p{n}" for n, one in enumerate(terms)],
                properties=properties,
            )

    def schema_of(self, snapshot_id: int | None = None) -> Schema:
        """The schema that a snapshot is read with, or the table's head."""
        metadata = self.table().metadata
        if snapshot_id is None:
            return metadata.schema()
        return metadata.schema_for(metadata.snapshot(snapshot_id))

    def java_rows(self, snapshot_id: int | None = None, java_filter: Any = None) -> list[Row]:
        """What Java reads."""
        found = self.java("rows", snapshot=snapshot_id, filter=java_filter)
        struct = self.schema_of(snapshot_id).as_struct()
        return [sorted_maps(row, struct) for row in found]

    def our_rows(self, snapshot_id: int | None = None, where: Any = None) -> list[Row]:
        """What we read."""
        found = self.table().scan(where=where, snapshot_id=snapshot_id).to_arrow()
        return rows_of(found, self.schema_of(snapshot_id))

    def java_wrote(self) -> bool:
        """Whether Java wrote any data file: its writers number tasks by nanoseconds."""
        names = [file.file_path.rpartition("/")[2] for file in self.table().scan().plan().files]
        return any(len(name.split("-")[1]) > 6 for name in names)

    def our_lineage(self) -> dict[int, tuple[int, int]]:
        """Row -> its id and the sequence number of its last change, as we read them."""
        found = self.table().scan(select=["rid", *LINEAGE]).to_arrow().to_pylist()
        return {row["rid"]: (row[LINEAGE[0]], row[LINEAGE[1]]) for row in found}

    def java_lineage(self, rid: str) -> dict[int, tuple[int, int]]:
        """The same as Java reads it; `rid` is the field id of that column."""
        rows = self.java("rows", lineage=True)
        return {row[rid]: (row[JAVA_ROW_ID], row[JAVA_UPDATED]) for row in rows}

    def append(self, rows: list[Row], table: lh.Table | None = None) -> None:
        """We append; by a handle that was opened before, if one is given."""
        handle = table or self.table()
        handle.append(table_of(rows, handle.schema()))


def term(transform: str, column: str) -> str:
    """A partition term as we take it: `bucket[4]` of `c` is `bucket(4, c)`."""
    name, _, width = transform.rstrip("]").partition("[")
    return f"{name}({width}, {column})" if width else f"{name}({column})"


def spec_of(schema: Schema, terms: list[tuple[str, str]]) -> PartitionSpec:
    """A spec with fields `p0`, `p1`, ..."""
    fields = [
        PartitionField(
            schema.find_field(column).field_id, 1000 + n, parse_transform(transform), f"p{n}"
        )
        for n, (transform, column) in enumerate(terms)
    ]
    return PartitionSpec(*fields) if fields else UNPARTITIONED_PARTITION_SPEC
