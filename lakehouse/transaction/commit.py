"""A commit: attempts until one wins, and the three outcomes, read from top to bottom.

Everything before `Catalog.commit` writes files that nobody sees. `Catalog.commit` is one
compare-and-swap. After it comes cleanup only: if the outcome is certain, the files of the commit
that no snapshot needs are deleted; if it is unknown, nothing is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.catalog.confinement import allowed_roots
from lakehouse.catalog.held_version import HeldVersion
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    LakehouseError,
    NoSuchFileError,
    NoSuchSnapshotError,
    SnapshotExpiredError,
    ValidationConflictError,
)
from lakehouse.spec.metadata.commit_names import (
    COMMIT_ID,
    StreamBatch,
    check_commit_id,
    head_of,
    snapshots_of_commit,
)
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.table_properties import TableProperties
from lakehouse.transaction.operations.metadata_changes import MetadataChange
from lakehouse.transaction.snapshot_producer import SnapshotProducer
from lakehouse.transaction.table_change import Attempt, FilesPlan, Step, TableChange

log = logging.getLogger(__name__)

T = TypeVar("T")

_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Committed:
    """A successful commit; the other outcomes are errors (see lakehouse.errors.CommitError).

    Attributes:
        version: the table as this commit left it, or a later version that contains the commit.
        snapshot: the last snapshot that it made; None when it changed only metadata.
        snapshots: every snapshot it made, in order.
        retries: attempts that lost against other writers before the one that won.
        replayed: True when an earlier run with the same commit id had committed already and nothing
            was written.
    """

    version: TableVersion
    snapshot: Snapshot | None
    snapshots: tuple[Snapshot, ...] = ()
    retries: int = 0
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Landed:
    """An attempt is part of the table.

    Attributes:
        version: of the table, with it.
        attempt: that one.
    """

    version: TableVersion
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Refused:
    """The catalog said no, and nothing was done; `error` says why."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell: the reply was lost, or came as something that proves nothing.

    Attributes:
        error: for the caller.
        cause: what was raised, where that is another error.
    """

    error: CommitStateUnknownError
    cause: BaseException | None = None


def commit(change: TableChange, catalog: Catalog, environment: Environment) -> Committed:
    """Commit a change: stage it on the newest version, swap, and settle what is not clear.

    Raises:
        CommitConflictError | ValidationConflictError | CommitStateUnknownError: see
            Transaction.commit.
    """
    if change.commit_id is not None:
        check_commit_id(change.commit_id)
    if (replayed := committed_before(change, change.decided_on)) is not None:
        return replayed
    producer = producer_of(change.decided_on, catalog, environment)
    sent: list[Attempt] = []
    try:
        _write_ahead(change, catalog, producer)
        return _attempts(change, catalog, producer, sent)
    except CommitStateUnknownError:
        raise
    except LakehouseError as error:
        landed = _settle_refused(change, catalog, sent, error) if sent else None
        if landed is not None:
            return _committed(producer, landed)
        producer.files.delete_all()
        expired = _expired(change, catalog, error)
        if expired is not None:
            raise expired from error
        raise


def _expired(
    change: TableChange, catalog: Catalog, error: LakehouseError
) -> SnapshotExpiredError | None:
    """Whether something was missing because the snapshot decided on, or a named one, expired."""
    if isinstance(error, SnapshotExpiredError) or not isinstance(
        error, NoSuchFileError | NoSuchSnapshotError
    ):
        return None
    head = head_of(change.decided_on.metadata, change.branch)
    named = error.context.get("snapshot_id")
    ids = (None if head is None else head.snapshot_id, named if isinstance(named, int) else None)
    try:
        return HeldVersion(catalog, change.decided_on).expired(ids)
    except LakehouseError:  # nobody can tell
        return None


def producer_of(base: TableVersion, catalog: Catalog, environment: Environment) -> SnapshotProducer:
    """What writes the files of a commit to a table."""
    return SnapshotProducer(
        catalog.storage(base.metadata.location),
        environment,
        allowed_roots(catalog.warehouse, catalog.properties),
    )


def _write_ahead(change: TableChange, catalog: Catalog, producer: SnapshotProducer) -> None:
    """Write before the turn what can be written before it, so that others wait for little.

    What appends and changes of metadata need is the same whatever the table is by now; where files
    go, the newest version is looked at first.
    """
    version = change.decided_on
    plans = [operation.plan for operation in change.operations]
    if any(isinstance(plan, FilesPlan) and plan.is_about_files for plan in plans):
        newest = catalog.refresh(version)
        if newest.metadata.table_uuid == version.metadata.table_uuid:
            version = newest
    metadata = version.metadata
    for number, (operation, plan) in enumerate(zip(change.operations, plans, strict=True)):
        if plan is not None:
            head = head_of(metadata, change.branch)
            plan.write_ahead(producer, producer.new_snapshot(number, plan, metadata, head))
        if isinstance(operation, MetadataChange):
            metadata = apply_updates(metadata, operation.updates, now_ms=metadata.last_updated_ms)
    if version is not change.decided_on:
        producer.files.flush()


def _attempts(
    change: TableChange, catalog: Catalog, producer: SnapshotProducer, sent: list[Attempt]
) -> Committed:
    """Attempts until one lands; `sent` collects what was handed to the catalog."""
    properties = _properties_of(change)
    backoff = commit_backoff(
        properties,
        never_conflicts=all(operation.holds_on_every_base for operation in change.operations),
    )
    environment = producer.environment
    started_ms = environment.now_ms()
    retries = 0
    while True:
        with catalog.turn(change.decided_on.identifier):
            done = _attempt(change, catalog, producer, sent, retries)
        if isinstance(done, Committed):
            return done
        error = done.error
        if not isinstance(error, CommitConflictError):
            raise error
        retries += 1
        if not backoff.pause(retries, started_ms, environment):
            raise CommitConflictError(
                f"{error.message} Gave up after {retries} attempts; "
                "raise commit.retry.num-retries to try longer.",
                retries=retries - 1,
                **{key: value for key, value in error.context.items() if key != "retries"},
            ) from error


def _attempt(
    change: TableChange,
    catalog: Catalog,
    producer: SnapshotProducer,
    sent: list[Attempt],
    retries: int,
) -> Committed | Refused:
    """One attempt; refused when somebody was faster.

    Raises what staging raises: what the newest version cannot take, it does not take later.
    """
    base = catalog.refresh(change.decided_on)
    _check_same_table(change, base)
    landed = _landed_among(sent, base)
    if landed is not None:  # what looked like a lost race was our own success
        return _committed(producer, landed)
    if (replayed := committed_before(change, base)) is not None:
        _check_none_may_land(
            catalog, base, sent, f"Commit {change.commit_id} is in the table already."
        )
        producer.files.delete_all()
        return replayed
    attempt = _stage(change, base, producer, retries)
    if not attempt.updates:
        return Committed(base, None, retries=retries)
    producer.files.send(attempt.manifest_lists)
    sent.append(attempt)
    match _swap(catalog, attempt):
        case Landed() as landed:
            return _committed(producer, landed)
        case Refused(error) as refused:
            producer.files.refused()
            if not isinstance(error, CommitConflictError):
                sent.pop()  # it went nowhere
            return refused
        case Unknown() as unknown:
            return _committed(producer, _settle_unknown(change, catalog, producer, sent, unknown))


def _stage(
    change: TableChange, base: TableVersion, producer: SnapshotProducer, retries: int
) -> Attempt:
    """The operations applied to one base; raises ValidationConflictError, SnapshotExpiredError."""
    named = {} if change.commit_id is None else {COMMIT_ID: str(change.commit_id)}
    attempt = Attempt(
        change=change,
        base=base,
        producer=producer,
        summary={**change.summary, **named},
        retries=retries,
        now_ms=producer.environment.now_ms(),
    )
    for operation in change.operations:
        attempt.add(operation.step(attempt))
    if isinstance(change.commit_id, StreamBatch) and attempt.snapshots:
        mark = change.commit_id.mark(attempt.snapshots[-1], change.branch)
        attempt.add(Step(updates=(mark,)))
    return attempt


def _swap(catalog: Catalog, attempt: Attempt) -> Landed | Refused | Unknown:
    """Hand an attempt to the catalog; what it answered."""
    base = attempt.base
    try:
        version = catalog.commit(
            base.identifier, base, tuple(attempt.requirements), tuple(attempt.updates)
        )
    except CommitStateUnknownError as error:
        return Unknown(error)
    except Exception as error:  # noqa: BLE001 - the outcome says whether it is certain
        if is_certain(error):
            return Refused(error)
        # out of memory, a bug, an error from behind the swap: the outcome is open
        unclear = CommitStateUnknownError(
            f"Table {attempt.table}: the commit was interrupted ({type(error).__name__}: "
            f"{error}). It may have been committed; nothing was deleted. Refresh the table and "
            "look for the snapshot id.",
            table=attempt.table,
            snapshot_ids=[snapshot.snapshot_id for snapshot in attempt.snapshots],
        )
        return Unknown(unclear, error)
    return Landed(version, attempt)


def _settle_unknown(
    change: TableChange,
    catalog: Catalog,
    producer: SnapshotProducer,
    sent: Sequence[Attempt],
    unknown: Unknown,
) -> Landed:
    """Which attempt is part of the table, of those sent; raises the error when none is.

    That none is there proves nothing: the request may still be under way.
    """
    attempt = sent[-1]
    landed = look_up(
        change,
        catalog,
        producer.environment,
        lambda version: _landed_among(sent, version),
        repeatedly=bool(attempt.snapshots),
    )
    if landed is None:
        error = unknown.error
        error.context["snapshot_ids"] = [made.snapshot_id for made in attempt.snapshots]
        raise error from unknown.cause or error.__cause__
    return landed


def look_up(
    change: TableChange,
    catalog: Catalog,
    environment: Environment,
    find: Callable[[TableVersion], T | None],
    *,
    repeatedly: bool,
) -> T | None:
    """What `find` gives for the newest version of the table.

    Args:
        change: whose outcome is looked for.
        catalog: has the table.
        environment: clock, jitter, sleep.
        find: None where a version does not have it.
        repeatedly: look as often as `commit.status-check.*` says, instead of once.
    """
    backoff = _status_backoff(_properties_of(change))
    started_ms, retry = environment.now_ms(), 0
    while True:
        version = _refreshed_or_none(catalog, change.decided_on)
        landed = None if version is None else find(version)
        retry += 1
        if landed is not None or not repeatedly:
            return landed
        if not backoff.pause(retry, started_ms, environment):
            return None


def _settle_refused(
    change: TableChange, catalog: Catalog, sent: Sequence[Attempt], error: LakehouseError
) -> Landed | None:
    """What became of a commit that ends in an error: an attempt landed, or None did.

    A "no" is believed when the table tells why. While an attempt that was refused could still be
    applied to it, nothing explains the answer: a proxy may deliver the request yet, and then it
    needs its files.

    Raises:
        CommitStateUnknownError: an attempt may still land.
    """
    made = [attempt for attempt in sent if attempt.snapshots]
    version = _refreshed_or_none(catalog, change.decided_on) if made else None
    landed = None if version is None else _landed_among(made, version)
    if landed is None:
        _check_none_may_land(catalog, version, made, error.message, error)
    return landed


def _check_none_may_land(
    catalog: Catalog,
    version: TableVersion | None,
    refused: Sequence[Attempt],
    reason: str,
    cause: LakehouseError | None = None,
) -> None:
    """Raise CommitStateUnknownError while an attempt that was refused could still land."""
    open_attempts = [
        attempt for attempt in refused if attempt.snapshots and _may_land(catalog, version, attempt)
    ]
    if open_attempts:
        raise CommitStateUnknownError(
            f"{reason} But an attempt that the catalog refused could still be applied to the "
            "table: the outcome is open. Nothing was deleted. Refresh the table and look for the "
            "snapshot id.",
            table=open_attempts[-1].table,
            snapshot_ids=[snapshot.snapshot_id for snapshot in open_attempts[-1].snapshots],
        ) from cause


def _may_land(catalog: Catalog, version: TableVersion | None, refused: Attempt) -> bool:
    """Whether an attempt that was refused could still be applied to the table."""
    if not catalog.commits_to_newest:
        return False  # one compare-and-swap: what lost is lost
    if version is None:
        return True
    try:
        next_metadata(version, refused.requirements, refused.updates, refused.now_ms)
    except LakehouseError:
        return False
    return True


def _landed_among(sent: Sequence[Attempt], version: TableVersion) -> Landed | None:
    """Which of the attempts sent is part of a version, however it was answered.

    All attempts make the same snapshot ids, but each writes manifest lists of its own.
    """
    for attempt in sent:
        there = [version.metadata.snapshot_or_none(made.snapshot_id) for made in attempt.snapshots]
        if there and all(
            snapshot is not None and snapshot.manifest_list == made.manifest_list
            for snapshot, made in zip(there, attempt.snapshots, strict=True)
        ):
            return Landed(version, attempt)
    return None


def _committed(producer: SnapshotProducer, landed: Landed) -> Committed:
    """The outcome of an attempt that succeeded; files left by earlier attempts are deleted."""
    version, attempt = landed.version, landed.attempt
    snapshots = tuple(
        version.metadata.snapshot_or_none(made.snapshot_id) or made for made in attempt.snapshots
    )
    producer.keep_only(attempt.snapshots, attempt.vectors)
    return Committed(version, snapshots[-1] if snapshots else None, snapshots, attempt.retries)


def _check_same_table(change: TableChange, base: TableVersion) -> None:
    """Raise ValidationConflictError if the name now belongs to another table."""
    before, now = change.decided_on.metadata.table_uuid, base.metadata.table_uuid
    if before and before.lower() != now.lower():
        raise ValidationConflictError(
            f"Table {base.identifier} was dropped, and another table has its name now (uuid "
            f"{now}, this change was made for {before}). Load the table again and repeat the "
            "change.",
            table=str(base.identifier),
            table_uuid=now,
        )


def _refreshed_or_none(catalog: Catalog, base: TableVersion) -> TableVersion | None:
    """The table, if it can be read; failing to read it says nothing of the commit."""
    try:
        return catalog.refresh(base)
    # The outcome is unknown and must stay so: callers delete files after a certain failure.
    except Exception as error:  # noqa: BLE001
        log.warning(
            "Looking for the commit of %s: %s: %s", base.identifier, type(error).__name__, error
        )
        return None


def committed_before(change: TableChange, version: TableVersion) -> Committed | None:
    """The outcome of an earlier run with the same commit id."""
    if change.commit_id is None:
        return None
    snapshots = snapshots_of_commit(version.metadata, change.branch, change.commit_id)
    return Committed(version, snapshots[-1], snapshots, replayed=True) if snapshots else None


# How often, how long and how irregularly a lost race is tried again (`commit.retry.*`)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter.

    Attributes:
        retries_max: tries after the first.
        wait_ms_min: upper end of the first wait.
        wait_ms_max: upper end of every wait.
        total_ms_max: no try begins later than this after the first.
    """

    retries_max: int
    wait_ms_min: int
    wait_ms_max: int
    total_ms_max: int

    def wait_ms(self, retry: int, random: float) -> float:
        """Milliseconds before try `retry` (1 is the first repetition); `random` in [0, 1).

        The whole range from zero is used: writers that lost the same race must not meet again.
        """
        return random * min(
            float(self.wait_ms_max), float(self.wait_ms_min) * 2.0 ** min(retry - 1, 30)
        )

    def pause(self, retry: int, started_ms: int, environment: Environment) -> bool:
        """Wait before try `retry`; False when there is none left."""
        if retry > self.retries_max:
            return False
        wait_ms = self.wait_ms(retry, environment.random())
        if environment.now_ms() + wait_ms - started_ms > self.total_ms_max:
            return False
        environment.sleep(wait_ms / 1000)
        return True


def _properties_of(change: TableChange) -> TableProperties:
    """How to commit; a change of metadata alone may be what mends a property."""
    properties = TableProperties(change.decided_on.metadata.properties)
    alone = all(isinstance(operation, MetadataChange) for operation in change.operations)
    return properties.usable() if alone else properties


def commit_backoff(properties: TableProperties, *, never_conflicts: bool = False) -> Backoff:
    """For attempts that lost a race.

    Args:
        properties: the table's.
        never_conflicts: the operations hold on every base (appends): where
            `commit.retry.num-retries` is not set they are tried until
            `commit.retry.total-timeout-ms`, because one of them wins each race.
    """
    unset = TableProperties.retry_count.name not in properties.raw
    return Backoff(
        _UNLIMITED if never_conflicts and unset else properties.retry_count,
        properties.retry_min_wait_ms,
        properties.retry_max_wait_ms,
        properties.retry_total_timeout_ms,
    )


def _status_backoff(properties: TableProperties) -> Backoff:
    """For looking up an unknown outcome."""
    return Backoff(
        properties.status_check_count,
        properties.status_check_min_wait_ms,
        properties.status_check_max_wait_ms,
        properties.retry_total_timeout_ms,
    )
