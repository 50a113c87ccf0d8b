"""What a branch of the lake holds becomes main, in all of its tables or in none."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakehouse.catalog.branch_catalog import BranchCatalog
from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.joint_catalog import JointCatalog
from lakehouse.catalog.open_branches import PUBLICATION_SCHEMA, PUBLICATIONS, OpenBranches
from lakehouse.data.reading.changelog_rows import CHANGE_COLUMNS
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    LakehouseError,
    NoSuchRefError,
    NoSuchTableError,
    ValidationConflictError,
)
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import ASSET_KEY, LAKE_VERSION, MAIN_BRANCH, RUN_ID, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table.table import Table
from lakehouse.transaction.commit import commit_backoff
from lakehouse.transaction.operations.branches_and_tags import fork_of, since_fork

_ROWS_CHANGED = "added-records", "deleted-records", "added-position-deletes"
_ROWS_READ_MAX = 100_000
_ROWS_SHOWN, _COLUMNS_SHOWN, _TEXT_SHOWN = 3, 6, 40


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """What a publication did to a table.

    Attributes:
        name: dotted.
        before: its snapshot on main; None: it had none.
        snapshot_id: that is current now.
        reapplied: so many snapshots were made again on top of what others committed meanwhile.
    """

    name: str
    before: int | None
    snapshot_id: int
    reapplied: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """Tables that became current together.

    Attributes:
        version: of the lake, counted from 1; 0 where it became part of another branch.
        branch: that was published, and is no more.
        tables: sorted by name.
    """

    version: int
    branch: str
    tables: tuple[PublishedTable, ...]


@dataclass(frozen=True, slots=True)
class TableDifference:
    """How a branch differs from what main was when the table got it.

    Attributes:
        name: of the table, dotted.
        added: rows; a changed row is one removed and one added.
        removed: rows.
        columns: that it has got or promoted: `+more long`, `n int -> long`.
        writers: the runs of Dagster that wrote to it and the key of their asset, oldest first.
        overtaken_by: commits to main since.
    """

    name: str
    added: int
    removed: int
    columns: tuple[str, ...]
    writers: tuple[tuple[str, str], ...]
    overtaken_by: int


@dataclass(frozen=True)
class BranchOfLake:
    """A branch that tables of a catalog have under one name.

    Attributes:
        catalog: has the tables, and shows their main.
        name: of the branch.
        environment: clock, ids, randomness.
    """

    catalog: Catalog
    name: str
    environment: Environment

    @property
    def _noted(self) -> OpenBranches:
        return OpenBranches(self.catalog, self.environment)

    def create(self) -> None:
        """Note it. No table gets the branch before it is written to."""
        self._noted.note(self.name)

    def tables(self) -> list[Table]:
        """The tables that have the branch, sorted by name. Raises NoSuchRefError."""
        noted = self._noted.tables(self.name)
        if noted is None:
            known = ", ".join(sorted(self._noted.all())) or "none"
            raise NoSuchRefError(
                f"The lake has no branch {self.name!r}; it has: {known}.", ref=self.name
            )
        return list(self._having(noted))

    def _having(self, noted: Sequence[Identifier]) -> Iterator[Table]:
        for identifier in noted:
            try:
                version = self.catalog.load(identifier)
            except NoSuchTableError:
                continue
            if self.name in version.metadata.refs:
                yield Table(self.catalog, version, self.environment)

    def differences(self) -> list[TableDifference]:
        """By table what publishing the branch would change. Raises NoSuchRefError."""
        differences = []
        for table in self.tables():
            metadata = table.metadata
            fork = fork_of(metadata, MAIN_BRANCH, self.name)
            changes = table.changelog(fork, ref=self.name, net=True).to_arrow()
            kinds = Counter(changes["_change_type"].to_pylist())
            summaries = [own.summary for own in since_fork(metadata, self.name, fork)]
            writers = dict.fromkeys(
                (summary[RUN_ID], summary[ASSET_KEY])
                for summary in summaries
                if {RUN_ID, ASSET_KEY} <= summary.keys()
            )
            difference = TableDifference(
                table.name,
                kinds["INSERT"],
                kinds["DELETE"],
                _changed_columns(metadata, fork, self.name),
                tuple(writers),
                len(since_fork(metadata, MAIN_BRANCH, fork)),
            )
            differences.append(difference)
        return differences

    def publish(self, summary: Mapping[str, str] | None = None) -> Publication | None:
        """Make the branch main in all of its tables, or in none; None: it has no rows anywhere.

        Where others have committed to main meanwhile, what was done on the branch is done again on
        top of that, if it holds there: appends always do, all else where nobody has touched the
        same partitions. The branch is gone afterwards.

        Args:
            summary: entries for the summary of the publication's own snapshot.

        Raises:
            NoSuchRefError: there is no such branch.
            ValidationConflictError: somebody has changed the same rows; it names the table, the
                files, the writer and some of the rows. Nothing was published.
            CommitConflictError: others kept committing. Nothing was published.
            CommitStateUnknownError: perhaps published, in all tables or in none.
        """
        backoff = commit_backoff(TableProperties({}), never_conflicts=True)
        started_ms, retry = self.environment.now_ms(), 0
        while True:
            tables = self.tables()
            if not tables:
                self._forget()
                return None
            try:
                published = self._attempt(tables, dict(summary or {}))
            except CommitConflictError:
                retry += 1
                if not backoff.pause(retry, started_ms, self.environment):
                    raise
                continue
            self._forget()
            return published

    def drop(self) -> list[str]:
        """Remove the branch from all tables; their names. What is on main stays."""
        names = []
        for table in self.tables():
            table.remove_ref(self.name)
            names.append(table.name)
        self._forget()
        return names

    def _forget(self) -> None:
        """Forget the branch, but for the tables that others have written to on it meanwhile."""
        noted = self._noted.forget(self.name)
        late = [table.identifier for table in self._having(noted)]
        if late:
            self._noted.note(self.name, late)

    def _attempt(self, tables: Sequence[Table], summary: Mapping[str, str]) -> Publication:
        staging = JointCatalog(self.catalog, self.environment)
        done = tuple(self._staged(staging, table.identifier) for table in tables)
        # what becomes part of a branch is no version
        version = (
            0 if isinstance(self.catalog, BranchCatalog) else self._told(staging, done, summary)
        )
        staging.commit_together()
        return Publication(version, self.name, done)

    def _told(
        self, staging: JointCatalog, done: Sequence[PublishedTable], summary: Mapping[str, str]
    ) -> int:
        """Stage the rows of a publication; the version of the lake that it makes."""
        self._noted.table()
        publications = Table(staging, staging.load(PUBLICATIONS), self.environment)
        version = newest_version(publications) + 1
        now = dt.datetime.fromtimestamp(self.environment.now_ms() / 1000, dt.UTC)
        rows = [
            {
                "version": version,
                "at": now,
                "branch": self.name,
                "run_id": summary.get(RUN_ID),
                "table": published.name,
                "before_snapshot_id": published.before,
                "snapshot_id": published.snapshot_id,
            }
            for published in done
        ]
        publications.append(
            pa.Table.from_pylist(rows, PUBLICATION_SCHEMA),
            summary={**summary, LAKE_VERSION: str(version)},
        )
        return version

    def _staged(self, staging: JointCatalog, identifier: Identifier) -> PublishedTable:
        """Stage the publication of one table."""
        table = Table(staging, staging.load(identifier), self.environment)
        metadata = table.metadata
        if self.name not in metadata.refs:
            raise CommitConflictError(f"Table {identifier}: another publishes {self.name!r}.")
        change, ahead = table.transaction(), []
        try:
            fork, own = self._own(table)
            if fork == metadata.current_snapshot_id:
                change.fast_forward(self.name)
            else:
                ahead = own
                for snapshot in ahead:
                    change.reapply(snapshot.snapshot_id, fork)
            made = change.remove_ref(self.name).commit()
        except ValidationConflictError as error:
            raise self._refused(table, error) from error
        head = made.version.metadata.current_snapshot_id
        if head is None:  # a branch always names a snapshot
            raise NoSuchRefError(f"Table {identifier}: {self.name!r} has no rows.", ref=self.name)
        return PublishedTable(str(identifier), metadata.current_snapshot_id, head, len(ahead))

    def _own(self, table: Table) -> tuple[int | None, list[Snapshot]]:
        """The snapshot that the branch began with, and those of the branch since, oldest first.

        Raises ValidationConflictError: nobody can tell any more, or main went back behind it.
        """
        metadata = table.metadata
        fork = fork_of(metadata, MAIN_BRANCH, self.name)
        own = since_fork(metadata, self.name, fork)
        oldest = (own[:1], since_fork(metadata, MAIN_BRANCH, fork)[:1])
        if fork is None and any(line and not line[0].is_first for line in oldest):
            raise ValidationConflictError(
                f"Table {table.name}: snapshots have expired since the branch began, so nobody can "
                "tell what is the branch's and what others did. Read its rows and write them again."
            )
        were_current = {entry.snapshot_id for entry in metadata.snapshot_log}
        for snapshot in own:
            if snapshot.snapshot_id in were_current:
                raise ValidationConflictError(
                    f"Table {table.name}: the branch comes after snapshot {snapshot.snapshot_id}, "
                    "which was rolled back on main. Write its rows again to a new branch.",
                    snapshot_id=snapshot.snapshot_id,
                )
        return fork, own

    def _refused(self, table: Table, error: ValidationConflictError) -> ValidationConflictError:
        snapshot_id = error.context.get("snapshot_id")
        other = (
            table.metadata.snapshot_or_none(snapshot_id) if isinstance(snapshot_id, int) else None
        )
        by = (
            ""
            if other is None
            else f" That was {writer_of(other.summary)}{_changed_rows(table, other)}."
        )
        return ValidationConflictError(
            f"Branch {self.name} was not published, no table of it. {error.message}{by}",
            **{**error.context, "ref": self.name, "commit_outcome": error.commit_outcome},
        )


def _changed_columns(metadata: TableMetadata, fork: int | None, branch: str) -> tuple[str, ...]:
    """Columns that a branch has, and the snapshot that it began with has not, or not as wide."""
    if fork is None:
        return ()  # all of them are new
    ends = (metadata.snapshot(fork), metadata.snapshot(metadata.refs[branch].snapshot_id))
    schemas = [metadata.schema(end.schema_id) for end in ends]
    before, now = (
        {
            field.field_id: (schema.find_column_name(field.field_id), field.field_type)
            for field in map(schema.find_field, schema.column_names)
        }
        for schema in schemas
    )
    changes = []
    for id_, (name, kind) in now.items():
        if id_ not in before:
            changes.append(f"+{name} {kind}")
        elif kind.is_primitive and before[id_][1] != kind:
            changes.append(f"{name} {before[id_][1]} -> {kind}")
    return tuple(changes)


def _changed_rows(table: Table, snapshot: Snapshot) -> str:
    """Some rows that a snapshot changed, for people.

    Nothing where it changed too many to read, or its summary does not say how many.
    """
    texts = (snapshot.summary.get(name, "") for name in _ROWS_CHANGED)
    counts = [int(text) for text in texts if text.isdigit()]
    if not counts or sum(counts) > _ROWS_READ_MAX:
        return ""
    try:
        changes = table.changelog(snapshot.parent_snapshot_id, snapshot.snapshot_id).to_arrow()
    except LakehouseError:
        return ""  # the conflict matters, not its rows
    hidden = {column.name for column in CHANGE_COLUMNS}
    columns = [name for name in changes.column_names if name not in hidden]
    rows = [
        f"{row['_change_type']} "
        + ", ".join(f"{name}={str(row[name])[:_TEXT_SHOWN]}" for name in columns[:_COLUMNS_SHOWN])
        for row in changes.slice(0, _ROWS_SHOWN).to_pylist()
    ]
    more = len(changes) - len(rows)
    return f": {'; '.join(rows)}{f' and {more:,} more rows' if more else ''}" if rows else ""


def writer_of(summary: Mapping[str, str]) -> str:
    """Who wrote a snapshot, for people."""
    run = summary.get(RUN_ID)
    return "no run of Dagster" if run is None else f"run {run}"


def newest_version(publications: Table) -> int:
    """The version of the lake that the newest publication made; 0: there was none."""
    metadata = publications.metadata
    for snapshot in metadata.ancestors(metadata.current_snapshot_id):
        if LAKE_VERSION in snapshot.summary:
            return int(snapshot.summary[LAKE_VERSION])
    # the snapshots of publications have expired, their rows are there
    rows = publications.scan(select="version").to_arrow()
    return max(rows["version"].to_pylist(), default=0)
