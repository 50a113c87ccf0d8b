"""Batches of a stream as commits of a table, each once (`StreamedWrite.java`)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakehouse.data.reading.scan_reader import ReadRequest, RowReader
from lakehouse.data.writing.data_file_writer import WriteRequest
from lakehouse.errors import InvalidInputError, NoSuchTableError
from lakehouse.expressions.bound_filter import TRUE
from lakehouse.expressions.filter_text import quoted
from lakehouse.maintenance.compaction.compaction import Tail
from lakehouse.row_changes.merge.merge_binding import bind_merge
from lakehouse.row_changes.merge.merge_rows import merge_rows
from lakehouse.row_changes.merge.merge_statement import MergeClause, MergeStatement
from lakehouse.row_changes.merge.source_rows import DEFAULT_MEMORY_BYTES, SourceRows, held_rows
from lakehouse.row_changes.row_change import RowChange, RowWriter
from lakehouse.row_changes.target_rows import TargetRows
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spark.jvm.answers import Arguments
from lakehouse.spark.writing.merged_columns import GivenColumns, given_columns
from lakehouse.spark.writing.write_answers import Commit, WriteAnswers, table_commit
from lakehouse.spark.writing.write_options import write_options
from lakehouse.spark.writing.write_target import WriteTarget, write_target
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.commit_names import COMMIT_ID, StreamBatch, head_of
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.types.arrow_types import schema_to_arrow
from lakehouse.table.table import Table

_KEYS, _TAIL_FILES = "merge-keys", "tail-files"
_OF_STREAMS = frozenset({"checkpointlocation", "queryname", "path", _KEYS, _TAIL_FILES})
"""Options that no other write has, those among them that Spark leaves there."""
_TAIL = "lakehouse.tail."
"""Begins the entries of summaries that tell what joining a stream's small files took."""

logger = logging.getLogger(__name__)


class StreamAnswers(WriteAnswers):
    """Answers for the write of one batch, whose number Spark tells when it is to be committed.

    Args:
        name: for the log.
        spark: the session.
        request: how files are written.
        commit_batch: makes new files rows of the table, as the batch of a number.
        table: whose storage keeps them.
        columns: those of the rows.
        tail: joins small files of the batches.
    """

    def __init__(
        self,
        name: str,
        spark: Callable[[], SparkSession],
        request: WriteRequest,
        commit_batch: Callable[[int], Commit],
        table: Table,
        columns: GivenColumns,
        tail: StreamTail,
    ) -> None:
        super().__init__(name, spark, request, lambda _files: None, table, columns)
        self._commit_batch = commit_batch
        self._table = table
        self._tail = tail

    def commit(self, args: Arguments, _java: object) -> None:
        """Publish `files` of all tasks, unless the `batch` is in the table already."""
        files = self._files.data_files(args["files"])
        self._commit_batch(args["batch"])(files)
        table = self._table
        self._tail.grew(table.catalog, table.version, files, table.environment)


class StreamTail(Tail):
    """The small files of a running stream."""

    _stream = ""

    def of(self, table: Table, query_id: str, args: Arguments) -> StreamTail:
        """With the options of a stream. Raises InvalidInputError."""
        options = {key.lower(): text for key, text in args["options"].items()}
        text = options.get(_TAIL_FILES, "8")
        if not text.isdecimal() or int(text) == 1:
            raise InvalidInputError(
                f"{table.name}: the option {_TAIL_FILES}={text} is how many small files of a "
                "partition are joined: 2 or more, 0 for never",
                table=table.name,
            )
        self._stream, self.width = query_id, 0 if args["mode"] != "append" else int(text)
        return self

    def summary(self, metadata: TableMetadata, joined: int) -> dict[str, str]:
        """What the stream has written so far, as its last such snapshot that is left tells."""
        of_stream = StreamBatch(self._stream, 0).removesuffix("0")
        appended = 0
        head = head_of(metadata, self.branch)
        for snapshot in metadata.ancestors(None if head is None else head.snapshot_id):
            if snapshot.summary.get(f"{_TAIL}stream") == self._stream:
                appended += int(snapshot.summary[f"{_TAIL}appended-bytes"])
                joined += int(snapshot.summary[f"{_TAIL}rewritten-bytes"])
                break
            if snapshot.summary.get(COMMIT_ID, "").startswith(of_stream):
                appended += int(snapshot.summary.get("added-files-size", 0))
        return {
            f"{_TAIL}stream": self._stream,
            f"{_TAIL}appended-bytes": str(appended),
            f"{_TAIL}rewritten-bytes": str(joined),
            f"{_TAIL}write-amplification": f"{1 + joined / max(1, appended):.2f}",
        }


