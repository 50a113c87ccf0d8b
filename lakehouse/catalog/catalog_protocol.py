"""What a catalog is: names, and one compare-and-swap per commit.

It knows requirements and updates, never `Table`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lakehouse.catalog.posted_append import PostedAppend
from lakehouse.catalog.view_protocol import Views
from lakehouse.errors import InvalidInputError, NoSuchNamespaceError, RequestRepeatedError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import Requirement, Update
from lakehouse.storage.storage_protocol import Storage


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of one table, immutable.

    Attributes:
        identifier: the name it was loaded by.
        metadata: its content.
        metadata_location: the metadata file that holds it; empty as long as none does.
    """

    identifier: Identifier
    metadata: TableMetadata
    metadata_location: str


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What a commit does to one table; the fields are the arguments of `Catalog.commit`."""

    identifier: Identifier
    base: TableVersion
    requirements: Sequence[Requirement]
    updates: Sequence[Update]


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be sent again.

    Attributes:
        key: chosen by who sends it, the same each time; at most 36 characters.
        fingerprint: of its content, at most 64 characters.
        at_ms: when it came, milliseconds since the epoch.
        answer: what is to be kept of it.
    """

    key: str
    fingerprint: str
    at_ms: int
    answer: str | None = None

    def repeated(self) -> RequestRepeatedError:
        """The error of carrying it out a second time."""
        return RequestRepeatedError(f"Request {self.key} was carried out before.", key=self.key)


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """What became of a request.

    Attributes:
        fingerprint: of its content.
        status: of HTTP, if it was refused; None if it was carried out.
        answer: with which it was refused; where it unregistered a table, the last metadata file; of
            an append, the snapshot.
    """

    fingerprint: str
    status: int | None
    answer: str | None


