"""A catalog on an Iceberg REST server (REST catalog: rest-catalog-open-api.yaml).

The server holds the pointer, checks the requirements, chooses where tables lie and who may read
them; it may apply a commit to a newer base than ours, which is why every operation carries
requirements on the refs that it builds on. Documents are read and written as JSON: nothing that
this client does not know is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import orjson
from requests import Response

from lakehouse.catalog.base_catalog import BaseCatalog
from lakehouse.catalog.catalog_protocol import (
    CHOSEN_BY_CATALOG,
    Namespace,
    TableCommit,
    TableVersion,
    check_distinct,
)
from lakehouse.catalog.commit_outcome import before_the_swap, is_certain
from lakehouse.catalog.confinement import allowed_roots, check_locations
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.catalog.rest.loaded_tables import LoadedTables
from lakehouse.catalog.rest.rest_views import RestViews
from lakehouse.catalog.rest.server_side import (
    APPEND_ENDPOINT,
    APPEND_MODE,
    PLAN_ENDPOINT,
    PLANNING_MODE,
    PostedReports,
    RestAppender,
    RestPlanner,
    append_mode,
    commit_report,
)
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidInputError,
    LakehouseError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from lakehouse.rest.http_client import HttpClient, without_login
from lakehouse.rest.refusals import CATALOG, NAMESPACE, TABLE, error_of, refusal
from lakehouse.rest.rest_session import RestSession, body_of
from lakehouse.spec.identifier import Identifier, dotted, parse_namespace
from lakehouse.spec.json_fields import require_list, require_str, string_map
from lakehouse.spec.metadata.metadata_json import parse
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import (
    AddPartitionSpec,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    AssignUUID,
    RemoveSnapshotRef,
    Requirement,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetProperties,
    SetSnapshotRef,
    Update,
    UpgradeFormatVersion,
)
from lakehouse.spec.partitioning.partition_terms import sort_order_to_json, spec_to_json
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.storage.s3_client import S3_ENDPOINT, s3_endpoint
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

_TRANSACTION = "POST /transactions/commit"
_NO_FIELDS: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": []}


class RestCatalog(BaseCatalog):
    """Catalog on an Iceberg REST server.

    Args:
        uri: of the server, `http://...` or `https://...`; `https://user:password@...` logs in with
            HTTP Basic.
        warehouse: the catalog's name at the server; or the location below which tables have to
            lie. None: the server knows.
        name: for display.
        properties: catalog and storage properties: `credential`, `token`, `prefix` and the others
            that Iceberg's clients know. What the server says comes over or under them
            (`lakehouse.rest.rest_session`).
        environment: clock and ids.
        storage_factory: makes storages.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str | None,
        *,
        name: str = "lakehouse",
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        storage_factory: Callable[[str, Mapping[str, str]], Storage] = storage_for,
    ) -> None:
        super().__init__(warehouse or "", name, properties, environment, storage_factory)
        self._uri, basic = without_login(uri, hide_in_urls(uri))
        client = HttpClient(self._uri, self._properties, basic, self._environment)
        self._session = RestSession(client, warehouse, self._properties, basic, self._environment)
        # only what the user named confines: what the server names it may also place elsewhere
        self._roots = allowed_roots(self._warehouse, self._properties)
        named = dict(self._session.config.properties)
        if S3_ENDPOINT not in self._properties and s3_endpoint({}, os.environ):
            named.pop(S3_ENDPOINT, None)  # by this machine's settings the store is elsewhere
        self._properties = named
        self._tables = LoadedTables(
            self._session,
            self._properties,
            self._properties.get("uri", uri),
            storage_factory,
            self._environment,
        )
        self._reports = PostedReports(self._session, name)
        self._append_mode = append_mode(self._properties.get(APPEND_MODE))

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def views(self) -> RestViews:
        return RestViews(self._session, self._roots, self._environment)

    @property
    def commits_to_newest(self) -> bool:
        return True

    @property
    def commits_together(self) -> bool:
        """Whether the server has transactions over tables."""
        return self._session.offers(_TRANSACTION)

    def planner(self, identifier: Identifier) -> RestPlanner | None:
        """The server, where it or the user says `scan-planning-mode=server`.

        Raises UnsupportedFeatureError: the server does not plan.
        """
        mode = self._tables.access(identifier).get(PLANNING_MODE) or self._properties.get(
            PLANNING_MODE, "client"
        )
        if mode.lower() != "server":
            return None
        if not self._session.offers(PLAN_ENDPOINT):
            raise UnsupportedFeatureError(
                f"Table {identifier}: {PLANNING_MODE} is server, and the server does not plan "
                "scans."
            )
        return RestPlanner(self._session, identifier, self._environment)

    def appender(self, identifier: Identifier) -> RestAppender | None:
        """The server, where it commits appends of several clients together (`append-mode`)."""
        if self._append_mode == "commit" or not self._session.offers(APPEND_ENDPOINT):
            return None
        shares = self._append_mode == "shared-snapshot"
        return RestAppender(self._session, self._tables, identifier, shares=shares)

    @property
    def takes_reports(self) -> bool:
        return self._reports.are_wanted

    def report(self, identifier: Identifier, document: Mapping[str, Any]) -> None:
        """Have a report posted to the server."""
        self._reports.post(identifier, document, self._tables.token(identifier))

    def storage(self, location: str) -> Storage:
        """The storage that keeps `location`, with what the server said of the table there."""
        return self._tables.storage(location)

    def create_namespace(
        self, namespace: Namespace, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace. Parents first where they are missing."""
        parts = parse_namespace(namespace)
        for depth in range(1, len(parts)):
            if not self.namespace_exists(parts[:depth]):
                self._create_namespace(parts[:depth], {})
        self._create_namespace(parts, properties or {})

    def drop_namespace(self, namespace: Namespace) -> None:
        path = self._session.path(parse_namespace(namespace))
        self._session.answer("DELETE", path, dotted(namespace), NAMESPACE, keyed=True)

    def namespace_exists(self, namespace: Namespace) -> bool:
        path = self._session.path(parse_namespace(namespace))
        endpoint = "/namespaces/{namespace}"
        return self._session.exists(path, endpoint, dotted(namespace), NAMESPACE)

    def list_namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        query = {"parent": self._session.config.joined(parent)} if parent else {}
        namespaces = self._session.pages(
            "namespaces", "namespaces", dotted(parent) or self._name, NAMESPACE, query
        )
        return sorted(tuple(require_list(listed, "namespaces")) for listed in namespaces)

    def namespace_properties(self, namespace: Namespace) -> Mapping[str, str]:
        path = self._session.path(parse_namespace(namespace))
        answer = self._session.answer("GET", path, dotted(namespace), NAMESPACE)
        return string_map(answer.get("properties") or {}, "properties")

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        path = self._session.path(parse_namespace(namespace), "properties")
        body = {"removals": sorted(set(removals)), "updates": dict(updates)}
        self._session.answer("POST", path, dotted(namespace), NAMESPACE, body, keyed=True)
        return self.namespace_properties(namespace)

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        return self._session.identifiers(parse_namespace(namespace), "tables")

    def table_exists(self, identifier: Identifier) -> bool:
        endpoint = "/namespaces/{namespace}/tables/{table}"
        return self._session.exists(
            _path(self._session, identifier), endpoint, str(identifier), TABLE
        )

    def load(self, identifier: Identifier) -> TableVersion:
        """The table's newest version; the object of the last time while the server says so."""
        return self._tables.load(identifier)

    def refresh(self, version: TableVersion) -> TableVersion:
        newest = self.load(version.identifier)
        return version if newest.metadata_location == version.metadata_location else newest

    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:
        """The server chooses when it creates the table; of one that is `staged` it says where."""
        if not staged:
            return CHOSEN_BY_CATALOG
        body = {"name": identifier.name, "schema": _NO_FIELDS, "stage-create": True}
        answer = self._session.send(
            "POST",
            self._session.path(identifier.namespace, "tables"),
            body,
            headers=self._tables.headers(),
        )
        return self._tables.staged(identifier, _accepted(answer, identifier))

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        """Register a new table with its first metadata.

        The server chooses the table's uuid and renumbers its columns, so that no file may have been
        written before, unless the table was staged.
        """
        if metadata.location != CHOSEN_BY_CATALOG:
            check_locations(metadata, self._roots)
        if staged:
            updates = first_updates(metadata)
            body = _change(identifier, [AssertCreate()], updates, metadata)
            answer = self._send_commit(identifier, body)
            if answer.status_code == 409:
                raise TableAlreadyExistsError(
                    f"{identifier}: {error_of(answer)[1]}", table=str(identifier)
                )
            return self._tables.keep(identifier, answer, _accepted(answer, identifier))
        body = {
            "name": identifier.name,
            "schema": schema_to_json(metadata.schema()),
            "partition-spec": spec_to_json(metadata.spec()),
            "write-order": sort_order_to_json(metadata.sort_order()),
            "properties": {**metadata.properties, "format-version": str(metadata.format_version)},
            "stage-create": False,
        }
        if metadata.location != CHOSEN_BY_CATALOG:
            body["location"] = metadata.location
        path = self._session.path(identifier.namespace, "tables")
        answer = self._session.send("POST", path, body, headers=self._tables.headers(), keyed=True)
        return self._tables.keep(identifier, answer, _accepted(answer, identifier))

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        with before_the_swap():
            new = next_metadata(base, requirements, updates, self._environment.now_ms())
            if new is base.metadata:
                return base
            check_locations(new, self._roots)
        began_ms = self._environment.now_ms()
        body = _change(identifier, requirements, updates, new)
        answer = self._swapped(str(identifier), lambda: self._send_commit(identifier, body))
        if 400 <= answer.status_code < 500:
            raise self._commit_refused([base], answer)
        with _perhaps_committed(str(identifier)):
            document = body_of(answer, str(identifier))
            version = self._tables.keep(identifier, answer, document, committed=True)
        for update in updates:
            if isinstance(update, AddSnapshot):
                took_ms = self._environment.now_ms() - began_ms
                self.report(identifier, commit_report(update.snapshot, took_ms))
        return version

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """Commit to several tables, all or none, each to the version that it was decided on."""
        if not self.commits_together:
            return super().commit_all(commits)
        names = ", ".join(str(commit.identifier) for commit in commits)
        changes = []
        with before_the_swap():
            check_distinct(commits)
            for commit in commits:
                now_ms = self._environment.now_ms()
                new = next_metadata(commit.base, commit.requirements, commit.updates, now_ms)
                check_locations(new, self._roots)
                asked = [
                    *requirements_on(commit.base.metadata, commit.updates),
                    *commit.requirements,
                ]
                changes.append(_change(commit.identifier, asked, commit.updates, new))
        body = {"table-changes": changes}
        answer = self._swapped(
            names, lambda: self._session.send("POST", "transactions/commit", body, keyed=True)
        )
        if 400 <= answer.status_code < 500:
            raise self._commit_refused([commit.base for commit in commits], answer)
        with _perhaps_committed(names):
            return [self.load(commit.identifier) for commit in commits]

    # The server decides alone.
    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        """Remove the table; `purge` deletes what is in its folder as well. The server purges."""
        self._tables.forget(identifier)
        query = {"purgeRequested": "true" if purge else "false"}
        path = _path(self._session, identifier)
        self._session.answer("DELETE", path, str(identifier), TABLE, query=query, keyed=True)

    def unregister(self, identifier: Identifier) -> TableVersion:
        self._tables.forget(identifier)
        path = f"{_path(self._session, identifier)}/unregister"
        answer = self._session.answer("POST", path, str(identifier), TABLE, keyed=True)
        location = require_str(answer, "metadata-location", path)
        return TableVersion(
            identifier, parse(orjson.dumps(answer.get("metadata")), location), location
        )

    def rename(self, source: Identifier, target: Identifier) -> None:
        self._tables.forget(source)
        body = {"source": _named(source), "destination": _named(target)}
        self._session.answer("POST", "tables/rename", str(source), TABLE, body, keyed=True)

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        body = {"name": identifier.name, "metadata-location": metadata_location}
        path = self._session.path(identifier.namespace, "register")
        answer = self._session.send("POST", path, body, headers=self._tables.headers(), keyed=True)
        return self._tables.keep(identifier, answer, _accepted(answer, identifier))

    def _create_namespace(self, parts: Namespace, properties: Mapping[str, str]) -> None:
        body = {"namespace": list(parts), "properties": dict(properties)}
        self._session.answer("POST", "namespaces", dotted(parts), NAMESPACE, body, keyed=True)

    def _send_commit(self, identifier: Identifier, body: Mapping[str, Any]) -> Response:
        return self._session.send(
            "POST",
            _path(self._session, identifier),
            body,
            token=self._tables.token(identifier),
            keyed=True,
        )

    def _swapped(self, names: str, send: Callable[[], Response]) -> Response:
        """The answer to a commit, if it tells what became of it."""
        try:
            answer = send()
        except StorageError as error:
            if is_certain(error):
                raise
            raise _unknown(names, error.message) from error
        if answer.status_code >= 500 or 300 <= answer.status_code < 400:
            raise _unknown(names, f"HTTP {answer.status_code}: {error_of(answer)[1]}")
        return answer

    def _commit_refused(self, bases: Sequence[TableVersion], answer: Response) -> LakehouseError:
        """Why a commit certainly did not happen."""
        names = ", ".join(str(base.identifier) for base in bases)
        reason = error_of(answer)[1]
        if answer.status_code == 409:
            return CommitConflictError(
                f"Table {names}: {reason} Refresh and try again.", table=names
            )
        if answer.status_code == 404:
            return NoSuchTableError(f"Table {names} was dropped: {reason}", table=names)
        if any(self.refresh(base) is not base for base in bases):
            return CommitConflictError(
                f"Table {names}: {reason} Refresh and try again.", table=names
            )
        if answer.status_code in (400, 422):
            return InvalidInputError(
                f"Table {names}: the server refused the commit: {reason}", table=names
            )
        return refusal(answer, names, CATALOG)


@contextmanager
def _perhaps_committed(names: str) -> Iterator[None]:
    """What goes wrong after the server said yes: the commit stands, and is unknown to us."""
    try:
        yield
    except LakehouseError as error:
        raise _unknown(names, error.message) from error


def _unknown(names: str, reason: str) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"Table {names}: the server did not tell whether the commit happened ({reason}). Nothing "
        "was deleted. Refresh the table and look for the snapshot id.",
        table=names,
    )


