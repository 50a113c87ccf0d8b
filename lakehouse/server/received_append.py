"""Append of files, or of manifests of them, that a client of the server has written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from lakehouse.catalog.posted_append import APPENDS, PostedAppend
from lakehouse.errors import InvalidInputError, NoSuchRefError, ValidationConflictError
from lakehouse.manifests.manifest_writer import checked
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, OPERATION_APPEND
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.transaction.snapshot_producer import (
    PARTITION_PREFIX,
    PARTITIONS,
    PARTITIONS_LISTED,
    NewSnapshot,
    SnapshotManifests,
    SnapshotPlan,
    SnapshotProducer,
    SummaryBuilder,
)
from lakehouse.transaction.table_change import Attempt, Operation, Step

_SIZE = "added-files-size"
_OWN = frozenset({"operation", "added-data-files", "added-records", _SIZE, APPENDS})


@dataclass(frozen=True, eq=False)
class ReceivedAppend(Operation):
    """One snapshot of one append, or of several that share it.

    Attributes:
        parts: to the same branch.
        is_readable: whether a manifest that the table has may be read, by its location, to merge
            it with others: readers of the table read merged manifests. None are merged where one
            may not.
    """

    holds_on_every_base: ClassVar[bool] = True

    parts: Sequence[PostedAppend]
    is_readable: Callable[[str], bool]

    @property
    def snapshot_id(self) -> int:
        """Of the snapshot."""
        return self.parts[0].append_id

    def step(self, attempt: Attempt) -> Step:
        """One snapshot with the new manifests before the old.

        Raises:
            InvalidInputError, NoSuchRefError, ValidationConflictError: an append that the table
                cannot take.
        """
        for part in self.parts:
            check_append(attempt.metadata, part)
            if attempt.metadata.snapshot_or_none(part.append_id) is not None:
                raise ValidationConflictError(
                    f"Table {attempt.table} has a snapshot {part.append_id} already: give the "
                    "append another append-id.",
                    table=attempt.table,
                    snapshot_id=part.append_id,
                )
        taken = {manifest.manifest_path for manifest in attempt.producer.manifests(attempt.head())}
        for manifest in (manifest for part in self.parts for manifest in part.manifests):
            if manifest.manifest_path in taken:
                raise InvalidInputError(
                    f"Table {attempt.table} has the manifest {manifest.manifest_path} already.",
                    table=attempt.table,
                )
            taken.add(manifest.manifest_path)
        return Step(snapshot=_Received(self.parts, self.is_readable, self.snapshot_id))


@dataclass(frozen=True)
class _Received(SnapshotPlan):
    """Files and manifests of all parts."""

    parts: Sequence[PostedAppend]
    is_readable: Callable[[str], bool]
    snapshot_id: int
    operation = OPERATION_APPEND

    def write(self, producer: SnapshotProducer, new: NewSnapshot) -> SnapshotManifests:
        existing = producer.manifests(new.parent)
        files = checked((file for part in self.parts for file in part.files), "Appends")
        added = [
            *producer.manifests_of_added(new, files),
            *(
                replace(manifest, added_snapshot_id=new.snapshot_id)
                for part in self.parts
                for manifest in part.manifests
            ),
        ]
        return SnapshotManifests(
            manifests=[*added, *existing],
            summary=self._counts(),
            extra=self._summary(),
            merge=all(self.is_readable(manifest.manifest_path) for manifest in (*added, *existing)),
        )

    def _counts(self) -> SummaryBuilder:
        manifests = [manifest for part in self.parts for manifest in part.manifests]
        sizes = [part.summary.get(_SIZE, "") for part in self.parts if part.manifests]
        counts = Counter(
            {
                "added-data-files": sum(manifest.added_files_count or 0 for manifest in manifests),
                "added-records": sum(manifest.added_rows_count or 0 for manifest in manifests),
            }
        )
        if all(size.isdigit() and len(size) < 19 for size in sizes):
            counts[_SIZE] = sum(map(int, sizes))
        summary = SummaryBuilder(counts, None if manifests else {})
        summary.add(file for part in self.parts for file in part.files)
        return summary

    def _summary(self) -> dict[str, str]:
        if len(self.parts) == 1:
            summary = self.parts[0].summary
            return {
                key: value
                for key, value in summary.items()
                if key not in _OWN and not key.startswith("total-")
            }
        merged: dict[str, str] = {}
        for part in self.parts:  # what they say alike
            merged |= part.summary
        alike = {
            key: value
            for key, value in merged.items()
            if all(part.summary.get(key) == value for part in self.parts)
        }
        ids = ",".join(str(part.append_id) for part in self.parts)
        dropped = {*_OWN, PARTITIONS, PARTITIONS_LISTED}
        return {
            key: value
            for key, value in alike.items()
            if key not in dropped and not key.startswith(PARTITION_PREFIX)
        } | {APPENDS: ids}


def check_append(metadata: TableMetadata, posted: PostedAppend) -> None:
    """Raise an error for an append that a table cannot take.

    Raises ValidationConflictError (another table has the name), NoSuchRefError, InvalidInputError.
    """
    if metadata.table_uuid.lower() != posted.table_uuid:
        raise ValidationConflictError(
            f"{metadata.location}: the files were written for another table (uuid "
            f"{posted.table_uuid}), which was dropped. Load the table again and repeat the change.",
            table_uuid=metadata.table_uuid,
        )
    ref = metadata.refs.get(posted.branch)
    if ref is None and posted.branch != MAIN_BRANCH:
        raise NoSuchRefError(f"{metadata.location} has no branch {posted.branch!r}.")
    if ref is not None and ref.type != "branch":
        raise InvalidInputError(f"{posted.branch!r} is a tag: commits go to branches.")
    specs = metadata.specs()
    unknown = next((file for file in posted.files if file.spec_id not in specs), None)
    if unknown is not None:
        raise InvalidInputError(f"{metadata.location} has no partition spec {unknown.spec_id}.")
    for manifest in posted.manifests:
        spec = specs.get(manifest.partition_spec_id)
        if spec is None:
            raise InvalidInputError(
                f"{metadata.location} has no partition spec {manifest.partition_spec_id}."
            )
        if manifest.partitions is not None and len(manifest.partitions) != len(spec.fields):
            raise InvalidInputError(
                f"{manifest.manifest_path}: {len(manifest.partitions)} partition summaries for "
                f"{len(spec.fields)} partition fields."
            )
