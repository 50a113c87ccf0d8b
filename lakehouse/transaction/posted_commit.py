"""Appends that a catalog's server commits, together with those of others (see PostedAppend)."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.catalog.catalog_protocol import Catalog, ServerAppender, TableVersion
from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.catalog.confinement import table_folders
from lakehouse.catalog.posted_append import APPENDS, FILES_MAX, PostedAppend
from lakehouse.environment import Environment
from lakehouse.errors import CommitStateUnknownError, LakehouseError
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, Snapshot
from lakehouse.spec.metadata.table_metadata import TableMetadata, types_of
from lakehouse.spec.types.arrow_types import partition_types
from lakehouse.storage.location import lies_within
from lakehouse.transaction.commit import Committed, look_up, producer_of
from lakehouse.transaction.operations.file_changes import Append
from lakehouse.transaction.snapshot_producer import SummaryBuilder
from lakehouse.transaction.table_change import TableChange


def commit_by_server(
    change: TableChange, appender: ServerAppender, catalog: Catalog, environment: Environment
) -> Committed | None:
    """Have the catalog's server commit an append; None where the change is more than that.

    Raises:
        LakehouseError: as Transaction.commit has them.
    """
    append = _plain_append(change)
    if append is None:
        return None
    producer = producer_of(change.decided_on, catalog, environment)
    try:
        metadata = change.decided_on.metadata
        append_id = environment.new_snapshot_id()  # the server looks whether it is taken
        shares = appender.shares and not change.summary
        sends_files = shares and _may_be_named(append.files, metadata)
        manifests = (
            ()
            if sends_files
            else producer.manifest_writer.write_added(
                metadata, append.files, snapshot_id=append_id, inherits_snapshot=True
            )
        )
        posted = PostedAppend(
            append_id=append_id,
            table_uuid=metadata.table_uuid.lower(),
            manifests=tuple(manifests),
            files=append.files if sends_files else (),
            branch=change.branch,
            summary={
                **SummaryBuilder.of(added=append.files).build(None, metadata),
                **change.summary,
            },
            shares=shares,
        )
        producer.files.send({})
        try:
            version, snapshot = appender.append(change.decided_on, posted)
        except LakehouseError as error:
            # that it is not there proves nothing, where the outcome is unknown
            is_unknown = isinstance(error, CommitStateUnknownError)
            there = look_up(
                change,
                catalog,
                environment,
                lambda newest: _with_append(newest, append_id),
                repeatedly=is_unknown,
            )
            if there is None:
                if is_unknown:
                    error.context["snapshot_ids"] = [append_id]
                elif is_certain(error):
                    producer.files.refused()
                raise
            version, snapshot = there
    except CommitStateUnknownError:
        raise
    except LakehouseError:
        producer.files.delete_all()
        raise
    return Committed(version, snapshot, (snapshot,))


def _plain_append(change: TableChange) -> Append | None:
    """The append, if the change is that and assumes nothing of the table; else None."""
    if len(change.operations) != 1 or change.commit_id is not None:
        return None
    only = change.operations[0]
    if not isinstance(only, Append) or only.must_be_new or not only.files:
        return None
    is_there = change.branch == MAIN_BRANCH or change.branch in change.decided_on.metadata.refs
    return only if is_there else None


def _may_be_named(files: Sequence[DataFile], metadata: TableMetadata) -> bool:
    """Whether the server may write the manifest, one for all who share the snapshot."""
    if len(files) > FILES_MAX:
        return False
    folders, types = table_folders(metadata), types_of(metadata)
    for spec_id in {file.spec_id for file in files}:
        if None in partition_types(metadata.spec(spec_id), types).values():
            return False
    return all(any(lies_within(file.file_path, each) for each in folders) for file in files)


def _with_append(version: TableVersion, append_id: int) -> tuple[TableVersion, Snapshot] | None:
    """A version, and its snapshot that an append made or shares; None where it has none."""
    metadata, wanted = version.metadata, str(append_id)
    own = metadata.snapshot_or_none(append_id)
    if own is not None:
        return version, own
    if not any(wanted.encode() in part for part in metadata.snapshots.raw_parts()):
        return None
    for snapshot in metadata.snapshots:
        if wanted in snapshot.summary.get(APPENDS, "").split(","):
            return version, snapshot
    return None
