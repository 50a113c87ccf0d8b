"""Snapshot references: branches and tags (spec: Snapshot References, Snapshot Retention Policy)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.spec.json_fields import optional_int, require_int, require_str

MAIN_BRANCH = "main"
RefType = Literal["branch", "tag"]

_KEYS = frozenset(
    {"snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"}
)


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A named snapshot: a branch moves with commits, a tag stays.

    Attributes:
        snapshot_id: the snapshot it names.
        type: "branch" or "tag".
        min_snapshots_to_keep: branches only; how many snapshots expiry keeps on it.
        max_snapshot_age_ms: branches only; the age to which expiry keeps its snapshots.
        max_ref_age_ms: the age at which expiry removes the reference itself; never for `main`.
        extra: keys of the JSON object that this version does not know, kept as they are.
    """

    snapshot_id: int
    type: RefType = "branch"
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.type == "tag" and (
            self.min_snapshots_to_keep is not None or self.max_snapshot_age_ms is not None
        ):
            raise InvalidInputError(
                "A tag has neither min-snapshots-to-keep nor max-snapshot-age-ms: these belong to "
                "branches."
            )
        for name in ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidInputError(f"{name.replace('_', '-')} must be positive, not {value}.")

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the spec."""
        document: dict[str, Any] = {"snapshot-id": self.snapshot_id, "type": self.type}
        if self.min_snapshots_to_keep is not None:
            document["min-snapshots-to-keep"] = self.min_snapshots_to_keep
        if self.max_snapshot_age_ms is not None:
            document["max-snapshot-age-ms"] = self.max_snapshot_age_ms
        if self.max_ref_age_ms is not None:
            document["max-ref-age-ms"] = self.max_ref_age_ms
        return {**document, **self.extra}

    @classmethod
    def from_json(cls, document: Any, where: str = "ref") -> SnapshotRef:
        """Read the JSON object of the spec; raises CorruptMetadataError naming `where`."""
        kind = require_str(document, "type", where).lower()
        if kind not in ("branch", "tag"):
            raise CorruptMetadataError(f"{where}: type must be branch or tag, not {kind!r}.")
        try:
            return cls(
                snapshot_id=require_int(document, "snapshot-id", where),
                type="branch" if kind == "branch" else "tag",
                min_snapshots_to_keep=optional_int(document, "min-snapshots-to-keep", where),
                max_snapshot_age_ms=optional_int(document, "max-snapshot-age-ms", where),
                max_ref_age_ms=optional_int(document, "max-ref-age-ms", where),
                extra={key: value for key, value in document.items() if key not in _KEYS},
            )
        except InvalidInputError as error:
            raise CorruptMetadataError(f"{where}: {error.message}") from error


def check_ref_name(name: object) -> str:
    """The name itself, if it can name a branch or tag; raises InvalidInputError otherwise."""
    if (
        not isinstance(name, str)
        or not name
        or name != name.strip()
        or any(ord(c) < 32 for c in name)
    ):
        raise InvalidInputError(
            f"{name!r} cannot name a branch or tag: use a non-empty string without surrounding "
            "blanks."
        )
    return name
