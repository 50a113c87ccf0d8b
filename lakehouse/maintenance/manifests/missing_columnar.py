"""Columnar manifests for those without: those of other writers, and small ones of ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import RenderableType

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.maintenance.shown_plan import Progress, Report, human_bytes, listing, no_progress
from lakehouse.manifests.manifest_reader import load_manifests
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.columnar_manifest import checksum_of
from lakehouse.spec.manifests.manifest_list import ManifestFile
from lakehouse.transaction.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarPlan(Report):
    """Manifests of the current snapshot without a columnar manifest.

    Attributes:
        manifests: how many the snapshot has.
        missing: those without a columnar manifest.
    """

    identifier: Identifier
    version: TableVersion
    manifests: int
    missing: tuple[ManifestFile, ...]

    @property
    def bytes(self) -> int:
        """Avro bytes to decode."""
        return sum(manifest.manifest_length for manifest in self.missing)

    def title(self) -> str:
        return f"Columnar manifests of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "action": "rewrite-manifests --columnar",
            "snapshot_id": self.version.metadata.current_snapshot_id,
            "manifests": self.manifests,
            "missing": [manifest.manifest_path for manifest in self.missing],
            "bytes": self.bytes,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "manifests", self.manifests
        yield "without a columnar one", len(self.missing)
        yield "to decode", human_bytes(self.bytes)

    def detail(self) -> RenderableType | None:
        rows = (
            (manifest.manifest_path.rsplit("/", 1)[-1], human_bytes(manifest.manifest_length))
            for manifest in self.missing
        )
        return listing(("manifest", "#bytes"), rows) if self.missing else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarResult(Report):
    """Columnar manifests written; snapshot_id is None when there was nothing to do."""

    identifier: Identifier
    snapshot_id: int | None
    written: int

    def title(self) -> str:
        return f"Wrote columnar manifests of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        return {
            "table": str(self.identifier),
            "snapshot_id": self.snapshot_id,
            "written": self.written,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "columnar manifests written", self.written


def plan_columnar(catalog: Catalog, identifier: Identifier) -> ColumnarPlan:
    """Find the manifests without a columnar one.

    Raises NoSuchTableError, StorageError, CorruptMetadataError.
    """
    version = catalog.load(identifier)
    storage = catalog.storage(version.metadata.location)
    snapshot = version.metadata.current_snapshot()
    manifests = [] if snapshot is None else load_manifests(storage, snapshot)
    missing = tuple(
        manifest for manifest in manifests if checksum_of(manifest.manifest_path) is None
    )
    return ColumnarPlan(
        identifier=identifier, version=version, manifests=len(manifests), missing=missing
    )


def execute_columnar(
    catalog: Catalog,
    plan: ColumnarPlan,
    *,
    environment: Environment | None = None,
    progress: Progress | None = None,
) -> ColumnarResult:
    """Write the manifests once more, named by the checksums of columnar ones, in one commit.

    Raises:
        CommitConflictError, ValidationConflictError: other writers kept winning; nothing was
            changed.
        CommitStateUnknownError: the reply was lost; nothing was deleted.
        CorruptMetadataError | StorageError: a manifest cannot be read, or none written.
    """
    report = progress or no_progress
    report("columnar manifests", 0, len(plan.missing))
    committed = None
    if plan.missing:
        transaction = Transaction(
            catalog, plan.identifier, decided_on=plan.version, environment=environment
        )
        committed = (
            transaction.add_columnar_manifests()
            .commit({"lakehouse.maintenance": "add-twins"})
            .snapshot
        )
    report("columnar manifests", len(plan.missing), len(plan.missing))
    count = 0 if committed is None else int(committed.summary["manifests-created"])
    return ColumnarResult(
        identifier=plan.identifier,
        snapshot_id=None if committed is None else committed.snapshot_id,
        written=count,
    )
