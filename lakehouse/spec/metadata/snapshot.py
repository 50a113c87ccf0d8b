"""Snapshots, branches and tags, and the two logs of table metadata.

Spec: Snapshots, Snapshot References, Snapshot Retention Policy, Table Metadata Fields.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lakehouse.errors import CorruptMetadataError, InvalidInputError
from lakehouse.spec.json_fields import (
    optional_int,
    optional_list,
    optional_str,
    require_int,
    require_object,
    require_str,
    string_map,
)

MAIN_BRANCH = "main"
RefType = Literal["branch", "tag"]

_REF_KEYS = frozenset(
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
                extra={key: value for key, value in document.items() if key not in _REF_KEYS},
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


OPERATION_APPEND = "append"
OPERATION_REPLACE = "replace"
OPERATION_OVERWRITE = "overwrite"
OPERATION_DELETE = "delete"

RUN_ID = "dagster.run-id"
"""Summary key of the Dagster run that wrote a snapshot."""
ASSET_KEY = "dagster.asset-key"
"""Summary key of the Dagster asset, slash-separated, whose run wrote a snapshot."""
REFRESH_STATE = "lakehouse.refresh-state"
"""Summary key of what a derived table was computed from: `inputs`, table -> snapshot, as JSON."""
PARTITION = "dagster.partition"
"""Summary key of the partition of an asset that a snapshot wrote."""
LAKE_VERSION = "lakehouse.version"
"""Summary key, in the table of publications: the version of the lake that a publication made."""
CARRIED = (REFRESH_STATE, PARTITION)
"""Summary keys that a snapshot of the same rows keeps, since the one before may expire."""

_KEYS = frozenset(
    {
        "snapshot-id",
        "parent-snapshot-id",
        "sequence-number",
        "timestamp-ms",
        "manifest-list",
        "manifests",
        "summary",
        "schema-id",
        "first-row-id",
        "added-rows",
    }
)

_TAKEN_AWAY = ("deleted-data-files", "removed-delete-files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a table at one time.

    >>> snapshot = events.current_snapshot()
    >>> snapshot.operation, snapshot.summary["added-records"]
    ('append', '3')

    Attributes:
        snapshot_id: unique positive long.
        parent_snapshot_id: None for the first snapshot (see `is_first`); the parent may have been
            expired since.
        sequence_number: order of commits; 0 for snapshots written as v1.
        timestamp_ms: creation, milliseconds since the epoch; never before the parent's.
        manifest_list: location of the manifest list; empty only for v1 snapshots that list
            `manifests` themselves.
        summary: string to string, with `operation`; empty for some v1 snapshots.
        schema_id: the table's current schema when the snapshot was created, None if not recorded.
        first_row_id: v3; first `_row_id` of the snapshot.
        added_rows: v3; upper bound of rows that got a row id.
        manifests: v1 only; manifest locations.
        extra: keys of the JSON object that this version does not know, kept as they are.
    """

    snapshot_id: int
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    timestamp_ms: int
    manifest_list: str
    summary: Mapping[str, str] = field(default_factory=dict)
    schema_id: int | None = None
    first_row_id: int | None = None
    added_rows: int | None = None
    manifests: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def committed_at(self) -> dt.datetime:
        """When it was created, in UTC."""
        return dt.datetime.fromtimestamp(self.timestamp_ms / 1000, dt.UTC)

    @property
    def operation(self) -> str | None:
        """`append`, `replace`, `overwrite` or `delete`; None where a v1 writer recorded none."""
        return self.summary.get("operation")

    @property
    def is_first(self) -> bool:
        """Whether nothing was in the table before: it has no parent, and holds what it added alone.

        Writers exist (pyiceberg, and servers made of it) that take the parent from a snapshot when
        that expires, so that no parent alone proves nothing.
        """
        if self.parent_snapshot_id is not None:
            return False
        if any(int(self.summary.get(name, 0)) for name in _TAKEN_AWAY):
            return False
        return all(
            self.summary.get(f"total-{what}", added) == added
            for what in ("data-files", "delete-files", "records")
            for added in [self.summary.get(f"added-{what}", "0")]
        )

    def to_json(self, format_version: int = 2) -> dict[str, Any]:
        """The JSON object of the spec; v1 omits `sequence-number`."""
        document: dict[str, Any] = {"snapshot-id": self.snapshot_id}
        if self.parent_snapshot_id is not None:
            document["parent-snapshot-id"] = self.parent_snapshot_id
        if format_version > 1:
            document["sequence-number"] = self.sequence_number
        document["timestamp-ms"] = self.timestamp_ms
        if self.manifest_list:
            document["manifest-list"] = self.manifest_list
        if self.manifests:
            document["manifests"] = list(self.manifests)
        if self.summary or format_version > 1:
            document["summary"] = dict(self.summary)
        if self.schema_id is not None:
            document["schema-id"] = self.schema_id
        if self.first_row_id is not None:
            document["first-row-id"] = self.first_row_id
        if self.added_rows is not None:
            document["added-rows"] = self.added_rows
        return {**document, **self.extra}

    @classmethod
    def from_json(cls, document: Any, where: str = "snapshot") -> Snapshot:
        """Read the spec's JSON object, any version; raises CorruptMetadataError naming `where`."""
        manifest_list = optional_str(document, "manifest-list", where) or ""
        manifests = optional_list(document, "manifests", where)
        if not all(isinstance(path, str) for path in manifests):
            raise CorruptMetadataError(f"{where}.manifests: expected a list of strings.")
        if not manifest_list and "manifests" not in require_object(document, where):
            raise CorruptMetadataError(f"{where}: has neither manifest-list nor manifests.")
        return cls(
            snapshot_id=require_int(document, "snapshot-id", where),
            parent_snapshot_id=optional_int(document, "parent-snapshot-id", where),
            sequence_number=optional_int(document, "sequence-number", where) or 0,
            timestamp_ms=require_int(document, "timestamp-ms", where),
            manifest_list=manifest_list,
            summary=string_map(document.get("summary"), f"{where}.summary"),
            schema_id=optional_int(document, "schema-id", where),
            first_row_id=optional_int(document, "first-row-id", where),
            added_rows=optional_int(document, "added-rows", where),
            manifests=() if manifest_list else tuple(manifests),
            extra={key: value for key, value in document.items() if key not in _KEYS},
        )


@dataclass(frozen=True, slots=True)
class SnapshotLogEntry:
    """One change of the table's current snapshot."""

    timestamp_ms: int
    snapshot_id: int

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the spec."""
        return {"timestamp-ms": self.timestamp_ms, "snapshot-id": self.snapshot_id}

    @classmethod
    def from_json(cls, document: Any, where: str = "snapshot-log") -> SnapshotLogEntry:
        """Read the JSON object of the spec; raises CorruptMetadataError naming `where`."""
        return cls(
            require_int(document, "timestamp-ms", where),
            require_int(document, "snapshot-id", where),
        )


@dataclass(frozen=True, slots=True)
class MetadataLogEntry:
    """A previous metadata file of the table, and when it was current."""

    timestamp_ms: int
    metadata_file: str

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the spec."""
        return {"timestamp-ms": self.timestamp_ms, "metadata-file": self.metadata_file}

    @classmethod
    def from_json(cls, document: Any, where: str = "metadata-log") -> MetadataLogEntry:
        """Read the JSON object of the spec; raises CorruptMetadataError naming `where`."""
        return cls(
            require_int(document, "timestamp-ms", where),
            require_str(document, "metadata-file", where),
        )