def stream_write(
    spark: SparkSession, loaded: Table, branch: str, tail: StreamTail, args: Arguments
) -> StreamAnswers:
    """A write of the next batch of a stream to the newest version of the table that it began with.

    Rows become the table's by name, with the types and defaults that the table has now.

    Raises:
        InvalidInputError: update mode without keys, keys of another mode or that are no columns,
            or `spark.wap.id`.
        NoSuchTableError: another table has the name.
    """
    table = _newest(loaded)
    query_id, output_mode = args["stream"]["query"], args["stream"]["output_mode"]
    given = {key: text for key, text in args["options"].items() if key.lower() not in _OF_STREAMS}
    keys = _keys(table, args, updates=output_mode == "Update")
    target = write_target(spark, table, branch, given)
    if target.unpublished:
        raise InvalidInputError(
            f"{table.name}: spark.wap.id is set, but the batches of a stream follow one another "
            f"on a branch: RESET spark.wap.id, or write to {table.name}.branch_<name>",
            table=table.name,
        )
    options = write_options(spark, table, args["mode"], given)
    columns = given_columns(table, StructType.fromJson(json.loads(args["columns"])), given, spark)

    def commit_batch(batch: int) -> Commit:
        named = replace(target, commit_id=StreamBatch(query_id, batch))
        commit = (
            _upsert(table, named, keys, columns)
            if keys
            else table_commit(table, named, args["mode"], TRUE, columns, options)
        )
        # a batch without rows changes nothing, and nothing is lost if it is repeated
        return lambda files: commit(files) if files or args["mode"] != "append" else None

    return StreamAnswers(
        f"stream {query_id} to {table.name}",
        lambda: spark,
        options.request(columns.request()),
        commit_batch,
        table,
        columns,
        tail.of(table, query_id, args),
    )


def _keys(table: Table, args: Arguments, *, updates: bool) -> Sequence[str]:
    """The columns by which rows of update mode replace others; none in other modes."""
    option = next((text for key, text in args["options"].items() if key.lower() == _KEYS), None)
    if not updates:
        if option is not None:
            raise InvalidInputError(
                f"{table.name}: the option {_KEYS}={option} is one of the output mode update",
                table=table.name,
            )
        return ()
    schema = table.schema()
    if option is None:
        keys = [schema.find_column_name(id_) or "" for id_ in schema.identifier_field_ids]
    else:
        keys = [name.strip() for name in option.split(",")]
    if not keys:
        raise InvalidInputError(
            f"{table.name}: a stream in update mode changes rows, and nothing says by which "
            f"columns: give it option('{_KEYS}', 'a,b'), or the table identifier fields, or use "
            "the output mode append or complete",
            table=table.name,
        )
    given = {column["name"] for column in json.loads(args["columns"])["fields"]}
    for key in keys:
        if key not in given or all(field.name != key for field in schema.fields):
            raise InvalidInputError(
                f"{table.name}: rows are to replace others by {key!r}, which is no column of both "
                "the stream and the table",
                table=table.name,
            )
    return keys


def _upsert(
    table: Table, target: WriteTarget, keys: Sequence[str], columns: GivenColumns
) -> Commit:
    """The commit of new files whose rows replace those that have their keys; nulls are equal."""

    def upsert(files: Sequence[DataFile]) -> None:
        with target.row_write(table) as write:
            write.files += files
            if write.replayed() is not None:
                return
            named = [field for field in table.schema().fields if field.name in keys]
            with held_rows(
                _rows(table, files, Schema(*named)),
                table.name,
                DEFAULT_MEMORY_BYTES,
                table.schema(),
            ) as held:
                write.change_rows(
                    lambda rows, writer: decide(files, held, rows, writer),
                    "merge",
                    always=True,
                    decides_again=True,
                )

    def decide(
        files: Sequence[DataFile], held: SourceRows, rows: TargetRows, writer: RowWriter
    ) -> RowChange:
        writer.take(files)
        gone = MergeClause("matched", "delete")
        statement = MergeStatement(_on(keys, held), (gone,), unique_source=True)
        change = merge_rows(rows, bind_merge(statement, rows.schema, held.schema), held, writer)
        before = columns.metadata_change()
        return replace(change, before=() if before is None else (before,))

    return upsert


def _rows(table: Table, files: Sequence[DataFile], columns: Schema) -> pa.RecordBatchReader:
    """Columns of files that are not committed yet."""
    reader = RowReader(ReadRequest.of(table.metadata, columns), table.storage)
    batches = reader.read([FileScanTask.whole(file) for file in files])
    return pa.RecordBatchReader.from_batches(schema_to_arrow(columns), batches)


def _on(keys: Sequence[str], held: SourceRows) -> str | tuple[str, ...]:
    """Which rows belong together; files are pruned by keys of which none is null alone."""
    nulls = {
        name
        for batch in held.batches()
        for name in batch.schema.names
        if batch.column(name).null_count
    }
    if not nulls:
        return tuple(keys)
    equals = {name: "IS NOT DISTINCT FROM" if name in nulls else "=" for name in keys}
    return " AND ".join(f"t.{quoted((key,))} {equals[key]} s.{quoted((key,))}" for key in keys)


def _newest(loaded: Table) -> Table:
    version = loaded.catalog.refresh(loaded.version)
    if version.metadata.table_uuid != loaded.metadata.table_uuid:
        raise NoSuchTableError(
            f"{loaded.name}: the table that the stream began to write was dropped, and another one "
            "has its name: start the stream again, with another checkpoint if all its rows are to "
            "come again",
            table=loaded.name,
        )
    return Table(loaded.catalog, version, loaded.environment, loaded.listeners)
