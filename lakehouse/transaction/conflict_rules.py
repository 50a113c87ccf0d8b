"""The rules that decide whether a concurrent change breaks an operation.

They look at the entries of others, which a `ConcurrentChange` reads on demand, and at no data file:
the operation itself looks which of these hold rows that matter (`holding`).

| rule | broken by |
|---|---|
| `no_added_data` | data added where the operation decided on all rows (isolation `serializable`) |
| `none_changed` | files removed or deletes added where the operation changes rows (of a branch) |
| `none_added_twice` | files added that the operation adds as well, where files come from outside |
| `no_new_deletes` | deletes added for files that the operation replaces or removes |
| `still_live` | files gone that the operation reads, references or removes |
| `none_removed_below` | data files gone that position deletes which name none can be about |
| `no_new_vectors` | a deletion vector added for a data file that gets one from the operation |
| `no_row_deleted` | rows deleted or replaced that the operation decided on, where it tells which |
| `no_equality_deletes` | equality deletes added where the operation replaces rows |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.errors import ValidationConflictError
from lakehouse.expressions.bound_filter import Bound
from lakehouse.scan.pruning.entry_pruning import may_match
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile, partition_key
from lakehouse.spec.manifests.manifest_entries import Entries
from lakehouse.spec.metadata.snapshot import OPERATION_REPLACE, Snapshot
from lakehouse.spec.partitioning.partition_terms import is_unpartitioned
from lakehouse.spec.schema.iceberg_types import FieldTypes
from lakehouse.storage.location import canonical
from lakehouse.transaction.concurrent_change import ConcurrentChange
from lakehouse.transaction.decided_rows import DecidedRows, Positions, decided_alike

Mask = npt.NDArray[np.bool_]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """The operation that refuses, as named in its errors.

    Attributes:
        table: its name.
        action: the verb, for messages.
        base_snapshot_id: what the operation was based on.
    """

    table: str
    action: str
    base_snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows an operation decided on.

    Attributes:
        where: a bound filter, or None for `partitions`.
        types: types of the table's fields.
        partitions: `partition_key` of each; a file of another spec is in scope.
    """

    where: Bound | None
    types: FieldTypes
    partitions: frozenset[tuple[Any, ...]]

    def mask(self, entries: Entries) -> Mask:
        """Which entries can hold rows in scope."""
        if self.where is not None:
            return may_match(entries, self.where, self.types)
        spec_id = entries.spec.spec_id
        if not self.partitions or any(known != spec_id for known, *_ in self.partitions):
            return np.ones(len(entries), bool)
        keys = (partition_key(spec_id, values) for values in entries.partitions())
        return np.fromiter((key in self.partitions for key in keys), bool, len(entries))


@dataclass(frozen=True, slots=True)
class Targets:
    """Data files whose rows an operation replaces.

    Attributes:
        paths: the files.
        partitions: `partition_key` of each.
        any_path: the files are not known, only their partitions.
    """

    paths: frozenset[str]
    partitions: frozenset[tuple[Any, ...]]
    any_path: bool = False

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> Targets:
        """The data files themselves."""
        listed = tuple(files)
        return cls(
            frozenset(file.file_path for file in listed),
            frozenset(file.partition_key for file in listed),
        )


def no_added_data(
    subject: Subject,
    scope: Scope,
    changes: Iterable[ConcurrentChange],
    holding: Callable[[Entries], Mask] | None = None,
) -> None:
    """Refuse when data was added in scope. Rewrites add no rows and are passed over.

    Args:
        subject: who complains.
        scope: rules out files.
        changes: of other writers.
        holding: which of the files that may hold rows in scope do hold some; None: all of them.
    """
    for change in changes:
        if change.snapshot.operation == OPERATION_REPLACE:
            continue
        for entries in change.added_data:
            hit = entries.filter(pa.array(scope.mask(entries)))
            if len(hit) and holding is not None:
                hit = hit.filter(pa.array(holding(hit)))
            if len(hit):
                raise _conflict(
                    subject,
                    change.snapshot,
                    f"added {_files(hit)}, which can hold rows that this {subject.action} decided "
                    "on",
                    hit,
                    "Load the table again and repeat it, or use isolation 'snapshot' if rows "
                    "added meanwhile may stay",
                )


def none_changed(subject: Subject, scope: Scope, changes: Iterable[ConcurrentChange]) -> None:
    """Refuse when files in scope were removed, or got deletes, also such as only move rows."""
    for change in changes:
        for what, parts in (
            ("removed", change.removed_data),
            ("added deletes", change.added_deletes),
        ):
            for entries in parts:
                everywhere = pc.equal(entries.table["content"], CONTENT_EQUALITY_DELETES).to_numpy()
                hit = entries.filter(pa.array(scope.mask(entries) | everywhere))
                if len(hit):
                    raise _conflict(
                        subject,
                        change.snapshot,
                        f"{what} ({_files(hit)}) where this {subject.action} changes rows",
                        hit,
                        "Load the table again and repeat it",
                    )


