"""Operations on tables, one or several at once.

Appends that are committed together are an extension, see `lakehouse.catalog.posted_append`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import table_folders, unused_folder
from lakehouse.catalog.metadata_files import metadata_folder, read_metadata
from lakehouse.catalog.posted_append import ENDPOINT, PostedAppend
from lakehouse.errors import (
    CommitStateUnknownError,
    InvalidInputError,
    NoSuchFileError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from lakehouse.kept_by_bytes import short_only
from lakehouse.server.access.asked_privileges import (
    PRINCIPAL,
    both,
    of_commit,
    of_registering,
    of_renaming,
    of_transaction,
    on_namespace,
    on_new,
    on_table,
    path_of,
    signed,
)
from lakehouse.server.access.confined_tables import (
    check_location,
    check_updates,
    is_location_certain,
)
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.delegation.file_access import TableAccess
from lakehouse.server.error_answers import HttpError
from lakehouse.server.grouped_appends import AppendedBody
from lakehouse.server.http_messages import (
    Answer,
    Call,
    identifier_from_json,
    identifier_to_json,
    json_answer,
    page,
)
from lakehouse.server.operations.namespace_operations import no_such_namespace
from lakehouse.server.received_append import check_append
from lakehouse.server.rest_operation import Operation, Served, check_metadata_file
from lakehouse.server.served_tables import ALL, APPENDED, REFS
from lakehouse.server.table_commits import AskedCommit
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import (
    optional_bool,
    optional_list,
    optional_str,
    require_list,
    require_object,
    require_str,
    string_map,
)
from lakehouse.spec.manifests.content_file_json import PartitionTypes, types_of_partitions
from lakehouse.spec.metadata.metadata_json import serialize
from lakehouse.spec.metadata.table_metadata import TableMetadata, new_table_metadata, types_of
from lakehouse.spec.metadata.table_updates import (
    Requirement,
    SetLocation,
    SetProperties,
    Update,
    requirement_from_json,
    update_from_json,
)
from lakehouse.spec.partitioning.partition_terms import new_sort_order_from_json, spec_from_json
from lakehouse.spec.partitioning.sort_order import UNSORTED_SORT_ORDER
from lakehouse.spec.schema.schema_json import schema_from_json
from lakehouse.spec.table_properties import parse_format_version
from lakehouse.storage.location import lies_within


def list_tables(served: Served, call: Call) -> Answer:
    """Of one namespace."""
    namespace = call.namespace()
    tables = served.catalog.list_tables(namespace)
    names = [(table.name,) for table in tables if served.caller.sees(path_of(table))]
    shown, token = page(call, names)
    listed = [identifier_to_json(Identifier(namespace, name)) for (name,) in shown]
    return json_answer({"identifiers": listed, "next-page-token": token})


def create_table(served: Served, call: Call) -> Answer:
    """A table; with `stage-create` only what it would be, which a commit then creates."""
    with before_the_swap():
        document, identifier = call.document(), call.new()
        is_staged = call.read(
            lambda: optional_bool(document, "stage-create", "body", default=False)
        )
        if not served.catalog.namespace_exists(identifier.namespace):
            raise no_such_namespace(identifier.namespace)
        if served.catalog.table_exists(identifier):
            raise TableAlreadyExistsError(f"Table {identifier} exists.", table=str(identifier))
        location = call.read(lambda: optional_str(document, "location", "body"))
        if location is None:
            location = served.catalog.default_location(identifier, staged=is_staged)
        else:
            check_location(served.catalog, served.caller, identifier, location)
            storage = served.catalog.storage(location)
            location = unused_folder(location, storage, served.environment)
        metadata = call.read(lambda: _first_metadata(served, document, location))
        first: list[Update] = [SetLocation(metadata.location), SetProperties(metadata.properties)]
        check_updates(served.catalog, served.tables, served.caller, identifier, None, first)
    if is_staged:
        body = b'{"metadata":%b,"config":{}}' % serialize(metadata)
        access = _offered(served, call, identifier, metadata)
        return Answer(200, body if access is None else access.spliced(body))
    version = served.catalog.create(identifier, metadata)
    served.tables.keep(version)
    return _table_answer(served, call, version)


def _first_metadata(served: Served, document: Mapping[str, Any], location: str) -> TableMetadata:
    schema = schema_from_json(document.get("schema"), "body.schema")
    spec, order = document.get("partition-spec"), document.get("write-order")
    properties = string_map(document.get("properties"), "body.properties")
    return new_table_metadata(
        schema=schema,
        spec=UNPARTITIONED_PARTITION_SPEC
        if spec is None
        else spec_from_json(spec, "body.partition-spec"),
        sort_order=UNSORTED_SORT_ORDER
        if order is None
        else new_sort_order_from_json(order, "body.write-order"),
        location=location,
        properties=properties,
        format_version=parse_format_version(properties.get("format-version", "2")),
        foreign=True,
        table_uuid=str(served.environment.new_uuid()),
        now_ms=served.environment.now_ms(),
    )


def load_table(served: Served, call: Call) -> Answer:
    """Its newest metadata; nothing where the client has them."""
    snapshots = _snapshots(call)
    version, body = served.tables.body(call.table(), snapshots)
    access = _access(served, call, version)
    return _loaded(call, version, body, snapshots, access)


def load_known_table(served: Served, call: Call) -> Answer | None:
    """The same of a table in memory that certainly is the newest."""
    snapshots = _snapshots(call)
    if served.files is not None and _DELEGATION in call.headers:
        return None
    body = served.tables.known_body(call.table(), snapshots)
    return None if body is None else _loaded(call, *body, snapshots, None)


def _snapshots(call: Call) -> str:
    snapshots = call.query.get("snapshots", ALL)
    if snapshots not in (ALL, REFS):
        raise InvalidInputError(f"snapshots must be all or refs, not {snapshots!r}.")
    return snapshots


def _loaded(
    call: Call,
    version: TableVersion,
    body: bytes,
    snapshots: str,
    access: TableAccess | None,
) -> Answer:
    # what was handed out before is good while the tag is the same
    tag = etag(version, snapshots if access is None else f"{snapshots} {access.epoch}")
    if tag in (candidate.strip() for candidate in call.headers.get("if-none-match", "").split(",")):
        return Answer(304, headers={"ETag": tag})
    if access is not None:
        body = access.spliced(body)
    return Answer(200, body, {"ETag": tag})


def _access(served: Served, call: Call, version: TableVersion) -> TableAccess | None:
    if _DELEGATION in call.headers and not is_location_certain(served.caller, version):
        return None
    return _offered(served, call, version.identifier, version.metadata)


def _offered(
    served: Served, call: Call, identifier: Identifier, metadata: TableMetadata
) -> TableAccess | None:
    """What the caller gets that asks for access to the files of a table that lies there."""
    wanted = call.headers.get(_DELEGATION)
    if served.files is None or wanted is None:
        return None
    return served.files.offered(wanted, served.caller, identifier, metadata)


def table_exists(served: Served, call: Call) -> Answer:
    """No content where it does."""
    identifier = call.table()
    if not served.catalog.table_exists(identifier):
        raise NoSuchTableError(f"No table {identifier}.", table=str(identifier))
    return Answer()


def commit_table(served: Served, call: Call) -> Answer:
    """Updates, if requirements hold; creates the table that was staged."""
    identifier, document = call.table(), call.document()
    named = document.get("identifier")
    if named is not None and call.read(lambda: identifier_from_json(named, "body")) != identifier:
        raise InvalidInputError(f"The body names another table than the path, {identifier}.")
    requirements, updates = changes_from_json(served, call, identifier, document)
    done = served.commits.commit(identifier, requirements, updates)
    return _table_answer(served, call, done)


def changes_from_json(
    served: Served, call: Call, identifier: Identifier, document: Mapping[str, Any]
) -> tuple[list[Requirement], list[Update]]:
    """Requirements and updates of a commit to a table, in the name of the caller.

    Raises InvalidInputError; InvalidLocationError, HttpError for files that are not the table's.
    """

    def read() -> tuple[list[Requirement], list[Update]]:
        requirements = optional_list(document, "requirements", "body")
        # a list that is not there may be one by another name: nothing would be done
        wanted = require_list(document.get("updates"), "updates")
        return (
            [
                requirement_from_json(requirement, f"requirements[{n}]")
                for n, requirement in enumerate(requirements)
            ],
            [update_from_json(update, f"updates[{n}]") for n, update in enumerate(wanted)],
        )

    requirements, updates = call.read(read)
    with before_the_swap():
        try:
            base = served.tables.newest(identifier)
        except NoSuchTableError:  # it is to be created, or the commit says so
            base = None
        check_updates(served.catalog, served.tables, served.caller, identifier, base, updates)
        return requirements, signed(updates, served.caller)


def drop_table(served: Served, call: Call) -> Answer:
    """The name; with `purgeRequested` the files, too."""
    served.lake.drop_table(call.table(), purge=call.is_set("purgeRequested"))
    return Answer()


def unregister_table(served: Served, call: Call) -> Answer:
    """The name is gone, the files stay: where the last metadata are, and what they say."""
    version = served.catalog.unregister(call.table())
    return _unregistered(version.metadata_location, version.metadata)


def table_was_unregistered(served: Served, call: Call) -> Answer:
    """As when it was."""
    location = str(call.earlier_answer)
    return _unregistered(location, read_metadata(served.catalog.storage(location), location))


def _unregistered(location: str, metadata: TableMetadata) -> Answer:
    body = b'{"metadata-location":%b,"metadata":%b}' % (orjson.dumps(location), serialize(metadata))
    return Answer(200, body)


def rename_table(served: Served, call: Call) -> Answer:
    """Also into another namespace."""
    served.catalog.rename(*call.renaming())
    return Answer()


def register_table(served: Served, call: Call) -> Answer:
    """A table that exists, by its metadata file."""
    document, identifier = call.document(), call.new()
    location = call.read(lambda: require_str(document, "metadata-location", "body"))
    if call.read(lambda: optional_bool(document, "overwrite", "body", default=False)):
        raise HttpError(
            406, "UnsupportedOperationException", "Drop the table first: overwrite is not served."
        )
    check_metadata_file(served, location, read_metadata)
    version = served.catalog.register(identifier, location)
    served.tables.keep(version)
    return _table_answer(served, call, version)


def table_is_there(served: Served, call: Call) -> Answer:
    """What was made or changed, as it is now."""
    return _table_answer(served, call, served.tables.newest(call.table()))


def named_table_is_there(served: Served, call: Call) -> Answer:
    """The table that the body names, as it is now."""
    return _table_answer(served, call, served.tables.newest(call.new()))


def etag(version: TableVersion, snapshots: str) -> str:
    """What changes with every version of a table, and with how much of it is sent."""
    return _tag(f"{version.metadata.table_uuid} {version.metadata_location} {snapshots}")


@short_only(1024)
def _tag(text: str) -> str:
    return f'W/"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def _table_answer(served: Served, call: Call, version: TableVersion) -> Answer:
    access = _access(served, call, version)
    body = served.tables.document(version)
    if access is None:
        return Answer(200, body, {"ETag": etag(version, ALL)})
    tag = etag(version, f"{ALL} {access.epoch}")
    return Answer(200, access.spliced(body), {"ETag": tag})


_DELEGATION = "x-iceberg-access-delegation"
_ALL = "/namespaces/{namespace}/tables"
_ONE = f"{_ALL}/{{table}}"
TABLE_OPERATIONS = (
    Operation("GET", _ALL, list_tables, asks=on_namespace(None)),
    Operation(
        "POST",
        _ALL,
        create_table,
        changes=True,
        again=named_table_is_there,
        asks=on_new(Privilege.CREATE),
    ),
    Operation("HEAD", _ONE, table_exists, asks=on_table(Privilege.READ)),
    Operation("GET", _ONE, load_table, at_once=load_known_table, asks=on_table(Privilege.READ)),
    Operation("POST", _ONE, commit_table, changes=True, again=table_is_there, asks=of_commit),
    Operation("DELETE", _ONE, drop_table, changes=True, asks=on_table(Privilege.DROP)),
    Operation(
        "POST",
        f"{_ONE}/unregister",
        unregister_table,
        changes=True,
        again=table_was_unregistered,
        asks=both(on_table(Privilege.READ), on_table(Privilege.DROP)),
    ),
    Operation(
        "POST",
        "/namespaces/{namespace}/register",
        register_table,
        changes=True,
        again=named_table_is_there,
        asks=of_registering,
    ),
    Operation("POST", "/tables/rename", rename_table, changes=True, asks=of_renaming),
)


def commit_transaction(served: Served, call: Call) -> Answer:
    """Of all tables or of none."""
    document = call.document()
    changes = call.read(lambda: require_list(document.get("table-changes"), "table-changes"))
    served.commits.commit_all([_commit_from_json(served, call, commit) for commit in changes])
    return Answer()


def _commit_from_json(served: Served, call: Call, item: Any) -> AskedCommit:
    document = call.read(lambda: require_object(item, "table-changes"))
    identifier = call.read(lambda: identifier_from_json(document.get("identifier"), "identifier"))
    return AskedCommit(identifier, *changes_from_json(served, call, identifier, document))


TRANSACTION_OPERATIONS = (
    Operation(
        "POST", "/transactions/commit", commit_transaction, changes=True, asks=of_transaction
    ),
)


def append_files(served: Served, call: Call) -> Answer:
    """A snapshot with these manifests, on whatever is newest."""
    if served.request is None:
        raise InvalidInputError("An append needs an Idempotency-Key.")
    document = call.document()
    identifier = call.table()
    with before_the_swap():
        version = served.tables.recent(identifier)
        metadata = version.metadata
        check_updates(served.catalog, served.tables, served.caller, identifier, version, ())
    posted = call.read(lambda: PostedAppend.from_json(document, lambda: _partition_types(metadata)))
    if served.caller.name is not None:
        posted = replace(posted, summary={**posted.summary, PRINCIPAL: served.caller.name})
    with before_the_swap():
        _check_files(served, identifier, metadata, posted)
    return _answer(served.appends.append(identifier, posted, served.request))


def append_is_there(served: Served, call: Call) -> Answer:
    """The snapshot that it made, in the table as it is now."""
    version, body = served.tables.body(call.table(), APPENDED)
    snapshot = version.metadata.snapshot_or_none(int(call.earlier_answer or 0))
    if snapshot is None:
        raise CommitStateUnknownError(
            f"Table {version.identifier}: the append was committed, and its snapshot "
            f"{call.earlier_answer} has gone since.",
            table=str(version.identifier),
        )
    return _answer(AppendedBody(snapshot, body))


def _partition_types(metadata: TableMetadata) -> PartitionTypes:
    return types_of_partitions(metadata.specs(), types_of(metadata))


def _check_files(
    served: Served, identifier: Identifier, metadata: TableMetadata, posted: PostedAppend
) -> None:
    """Raise InvalidInputError where manifests are not there, or anything is not the table's."""
    check_append(metadata, posted)
    own_folders = table_folders(metadata)
    for file in posted.files:
        if not any(lies_within(file.file_path, folder) for folder in own_folders):
            raise InvalidInputError(f"{file.file_path} is outside the folders of {identifier}.")
    folders = [metadata.location, metadata_folder(metadata)]
    storage = served.catalog.storage(metadata.location)
    for manifest in posted.manifests:
        if not any(lies_within(manifest.manifest_path, folder) for folder in folders):
            raise InvalidInputError(
                f"{manifest.manifest_path} is outside the folders of {identifier}."
            )
        try:
            size = storage.size(manifest.manifest_path)
        except NoSuchFileError as error:
            raise InvalidInputError(f"There is no manifest {manifest.manifest_path}.") from error
        if size != manifest.manifest_length:
            raise InvalidInputError(
                f"{manifest.manifest_path} has {size} bytes, not {manifest.manifest_length}."
            )


def _answer(appended: AppendedBody) -> Answer:
    snapshot = orjson.dumps(appended.snapshot.to_json())
    return Answer(200, b'%b,"snapshot":%b}' % (appended.body[:-1], snapshot))


APPEND_OPERATIONS = (
    Operation(
        "POST",
        ENDPOINT,
        append_files,
        changes=True,
        again=append_is_there,
        asks=on_table(Privilege.WRITE),
        waits=True,
        finds_keys=True,
    ),
)
