"""Running a transaction: attempts until one wins, and the three outcomes.

Everything before `Catalog.commit` writes files that nobody sees. `Catalog.commit` is one
compare-and-swap. After it comes cleanup only: if the outcome is certain, the transaction's files
that no snapshot needs are deleted; if it is unknown, nothing is deleted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.catalog.held_version import HeldVersion
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.catalog.own_folders import check_table
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidInputError,
    LakehouseError,
    NoSuchFileError,
    NoSuchSnapshotError,
    SnapshotExpiredError,
    ValidationConflictError,
)
from lakehouse.spec.metadata.table_updates import apply_updates
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.attempt.pending_operation import Attempt, head_of
from lakehouse.transaction.attempt.snapshot_summary import COMMIT_ID
from lakehouse.transaction.attempt.uncommitted_files import Workspace
from lakehouse.transaction.commit.commit_ids import snapshots_of_commit
from lakehouse.transaction.commit.commit_retry import commit_backoff, status_backoff
from lakehouse.transaction.commit.committed import Committed
from lakehouse.transaction.commit.posted_commit import plain_append, post
from lakehouse.transaction.commit.transaction_run import Run, refreshed_or_none
from lakehouse.transaction.operations.append import Append
from lakehouse.transaction.operations.delete_files import DeleteFiles
from lakehouse.transaction.operations.metadata_change import MetadataChange
from lakehouse.transaction.operations.overwrite import Overwrite
from lakehouse.transaction.operations.received_append import ReceivedAppend
from lakehouse.transaction.operations.rewrite_files import RewriteFiles
from lakehouse.transaction.operations.row_delta import RowDelta

log = logging.getLogger(__name__)

_COMMIT_ID = re.compile(r"[!#-\[\]-~]{1,200}")  # printable ASCII that JSON never escapes


def run(job: Run) -> Committed:
    """Commit; see Transaction.commit."""
    if job.commit_id is not None and _COMMIT_ID.fullmatch(job.commit_id) is None:
        raise InvalidInputError(
            f"Commit id {job.commit_id!r}: use up to 200 printable ASCII characters without "
            "blanks, quotes, backslashes."
        )
    found = _already_committed(job, job.base)
    if found is not None:
        return found
    workspace = Workspace(
        job.catalog.storage(job.base.metadata.location),
        job.environment,
        lambda metadata: check_table(job.catalog, metadata),
    )
    sent: list[Attempt] = []
    try:
        append = plain_append(job)
        appender = None if append is None else job.catalog.appender(job.base.identifier)
        if append is not None and appender is not None:
            return post(job, workspace, append, appender)
        _prepare(job, workspace)
        return _attempts(job, workspace, sent)
    except CommitStateUnknownError:
        raise
    except LakehouseError as error:
        return _failed(job, workspace, sent, _expired(job, error) or error)


def _expired(job: Run, error: LakehouseError) -> SnapshotExpiredError | None:
    """Whether something was missing because the base's snapshot, or one asked for, has expired."""
    if isinstance(error, SnapshotExpiredError) or not isinstance(
        error, NoSuchFileError | NoSuchSnapshotError
    ):
        return None
    head = head_of(job.base.metadata, job.branch)
    asked = error.context.get("snapshot_id")
    ids = (None if head is None else head.snapshot_id, asked if isinstance(asked, int) else None)
    try:
        found = HeldVersion(job.catalog, job.base).expired(ids)
    except LakehouseError:  # nobody can tell
        return None
    if found is not None:
        found.__cause__ = error
    return found


def _rewrites_manifests(job: Run) -> bool:
    """Whether preparing should look at the newest version first: files are removed.

    What appends and changes of metadata prepare is the same whatever the table is by now.
    """
    return any(
        isinstance(one, Overwrite | DeleteFiles | RowDelta | RewriteFiles) for one in job.operations
    )


def _prepare(job: Run, workspace: Workspace) -> None:
    """Do before the turn what can be done before it, so that others wait for little."""
    version = job.base
    if _rewrites_manifests(job):
        newest = job.catalog.refresh(job.base)
        version = newest if newest.metadata.table_uuid == job.base.metadata.table_uuid else job.base
    metadata = version.metadata
    for operation in job.operations:
        operation.prepare(workspace, metadata)
        if isinstance(operation, MetadataChange):
            metadata = apply_updates(metadata, operation.updates, now_ms=metadata.last_updated_ms)
    if version is not job.base:
        workspace.flush()


