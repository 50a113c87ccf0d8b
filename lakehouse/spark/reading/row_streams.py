"""Rows of a table as a stream of Spark (`RowStream.java`): new ones, or all changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from lakehouse.data.reading.changelog_rows import CHANGE_COLUMNS, read_changelog
from lakehouse.data.reading.scan_reader import ReadRequest
from lakehouse.errors import InvalidInputError, NoSuchTableError
from lakehouse.scan.changelog_plan import ChangelogStep
from lakehouse.scan.planner import ScanRequest
from lakehouse.scan.scan_tasks import TaskGroup
from lakehouse.scan.stream_plan import Limits, Position, StreamPlan, Unit
from lakehouse.spark.catalog.table_names import CHANGES
from lakehouse.spark.jvm.answers import Answers, Arguments, Raw
from lakehouse.spark.reading.metadata_frames import unpruned_facts
from lakehouse.spark.reading.read_options import read_options
from lakehouse.spark.reading.worker_reader import read_groups, read_on_workers
from lakehouse.spark.spark_types import quoted, shown_schema
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.scan import read_request
from lakehouse.table.table import Table

CHANGE_FIELDS = (
    sp.StructField("_change_type", sp.StringType(), nullable=False),
    sp.StructField("_change_ordinal", sp.LongType(), nullable=False),
    sp.StructField("_commit_snapshot_id", sp.LongType(), nullable=False),
)
_STARTS = ("stream-from-timestamp", "stream-from-snapshot-id", "stream-from-tag")
_FLAGS = (
    "failondataloss",
    "streaming-skip-overwrite-snapshots",
    "streaming-skip-delete-snapshots",
)
_LIMITS: Mapping[str, str] = {
    "maxfilespertrigger": "files",
    "maxrowspertrigger": "rows",
    "maxbytespertrigger": "bytes",
}
"""Options of streams, and the limit that each is."""
_TASK_BYTES = 128 << 20


class RowStreamAnswers(Answers):
    """Answers for one stream of a table's rows.

    Args:
        spark: the session.
        name: of the table, in the statement.
        table: the table that the stream began with.
        branch: the branch read.
        schema: its columns then, which are read all the time, by id.
        options: of the read.
        changes: whether all changes are read, rather than new rows.
    """

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        name: str,
        table: Table,
        branch: str,
        schema: Schema,
        options: Mapping[str, str],
        *,
        changes: bool,
    ) -> None:
        super().__init__(
            f"stream of {name}",
            {
                "limits": self.limits,
                "initial": self.initial,
                "latest": self.latest,
                "behind": self.behind,
                "hold": self.hold,
                "rows": self.rows,
            },
        )
        self._spark = spark
        self._name = name
        self._table = table
        self._schema = schema
        self._changes = changes
        self._options = {key.lower(): text for key, text in options.items()}
        self._branch = self._options.get("branch", branch)
        flags = {key: self._flag(key) for key in _FLAGS}
        self._tolerates_loss = flags["failondataloss"] is False
        self._skipped = frozenset(
            operation
            for operation in ("overwrite", "delete")
            if flags[f"streaming-skip-{operation}-snapshots"]
        )
        self._held: Position | None = None
        _refuse_points(name, self._options)

    def limits(self, _args: Arguments, _java: object) -> dict[str, int]:
        """What the options say of the size of a batch."""
        return {
            limit: self._number(option, 1)
            for option, limit in _LIMITS.items()
            if option in self._options
        }

    def initial(self, _args: Arguments, _java: object) -> Raw:
        """Where a stream begins that has no checkpoint yet."""
        return Raw(self._start(self._plan()).to_json())

    def hold(self, _args: Arguments, _java: object) -> None:
        """From now on the stream ends at what is there now (`Trigger.AvailableNow`)."""
        self._held = self._plan().head()

    def latest(self, args: Arguments, _java: object) -> Raw:
        """Where a batch ends that begins at `start`, within `limits`."""
        plan = self._plan()
        until = plan.head() if self._held is None else self._held
        start = Position.from_json(args["start"])
        if until.snapshot_id is None:
            return Raw(start.to_json())
        return Raw(plan.admitted(start, Limits(**args["limits"]), until).to_json())

    def behind(self, args: Arguments, _java: object) -> dict[str, str]:
        """How far the branch is ahead of what was `read`, for the progress of the query."""
        plan = self._plan()
        read = Position.from_json(args["read"]) if "read" in args else Position()
        unread = []
        for snapshot in plan.metadata.ancestors(plan.head().snapshot_id):
            if snapshot.snapshot_id == read.snapshot_id and read.units is None:
                break
            if snapshot.operation != OPERATION_REPLACE:
                unread.append(snapshot)
            if snapshot.snapshot_id == read.snapshot_id:
                break
        now = self._table.environment.now_ms()
        seconds = (now - unread[-1].timestamp_ms) / 1000 if unread else 0
        return {"snapshotsBehind": str(len(unread)), "secondsBehind": f"{seconds:.3f}"}

    def rows(self, args: Arguments, _java: object) -> Any:
        """A frame of these `columns` of the rows from `start` to `end`, read by Python workers."""
        start, end = Position.from_json(args["start"]), Position.from_json(args["end"])
        return self._rows(self._plan(), start, end, args["columns"])

    def all_rows(self, columns: Sequence[str]) -> Any:
        """A frame of these columns of the rows that are there now."""
        plan = self._plan()
        return self._rows(plan, Position(), plan.head(), columns)

    def _rows(
        self, plan: StreamPlan, start: Position, end: Position, columns: Sequence[str]
    ) -> Any:
        units = list(plan.between(start, end))
        request = ScanRequest(metadata=plan.metadata, snapshot_id=end.snapshot_id)
        frame = (self._changed if self._changes else self._new)(units, request)
        return frame.select(*(F.col(quoted(name)) for name in columns))._jdf

    def _new(self, units: Sequence[Unit], request: ScanRequest) -> DataFrame:
        """The rows that came."""
        groups = [
            TaskGroup(tuple(task for unit in group for task in unit.after))
            for group in _grouped(units)
        ]
        shown = shown_schema(self._schema)
        storage = self._table.storage
        return read_on_workers(self._spark(), groups, request, storage, self._schema, shown)

    def _changed(self, units: Sequence[Unit], request: ScanRequest) -> DataFrame:
        """The rows that came and went, as many units in a task as make a good size."""
        read = replace(read_request(request, self._schema), threads=1)
        location, storage = request.metadata.location, self._table.storage
        shown = change_schema(self._schema)
        groups = list(_grouped(units))
        return read_groups(
            self._spark(), groups, read, location, storage.properties, shown, _changes_of
        )

    def _plan(self) -> StreamPlan:
        """Of the newest version."""
        table = self._table
        version = table.catalog.refresh(table.version)
        if version.metadata.table_uuid != table.metadata.table_uuid:
            raise NoSuchTableError(
                f"{self._name}: the table that the stream reads was dropped, and another one has "
                "its name: start again with another checkpoint",
                table=self._name,
            )
        _check_types(self._name, self._schema, version.metadata)
        return StreamPlan(
            self._name,
            version.metadata,
            self._branch,
            table.storage,
            self._changes,
            self._skipped,
            self._tolerates_loss,
        )

    def _start(self, plan: StreamPlan) -> Position:
        given = [name for name in _STARTS if name in self._options]
        if not given:
            return Position()
        if len(given) > 1:
            raise InvalidInputError(
                f"{self._name}: a stream begins at one point, not at {' and '.join(given)}",
                table=self._name,
            )
        [option] = given
        history = list(plan.metadata.ancestors(plan.head().snapshot_id))
        if option == "stream-from-timestamp":
            since = self._number(option, 0)
            before = next((snapshot for snapshot in history if snapshot.timestamp_ms < since), None)
            if before is not None:
                return Position(before.snapshot_id)
            if history and not history[-1].is_first and not self._tolerates_loss:
                raise InvalidInputError(
                    f"{self._name}: what came after stream-from-timestamp={since} has expired in "
                    f"part; the oldest snapshot left is of {history[-1].timestamp_ms}. Begin after "
                    "that, or leave the option out to begin with all rows",
                    table=self._name,
                )
            return Position()
        if option == "stream-from-tag":
            tag = self._options[option]
            ref = plan.metadata.refs.get(tag)
            if ref is None:
                raise InvalidInputError(f"{self._name} has no tag {tag}", table=self._name)
            wanted = ref.snapshot_id
        else:
            wanted = self._number(option, 0)
        if all(snapshot.snapshot_id != wanted for snapshot in history):
            raise InvalidInputError(
                f"{self._name}: {option}={self._options[option]} is no snapshot in what is left of "
                f"the history of branch {self._branch}: begin at a later one, or leave the option "
                "out to begin with all rows",
                table=self._name,
            )
        return Position(wanted)

    def _number(self, option: str, least: int) -> int:
        text = self._options[option]
        if text.strip().isdecimal() and int(text) >= least:
            return int(text)
        raise InvalidInputError(
            f"{self._name}: the option {option}={text} is refused: it is a whole number from "
            f"{least}",
            table=self._name,
        )

    def _flag(self, option: str) -> bool | None:
        text = self._options.get(option)
        if text is None:
            return None
        if text.lower() not in ("true", "false"):
            raise InvalidInputError(
                f"{self._name}: the option {option}={text} is refused: it is true or false",
                table=self._name,
            )
        return text.lower() == "true"


def change_schema(schema: Schema) -> sp.StructType:
    """The columns of a table's changes."""
    return sp.StructType([*shown_schema(schema).fields, *CHANGE_FIELDS])