def _accepted(answer: Response, identifier: Identifier) -> dict[str, Any]:
    if answer.status_code >= 300:
        raise refusal(answer, str(identifier), TABLE)
    return body_of(answer, str(identifier))


def _change(
    identifier: Identifier,
    requirements: Sequence[Requirement],
    updates: Sequence[Update],
    new: TableMetadata,
) -> dict[str, Any]:
    """One commit that leads to new metadata (REST catalog: CommitTableRequest)."""
    # deprecated, and catalogs of the time before require it of schemas
    columns = {"last-column-id": new.last_column_id}
    return {
        "identifier": _named(identifier),
        "requirements": [requirement.to_json() for requirement in requirements],
        "updates": [
            update.to_json() | columns if isinstance(update, AddSchema) else update.to_json()
            for update in updates
        ],
    }


def _named(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier.namespace), "name": identifier.name}


def _path(session: RestSession, identifier: Identifier) -> str:
    return session.path(identifier.namespace, "tables", identifier.name)


def first_updates(metadata: TableMetadata) -> list[Update]:
    """Updates that make this table from nothing."""
    schemas = [AddSchema(schema) for schema in metadata.schemas]
    specs = [AddPartitionSpec(spec) for spec in metadata.partition_specs]
    orders = [AddSortOrder(order) for order in metadata.sort_orders]
    refs = [
        SetSnapshotRef(
            name,
            ref.snapshot_id,
            ref.type,
            ref.min_snapshots_to_keep,
            ref.max_snapshot_age_ms,
            ref.max_ref_age_ms,
        )
        for name, ref in metadata.refs.items()
    ]
    return [
        AssignUUID(metadata.table_uuid),
        UpgradeFormatVersion(metadata.format_version),
        SetLocation(metadata.location),
        *schemas,
        SetCurrentSchema(metadata.current_schema_id),
        *specs,
        SetDefaultSpec(metadata.default_spec_id),
        *orders,
        SetDefaultSortOrder(metadata.default_sort_order_id),
        *([SetProperties(dict(metadata.properties))] if metadata.properties else []),
        *(AddSnapshot(snapshot) for snapshot in metadata.snapshots),
        *refs,
    ]


def requirements_on(base: TableMetadata, updates: Sequence[Update]) -> list[Requirement]:
    """That nothing which decides about the updates changed since `base`.

    Properties apart, for which the protocol has no requirement. A table without snapshots has no
    ref that says so: `main` is requested by its name.
    """
    named = {
        update.ref_name
        for update in updates
        if isinstance(update, SetSnapshotRef | RemoveSnapshotRef)
    }
    refs = sorted({MAIN_BRANCH, *base.refs, *named})
    return [
        AssertTableUUID(base.table_uuid),
        *(
            AssertRefSnapshotId(name, None if ref is None else ref.snapshot_id)
            for name, ref in ((name, base.refs.get(name)) for name in refs)
        ),
        AssertLastAssignedFieldId(base.last_column_id),
        AssertCurrentSchemaId(base.current_schema_id),
        AssertLastAssignedPartitionId(base.last_partition_id),
        AssertDefaultSpecId(base.default_spec_id),
        AssertDefaultSortOrderId(base.default_sort_order_id),
    ]
