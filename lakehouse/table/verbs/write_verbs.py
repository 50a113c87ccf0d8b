"""Verbs that add, replace and remove rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial

from lakehouse.data.writing.data_file_writer import write_all
from lakehouse.engines import engine_for
from lakehouse.expressions.filter_binding import Where, bind
from lakehouse.maintenance.compaction.tail import Tail
from lakehouse.row_changes.add_files import AddedFiles, describe_hive, describe_paths
from lakehouse.row_changes.merge.target_rows import TargetRows, delete_rows
from lakehouse.row_changes.row_change import RowChange, RowWriter, refuse_other_rows
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.storage.storage_protocol import Storage
from lakehouse.table.loaded_table import LoadedTable
from lakehouse.table.row_write import RowWrite, WrittenFiles, arrow_rows
from lakehouse.table.write_result import WriteResult


class WriteVerbs(LoadedTable):
    """Each verb is one commit, and moves the table to the version that it made."""

    @cached_property
    def _tails(self) -> dict[str, Tail]:
        """Of each branch that this object has appended to."""
        return {}

    def append(
        self,
        data: object,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Add rows.

        >>> result = events.append(more)
        >>> result.rows_inserted, events.scan().count()
        (1, 4)
        >>> _ = events.append(events.scan(where="user_id = 1"), branch="audit")
        >>> events.scan().count(), events.scan(ref="audit").count()
        (4, 6)

        Args:
            data: anything that exports Arrow's C interfaces (a pyarrow table, batch or stream, a
                Polars or pandas frame, a DuckDB relation, a scan, also of this table), several of
                these, a Spark DataFrame, or WrittenFiles.
            branch: the branch to write to.
            summary: entries for the snapshot's summary.
            commit_id: a name for this write. A branch commits a name once, however often the
                write is repeated.

        Raises:
            InvalidSchemaError: the data does not fit the schema.
            CommitError: see `lakehouse.errors`.
        """
        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            write.files += self.write_files(data)
            done = write.commit(
                self.transaction(branch=branch).append(write.files),
                rows_inserted=rows_of(write.files),
                rows_deleted=0,
            )
        self._join_tail(branch, write.files)
        return done

    def add_files(
        self,
        paths: Iterable[str],
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Add Parquet files without field ids where they are; they are read by column name.

        >>> import pyarrow.parquet as pq
        >>> pq.write_table(more, f"{folder}/landed.parquet")
        >>> events.add_files([f"{folder}/landed.parquet"]).rows_inserted
        1

        Files in the table's own folders belong to the table from then on: when no snapshot reaches
        one any more, expiry deletes it. Files elsewhere are never deleted.

        Raises:
            InvalidInputError | InvalidSchemaError: see `row_changes.add_files`.
            ValidationConflictError: another writer has added one of the files since this version.
        """
        return self._take_in(partial(describe_paths, list(paths)), branch, summary, commit_id)

    def import_hive(
        self,
        path: str,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Add the Parquet files of a Hive-style folder (`dt=2026-06-09/region=eu/`) where they are.

        Partition values come from the paths.

        >>> visits = lake.create_table(
        ...     "raw.visits",
        ...     pa.schema({"n": pa.int64(), "city": pa.string()}),
        ...     partition_by=["city"],
        ... )
        >>> import pyarrow.parquet as pq
        >>> for city in ("Oslo", "Rome"):
        ...     Path(folder, "visits", f"city={city}").mkdir(parents=True)
        ...     pq.write_table(pa.table({"n": [1]}), f"{folder}/visits/city={city}/part-0.parquet")
        >>> visits.import_hive(f"{folder}/visits").rows_inserted
        2
        >>> sorted(visits.scan().to_arrow()["city"].to_pylist())
        ['Oslo', 'Rome']
        """
        return self._take_in(partial(describe_hive, path), branch, summary, commit_id)

    def overwrite(
        self,
        data: object,
        where: Where = None,
        *,
        must_match: bool = False,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult:
        """Replace the rows that match `where` (all rows by default) by `data`, atomically.

        >>> result = events.overwrite(more, where="event_ts < '2026-06-02'")
        >>> result.rows_inserted, result.rows_deleted, events.scan().count()
        (1, 2, 2)

        Of files that hold other rows too, the matching ones are removed as `delete` removes them
        (`write.delete.mode`).

        Arguments as for `append`. As with Spark's `overwrite(condition)`, rows of `data` need not
        match `where`: what does not match is added, and added again when it is run again. With
        `must_match` such rows are refused (Iceberg's `validateAddedFilesMatchOverwriteFilter`).

        Raises:
            InvalidInputError: with `must_match`, rows do not match `where`.
            ValidationConflictError: a concurrent commit changed rows that this overwrite decided
                on. Compaction changes none.
        """
        bind(where, self.schema())
        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            new = self.write_files(data)
            write.files += new
            if must_match:
                refuse_other_rows(
                    new, bind(where, self.schema()), self.metadata, self.storage, self.name
                )

            def decide(target: TargetRows, writer: RowWriter) -> RowChange:
                writer.take(new)
                change = delete_rows(target, bind(where, target.schema), writer)
                return replace(change, inserted=rows_of(new))

            return write.change_rows(decide, "overwrite", always=True).committed

    def delete(
        self,
        where: Where,
        *,
        branch: str = "main",
        summary: Mapping[str, str] | None = None,
        commit_id: str | None = None,
    ) -> WriteResult | None:
        """Remove the rows for which `where` is true; rows for which it is unknown (null) stay.

        >>> events.delete(where="user_id = 2").rows_deleted
        1
        >>> events.delete(where="user_id = 99") is None
        True

        `write.delete.mode` decides between rewriting files (copy-on-write, the default) and delete
        files (merge-on-read).

        Returns:
            None when no row matched and nothing was committed.
        """

        def decide(target: TargetRows, writer: RowWriter) -> RowChange:
            return delete_rows(target, bind(where, target.schema), writer)

        with RowWrite(self, branch, summary, commit_id) as write:
            if (done := write.replayed()) is not None:
                return done
            bind(where, self.schema())
            return write.change_rows(decide, "delete").result

    def write_files(self, data: object) -> list[DataFile]:
        """Write data files without committing them; commit them with a transaction.

        >>> files = events.write_files(more)
        >>> events.scan().count()
        3
        >>> events.append(lh.WrittenFiles(tuple(files))).rows_inserted
        1

        Args:
            data: as for `append`.
        """
        if isinstance(data, WrittenFiles):
            return list(data.files)
        engine = engine_for(data)
        if engine is not None:
            return engine.write_data_files(data, self.write_request(), self.storage)
        rows = arrow_rows(data, self.name, self.schema().column_names)
        return write_all(rows, self.write_request(), self.storage)

    def _join_tail(self, branch: str, files: list[DataFile]) -> None:
        """What `lakehouse.write.join-files` asks for, unless the catalog's server does it."""
        width = TableProperties(self.metadata.properties).write_join_files
        if not width or self.catalog.appender(self.identifier) is not None:
            return
        tail = self._tails.setdefault(branch, Tail(branch))
        tail.width = width
        if tail.grew(self.catalog, self.version, files, self.environment):
            self.refresh()

    def _take_in(
        self,
        describe: Callable[[TableMetadata, int | None, Storage, str], AddedFiles],
        branch: str,
        summary: Mapping[str, str] | None,
        commit_id: str | None,
    ) -> WriteResult:
        write = RowWrite(self, branch, summary, commit_id)
        if (done := write.replayed()) is not None:
            return done
        added = self._of_newest(
            lambda: describe(self.metadata, self._head(branch), self.storage, self.name), branch
        )
        return write.commit(
            added.stage(self.transaction(branch=branch)),
            rows_inserted=rows_of(added.files),
            rows_deleted=0,
        )


def rows_of(files: Iterable[DataFile]) -> int:
    """How many rows new data files hold."""
    return sum(file.record_count for file in files)
