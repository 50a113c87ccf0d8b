"""Compaction: small files of a partition become few of `write.target-file-size-bytes`, deletes applied, rows unchanged."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.catalog.protocol import Catalog
from lakehouse.environment import Environment
from lakehouse.maintenance.report import Progress, Report
from lakehouse.spec.identifier import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Which files are worth rewriting.

    Attributes:
        where: only partitions that may hold matching rows (pyiceberg's expression grammar, or an expression).
        target_file_size_bytes: None takes `write.target-file-size-bytes`.
        min_input_files: a group of small files is rewritten from this many on (5).
        min_file_size_ratio, max_file_size_ratio: outside these multiples of the target a file is a candidate (0.75, 1.8).
        delete_ratio_threshold: a file whose deleted rows reach this part of it is a candidate (0.3); equality deletes count as reaching it.
        max_group_bytes: one group (the unit of work) reads at most this many bytes (2 GiB).
        groups_per_commit: partial progress, one commit for so many groups (64).
        skip_newer_than_ms: leave partitions alone whose newest file was committed within this many milliseconds (None: none).
        rewrite_old_specs: rewrite files of earlier partition specs to the current one (True).
        rewrite_all: every file is a candidate.
        max_workers: groups rewritten at a time (2).
    """

    where: object | None = None
    target_file_size_bytes: int | None = None
    min_input_files: int = 5
    min_file_size_ratio: float = 0.75
    max_file_size_ratio: float = 1.8
    delete_ratio_threshold: float = 0.3
    max_group_bytes: int = 2 << 30
    groups_per_commit: int = 64
    skip_newer_than_ms: int | None = None
    rewrite_old_specs: bool = True
    rewrite_all: bool = False
    max_workers: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan(Report):
    """Groups of files to rewrite (`.groups`), with input files, bytes, expected output files and the reason of each."""

    identifier: Identifier
    snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult(Report):
    """What a compaction did. `stopped` is None, or the one line that says why it ended before the plan did."""

    identifier: Identifier
    snapshot_ids: tuple[int, ...]
    rewritten_files: int
    added_files: int
    rewritten_bytes: int
    added_bytes: int
    removed_delete_files: int
    stopped: str | None = None


def plan_compaction(
    catalog: Catalog, identifier: Identifier, options: CompactionOptions | None = None, *, environment: Environment | None = None
) -> CompactionPlan: ...


def execute_compaction(
    catalog: Catalog, plan: CompactionPlan, *, environment: Environment | None = None, progress: Progress | None = None
) -> CompactionResult: ...


def compact(
    catalog: Catalog,
    identifier: Identifier,
    options: CompactionOptions | None = None,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> CompactionResult: ...
