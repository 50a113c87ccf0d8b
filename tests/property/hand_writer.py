"""A writer of equality deletes in Java's place, for histories without Java: by pyarrow alone.

It does what the histories ask of a writer that cannot read: deletes by fields at any depth in the
partitions of any spec, at once or held back while others commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

import lakehouse as lh
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.spec.types.arrow_types import field_to_arrow
from lakehouse.transaction.transaction import Transaction
from tests.conformance.java.json_rows import Row, plain, table_of

Commit = Callable[[], Any]


class HandWriter:
    """Takes the commands that the histories give to Java."""

    def __init__(self) -> None:
        self._held: dict[str, Commit] = {}
        self._lake: lh.Lake | None = None

    def __call__(self, do: str, *, catalog: str, table: str = "", **fields: Any) -> Any:
        """The result of a command."""
        self._name = table
        return getattr(self, do.replace("-", "_"))(**fields)

    def open(self, kind: str, properties: dict[str, str]) -> None:
        """The catalog."""
        folder = properties["warehouse"].removesuffix("/warehouse").removeprefix("file://")
        self._lake = lh.load_catalog(
            f"sqlite:///{folder}/catalog.db",
            warehouse=properties["warehouse"],
            name=folder.rpartition("/")[2],
        )

    def _table(self) -> lh.Table:
        return self._lake.load_table(self._name)

    def append(
        self, rows: list[Row], branch: str = "main", hold: str | None = None, **_: Any
    ) -> None:
        """Rows of the schema as it is now."""
        table = self._table()
        files = table.write_files(table_of(rows, table.schema()))
        self._commit(lambda transaction: transaction.append(files), branch, hold)

    def equality_delete(
        self,
        columns: list[str],
        rows: list[Row],
        spec: int,
        branch: str = "main",
        hold: str | None = None,
        beside: list[Row] | None = None,
        **_: Any,
    ) -> None:
        """A delete file for each partition, its columns inside the structs of the table.

        The rows of `beside` are added by the same commit, which does not reach them.
        """
        table = self._table()
        schema = table.schema()
        ids = {schema.find_field(name).field_id for name in columns}
        keys = Schema(*_projected(schema.as_struct(), ids))
        partitions: dict[str, tuple[tuple[Any, ...], list[Row]]] = {}
        for row in rows:
            values = _partition(table.metadata.spec(spec), schema, row)
            partitions.setdefault(str(values), (values, []))[1].append(row)
        files = []
        for values, inside in partitions.values():
            path = f"{table.location.rstrip('/')}/data/equality-{uuid.uuid4()}.parquet"
            arrow = pa.schema([field_to_arrow(field) for field in keys.fields])
            sink = pa.BufferOutputStream()
            pq.write_table(table_of(inside, keys).cast(arrow), sink)
            data = sink.getvalue().to_pybytes()
            table.storage.write(path, data)
            files.append(
                DataFile(
                    content=CONTENT_EQUALITY_DELETES,
                    file_path=path,
                    partition=values,
                    spec_id=spec,
                    record_count=len(inside),
                    file_size_in_bytes=len(data),
                    equality_ids=tuple(sorted(ids)),
                )
            )
        added = table.write_files(table_of(beside, schema)) if beside else []
        self._commit(lambda transaction: transaction.row_delta(added, files), branch, hold)

    def partitions(self, rows: list[Row], spec: int) -> list[str]:
        """Where rows lie in a spec."""
        table = self._table()
        return [str(_partition(table.metadata.spec(spec), table.schema(), row)) for row in rows]

    def places(self, ref: str = "main") -> list[dict[str, Any]]:
        """Where the data files lie."""
        return [
            {
                "path": task.data_file.file_path,
                "format": task.data_file.file_format.upper(),
                "spec": task.data_file.spec_id,
                "partition": str(tuple(task.data_file.partition)),
                "sequence-number": task.sequence_number,
            }
            for task in self._table().scan(ref=ref).plan().tasks
        ]

    def commit(self, held: str) -> None:
        """What was held back."""
        self._held.pop(held)()

    def _commit(self, change: Callable[[Transaction], Any], branch: str, hold: str | None) -> None:
        def commit() -> None:
            table = self._table()
            transaction = Transaction(table.catalog, table.identifier, branch=branch)
            change(transaction)
            transaction.commit()

        if hold is None:
            commit()
        else:
            self._held[hold] = commit


def _projected(struct: StructType, ids: set[int]) -> list[NestedField]:
    found = []
    for field in struct.fields:
        kind = field.field_type
        if isinstance(kind, StructType) and (inside := _projected(kind, ids)):
            found.append(field.model_copy(update={"field_type": StructType(*inside)}))
        elif field.field_id in ids:
            found.append(field)
    return found


def _partition(spec: PartitionSpec, schema: Schema, row: Row) -> tuple[Any, ...]:
    """By pyiceberg's transforms."""
    values = []
    for field in spec.fields:
        kind = schema.find_field(field.source_id).field_type
        value: Any = row
        for step in _way(schema, field.source_id):
            value = None if value is None else value[step]
        if value is not None:
            value = field.transform.transform(kind)(plain(value, kind))
        values.append(value)
    return tuple(values)


def _way(schema: Schema, field_id: int) -> list[str]:
    names = (schema.find_column_name(field_id) or "").split(".")
    paths = [".".join(names[: end + 1]) for end in range(len(names))]
    return [str(schema.find_field(path).field_id) for path in paths]
