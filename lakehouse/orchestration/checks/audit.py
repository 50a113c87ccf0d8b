"""Write, audit, publish: what is on `main` has passed its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from lakehouse.errors import LakehouseError
from lakehouse.orchestration.lineage.stamp import RunStamp
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.table import Table

MAIN = "main"


@dataclass(frozen=True, slots=True)
class BadDay:
    """What is wrong with a day.

    Attributes:
        unexpected: so many values, or per cent, by which days are compared.
        why: for people.
    """

    unexpected: int
    why: str


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What a check found.

    Attributes:
        name: the check's.
        passed: whether every expectation held.
        blocking: whether a failure keeps the snapshot from being published.
        failures: one line for each expectation that did not hold.
        metadata: numbers to show.
        bad_days: those that it failed for, where it was about days.
    """

    name: str
    passed: bool
    blocking: bool
    failures: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    bad_days: Mapping[date, BadDay] = field(default_factory=dict)


class AuditFailedError(LakehouseError):
    """A blocking check failed: the snapshot was not published.

    Attributes:
        snapshot: the one that was rejected; it can be read by its id until it expires.
        outcomes: of every check.
    """

    def __init__(
        self, message: str, snapshot: Snapshot, outcomes: Sequence[CheckOutcome], **context: object
    ) -> None:
        super().__init__(message, **context)
        self.snapshot = snapshot
        self.outcomes = tuple(outcomes)


def write_audit_publish(
    table: Table,
    stamp: RunStamp,
    what: str,
    write: Callable[[str, str], Snapshot],
    audit: Callable[[Snapshot], Sequence[CheckOutcome]],
) -> tuple[Snapshot, list[CheckOutcome]]:
    """Stage a snapshot on a branch, check it there, and make it `main` by fast-forward.

    A retried step that had published already publishes nothing more: its snapshot is found on
    `main` and checked again.

    Args:
        table: it is refreshed first, and moved to the published version.
        stamp: the step that writes.
        what: names the write within the step.
        write: commits through `table`, to the branch and with the commit id that it is given.
        audit: checks a snapshot.

    Raises:
        AuditFailedError: a blocking check failed; `main` is untouched.
        ValidationConflictError: `main` moved while the checks ran; try the step again.
    """
    table.refresh()
    branch = stamp.branch()
    if branch in table.refs():  # of an attempt that died: its base may be old
        table.remove_ref(branch)
    snapshot = write(branch, stamp.commit_id(what))
    if branch not in table.refs():  # found on `main`, where an earlier attempt had published it
        return snapshot, list(audit(snapshot))
    try:
        outcomes = list(audit(snapshot))
        _refuse(table, snapshot, outcomes)
        table.fast_forward(MAIN, branch)
    finally:
        table.refresh()
        if branch in table.refs():
            table.remove_ref(branch)
    return snapshot, outcomes


def _refuse(table: Table, snapshot: Snapshot, outcomes: Sequence[CheckOutcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.blocking and not outcome.passed]
    if failed:
        details = "; ".join(f"{o.name}: {', '.join(o.failures)}" for o in failed)
        raise AuditFailedError(
            f"{table.name}: snapshot {snapshot.snapshot_id} was not published, {details}. It "
            "stays readable by its id.",
            snapshot,
            outcomes,
            table=table.name,
            snapshot_id=snapshot.snapshot_id,
        )
