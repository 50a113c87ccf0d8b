"""What to do first, and what only a person may change, each with its evidence.

Pure: health, layout and policy in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.text import Text

from lakehouse.maintenance.advice.design_recommendations import Recommendation, recommendations
from lakehouse.maintenance.advice.due_actions import Action, ActionKind, compaction_gains, decide
from lakehouse.maintenance.health.file_layout import Layout
from lakehouse.maintenance.health.table_health import TableHealth
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy
from lakehouse.maintenance.shown_plan import Report, gauge, human_bytes, listing
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.table_metadata import TableMetadata

_GB = 10**9
_HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What rewriting costs on the machine at hand.

    Attributes:
        bytes_per_second: compressed bytes read and written again; `benchmarks/compaction.py`
            measures it.
        memory_bytes: held meanwhile.
    """

    bytes_per_second: float = 100e6
    memory_bytes: int = 1 << 30

    def gb_hours(self, size: int) -> float:
        """Memory times duration of rewriting `size` bytes."""
        return self.memory_bytes / _GB * size / self.bytes_per_second / _HOUR_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An action on a part of a table, with its benefit and cost.

    Attributes:
        partition: where; empty: the whole table.
        files_removed: files fewer in the current snapshot; for expiry and orphans, files deleted,
            at least.
        bytes: read, and about as many written.
        gb_hours: cost by the model.
        why: one line.
    """

    kind: ActionKind
    partition: str
    files_removed: int
    bytes: int
    gb_hours: float
    why: str

    @property
    def files_per_gb(self) -> float:
        """Benefit per cost: files removed per 10^9 bytes rewritten."""
        return self.files_removed / max(1, self.bytes) * _GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Report):
    """Choices, the best first, and recommendations.

    Attributes:
        actions: what the policy asks for now, quotas that are exceeded too.
    """

    identifier: Identifier
    snapshot_id: int | None
    choices: tuple[Choice, ...]
    recommendations: tuple[Recommendation, ...]
    actions: tuple[Action, ...] = field(default=())

    @property
    def first(self) -> Choice | None:
        """What to do first; None when there is nothing to do."""
        return self.choices[0] if self.choices else None

    def title(self) -> str:
        return f"Advice for {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "snapshot_id": self.snapshot_id,
            "choices": [
                {**dataclasses.asdict(choice), "files_per_gb": round(choice.files_per_gb, 3)}
                for choice in self.choices
            ],
            "recommendations": [
                dataclasses.asdict(recommendation) for recommendation in self.recommendations
            ],
            "actions": [dataclasses.asdict(action) for action in self.actions],
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        first = self.first
        where = "" if first is None or not first.partition else f" {first.partition}"
        yield "first", "nothing to do" if first is None else f"{first.kind}{where}: {first.why}"
        for action in self.actions:
            yield f"policy asks: {action.kind}", action.reason

    def detail(self) -> RenderableType | None:
        parts: list[RenderableType] = []
        if self.choices:
            best = max(choice.files_per_gb for choice in self.choices)
            rows = (
                (
                    choice.kind,
                    choice.partition or "(whole table)",
                    f"{choice.files_removed:,}",
                    human_bytes(choice.bytes),
                    f"{choice.gb_hours:.4f}",
                    f"{gauge(choice.files_per_gb, best)} {choice.files_per_gb:,.0f}",
                    choice.why,
                )
                for choice in self.choices
            )
            columns = (
                "action",
                "partition",
                "#files fewer",
                "#bytes",
                "#GB-hours",
                "files per GB",
                "why",
            )
            parts.append(listing(columns, rows, total=len(self.choices)))
        if self.recommendations:
            parts.append(Text("For a person to decide", style="bold"))
            advice = (
                (
                    recommendation.subject,
                    recommendation.current,
                    recommendation.proposed,
                    recommendation.why,
                    _evidence(recommendation),
                )
                for recommendation in self.recommendations
            )
            parts.append(listing(("what", "now", "better", "why", "evidence"), advice))
        return Group(*parts) if parts else None


def advise(
    health: TableHealth,
    layout: Layout,
    metadata: TableMetadata,
    policy: MaintenancePolicy,
    *,
    now_ms: int,
    filters: Sequence[str] = (),
    cost: CostModel | None = None,
) -> Advice:
    """Rank maintenance by files removed per byte rewritten; say what a person should look at.

    Args:
        health: of the table, measured with the policy.
        layout: of the same snapshot.
        metadata: of the same version.
        policy: thresholds.
        now_ms: milliseconds since the epoch.
        filters: columns that queries filter by, the most frequent first; without them no sort order
            can be proposed.
        cost: how fast this machine rewrites.
    """
    return Advice(
        identifier=health.identifier,
        snapshot_id=health.snapshot_id,
        choices=rank(health, policy, now_ms=now_ms, cost=cost),
        recommendations=recommendations(health, layout, metadata, filters),
        actions=tuple(decide(health, policy, now_ms)),
    )


def rank(
    health: TableHealth, policy: MaintenancePolicy, *, now_ms: int, cost: CostModel | None = None
) -> tuple[Choice, ...]:
    """All actions that remove files, by files per byte rewritten, then cost, then name.

    Partitions that were written just now are among them: who asks for advice decides.
    """
    model = cost or CostModel()
    ranking_policy = dataclasses.replace(policy, skip_recent_ms=0)
    partitions = () if health.unwritable else health.partitions
    gains = compaction_gains(
        partitions, ranking_policy, target_bytes=health.target_bytes, now_ms=now_ms
    )
    actions = [
        Choice(
            kind=ActionKind.COMPACT,
            partition=gain.partition.partition,
            files_removed=gain.files,
            bytes=gain.bytes,
            gb_hours=model.gb_hours(gain.bytes),
            why=gain.reason,
        )
        for gain in gains
    ]
    if health.manifests > policy.max_manifests and not health.unwritable:
        actions.append(
            _whole(
                ActionKind.REWRITE_MANIFESTS,
                health.manifests - policy.max_manifests,
                health.manifest_bytes,
                f"{health.manifests:,} manifests, {health.manifest_overlap:.1f} around a value",
                model,
            )
        )
    if health.expirable_snapshots:
        why = (
            f"{health.expirable_snapshots:,} snapshots and refs beyond retention, each with a "
            "manifest list at least"
        )
        actions.append(
            _whole(ActionKind.EXPIRE, health.expirable_snapshots, health.manifest_bytes, why, model)
        )
    if health.disk is not None and health.disk.orphan_bytes:
        why = (
            f"{human_bytes(health.disk.orphan_bytes)} that nothing names, moved to the trash first"
        )
        files = health.disk.unreferenced_files
        actions.append(
            _whole(ActionKind.REMOVE_ORPHANS, files, health.disk.orphan_bytes, why, model)
        )
    return tuple(
        sorted(
            actions,
            key=lambda partition: (-partition.files_per_gb, partition.bytes, partition.partition),
        )
    )


def _whole(kind: ActionKind, files: int, size: int, why: str, model: CostModel) -> Choice:
    return Choice(
        kind=kind,
        partition="",
        files_removed=files,
        bytes=size,
        gb_hours=model.gb_hours(size),
        why=why,
    )


def _evidence(recommendation: Recommendation) -> str:
    return ", ".join(
        f"{name} {value:,.2f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in recommendation.evidence.items()
    )