def _attempts(job: Run, workspace: Workspace, sent: list[Attempt]) -> Committed:
    backoff = commit_backoff(
        _properties_of(job),
        never_conflicts=all(isinstance(one, Append | ReceivedAppend) for one in job.operations),
    )
    started_ms = job.environment.now_ms()
    retries = 0
    while True:
        try:
            with job.catalog.turn(job.base.identifier):
                return _attempt(job, workspace, sent, retries)
        except SnapshotExpiredError:
            raise  # it stays expired
        except CommitConflictError as error:
            retries += 1
            if not backoff.pause(retries, started_ms, job.environment):
                raise CommitConflictError(
                    f"{error.message} Gave up after {retries} attempts; "
                    "raise commit.retry.num-retries to try longer.",
                    retries=retries - 1,
                    **{key: value for key, value in error.context.items() if key != "retries"},
                ) from error


def _properties_of(job: Run) -> TableProperties:
    """How to commit; a change of metadata alone may be what mends a property."""
    properties = TableProperties(job.base.metadata.properties)
    alone = all(isinstance(operation, MetadataChange) for operation in job.operations)
    return properties.usable() if alone else properties


def _attempt(job: Run, workspace: Workspace, sent: list[Attempt], retries: int) -> Committed:
    """One try; `sent` collects what was handed to the catalog."""
    base = job.catalog.refresh(job.base)
    _check_same_table(job, base)
    earlier = _landed_of(base, sent)
    if earlier is not None:  # what looked like a lost race was our own success
        return _landed(workspace, earlier, base)
    found = _already_committed(job, base)
    if found is not None:
        workspace.clean_up()
        return found
    attempt = staged(job, workspace, base, retries)
    if not attempt.updates:
        return Committed(base, None, retries=retries)
    for location, data in attempt.pending:
        workspace.write(location, data)
    workspace.flush()
    workspace.seal()
    sent.append(attempt)
    try:
        version = job.catalog.commit(
            base.identifier, base, tuple(attempt.requirements), tuple(attempt.updates)
        )
    except CommitStateUnknownError as error:
        version, attempt = _look_up(job, sent, error)
    except Exception as error:
        if is_certain(error):
            workspace.unseal()
            if not isinstance(error, CommitConflictError):
                sent.pop()  # it went nowhere
            raise
        # out of memory, a bug, an error from behind the swap: the outcome is open
        unclear = CommitStateUnknownError(
            f"Table {attempt.table}: the commit was interrupted ({type(error).__name__}: "
            f"{error}). It may have been committed; nothing was deleted. Refresh the table and "
            "look for the snapshot id.",
            table=attempt.table,
            snapshot_ids=[one.snapshot_id for one in attempt.snapshots],
        )
        version, attempt = _look_up(job, sent, unclear, cause=error)
    return _landed(workspace, attempt, version)


def _landed(workspace: Workspace, attempt: Attempt, version: TableVersion) -> Committed:
    """The outcome of an attempt that succeeded; files left by earlier attempts are deleted."""
    snapshots = tuple(
        version.metadata.snapshot_or_none(one.snapshot_id) or one for one in attempt.snapshots
    )
    workspace.clean_up(_referenced(workspace, attempt))
    return Committed(version, snapshots[-1] if snapshots else None, snapshots, attempt.retries)


def staged(job: Run, workspace: Workspace, base: TableVersion, retries: int) -> Attempt:
    """The operations applied to one base; raises ValidationConflictError, SnapshotExpiredError."""
    summary = dict(job.summary)
    if job.commit_id is not None:
        summary[COMMIT_ID] = job.commit_id
    attempt = Attempt(
        started=job.base,
        base=base,
        branch=job.branch,
        workspace=workspace,
        summary=summary,
        retries=retries,
        metadata=base.metadata,
        now_ms=job.environment.now_ms(),
    )
    for operation in job.operations:
        operation.apply(attempt)
    return attempt


