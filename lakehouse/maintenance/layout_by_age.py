"""Layout by age: closed periods belong into partitions of a coarser spec of the same table.

The table's default spec stays, so writers and fresh periods keep theirs; compaction alone writes
files of the coarser specs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec

from lakehouse.errors import InvalidPartitionSpecError, InvalidPropertyError
from lakehouse.evolution.update_partition_spec import UpdatePartitionSpec
from lakehouse.spec.metadata.metadata_draft import apply_updates
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_updates import AddPartitionSpec
from lakehouse.spec.partitioning.coarser_partitions import Coarser, coarser, is_time, period_end_ms
from lakehouse.spec.table_properties import AgeStep, TableProperties

Home = tuple[PartitionSpec, tuple[Any, ...]]
NAME = TableProperties.maintenance_layout_by_age.name


@dataclass(frozen=True, slots=True)
class _Step:
    age_ms: int
    spec: PartitionSpec
    time_at: int
    time: PartitionField
    from_specs: dict[int, Coarser | None]

    def home(self, spec_id: int, partition: Sequence[Any], now_ms: int) -> tuple[Any, ...] | None:
        """The partition of the coarser spec, where its period is closed."""
        into = self.from_specs.get(spec_id)
        if into is None:
            return None
        home = into(partition)
        period = home[self.time_at]
        if period is None or period_end_ms(self.time, period) + self.age_ms > now_ms:
            return None
        return home


class LayoutByAge:
    """Where files belong that are of closed periods.

    Args:
        metadata: of the table; its property `lakehouse.maintenance.layout-by-age` is the policy.
        now_ms: milliseconds since the epoch.

    Attributes:
        metadata: of the table, with the specs of the steps.
        new_specs: those of them that the table does not have yet.
        coarsest: the spec of the oldest periods; None: the policy has no steps.
        left_alone: why no file is moved though the policy has steps; None: files are.

    Raises:
        InvalidPropertyError: it cannot be read, or a step is no coarser layout of this table.
    """

    def __init__(self, metadata: TableMetadata, now_ms: int) -> None:
        steps = TableProperties(metadata.properties).maintenance_layout_by_age
        self.metadata = metadata
        self.left_alone = _obstacle(metadata) if steps else None
        self._now_ms = now_ms
        self._known: dict[tuple[int, tuple[Any, ...]], Home | None] = {}
        specs = [self._add(step) for step in steps]
        self.coarsest = specs[-1] if specs else None
        self._spec_ids = frozenset(spec.spec_id for spec in specs)
        self.new_specs = tuple(spec for spec in specs if spec.spec_id not in metadata.specs())
        self._steps = [self._step(step, spec) for step, spec in zip(steps, specs, strict=True)]

    def holds(self, spec_id: int) -> bool:
        """Whether a spec is that of a step: its files are where they belong."""
        return spec_id in self._spec_ids

    def place(self, spec_id: int, partition: tuple[Any, ...]) -> Home:
        """Spec and partition that files count to: where they belong, else where they are."""
        return self.home(spec_id, partition) or (self.metadata.spec(spec_id), partition)

    def home(self, spec_id: int, partition: tuple[Any, ...]) -> Home | None:
        """Spec and partition where a partition's files belong; None: where they are."""
        if not self._steps or self.left_alone:
            return None
        key = (spec_id, partition)
        if key not in self._known:
            self._known[key] = self._find(spec_id, partition)
        return self._known[key]

    def _find(self, spec_id: int, partition: tuple[Any, ...]) -> Home | None:
        for step in reversed(self._steps):
            home = step.home(spec_id, partition, self._now_ms)
            if home is not None:
                return step.spec, home
        return None

    def _add(self, step: AgeStep) -> PartitionSpec:
        update = UpdatePartitionSpec(self.metadata)
        try:
            update.set(*step.terms)
        except InvalidPartitionSpecError as error:
            raise _unusable(step, error.message) from error
        spec = update.spec()
        if spec.spec_id not in self.metadata.specs():
            now_ms = self.metadata.last_updated_ms
            self.metadata = apply_updates(self.metadata, (AddPartitionSpec(spec),), now_ms=now_ms)
        return spec

    def _step(self, step: AgeStep, spec: PartitionSpec) -> _Step:
        times = [(at, field) for at, field in enumerate(spec.fields) if is_time(field)]
        from_specs = {
            spec_id: coarser(other, spec) for spec_id, other in self.metadata.specs().items()
        }
        if len(times) != 1 or from_specs[self.metadata.default_spec_id] is None:
            raise _unusable(
                step,
                "it must be one hour, day, month or year of a column, at least as long as the one "
                "that the table is partitioned by, beside nothing but other fields of its spec",
            )
        return _Step(step.age_ms, spec, *times[0], from_specs)


def _obstacle(metadata: TableMetadata) -> str | None:
    """Why rows must not leave their spec.

    An equality delete reaches files of its own spec and partition alone (spec: Scan Planning), so
    who writes them, such as Flink's upserts, would miss rows that had moved.
    """
    for snapshot in metadata.snapshots:
        if snapshot.summary.get("total-equality-deletes", "0") != "0":
            return (
                "equality deletes are written to this table, which do not reach rows of another "
                "spec"
            )
    return None


def _unusable(step: AgeStep, why: str) -> InvalidPropertyError:
    terms = ", ".join(step.terms)
    return InvalidPropertyError(
        f"Property {NAME}: {terms!r} is no layout for closed periods: {why}. Set another value, "
        "or remove the property.",
        property=NAME,
    )