def _refuse_points(name: str, options: Mapping[str, str]) -> None:
    points = {"snapshot-id", "as-of-timestamp", "tag", "start-snapshot-id", "end-snapshot-id"}
    given = sorted(points.intersection(options))
    if given:
        raise InvalidInputError(
            f"{name}: the option {', '.join(given)} is one of a query; a stream begins at one of "
            f"{', '.join(_STARTS)}",
            table=name,
        )


def _check_types(name: str, began: Schema, metadata: TableMetadata) -> None:
    """Raise InvalidInputError if a column has another type than when the stream began.

    Files with values of the new type cannot be read as the old one. Columns that are new, gone or
    renamed do not matter: the stream has those that it began with, by id.
    """
    now = metadata.schema()
    there = set(now.field_ids)
    changed = [
        f"{field.name} from {field.field_type} to {now.find_type(number)}"
        for number in began.field_ids
        if (field := began.find_field(number)).field_type.is_primitive
        and number in there
        and now.find_type(number) != field.field_type
    ]
    if changed:
        raise InvalidInputError(
            f"{name}: columns have changed their type since the stream began: {', '.join(changed)}."
            " Start the query again: it goes on from its checkpoint, with the new types",
            table=name,
        )


def _grouped(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    group: list[Unit] = []
    filled = 0
    for unit in units:
        size = unit.size()[2]
        if group and filled + size > _TASK_BYTES:
            yield group
            group, filled = [], 0
        group.append(unit)
        filled += size
    if group:
        yield group


def _changes_of(
    units: Sequence[Unit], request: ReadRequest, storage: Storage
) -> Iterator[pa.RecordBatch]:
    for unit in units:
        step = ChangelogStep(0, unit.snapshot, unit.before, unit.after)
        rows = read_changelog([step], request, storage)
        # the same in each batch of a stream, unlike a count of the snapshots read
        ordinal = pa.repeat(pa.scalar(unit.snapshot.sequence_number), rows.num_rows)
        place = rows.num_columns - len(CHANGE_COLUMNS) + 1
        rows = rows.set_column(place, "_change_ordinal", ordinal)
        yield from rows.combine_chunks().to_batches()


class ChangesAnswers(Answers):
    """Answers for the changes of a table (`raw.events.changes`), read at once or as a stream.

    Args:
        spark: the session.
        name: the name in the statement.
        table: the table.
    """

    def __init__(self, spark: Callable[[], SparkSession], name: str, table: Table) -> None:
        super().__init__(
            name,
            {
                "facts": self.facts,
                "rows": self.rows,
                "at": self.at,
                "options": self.options,
                "stream": self.stream,
            },
        )
        self._spark = spark
        self._name = name
        self._table = table
        self._schema = table.schema()

    def facts(self, _args: Arguments, _java: object) -> dict[str, Any]:
        """For `LakehouseTable.java`."""
        facts = unpruned_facts(self._name, CHANGES, self._table.metadata)
        return {**facts, "schema": change_schema(self._schema).json(), "streams": True}

    def rows(self, args: Arguments, _java: object) -> Any:
        """All changes of what is left of the history of main, in these `columns`."""
        return self._stream({}).all_rows(args["columns"])

    def at(self, args: Arguments, _java: object) -> Answers:
        """Options of a stream come with it."""
        if args.keys() == {"branch"}:
            return self
        _refuse_points(self._name, args)
        raise InvalidInputError(f"{self._name}: the option {', '.join(args)} is refused")

    def options(self, args: Arguments, _java: object) -> dict[str, int]:
        """Options of a read, of which none matters."""
        return read_options(self._name, args)

    def stream(self, args: Arguments, _java: object) -> RowStreamAnswers:
        """A stream of them, with the options of the read."""
        return self._stream(args)

    def _stream(self, options: Mapping[str, str]) -> RowStreamAnswers:
        facts = (self._spark, self._name, self._table, "main", self._schema, options)
        return RowStreamAnswers(*facts, changes=True)