def _failed(
    job: Run, workspace: Workspace, sent: Sequence[Attempt], error: LakehouseError
) -> Committed:
    """What became of a commit that ends in an error: it landed, may yet land, or failed.

    A "no" is believed when the table tells why. While an attempt that was refused could still be
    applied to it, nothing explains the answer: a proxy may deliver the request yet, and then it
    needs its files.

    Raises:
        CommitStateUnknownError: an attempt may still land.
        LakehouseError: the error itself.
    """
    made = [one for one in sent if one.snapshots]
    version = refreshed_or_none(job) if made else None
    earlier = None if version is None else _landed_of(version, made)
    if version is not None and earlier is not None:
        return _landed(workspace, earlier, version)
    if any(_may_land(job, version, one) for one in made):
        raise CommitStateUnknownError(
            f"{error.message} But an attempt that the catalog refused could still be applied to "
            "the table: the outcome is open. Nothing was deleted. Refresh the table and look for "
            "the snapshot id.",
            table=str(job.base.identifier),
            snapshot_ids=[one.snapshot_id for one in made[-1].snapshots],
        ) from error
    workspace.clean_up()
    raise error


def _may_land(job: Run, version: TableVersion | None, refused: Attempt) -> bool:
    """Whether an attempt that was refused could still be applied to the table."""
    if not job.catalog.commits_to_newest:
        return False  # one compare-and-swap: what lost is lost
    if version is None:
        return True
    try:
        next_metadata(version, refused.requirements, refused.updates, refused.now_ms)
    except LakehouseError:
        return False
    return True


def _look_up(
    job: Run,
    sent: Sequence[Attempt],
    error: CommitStateUnknownError,
    cause: BaseException | None = None,
) -> tuple[TableVersion, Attempt]:
    """The table and the attempt whose snapshots are in it, of those sent; else the error again.

    That none is there proves nothing: the request may still be under way.
    """
    attempt = sent[-1]
    backoff = status_backoff(_properties_of(job))
    started_ms = job.environment.now_ms()
    retry = 0
    while True:
        version = refreshed_or_none(job)
        landed = None if version is None else _landed_of(version, sent)
        if version is not None and landed is not None:
            return version, landed
        retry += 1
        if not attempt.snapshots or not backoff.pause(retry, started_ms, job.environment):
            error.context["snapshot_ids"] = [one.snapshot_id for one in attempt.snapshots]
            raise error from cause or error.__cause__


def _check_same_table(job: Run, base: TableVersion) -> None:
    """Raise ValidationConflictError if the name now belongs to another table."""
    before, now = job.base.metadata.table_uuid, base.metadata.table_uuid
    if before and before.lower() != now.lower():
        raise ValidationConflictError(
            f"Table {base.identifier} was dropped, and another table has its name now (uuid "
            f"{now}, this change was made for {before}). Load the table again and repeat the "
            "change.",
            table=str(base.identifier),
            table_uuid=now,
        )


def _landed_of(version: TableVersion, sent: Sequence[Attempt]) -> Attempt | None:
    """Which of the attempts sent is part of a version, however it was answered.

    All attempts make the same snapshot ids, but each writes manifest lists of its own.
    """
    return next((one for one in sent if _holds(version, one)), None)


def _holds(version: TableVersion, attempt: Attempt) -> bool:
    found = [version.metadata.snapshot_or_none(one.snapshot_id) for one in attempt.snapshots]
    return bool(found) and all(
        there is not None and there.manifest_list == made.manifest_list
        for there, made in zip(found, attempt.snapshots, strict=True)
    )


def _already_committed(job: Run, version: TableVersion) -> Committed | None:
    """The outcome of an earlier run with the same commit id."""
    if job.commit_id is None:
        return None
    snapshots = snapshots_of_commit(version.metadata, job.branch, job.commit_id)
    if not snapshots:
        return None
    return Committed(version, snapshots[-1], snapshots, replayed=True)


def _referenced(workspace: Workspace, attempt: Attempt) -> set[str]:
    kept = {location for location, _ in attempt.pending} | attempt.vectors
    for snapshot in attempt.snapshots:
        kept.update(manifest.manifest_path for manifest in workspace.manifests(snapshot))
    return kept