def none_added_twice(
    subject: Subject, files: Iterable[DataFile], changes: Iterable[ConcurrentChange]
) -> None:
    """Refuse when one of the files was added, however its location is spelled."""
    wanted = {canonical(file.file_path) for file in files}
    for change in changes:
        for entries in change.added_data:
            paths = entries.table["file_path"].to_pylist()
            hit = entries.filter(
                pa.array([canonical(path) in wanted for path in paths], pa.bool_())
            )
            if len(hit):
                raise _conflict(
                    subject,
                    change.snapshot,
                    f"added {_files(hit)}, whose rows would count twice",
                    hit,
                    "Load the table again, and add the other files",
                )


def no_new_deletes(
    subject: Subject,
    targets: Targets,
    changes: Iterable[ConcurrentChange],
    *,
    still_reached: Callable[[Entries], Mask] | None = None,
) -> None:
    """Refuse when deletes were added that can apply to the targets: deleted rows would be back.

    Args:
        subject: who complains.
        targets: data files that the operation replaces or removes, or whose rows it replaces.
        changes: of other writers.
        still_reached: which equality deletes reach the same rows after the operation as before;
            None: those that reach no target.
    """
    if not targets.partitions:
        return
    for change in changes:
        for entries in change.added_deletes:
            breaks = _applies(entries, targets)
            if still_reached is not None:
                equality = pc.equal(entries.table["content"], CONTENT_EQUALITY_DELETES).to_numpy()
                breaks = np.where(equality, ~still_reached(entries), breaks)
            hit = entries.filter(pa.array(breaks))
            if len(hit):
                raise _conflict(
                    subject,
                    change.snapshot,
                    f"added deletes ({_files(hit)}) for data files that this {subject.action} "
                    "replaces",
                    hit,
                    "Load the table again and repeat it",
                )


def reaches_moved_rows_alike(
    removed: Iterable[DataFile], added: Iterable[DataFile], data_sequence_number: int
) -> Callable[[Entries], Mask]:
    """Which equality deletes reach the same rows in `added` as in `removed` (spec: Scan Planning).

    They are newer than `added`. They are of an unpartitioned spec, which reaches every file, or of
    a partition that no row enters or leaves: within one spec none does, between specs all may.
    """
    keys = frozenset(file.partition_key for file in (*removed, *added))
    moved = keys if len({spec_id for spec_id, *_ in keys}) > 1 else frozenset()

    def alike(entries: Entries) -> Mask:
        spec = entries.spec
        newer = pc.greater(entries.table["sequence_number"], data_sequence_number)
        reaching: Mask = np.asarray(pc.fill_null(newer, fill_value=False), bool)
        if is_unpartitioned(spec) or not moved:
            return reaching
        partitions = (partition_key(spec.spec_id, values) for values in entries.partitions())
        still: Mask = np.fromiter((key not in moved for key in partitions), bool, len(entries))
        return np.logical_and(reaching, still)

    return alike


def still_live(
    subject: Subject, paths: Collection[str], changes: Iterable[ConcurrentChange]
) -> None:
    """Refuse when one of the files was removed."""
    if not paths:
        return
    wanted = pa.array(sorted(paths), pa.string())
    for change in changes:
        for entries in change.removed_data:
            hit = entries.filter(pc.is_in(entries.table["file_path"], value_set=wanted))
            if len(hit):
                raise _conflict(
                    subject,
                    change.snapshot,
                    f"removed {_files(hit)}, on which this {subject.action} is based",
                    hit,
                    "Load the table again and repeat it",
                )


def none_removed_below(
    subject: Subject, deletes: Sequence[DataFile], changes: Iterable[ConcurrentChange]
) -> None:
    """Refuse if a data file was removed that the deletes may concern, by partition and bounds."""
    below: dict[tuple[Any, ...], list[DataFile]] = {}
    for delete in deletes:
        below.setdefault(delete.partition_key, []).append(delete)
    for change in changes if below else ():
        for entries in change.removed_data:
            keys = (partition_key(entries.spec.spec_id, values) for values in entries.partitions())
            paths = entries.table["file_path"].to_pylist()
            mask = [
                any(delete.may_name(path) for delete in below.get(key, ()))
                for key, path in zip(keys, paths, strict=True)
            ]
            hit = entries.filter(pa.array(mask, pa.bool_()))
            if len(hit):
                raise _conflict(
                    subject,
                    change.snapshot,
                    f"removed {_files(hit)}, of which this {subject.action} may delete rows",
                    hit,
                    "Load the table again and repeat it, or say which data files it deletes from "
                    "(referenced_files)",
                )


