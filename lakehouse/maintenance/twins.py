"""Columnar twins for manifests that came without one: those of foreign writers, and small ones of ours."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from rich.console import RenderableType

from lakehouse.catalog.protocol import Catalog, TableVersion
from lakehouse.maintenance.report import Progress, Report, human_bytes, listing, no_progress
from lakehouse.scan.load import load_manifests
from lakehouse.scan.twins import write_twin
from lakehouse.scan.types_of import types_of
from lakehouse.spec.columnar_manifest import twin_path
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifest_list import ManifestFile

_WORKERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinPlan(Report):
    """Manifests of the current snapshot without a columnar twin.

    Attributes:
        manifests: how many the snapshot has.
        missing: those without a twin.
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
        """See Report."""
        return f"Columnar twins of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        """See Report."""
        return {
            "table": str(self.identifier),
            "action": "rewrite-manifests --columnar",
            "snapshot_id": self.version.metadata.current_snapshot_id,
            "manifests": self.manifests,
            "missing": [manifest.manifest_path for manifest in self.missing],
            "bytes": self.bytes,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        """See Report."""
        yield "manifests", self.manifests
        yield "without a twin", len(self.missing)
        yield "to decode", human_bytes(self.bytes)

    def detail(self) -> RenderableType | None:
        """See Report."""
        rows = (
            (manifest.manifest_path.rsplit("/", 1)[-1], human_bytes(manifest.manifest_length))
            for manifest in self.missing
        )
        return listing(("manifest", "#bytes"), rows) if self.missing else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinResult(Report):
    """Twins written, and their bytes."""

    identifier: Identifier
    written: int
    written_bytes: int

    def title(self) -> str:
        """See Report."""
        return f"Wrote columnar twins of {self.identifier}"

    def to_dict(self) -> dict[str, object]:
        """See Report."""
        return {
            "table": str(self.identifier),
            "written": self.written,
            "written_bytes": self.written_bytes,
        }

    def facts(self) -> Iterable[tuple[str, object]]:
        """See Report."""
        yield "twins written", self.written
        yield "bytes", human_bytes(self.written_bytes)


def plan_twins(catalog: Catalog, identifier: Identifier) -> TwinPlan:
    """Find the manifests without a twin. Raises NoSuchTableError, StorageError, CorruptMetadataError."""
    version = catalog.load(identifier)
    storage = catalog.storage(version.metadata.location)
    snapshot = version.metadata.current_snapshot()
    manifests = [] if snapshot is None else load_manifests(storage, snapshot)
    missing = tuple(one for one in manifests if not storage.exists(twin_path(one.manifest_path)))
    return TwinPlan(
        identifier=identifier, version=version, manifests=len(manifests), missing=missing
    )


def execute_twins(
    catalog: Catalog, plan: TwinPlan, *, progress: Progress | None = None
) -> TwinResult:
    """Write the twins beside their manifests. Commits nothing: a twin is derived, readers find it by its name.

    Raises:
        NoSuchFileError: a manifest was expired meanwhile; the twins written so far stay.
        CorruptMetadataError | StorageError: a manifest cannot be read, or a twin not written.
    """
    report = progress or no_progress
    metadata = plan.version.metadata
    storage, types = catalog.storage(metadata.location), types_of(metadata)
    written = 0
    with ThreadPoolExecutor(_WORKERS) as pool:
        jobs = [
            pool.submit(write_twin, storage, one, metadata.spec(one.partition_spec_id), types)
            for one in plan.missing
        ]
        for done, job in enumerate(as_completed(jobs), start=1):
            written += job.result()
            report("twins", done, len(jobs))
    return TwinResult(identifier=plan.identifier, written=len(jobs), written_bytes=written)
