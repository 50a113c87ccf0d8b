"""`format("lakehouse")`: for Spark SQL's DDL, `df.write`, and sessions without a JVM.

    spark.dataSource.register(LakehouseDataSource)
    options = {"catalog": "file:///data/warehouse"}
    spark.read.format("lakehouse").options(**options).load("raw.events")
    df.write.format("lakehouse").options(**options).mode("append").save("raw.events")

Files are pruned by the filters that Spark pushes (`spark.sql.python.filterPushdown.enabled`), and
read on the workers by our Arrow reader, every column of them: a Python data source knows no column
pruning. `LakehouseSession.table` is faster where it can be used.

Options: `catalog` (URI), `warehouse`, `name`, `path` or `table` (dotted name), `snapshot-id`,
`as-of-timestamp`, `ref`, and with the prefix `catalog.` any property of the catalog.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, TimestampLiteral, literal
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    StringType,
    TimestamptzType,
)
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from lakehouse.data.reading.scan_reader import ReadRequest, read_tasks
from lakehouse.data.writing.data_file_writer import WriteRequest, write_all
from lakehouse.errors import InvalidInputError
from lakehouse.lake import load_catalog
from lakehouse.scan.planner import ScanRequest, plan_scan
from lakehouse.scan.scan_tasks import TaskGroup
from lakehouse.spark.reading.worker_reader import shown_batch
from lakehouse.spark.spark_types import arrow_schema, to_spark_schema
from lakehouse.spark.worker_tasks import task_name
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.table.table import Table

logger = logging.getLogger(__name__)

NAME = "lakehouse"
_PREFIX = "catalog."
_KNOWN = frozenset(
    {"catalog", "warehouse", "name", "path", "table", "snapshot-id", "as-of-timestamp", "ref"}
)
_CHOOSES_ROWS = frozenset(
    {
        "branch",
        "tag",
        "versionasof",
        "timestampasof",
        "start-snapshot-id",
        "end-snapshot-id",
        "start-timestamp",
        "end-timestamp",
        "scan-task-set-id",
        "overwrite-mode",
        "isolation-level",
        "validate-from-snapshot-id",
        "output-spec-id",
        "write-format",
    }
)
"""Options of Iceberg's readers and writers without which other rows would be read or replaced."""
_COMPARED: Mapping[type[ds.Filter], Any] = {
    ds.EqualTo: EqualTo,
    ds.EqualNullSafe: EqualTo,
    ds.GreaterThan: GreaterThan,
    ds.GreaterThanOrEqual: GreaterThanOrEqual,
    ds.LessThan: LessThan,
    ds.LessThanOrEqual: LessThanOrEqual,
}
_EPOCH = dt.date(1970, 1, 1)


class LakehouseDataSource(ds.DataSource):
    """Batch reading and writing of one table of a lakehouse."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return NAME

    def schema(self) -> StructType:
        """The table's Spark schema; `uuid` and `fixed` are binary."""
        request = _scan_request(self._table(), self.options)
        return to_spark_schema(request.schema)

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Reads one snapshot, chosen now."""
        table = self._table()
        return LakehouseReader(_scan_request(table, self.options), table.storage.properties, schema)

    # PySpark's signature.
    def writer(self, schema: StructType, overwrite: bool) -> ds.DataSourceWriter:  # noqa: ARG002
        """Appends in one commit, or replaces all rows."""
        table = self._table()
        return LakehouseWriter(
            dict(self.options), table.write_request(), table.storage.properties, overwrite=overwrite
        )

    def _table(self) -> Table:
        return open_table(self.options)


def open_table(options: Mapping[str, str]) -> Table:
    """The table that options name.

    Raises:
        InvalidInputError: `catalog` or the table's name is missing.
        NoSuchTableError: it does not exist.
    """
    _check_options(options)
    name, catalog = options.get("table") or options.get("path"), options.get("catalog")
    if not name or not catalog:
        raise InvalidInputError(
            'format("lakehouse") takes option("catalog", <uri>) and the table as '
            'load/save("namespace.table")'
        )
    properties: dict[str, Any] = {
        key.removeprefix(_PREFIX): value
        for key, value in options.items()
        if key.startswith(_PREFIX)
    }
    lake = load_catalog(
        catalog, warehouse=options.get("warehouse"), name=options.get("name"), **properties
    )
    return lake.load_table(name)


def _check_options(options: Mapping[str, str]) -> None:
    """Warn of options that nothing honours. Raises InvalidInputError: one that chooses rows."""
    rest = {key.lower() for key in options} - _KNOWN
    unknown = sorted(key for key in rest if not key.startswith(_PREFIX))
    refused = [key for key in unknown if key in _CHOOSES_ROWS]
    if refused:
        raise InvalidInputError(
            f'format("{NAME}") does not have the option {", ".join(refused)}: use the catalog of '
            "an attached lakehouse (docs/spark.md)"
        )
    if unknown:
        logger.warning('format("%s"): nothing honours the option %s', NAME, ", ".join(unknown))


def _scan_request(table: Table, options: Mapping[str, str]) -> ScanRequest:
    snapshot = options.get("snapshot-id")
    scan = table.scan(
        snapshot_id=None if snapshot is None else int(snapshot),
        as_of=options.get("as-of-timestamp"),
        ref=options.get("ref") or "main",
    )
    return scan.request


@dataclass
class GroupPartition(ds.InputPartition):
    """File ranges that one Spark task reads."""

    group: TaskGroup


class LakehouseReader(ds.DataSourceReader):
    """Plans with the filters that were pushed; the workers read."""

    def __init__(
        self, request: ScanRequest, properties: Mapping[str, str], shown: StructType
    ) -> None:
        self._request = request
        self._schema = request.schema
        self._properties = properties
        self._shown = shown
        self._where: BooleanExpression = AlwaysTrue()

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:
        """Takes what it understands for pruning; Spark applies every filter again."""
        for pushed in filters:
            self._where = And(self._where, pushed_filter(pushed, self._schema))
        return filters

    def partitions(self) -> list[GroupPartition]:
        """One for each group of splits."""
        request = replace(self._request, where=self._where, select=None)
        plan = plan_scan(request, storage_for(request.metadata.location, self._properties))
        return [GroupPartition(group) for group in plan.splits()]

    def read(self, partition: GroupPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of one group, columns in the order of the schema that Spark has."""
        metadata = self._request.metadata
        request = ReadRequest.of(metadata, self._schema, table_schema=self._schema, threads=1)
        target = arrow_schema(self._shown)
        for rows in read_tasks(
            partition.group.tasks, request, storage_for(metadata.location, self._properties)
        ):
            yield shown_batch(rows, target)


