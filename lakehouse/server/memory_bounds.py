"""What a server has in memory, each kind with a bound in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from lakehouse.errors import InvalidInputError
from lakehouse.kept_by_bytes import MADE, MADE_BYTES_MAX
from lakehouse.manifests.manifest_cache import CACHE_BYTES_MAX, DEFAULT_CACHE
from lakehouse.spec.metadata.metadata_json import RECENT, RECENT_BYTES_MAX

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MemoryBounds:
    """Bytes of each kind, at most.

    What is kept is not needed: what is missing is made again.

    >>> MemoryBounds.parse(["plans=32", "manifests=256"]).plans // MIB
    32

    Attributes:
        plans: plans of scans, for their further files.
        tables: metadata of tables, and the answers that tell it.
        manifests: manifests and their lists, as an object store gave them and decoded.
        types: schemas of tables and manifests, and all that is made of them and of filters.
        bodies: of large requests, all together; the values that they are read into, twice that.
        answers: large ones that clients have not taken yet.
    """

    plans: int = 64 * MIB
    tables: int = 64 * MIB
    manifests: int = CACHE_BYTES_MAX
    types: int = MADE_BYTES_MAX
    bodies: int = 128 * MIB
    answers: int = 128 * MIB

    @property
    def written(self) -> int:
        """Of `tables`, for what was written last."""
        return min(RECENT_BYTES_MAX, self.tables // 4)

    @classmethod
    def parse(cls, settings: Sequence[str]) -> MemoryBounds:
        """From `name=MiB`, several times. Raises InvalidInputError."""
        names = [field.name for field in fields(cls)]
        bounds: dict[str, int] = {}
        for setting in settings:
            name, _, mib = setting.partition("=")
            if name not in names or not (mib.isascii() and mib.isdigit()):
                raise InvalidInputError(
                    f"Memory is bounded by NAME=MIB, NAME one of {', '.join(names)}; "
                    f"not {setting!r}."
                )
            bounds[name] = int(mib) * MIB
        return replace(cls(), **bounds)

    def bound_process(self) -> None:
        """Bound what all catalogs of this process share."""
        DEFAULT_CACHE.kept.bytes_max = self.manifests
        MADE.bytes_max = self.types
        RECENT.bytes_max = self.written


DEFAULT_BOUNDS = MemoryBounds()
