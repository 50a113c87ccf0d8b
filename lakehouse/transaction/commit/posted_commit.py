"""Appends that a catalog's server commits, together with those of others (see PostedAppend)."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.catalog.catalog_protocol import ServerAppender, TableVersion
from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.catalog.own_folders import table_folders
from lakehouse.catalog.posted_append import APPENDS, FILES_MAX, PostedAppend
from lakehouse.errors import CommitStateUnknownError, LakehouseError
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.all_field_types import types_of
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.snapshot_refs import MAIN_BRANCH
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.types.physical_types import partition_types
from lakehouse.storage.location import lies_within
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.commit.commit_retry import status_backoff
from lakehouse.transaction.commit.committed import Committed
from lakehouse.transaction.commit.transaction_run import Run, refreshed_or_none
from lakehouse.transaction.operations.append import Append


def plain_append(job: Run) -> Append | None:
    """The append, if the transaction is that and assumes nothing of the table; else None."""
    if len(job.operations) != 1 or job.commit_id is not None:
        return None
    only = job.operations[0]
    if not isinstance(only, Append) or only.must_be_new or not only.files:
        return None
    return only if job.branch == MAIN_BRANCH or job.branch in job.base.metadata.refs else None


def post(job: Run, workspace: Workspace, append: Append, appender: ServerAppender) -> Committed:
    """Have an append committed; errors as Transaction.commit has them."""
    metadata = job.base.metadata
    append_id = job.environment.new_snapshot_id()  # the server looks whether it is taken
    shares = appender.shares and not job.summary
    sends_files = shares and _may_be_named(append.files, metadata)
    manifests = [] if sends_files else append.manifests_to_post(workspace, metadata, append_id)
    asked = PostedAppend(
        append_id=append_id,
        table_uuid=metadata.table_uuid.lower(),
        manifests=tuple(manifests),
        files=append.files if sends_files else (),
        branch=job.branch,
        summary={**append.counts().build(None), **job.summary},
        shares=shares,
    )
    workspace.flush()
    workspace.seal()
    try:
        version, snapshot = appender.append(job.base, asked)
    except LakehouseError as error:
        found = _look_up(job, asked, error)
        if found is None:
            if is_certain(error):
                workspace.unseal()
            raise
        version, snapshot = found
    return Committed(version, snapshot, (snapshot,))


def _may_be_named(files: Sequence[DataFile], metadata: TableMetadata) -> bool:
    """Whether the server may write the manifest, one for all who share the snapshot."""
    if len(files) > FILES_MAX:
        return False
    folders, types = table_folders(metadata), types_of(metadata)
    for spec_id in {one.spec_id for one in files}:
        if None in partition_types(metadata.spec(spec_id), types).values():
            return False
    return all(any(lies_within(one.file_path, each) for each in folders) for one in files)


def _look_up(
    job: Run, asked: PostedAppend, error: LakehouseError
) -> tuple[TableVersion, Snapshot] | None:
    """The table and the snapshot with the append, however it was answered; None without one.

    That none is there proves nothing, where the outcome is unknown.
    """
    backoff = status_backoff(TableProperties(job.base.metadata.properties))
    started_ms, retry = job.environment.now_ms(), 0
    while True:
        version = refreshed_or_none(job)
        found = None if version is None else snapshot_of_append(version.metadata, asked.append_id)
        if version is not None and found is not None:
            return version, found
        retry += 1
        if not isinstance(error, CommitStateUnknownError):
            return None
        if not backoff.pause(retry, started_ms, job.environment):
            error.context["snapshot_ids"] = [asked.append_id]
            return None


def snapshot_of_append(metadata: TableMetadata, append_id: int) -> Snapshot | None:
    """The snapshot that an append made, or shares; None where it is not there."""
    own = metadata.snapshot_or_none(append_id)
    wanted = str(append_id)
    if own is not None or not any(wanted.encode() in one for one in metadata.snapshots.raw_parts()):
        return own
    for snapshot in metadata.snapshots:
        if wanted in snapshot.summary.get(APPENDS, "").split(","):
            return snapshot
    return None
