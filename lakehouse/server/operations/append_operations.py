"""Appends that are committed together (an extension, see `lakehouse.catalog.posted_append`)."""

from __future__ import annotations

from dataclasses import replace

import orjson

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import table_folders
from lakehouse.catalog.metadata_files import metadata_folder
from lakehouse.catalog.posted_append import ENDPOINT, PostedAppend
from lakehouse.errors import CommitStateUnknownError, InvalidInputError, NoSuchFileError
from lakehouse.server.access.asked_privileges import PRINCIPAL, on_table
from lakehouse.server.access.confined_tables import check_updates
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.grouped_appends import AppendedBody
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.received_append import check_append
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.server.served_tables import APPENDED
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.content_file_json import PartitionTypes, types_of_partitions
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.storage.location import lies_within


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