class ServerPlanner(Protocol):
    """Has the scans of one table planned by the catalog's server."""

    def plan(self, document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The tasks of a scan, page by page, as JSON.

        REST catalog: PlanTableScanRequest, ScanTasks.

        Raises StorageError, NoSuchTableError, InvalidInputError.
        """


class ServerAppender(Protocol):
    """Has appends to one table committed by the catalog's server."""

    @property
    def shares(self) -> bool:
        """Whether others may be appended in the same snapshot."""

    def append(self, base: TableVersion, asked: PostedAppend) -> tuple[TableVersion, Snapshot]:
        """The version that has the append, and the snapshot that made it.

        Args:
            base: the version that the files were written for.
            asked: the append.

        Raises:
            CommitConflictError, ValidationConflictError, InvalidInputError, NoSuchTableError,
                ForbiddenError: certainly not committed.
            CommitStateUnknownError: perhaps committed.
        """


class RequestLog(Protocol):
    """Requests that were answered, noted so that it is known what they did."""

    def find(self, key: str) -> AnsweredRequest | None:
        """What became of the request with this key; None where nothing is known of it."""

    def begun(self, keys: Sequence[str]) -> Collection[str]:
        """Those of these keys of which anything is noted."""

    def refuse(self, request: Request, status: int, answer: str) -> None:
        """Keep a refusal, to refuse again. Raises RequestRepeatedError."""

    def forget(self, before_ms: int) -> int:
        """Forget the requests from before a time; how many those were."""


Namespace = tuple[str, ...]
CHOSEN_BY_CATALOG = "catalog://chooses"
"""The location of a new table or view where the catalog chooses one when it creates it."""


def check_distinct(commits: Sequence[TableCommit]) -> None:
    """Raise InvalidInputError where a table is named twice."""
    names = [commit.identifier for commit in commits]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(f"Table {twice} is changed twice in one transaction.")


@runtime_checkable
class Catalog(Protocol):
    """Names of tables and their current version. Safe to share between threads.

    Identifiers are `Identifier`; namespaces are tuples of names. Names that could escape the
    warehouse, and locations outside it or overlapping another table's, are refused with
    InvalidIdentifierError / InvalidLocationError.
    """

    @property
    def name(self) -> str:
        """The catalog's name, for display and for the SQL catalog's `catalog_name`."""

    @property
    def warehouse(self) -> str:
        """Location below which tables are created; a name where a server knows the location."""

    @property
    def uri(self) -> str:
        """Where the catalog lives, without secrets; with `properties` enough to reopen it."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Catalog and storage properties, picklable; may hold secrets: never print them."""

    @property
    def commits_to_newest(self) -> bool:
        """Whether a commit is applied to the newest version if the requirements hold there.

        So a REST server does. A request that it refused can then still land, if a proxy repeats it.
        """

    @property
    def views(self) -> Views:
        """The catalog's views."""

    def storage(self, location: str) -> Storage:
        """The storage that keeps `location`, configured by the catalog's properties."""

    def create_namespace(
        self, namespace: Namespace, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create it, and its parents where the catalog has a tree.

        Raises NamespaceAlreadyExistsError.
        """

    def drop_namespace(self, namespace: Namespace) -> None:
        """Drop an empty namespace. Raises NoSuchNamespaceError, NamespaceNotEmptyError."""

    def namespace_exists(self, namespace: Namespace) -> bool:
        """Whether the namespace exists."""

    def list_namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        """Sorted namespaces directly below `parent`. Raises NoSuchNamespaceError."""

    def namespace_properties(self, namespace: Namespace) -> Mapping[str, str]:
        """The namespace's properties. Raises NoSuchNamespaceError."""

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        """Set and remove properties; returns all of them after the change.

        Raises NoSuchNamespaceError.
        """

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        """Sorted identifiers of the namespace's tables. Raises NoSuchNamespaceError."""

    def table_exists(self, identifier: Identifier) -> bool:
        """Whether `load` would find it."""

    def load(self, identifier: Identifier) -> TableVersion:
        """The newest version of the table. Raises NoSuchTableError."""

    def refresh(self, version: TableVersion) -> TableVersion:
        """The newest version of the table.

        The same object, without reading the metadata again, when nothing was committed since.
        """

    def change_mark(self) -> Hashable | None:
        """What is never the same again once anybody changed any table, at once.

        As long as it is the same, what was the newest version of a table is it still. None where
        only a question about each table could tell.
        """

    def namespace_location(self, namespace: Namespace) -> str:
        """The folder in which the tables of a namespace get theirs; no other namespace has it.

        Raises InvalidIdentifierError where a name cannot have a folder.
        """

    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:
        """A folder for a new table of this name, which no table has or had before it.

        `CHOSEN_BY_CATALOG` where the catalog chooses one when it creates the table. Ask once for
        each table. With `staged` nobody else is ever given it, so that files can be written there
        before the table is created.
        """

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        """Register a new table with its first metadata.

        Where nothing but this table may have been at its location, nothing may lie there; `staged`
        says that the first snapshot was written already: then no table's metadata may.

        Raises TableAlreadyExistsError, NoSuchNamespaceError, InvalidLocationError.
        """

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Replace `base` by `base` plus updates, if it is still current and the requirements hold.

        Before deleting files after an error, ask `lakehouse.catalog.commit_outcome.is_certain`
        whether the commit certainly did not happen; after any other error it may have. What tidies
        up after the swap never raises.

        Raises:
            CommitConflictError: certainly not committed: another version came first, or a
                requirement does not hold.
            CommitStateUnknownError: it may have been committed; nothing was deleted.
            NoSuchTableError: certainly not committed: the table was dropped meanwhile.
            InvalidLocationError, InvalidPropertyError, StorageError: certainly not committed: the
                metadata cannot be written, or must not be.
        """

    @property
    def commits_together(self) -> bool:
        """Whether `commit_all` can commit to several tables at once."""

    @property
    def records_transactions(self) -> bool:
        """Whether `commit_all` is all or none as this catalog shows the tables, and only so.

        Other engines, which read the same files, see the tables change one after the other.
        """

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """Commit to several tables, all or none; the new versions in the same order.

        A table without updates stays as it is, and has to be at its base still where another one
        changes.

        Raises what `commit` raises, for any of them, and UnsupportedFeatureError where the catalog
        cannot (neither `commits_together` nor `records_transactions`).
        """

    @property
    def requests(self) -> RequestLog | None:
        """Requests that were answered; None where the catalog has no place for them."""

    def during(self, *requests: Request) -> Catalog:
        """The same catalog, whose next change is carried out once for these requests.

        Whatever would change something while one of them is noted already raises
        RequestRepeatedError and changes nothing. Raises UnsupportedFeatureError where `requests` is
        None.
        """

    def appender(self, identifier: Identifier) -> ServerAppender | None:
        """Who commits appends to a table together with those of others; None: commit each."""

    def planner(self, identifier: Identifier) -> ServerPlanner | None:
        """Who plans the scans of a table; None: whoever reads it does, by its manifests."""

    @property
    def takes_reports(self) -> bool:
        """Whether anybody wants to know what was measured."""

    def report(self, identifier: Identifier, document: Mapping[str, Any]) -> None:
        """Tell what was measured (REST catalog: ReportMetricsRequest). Never waits, never raises.

        Nothing happens where `takes_reports` is false.
        """

    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:
        """Advisory turn-taking between writers of one table, so that few attempts are wasted.

        Never needed for correctness; waits a bounded time, then goes on regardless.
        """

    def close(self) -> None:
        """Close connections, if there are any; they are opened again when they are needed."""

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        """Forget the table; with `purge` delete what is in its folder too.

        Data that `write.data.path` put elsewhere stays: other tables may write there. Raises
        NoSuchTableError, MaintenanceRefusedError (`purge` of a table with `gc.enabled=false`),
        InvalidLocationError (`purge` of a table that says to be outside the warehouse or in the
        folder of another table).
        """

    def unregister(self, identifier: Identifier) -> TableVersion:
        """Forget the table and leave its files; its last version, which no commit comes after.

        Raises NoSuchTableError.
        """

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give a table another name.

        Raises NoSuchTableError, TableAlreadyExistsError, NoSuchNamespaceError,
        UnsupportedFeatureError (filesystem catalogs).
        """

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """Adopt an existing metadata file as a table.

        Raises TableAlreadyExistsError, NoSuchNamespaceError, NoSuchFileError.
        """


def walk_namespaces(catalog: Catalog, below: Namespace = ()) -> Iterator[Namespace]:
    """Every namespace below one, and itself, once, a parent before its children.

    The root has no name and is left out; so is one that is dropped meanwhile.
    """
    seen: set[Namespace] = set()
    pending: list[Namespace] = [below]
    while pending:
        parent = pending.pop()
        if parent:
            yield parent
        try:
            children = catalog.list_namespaces(parent)
        except NoSuchNamespaceError:
            continue
        # servers that know one level only answer with the same names whatever the parent
        new = [child for child in children if child not in seen]
        seen.update(new)
        pending.extend(reversed(new))


def walk_tables(catalog: Catalog) -> Iterator[Identifier]:
    """Every table of every namespace."""
    for namespace in walk_namespaces(catalog):
        try:
            yield from catalog.list_tables(namespace)
        except NoSuchNamespaceError:
            continue


def walk_views(catalog: Catalog) -> Iterator[Identifier]:
    """Every view of every namespace."""
    for namespace in walk_namespaces(catalog):
        try:
            yield from catalog.views.names(namespace)
        except NoSuchNamespaceError:
            continue
