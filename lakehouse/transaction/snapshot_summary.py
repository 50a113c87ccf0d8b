"""Snapshot summaries: the counts of the spec's optional snapshot summary fields. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakehouse.spec.manifests.data_file import CONTENT_DATA, CONTENT_EQUALITY_DELETES, DataFile

COMMIT_ID = "lakehouse.commit-id"
RETRIES = "lakehouse.retries"
PARTITIONS = "changed-partition-count"

_TOTALS = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


@dataclass(slots=True)
class SummaryBuilder:
    """Counts what one snapshot adds and removes.

    Attributes:
        counts: by their names in the summary.
        partitions: that are changed; None: nobody counts them.
    """

    counts: dict[str, int] = field(default_factory=dict)
    partitions: set[tuple[object, ...]] | None = field(default_factory=set)

    @classmethod
    def of(
        cls, *, added: Iterable[DataFile] = (), removed: Iterable[DataFile] = ()
    ) -> SummaryBuilder:
        """The counts of a snapshot that adds and removes these files."""
        summary = cls()
        summary.add(added)
        summary.remove(removed)
        return summary

    def add(self, files: Iterable[DataFile]) -> None:
        """Count files that the snapshot adds."""
        for file in files:
            self._count(file, added=True)

    def remove(self, files: Iterable[DataFile]) -> None:
        """Count files that the snapshot removes."""
        for file in files:
            self._count(file, added=False)

    def build(self, parent: Mapping[str, str] | None) -> dict[str, str]:
        """The summary's entries.

        Totals continue the parent's (None: there is no parent), and are left out where it has none.
        """
        entries = {name: str(value) for name, value in self.counts.items() if value}
        if self.partitions is not None:
            entries[PARTITIONS] = str(len(self.partitions))
        for total, (plus, minus) in _TOTALS.items():
            before = "0" if parent is None else parent.get(total, "")
            if before.isdigit():
                value = int(before) + self.counts.get(plus, 0) - self.counts.get(minus, 0)
                if value >= 0:
                    entries[total] = str(value)
        return entries

    def _count(self, file: DataFile, *, added: bool) -> None:
        if self.partitions is not None:
            self.partitions.add(file.partition_key)
        verb = "added" if added else "removed"
        self._bump(f"{verb}-files-size", file.content_size_in_bytes or file.file_size_in_bytes)
        if file.content == CONTENT_DATA:
            self._bump("added-data-files" if added else "deleted-data-files", 1)
            self._bump("added-records" if added else "deleted-records", file.record_count)
            return
        self._bump(f"{verb}-delete-files", 1)
        if file.content == CONTENT_EQUALITY_DELETES:
            self._bump(f"{verb}-equality-delete-files", 1)
            self._bump(f"{verb}-equality-deletes", file.record_count)
            return
        self._bump(f"{verb}-dvs" if file.is_deletion_vector else f"{verb}-position-delete-files", 1)
        self._bump(f"{verb}-position-deletes", file.record_count)

    def _bump(self, name: str, by: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + by
