"""Write, audit, publish: what is on `main` has passed its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse.errors import LakehouseError, ValidationConflictError
from lakehouse.ingestion.stamp import RunStamp
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
    """The outcome of a check.

    Attributes:
        name: the check's.
        passed: whether every expectation held.
        blocking: whether a failure keeps the snapshot from being published.
        failures: one line for each expectation that did not hold.
        metadata: numbers to show.
        bad_days: those that it failed for, where it was about days, or keys of partitions.
    """

    name: str
    passed: bool
    blocking: bool
    failures: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    bad_days: Mapping[Any, BadDay] = field(default_factory=dict)


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


class StagedWrite:
    """A write that waits on a branch of its own until it was audited.

    A retried step that had published already publishes nothing more: its snapshot is on the branch
    where it belongs.

    Args:
        table: it is refreshed first, and moved to what is written and published.
        stamp: the step that writes.
        what: names the write within the step.
        write: commits through `table`, to the branch and with the commit id that it is given.
        onto: the branch where the rows belong; a new one starts at `main`.

    Attributes:
        branch: where it waits.
        snapshot: what was written.
        published: the snapshot is on `onto`.
    """

    def __init__(
        self,
        table: Table,
        stamp: RunStamp,
        what: str,
        write: Callable[[str, str], Snapshot],
        onto: str = MAIN,
    ) -> None:
        self._table, self._write, self._onto = table, write, onto
        self._commit_id = stamp.commit_id(what)
        self.branch = stamp.branch()
        self.snapshot, self.published = self._stage()

    def publish(
        self, audit: Callable[[Snapshot], Sequence[CheckOutcome]], again: int = 0
    ) -> tuple[Snapshot, list[CheckOutcome]]:
        """Audit the snapshot, and make it the head of the branch where it belongs.

        Args:
            audit: checks a snapshot.
            again: how often the write is repeated, and audited, when others had committed to the
                branch while the checks ran.

        Raises:
            AuditFailedError: a blocking check failed; nothing was published.
            ValidationConflictError: the branch moved while the checks ran; try the step again.
        """
        if self.published:
            return self.snapshot, list(audit(self.snapshot))
        while True:
            try:
                outcomes = list(audit(self.snapshot))
                _refuse(self._table, self.snapshot, outcomes)
                self._table.fast_forward(self._onto, self.branch)
            except ValidationConflictError:
                if not again:
                    raise
                again -= 1
            else:
                self.published = True
                return self.snapshot, outcomes
            finally:
                self.drop()
            self.snapshot, self.published = self._stage()

    def drop(self) -> None:
        """Remove the branch; a snapshot that was not published stays readable until it expires."""
        self._table.refresh()
        if self.branch in self._table.refs():
            self._table.remove_ref(self.branch)

    def _stage(self) -> tuple[Snapshot, bool]:
        self.drop()  # of an attempt that died: its base may be old
        if self._onto != MAIN and self._onto in self._table.refs():
            self._table.create_branch(self.branch, ref=self._onto)
        snapshot = self._write(self.branch, self._commit_id)
        heads = {name: ref.snapshot_id for name, ref in self._table.refs().items()}
        # an earlier attempt had published it: the branch is as it was
        if heads.get(self.branch) == snapshot.snapshot_id != heads.get(self._onto):
            return snapshot, False
        self.drop()
        return snapshot, True


def write_audit_publish(
    table: Table,
    stamp: RunStamp,
    what: str,
    write: Callable[[str, str], Snapshot],
    audit: Callable[[Snapshot], Sequence[CheckOutcome]],
) -> tuple[Snapshot, list[CheckOutcome]]:
    """Stage a snapshot on a branch, check it there, and make it `main` by fast-forward.

    Takes what `StagedWrite` takes, and raises what its `publish` raises.
    """
    return StagedWrite(table, stamp, what, write).publish(audit)


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