def pushed_filter(pushed: ds.Filter, schema: Schema) -> BooleanExpression:
    """An expression that holds wherever the filter does; `AlwaysTrue` if not understood."""
    attribute = getattr(pushed, "attribute", None)
    name = ".".join(attribute) if attribute else None
    if name is None or name not in schema.column_names:
        return AlwaysTrue()
    reference = Reference(name)
    kind = schema.find_type(name)
    if isinstance(pushed, ds.IsNotNull):
        return _predicate(NotNull, reference)
    if isinstance(pushed, ds.IsNull):
        return _predicate(IsNull, reference) if len(attribute or ()) == 1 else AlwaysTrue()
    if isinstance(pushed, ds.StringStartsWith) and isinstance(kind, StringType) and pushed.value:
        return _predicate(StartsWith, reference, pushed.value)
    if isinstance(pushed, ds.In):
        values = [_pushed_literal(value, kind) for value in pushed.value if value is not None]
        return AlwaysTrue() if not values or None in values else _predicate(In, reference, values)
    return _pushed_comparison(pushed, name, kind)


def _predicate(build: Callable[..., BooleanExpression], *parts: object) -> BooleanExpression:
    return build(*parts)


def _pushed_comparison(pushed: ds.Filter, name: str, kind: IcebergType) -> BooleanExpression:
    build = _COMPARED.get(type(pushed))
    value = None if build is None else _pushed_literal(getattr(pushed, "value", None), kind)
    if build is None or value is None:
        return AlwaysTrue()
    compared = _predicate(build, Reference(name), value)
    if isinstance(kind, FloatType | DoubleType) and isinstance(
        pushed, ds.GreaterThan | ds.GreaterThanOrEqual
    ):
        return Or(compared, _predicate(IsNaN, Reference(name)))
    return compared


def _pushed_literal(value: Any, kind: IcebergType) -> Literal[Any] | None:
    if isinstance(value, dt.datetime):
        aware = isinstance(kind, TimestamptzType) and value.tzinfo is not None
        return (
            TimestampLiteral(
                (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
            )
            if aware
            else None
        )
    if isinstance(value, dt.date):
        return DateLiteral((value - _EPOCH).days) if isinstance(kind, DateType) else None
    if isinstance(value, float) and (value != value or not isinstance(kind, DoubleType)):
        return None
    if isinstance(value, Decimal) and not isinstance(kind, DecimalType):
        return None
    if isinstance(value, bytes | bytearray):
        return literal(bytes(value)) if isinstance(kind, BinaryType) else None
    if isinstance(value, str) and not isinstance(kind, StringType):
        return None
    return literal(value) if isinstance(value, bool | int | float | str | Decimal) else None


@dataclass
class Written(ds.WriterCommitMessage):
    """What one task wrote, as records of data files."""

    records: list[dict[str, Any]]


class LakehouseWriter(ds.DataSourceArrowWriter):
    """Workers write data files; the driver commits them once."""

    def __init__(
        self,
        options: Mapping[str, str],
        request: WriteRequest,
        properties: Mapping[str, str],
        *,
        overwrite: bool,
    ) -> None:
        self._options = options
        self._request = request
        self._properties = properties
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task in place."""
        files = write_all(
            iterator,
            self._request,
            storage_for(self._request.location, self._properties),
            task=task_name(),
        )
        return Written([file.to_record() for file in files])

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Publish every task's files in one snapshot."""
        files = _files(messages)
        table = open_table(self._options)
        transaction = table.transaction()
        if self._overwrite:
            transaction.overwrite(
                files, list(table.scan().plan().files), conflict_filter=AlwaysTrue()
            )
        else:
            transaction.append(files)
        # a commit that Spark sends twice is one
        transaction.commit(commit_id=self._request.write_id)

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Leave files to orphan removal: Spark also aborts after a commit of unknown outcome."""
        logger.warning(
            "write to %s failed; %d files stay unreferenced",
            self._request.table,
            len(_files(messages)),
        )


def _files(messages: Iterable[ds.WriterCommitMessage | None]) -> list[DataFile]:
    return [
        DataFile.from_record(record)
        for message in messages
        if isinstance(message, Written)
        for record in message.records
    ]
