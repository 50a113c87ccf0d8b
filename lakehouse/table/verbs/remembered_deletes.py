"""Deletes remembered in a table of their own, so that older changes stay without effect.

The table beside has one row for each delete: the columns of the key and of the sequence, and when
it was remembered, by whose day it is partitioned. It is appended to before the table itself is
committed: whoever sees the row gone finds the delete remembered (docs/adr/0014).
"""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestamptzType

from lakehouse.errors import InvalidInputError, TableAlreadyExistsError, ValidationConflictError
from lakehouse.row_changes.change_data.change_batch import ChangeBatch
from lakehouse.row_changes.change_data.change_merge import older_than
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata, new_table_metadata, refuse_v1
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec, parse_sort_order
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.row_write import WriteVerbs
from lakehouse.table.verbs.change_verbs import ChangeVerbs

REMEMBERED_AT = "remembered_at"
_REMEMBERS = "lakehouse.changes.remembers"  # uuid of the table whose deletes these are
_LOOKS = 50  # for a table that another writer is making
_DAY_MS = 24 * 60 * 60 * 1000


class _Beside(WriteVerbs, ChangeVerbs):
    """The table that remembers."""

    def remembered(self, branch: str) -> TargetRows:
        """Its rows."""
        return TargetRows.of(self.version, branch, self.storage)


class RememberedDeletes:
    """The deletes that are remembered beside a table, as far as a batch of changes is concerned.

    Args:
        table: that the changes are for.
        batch: the changes.
        branch: of the table; each has deletes of its own, in a branch of the same name.
    """

    def __init__(self, table: LoadedTable, batch: ChangeBatch, branch: str) -> None:
        properties = TableProperties(table.properties)
        self._table = table
        self._batch = batch
        self._branch = branch
        self._remember_ms = properties.changes_remember_deletes_ms
        self._written = False
        default = Identifier(table.identifier.namespace, f"{table.identifier.name}_deletes")
        given = properties.changes_deletes_table
        self._identifier = default if given is None else Identifier.parse(given)

    @property
    def asked_for(self) -> bool:
        """Whether the batch has deletes that are to be remembered."""
        return bool(self._remember_ms and self._batch.deletes.any())

    def property_of(self, metadata: TableMetadata) -> dict[str, str]:
        """The property that names the deletes' table, so that a renamed table still has them."""
        name = TableProperties.changes_deletes_table.name
        new = self.asked_for and name not in metadata.properties
        return {name: str(self._identifier)} if new else {}

    def older(self) -> npt.NDArray[np.bool_]:
        """The changes of the batch that are older than a delete that is remembered by now."""
        beside = self._load() if self._remember_ms else None
        if beside is None:
            return np.zeros(self._batch.rows.num_rows, bool)
        return older_than(beside.remembered(self._branch), self._batch)

    def check(self, decided: npt.NDArray[np.bool_]) -> None:
        """Refuse when deletes were remembered since that are about changes not seen as older.

        Raises:
            ValidationConflictError: a change is older than a delete that came meanwhile.
        """
        if (self.older() & ~decided).any():
            raise ValidationConflictError(
                f"Table {self._table.name}: deletes were applied meanwhile that are newer than "
                "changes of this batch. Apply it again.",
                table=self._table.name,
            )

    def remember(self) -> None:
        """Append the deletes of the batch, once, and forget those that are too old.

        Raises:
            InvalidInputError: the table beside is not what it should be.
            CommitError: see `lakehouse.errors`.
        """
        if self._written or not self.asked_for:
            return
        beside = self._load() or self._create()
        batch, now_ms = self._batch, self._table.environment.now_ms()
        names = list(dict.fromkeys((*batch.keys, *batch.sequence_by)))
        rows = batch.rows.select(names).filter(pa.array(batch.deletes))
        now = pa.scalar(now_ms * 1000, pa.timestamp("us", tz="UTC"))
        rows = rows.append_column(REMEMBERED_AT, pa.repeat(now, rows.num_rows))
        with beside.update_schema() as schema:
            schema.union_by_name(self._schema())
        beside.append(rows, branch=self._branch)
        self._written = True
        self._forget(beside, now_ms)

    def _forget(self, beside: _Beside, now_ms: int) -> None:
        """Drop whole days alone: their files go without being read."""
        oldest = (now_ms - self._remember_ms) // _DAY_MS
        if oldest <= 0:
            return
        day = dt.date(1970, 1, 1) + dt.timedelta(days=oldest)
        try:
            beside.delete(f"{REMEMBERED_AT} < '{day}'", branch=self._branch)
        except ValidationConflictError:
            return  # another writer forgets them at this moment

    def _schema(self) -> Schema:
        """Columns of the key and of the sequence, in the types of the table."""
        names = dict.fromkeys((*self._batch.keys, *self._batch.sequence_by))
        if REMEMBERED_AT in names:
            raise self._unusable(f"a key or sequence cannot have the name {REMEMBERED_AT}")
        return Schema(
            *(self._batch.schema.find_field(name) for name in names),
            NestedField(self._batch.schema.highest_field_id + 1, REMEMBERED_AT, TimestamptzType()),
        )

    def _load(self) -> _Beside | None:
        catalog = self._table.catalog
        if not catalog.table_exists(self._identifier):
            return None
        table = _Beside(
            catalog,
            catalog.load(self._identifier),
            self._table.environment,
            self._table.listeners,
        )
        names = sorted({*self._batch.keys, *self._batch.sequence_by, REMEMBERED_AT})
        if table.properties.get(_REMEMBERS) != self._table.metadata.table_uuid:
            raise self._unusable("it is a table of its own")
        if sorted(table.schema().column_names) != names:
            raise self._unusable(
                f"its columns are {', '.join(sorted(table.schema().column_names))}, those of the "
                f"changes' keys and sequence {', '.join(names)}"
            )
        return table

    def _create(self) -> _Beside:
        schema, catalog = self._schema(), self._table.catalog
        refuse_v1(self._table.metadata)
        metadata = new_table_metadata(
            schema=schema,
            spec=parse_partition_spec([f"day({REMEMBERED_AT})"], schema),
            sort_order=parse_sort_order([], schema),
            location=catalog.default_location(self._identifier),
            properties={_REMEMBERS: self._table.metadata.table_uuid},
            format_version=self._table.metadata.format_version,
            table_uuid=str(self._table.environment.new_uuid()),
            now_ms=self._table.environment.now_ms(),
        )
        for _ in range(_LOOKS):
            with suppress(TableAlreadyExistsError):
                catalog.create(self._identifier, metadata)
            table = self._load()
            if table is not None:
                return table
            self._table.environment.sleep(0.1)  # another writer makes it at this moment
        raise self._unusable("another writer began to make it and did not finish")

    def _unusable(self, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self._table.name}: deletes cannot be remembered in {self._identifier}: {why}. Drop "
            f"it, or name another with {TableProperties.changes_deletes_table.name}",
            table=self._table.name,
        )
