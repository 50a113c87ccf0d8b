"""Tables created or replaced together with their rows: CTAS, RTAS, `createOrReplace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import UnsupportedFeatureError
from lakehouse.spark.jvm.answers import Arguments, Verb
from lakehouse.spark.writing.writable_table import WritableTableAnswers
from lakehouse.spark.writing.write_answers import WriteAnswers
from lakehouse.spark.writing.write_options import write_options
from lakehouse.spark.writing.write_target import wap_branch
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddPartitionSpec,
    AddSchema,
    AddSortOrder,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    Update,
)
from lakehouse.spec.partitioning.partition_terms import parse_partition_spec
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.spec.schema.schema_json import assign_fresh_ids
from lakehouse.table.row_write import RowWrite
from lakehouse.table.table import Table
from lakehouse.transaction.transaction import Transaction


class Staged(Protocol):
    """A table whose first rows nobody else sees before they are published."""

    @property
    def table(self) -> Table:
        """The table as it will be once published."""

    def publish(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> None:
        """Make it visible with these files. Raises CommitError; then nothing has changed."""


@dataclass(frozen=True)
class NewTable:
    """A table that is not there before it is published (`Lakehouse.stage_table`)."""

    table: Table

    def publish(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> None:
        """Make the table and its rows visible. A table of no rows has no snapshot."""
        table = self.table
        if not files:
            table.move_to(table.catalog.commit(table.identifier, table.version, (), ()))
            return
        with RowWrite(table, "main", summary, None) as write:
            write.files += files
            write.commit(table.transaction().append(files))


@dataclass(frozen=True)
class ReplacedTable:
    """A table whose columns, partitioning and rows are others from now on; its history stays.

    Attributes:
        before: the table that is replaced.
        transaction: its new schema, partition spec and properties.
    """

    table: Table
    before: Table
    transaction: Transaction

    def publish(self, files: Sequence[DataFile], summary: Mapping[str, str]) -> None:
        """Make the table and its rows visible.

        Raises ValidationConflictError when another writer changed rows meanwhile.
        """
        removed = self.before.scan().plan().files
        with RowWrite(self.before, "main", summary, None) as write:
            write.files += files
            if files or removed:
                write.commit(self.transaction.overwrite(files, removed))
            else:
                self.before.move_to(self.transaction.commit(summary).version)


def replaced_table(
    before: Table, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
) -> ReplacedTable:
    """The table with other columns, under new ids, and these properties added.

    Columns that partition fields are named after keep their ids: Iceberg's Java opens no table in
    which another column has the name of a partition field, be it of an earlier spec.
    """
    transaction = before.transaction()
    transaction.update(_shape(before.metadata, schema, partition_by))
    if properties:
        transaction.set_properties(properties)
    version = TableVersion(before.identifier, transaction.metadata, before.metadata_location)
    table = Table(before.catalog, version, before.environment, before.listeners)
    return ReplacedTable(table, before, transaction)


def _kept_ids(metadata: TableMetadata, schema: Schema) -> dict[str, int]:
    """Of columns that partition fields are named after, and that are as they were."""
    before = metadata.schema()
    there = set(before.column_names) & set(schema.column_names)
    return {
        field.name: field.source_id
        for spec in metadata.partition_specs
        for field in spec.fields
        if field.name in there
        and before.find_field(field.name).field_id == field.source_id
        and before.find_type(field.name) == schema.find_type(field.name)
    }


def _shape(
    metadata: TableMetadata, schema: Schema, partition_by: Sequence[str]
) -> tuple[Update, ...]:
    fresh, _ = assign_fresh_ids(schema, metadata.last_column_id + 1, _kept_ids(metadata, schema))
    spec = parse_partition_spec(partition_by, fresh)
    first = metadata.last_partition_id + 1
    fields = [
        PartitionField(field.source_id, first + position, field.transform, field.name)
        for position, field in enumerate(spec.fields)
    ]
    return (
        AddSchema(fresh),
        SetCurrentSchema(),
        AddPartitionSpec(PartitionSpec(*fields)),
        SetDefaultSpec(),
        AddSortOrder(UNSORTED_SORT_ORDER),
        SetDefaultSortOrder(),
    )


class StagedTableAnswers(WritableTableAnswers):
    """Answers for a staged table: what is written to it waits to be published.

    Args:
        spark: the session.
        staged: the table.
        by_workers: whether Python workers write the files, because Spark cannot.
    """

    def __init__(
        self, spark: Callable[[], SparkSession], staged: Staged, *, by_workers: bool
    ) -> None:
        super().__init__(spark, staged.table.name, staged.table, "main", by_workers=by_workers)
        self._staged = staged
        self._files: list[DataFile] = []
        self._summary: Mapping[str, str] = {}

    def _verbs_of_table(self) -> Mapping[str, Verb]:
        return {
            **super()._verbs_of_table(),
            "publish": self.publish,
            "abandon": self.abandon,
        }

    def write(self, args: Arguments, _java: object) -> WriteAnswers:
        """A write of the table's first rows."""
        table = self._staged.table
        target = self._target(args["options"])
        if target.unpublished or wap_branch(self._spark(), table):
            raise UnsupportedFeatureError(
                f"{self.name}: write.wap.enabled is true and the session has spark.wap.id or "
                "spark.wap.branch, but a table is made or replaced at once: RESET them, or create "
                "the table and INSERT",
                table=self.name,
            )
        self._summary = target.summary
        options = write_options(self._spark(), table, "append", args["options"])
        request = options.request(table.write_request())
        return WriteAnswers(
            f"write to {self.name}", self._spark, request, self._files.extend, table
        )

    def publish(self, _args: Arguments, _java: object) -> None:
        """Make the table visible."""
        self._staged.publish(self._files, self._summary)

    def abandon(self, _args: Arguments, _java: object) -> None:
        """The statement failed: its files go."""
        self.storage.delete([file.file_path for file in self._files])

    def facts(self, args: Arguments, java: object) -> dict[str, Any]:
        """What Spark has to know of the table, as JSON. Nothing is to be read."""
        return {**super().facts(args, java), "staged": True, "bytes": 0, "rows": 0}