def no_new_vectors(
    subject: Subject, paths: Collection[str], changes: Iterable[ConcurrentChange]
) -> None:
    """Refuse if a data file got deletes meanwhile that also gets some here."""
    if not paths:
        return
    for change in changes:
        for entries in change.added_deletes:
            hit = entries.filter(entries.naming(paths))
            if len(hit):
                raise _conflict(
                    subject,
                    change.snapshot,
                    f"added deletes ({_files(hit)}) for the same data files as this "
                    f"{subject.action}",
                    hit,
                    "Load the table again and repeat it",
                )


def no_row_deleted(
    subject: Subject,
    rows: Sequence[DecidedRows],
    deleted: Sequence[Positions],
    changes: Sequence[ConcurrentChange],
) -> None:
    """Refuse if rows are gone that the operation decided on; other rows of the files may be.

    Args:
        subject: who complains.
        rows: of the operation, each of another file.
        deleted: for each of `rows` what is deleted from the file by others.
        changes: of other writers.
    """
    for decided, positions in zip(rows, deleted, strict=True):
        twice = decided_alike(decided, positions)
        if not len(twice):
            continue
        by = changes[-1].snapshot
        for change in changes:
            if any(pc.any(part.naming([decided.path])).as_py() for part in change.added_deletes):
                by = change.snapshot
        raise _refusal(
            subject,
            by,
            f"deleted or replaced {len(twice)} rows of {decided.path.rpartition('/')[2]} that this "
            f"{subject.action} decided on",
            [decided.path],
            "Load the table again and repeat it",
        )


def no_equality_deletes(
    subject: Subject, partitions: frozenset[tuple[Any, ...]], changes: Iterable[ConcurrentChange]
) -> None:
    """Refuse if equality deletes were added for rows of these partitions, whichever they are."""
    if not partitions:
        return
    targets = Targets(frozenset(), partitions)
    for change in changes:
        for entries in change.added_deletes:
            equality = pc.equal(entries.table["content"], CONTENT_EQUALITY_DELETES).to_numpy()
            applies = _applies(entries, targets)
            hit = entries.filter(pa.array(equality & applies))
            if len(hit):
                raise _conflict(
                    subject,
                    change.snapshot,
                    f"added equality deletes ({_files(hit)}) for data files that this "
                    f"{subject.action} replaces rows of",
                    hit,
                    "Load the table again and repeat it",
                )


def missing_files(
    subject: Subject, missing: Collection[str], changes: Sequence[ConcurrentChange]
) -> ValidationConflictError:
    """The error for files that are not live: it names who removed them, if anybody did since."""
    try:
        still_live(subject, missing, changes)
    except ValidationConflictError as error:
        return error
    shown = ", ".join(sorted(missing)[:_SHOWN])
    return ValidationConflictError(
        f"Table {subject.table}: {len(missing)} files to be removed by this {subject.action} are "
        f"not in the table: {shown}. Load the table again and repeat it.",
        table=subject.table,
        files=sorted(missing)[:_SHOWN],
    )


def _applies(entries: Entries, targets: Targets) -> Mask:
    spec = entries.spec
    keys = (partition_key(spec.spec_id, values) for values in entries.partitions())
    within = np.fromiter((key in targets.partitions for key in keys), bool, len(entries))
    named = entries.named_files().is_valid().to_numpy()
    by_name = entries.naming(targets.paths).to_numpy()
    equality = pc.equal(entries.table["content"], CONTENT_EQUALITY_DELETES).to_numpy()
    by_position = within if targets.any_path else np.where(named, by_name, within)
    return np.where(equality, within | is_unpartitioned(spec), by_position)


def _files(entries: Entries) -> str:
    paths = entries.table["file_path"].to_pylist()
    where = ", ".join(
        sorted({_partition(entries, values) for values in entries.partitions()[:50]})[:_SHOWN]
    )
    noun = "file" if len(paths) == 1 else "files"
    return (
        f"{len(paths)} {noun} in {where} "
        f"({', '.join(path.rpartition('/')[2] for path in paths[:_SHOWN])})"
    )


def _partition(entries: Entries, values: tuple[Any, ...]) -> str:
    fields = entries.spec.fields
    if not fields:
        return "the unpartitioned table"
    return "partition " + "/".join(
        f"{field.name}={value}" for field, value in zip(fields, values, strict=True)
    )


def _conflict(
    subject: Subject, snapshot: Snapshot, what: str, hit: Entries, remedy: str
) -> ValidationConflictError:
    return _refusal(subject, snapshot, what, hit.table["file_path"].to_pylist(), remedy)


def _refusal(
    subject: Subject, snapshot: Snapshot, what: str, files: Sequence[str], remedy: str
) -> ValidationConflictError:
    based = (
        "an empty table"
        if subject.base_snapshot_id is None
        else f"snapshot {subject.base_snapshot_id}"
    )
    return ValidationConflictError(
        f"Table {subject.table}: this {subject.action} was based on {based}, but snapshot "
        f"{snapshot.snapshot_id} ({snapshot.operation}) has since {what}. {remedy}.",
        table=subject.table,
        snapshot_id=snapshot.snapshot_id,
        files=list(files[:_SHOWN]),
        operation=subject.action,
    )
