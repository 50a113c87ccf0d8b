"""Operations of the catalog: what a route does, and what all of them have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lakehouse.catalog.catalog_protocol import Catalog, Request
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import allowed_roots, check_within
from lakehouse.environment import Environment
from lakehouse.errors import (
    CorruptMetadataError,
    InvalidInputError,
    NoSuchFileError,
    StorageError,
    UnsupportedFeatureError,
)
from lakehouse.lake import Lakehouse
from lakehouse.server.access.asked_privileges import Asks, on_catalog
from lakehouse.server.access.doorkeeper import Doorkeeper
from lakehouse.server.access.privileges import ANYONE, Caller, Privilege
from lakehouse.server.delegation.file_access import FileAccess
from lakehouse.server.grouped_appends import GroupedAppends
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.memory_bounds import DEFAULT_BOUNDS, MemoryBounds
from lakehouse.server.meters import Meters
from lakehouse.server.served_tables import ServedTables
from lakehouse.server.sibling_workers import Siblings
from lakehouse.server.table_commits import TableCommits
from lakehouse.storage.storage_protocol import Storage

BODY_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Served:
    """What operations work on.

    Attributes:
        lake: the catalog that is served.
        tables: versions of tables that are in memory.
        commits: how tables change.
        appends: to tables, committed together.
        meters: what is counted.
        doorkeeper: authenticates callers; None: without authentication.
        files: hands out access to the files of tables; None: clients have their own.
        caller: of the request that is answered.
        request: that is carried out once; None where it has no key.
        dagster_url: where Dagster's pages are, for links; empty: not configured.
        siblings: other processes of the server; None: there are none.
    """

    lake: Lakehouse
    tables: ServedTables
    commits: TableCommits
    appends: GroupedAppends
    meters: Meters
    doorkeeper: Doorkeeper | None = None
    files: FileAccess | None = None
    caller: Caller = ANYONE
    request: Request | None = None
    dagster_url: str = ""
    siblings: Siblings | None = None

    @classmethod
    def of(
        cls,
        lake: Lakehouse,
        doorkeeper: Doorkeeper | None = None,
        files: FileAccess | None = None,
        memory: MemoryBounds = DEFAULT_BOUNDS,
        dagster_url: str = "",
        siblings: Siblings | None = None,
    ) -> Served:
        """Serve a catalog."""
        tables = ServedTables(lake.catalog, memory.tables - memory.written)
        meters = Meters(siblings)
        commits = TableCommits(lake.catalog, tables, lake.environment, meters)
        appends = GroupedAppends(lake.catalog, tables, lake.environment, meters)
        parts = (lake, tables, commits, appends, meters, doorkeeper, files)
        return cls(*parts, dagster_url=dagster_url, siblings=siblings)

    def for_caller(self, caller: Caller) -> Served:
        """The same, as one caller has it."""
        return replace(self, caller=caller)

    def during(self, request: Request) -> Served:
        """The same, whose next change is carried out once for this request."""
        catalog = self.catalog.during(request)
        lake = Lakehouse(catalog, self.environment)
        commits = TableCommits(catalog, self.tables, self.environment, self.meters)
        return replace(self, lake=lake, commits=commits, request=request)

    @property
    def catalog(self) -> Catalog:
        """The catalog that is served."""
        return self.lake.catalog

    @property
    def environment(self) -> Environment:
        """Clock and ids."""
        return self.lake.environment


def _no_content(_served: Served, _call: Call) -> Answer:
    return Answer()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the REST catalog.

    Attributes:
        method: of HTTP.
        path: below `root`, with the names of its parts in braces.
        run: does it.
        changes: whether it may change something.
        at_once: the same answer, where that needs no waiting; None where it does.
        again: the answer to the same request once it was carried out.
        listed: whether `endpoints` in the configuration names it.
        asks: the privileges that a request needs; all of them by default.
        for_anybody: whether callers need no authentication.
        secret: name and secret that are to be compared before it runs; None: there are none.
        waits: whether it mostly waits for others of its kind, so that many run at a time.
        finds_keys: whether it finds out by itself that its request was carried out before.
        body_max: bytes of a body, at most.
        root: what stands before its path; empty for what is no part of the protocol.
    """

    method: str
    path: str
    run: Callable[[Served, Call], Answer]
    changes: bool = field(default=False, kw_only=True)
    at_once: Callable[[Served, Call], Answer | None] | None = field(default=None, kw_only=True)
    again: Callable[[Served, Call], Answer] = field(default=_no_content, kw_only=True)
    listed: bool = field(default=True, kw_only=True)
    asks: Asks = field(default=on_catalog(Privilege.MANAGE), kw_only=True)
    for_anybody: bool = field(default=False, kw_only=True)
    secret: Callable[[Call], tuple[str, str] | None] | None = field(default=None, kw_only=True)
    waits: bool = field(default=False, kw_only=True)
    finds_keys: bool = field(default=False, kw_only=True)
    body_max: int = field(default=BODY_BYTES_MAX, kw_only=True)
    root: str = field(default="/v1", kw_only=True)

    @property
    def endpoint(self) -> str:
        """The name that the specification's `endpoints` gives it."""
        path = self.path.replace("{plan_id}", "{plan-id}")  # no name that routes can have
        return f"{self.method} {self.root}{'/{prefix}' if self.listed else ''}{path}"


def check_metadata_file(
    served: Served, location: str, read: Callable[[Storage, str], object]
) -> None:
    """Raise InvalidInputError where nothing can be registered by a metadata file."""
    catalog = served.catalog
    # before anything is read there: what is wrong with a file tells of what is in it
    check_within(
        "The metadata file", location, allowed_roots(catalog.warehouse, catalog.properties)
    )
    with before_the_swap():
        try:
            read(catalog.storage(location), location)
        except (NoSuchFileError, CorruptMetadataError, UnsupportedFeatureError) as error:
            raise InvalidInputError(f"{location} is no metadata file: {error.message}") from error
        except StorageError as error:
            if error.retryable:
                raise
            raise InvalidInputError(f"{location} cannot be read: {error.message}") from error
