"""A table that Java alone writes, with a model of its rows."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

from pyiceberg.schema import Schema

from tests.conformance.java.both_engines import spec_of
from tests.conformance.java.json_rows import Row
from tests.conformance.java.judge import Judge
from tests.conformance.java.random_rows import optional


class JavaTable:
    """Creates a table with a column `rid` and others, and changes it.

    Args:
        judge: Java, with an open catalog.
        name: of the table.
        columns: name -> type in the words of the specification, or as JSON; `rid` comes first.
        terms: (transform, column) of the partition spec.
        version: format version.
        properties: of the table.
    """

    def __init__(
        self,
        judge: Judge,
        name: str,
        columns: dict[str, Any],
        terms: Sequence[tuple[str, str]] = (),
        version: int = 2,
        properties: dict[str, str] | None = None,
    ) -> None:
        self._judge = judge
        self.name = f"db.{name}"
        self._random = Random(name)
        self.rows: dict[int, Row] = {}
        self._next = 0
        self.snapshots: dict[str, list[Row]] = {}
        fields = [{"id": 1, "name": "rid", "required": True, "type": "long"}]
        for number, (column, kind) in enumerate(columns.items()):
            fields.append({"id": 100 + number, "name": column, "required": False, "type": kind})
        document = {"type": "struct", "schema-id": 0, "fields": fields}
        schema = Schema.model_validate_json(json.dumps(document))
        self._do(
            "create",
            schema=json.loads(schema.model_dump_json()),
            spec=json.loads(spec_of(schema, list(terms)).model_dump_json(by_alias=True)),
            properties={"format-version": str(version), **(properties or {})},
        )

    def _do(self, what: str, **fields: Any) -> Any:
        return self._judge(what, table=self.name, **fields)

    @property
    def metadata(self) -> dict[str, Any]:
        """As Java tells it."""
        return self._do("metadata")

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return Schema.model_validate_json(json.dumps(self.metadata["schema"]))

    @property
    def _rid(self) -> str:
        return str(self.schema.find_field("rid").field_id)

    def new_rows(self, count: int, values: dict[str, list[Any]] | None = None) -> list[Row]:
        """Rows that follow; those of a column with given values take them in turn."""
        schema, rid = self.schema, self._rid
        rows = []
        for number in range(count):
            row: Row = {rid: self._next + number}
            for field in schema.fields:
                if field.name == "rid":
                    continue
                given = (values or {}).get(field.name)
                row[str(field.field_id)] = (
                    given[number % len(given)]
                    if given
                    else optional(self._random, field.field_type, required=field.required)
                )
            rows.append(row)
        self._next += count
        return rows

    def append(self, rows: list[Row], **options: Any) -> None:
        """One commit of new rows."""
        self._do("append", rows=rows, **options)
        self._keep(rows)

    def delete(self, mode: str, rids: list[int], **options: Any) -> None:
        """`copy-on-write` or `merge-on-read`."""
        self._do(mode, rids=rids, **options)
        for rid in rids:
            del self.rows[rid]
        self._seen()

    def change(self, mode: str, rids: list[int], **options: Any) -> None:
        """Other values for some rows."""
        rows = self.new_rows(len(rids))
        for rid, row in zip(rids, rows, strict=True):
            row[self._rid] = rid
        self._do(mode, rows=rows, **options)
        self._keep(rows)

    def delete_equal(self, columns: list[str], rid: int, **options: Any) -> None:
        """An equality delete of what one row holds in some columns, in its partition only."""
        row = self.rows[rid]
        self._do("equality-delete", columns=columns, rows=[row], **options)
        ids = [str(self.schema.find_field(column).field_id) for column in columns]
        key = [row[one] for one in ids]
        self.rows = {
            other: known for other, known in self.rows.items() if [known[one] for one in ids] != key
        }
        self._seen()

    def migrate(self, change: dict[str, Any]) -> None:
        """A change of the schema at the top level or in a struct; rows follow by field id."""
        self._do("schema", changes=[change])
        now = self.schema
        defaults = {}
        if "default" in change:
            defaults[str(now.find_field(change["name"]).field_id)] = change["default"]

        def moved(row: Row, struct: Any) -> Row:
            found: Row = {}
            for field in struct.fields:
                old = row.get(str(field.field_id), defaults.get(str(field.field_id)))
                inner = old is not None and hasattr(field.field_type, "fields")
                found[str(field.field_id)] = moved(old, field.field_type) if inner else old
            return found

        self.rows = {rid: moved(row, now) for rid, row in self.rows.items()}

    def do(self, what: str, **fields: Any) -> None:
        """Anything that changes no row."""
        self._do(what, **fields)
        self._seen()

    def go_back(self, snapshot_id: int) -> None:
        """Roll back."""
        self._do("reference", change="rollback", snapshot=snapshot_id)
        rid = self._rid
        self.rows = {row[rid]: row for row in self.snapshots[str(snapshot_id)]}

    def _keep(self, rows: list[Row]) -> None:
        rid = self._rid
        self.rows |= {row[rid]: row for row in rows}
        self._seen()

    def _seen(self) -> None:
        current = str(self.metadata.get("current-snapshot-id"))
        self.snapshots.setdefault(current, copy.deepcopy(list(self.rows.values())))

    def expected(self, *, lineage: bool) -> dict[str, Any]:
        """What readers must find, as JSON."""
        metadata = self.metadata
        live = {str(one["snapshot-id"]) for one in metadata["snapshots"]}
        found = {
            "metadata": metadata["location"],
            "rows": list(self.rows.values()),
            "snapshots": {key: rows for key, rows in self.snapshots.items() if key in live},
        }
        if lineage:
            rows = self._do("rows", select=["rid"], lineage=True)
            rid = self._rid
            found["lineage"] = [[row[rid], row["2147483540"], row["2147483539"]] for row in rows]
        return found
