"""Changes of view metadata as data, from and to their REST form, and applying them: a pure fold.

REST catalog: ViewUpdate, ViewRequirement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pyiceberg.schema import Schema

from lakehouse.errors import CommitConflictError, CorruptMetadataError, InvalidViewError
from lakehouse.spec.identifier import full_uri
from lakehouse.spec.json_fields import require_int, require_object, require_str
from lakehouse.spec.metadata.table_updates import (
    LAST_ADDED,
    AddSchema,
    AssignUUID,
    RemoveProperties,
    SetLocation,
    SetProperties,
    TableUpdate,
    UpgradeFormatVersion,
    update_from_json,
)
from lakehouse.spec.table_properties import check_property_texts
from lakehouse.spec.views.view_json import FORMAT_VERSION, version_from_json, version_to_json
from lakehouse.spec.views.view_metadata import (
    SqlRepresentation,
    VersionLogEntry,
    ViewMetadata,
    ViewProperties,
    ViewVersion,
)


@dataclass(frozen=True, slots=True)
class AddViewVersion:
    """Add a version. It gets the id of one that says the same if there is one, else a new one."""

    view_version: ViewVersion
    action: ClassVar[str] = "add-view-version"

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"action": self.action, "view-version": version_to_json(self.view_version)}


@dataclass(frozen=True, slots=True)
class SetCurrentViewVersion(TableUpdate):
    """Make a version current."""

    view_version_id: int = LAST_ADDED
    action: ClassVar[str] = "set-current-view-version"


ViewUpdate = (
    AssignUUID
    | UpgradeFormatVersion
    | AddSchema
    | SetLocation
    | SetProperties
    | RemoveProperties
    | AddViewVersion
    | SetCurrentViewVersion
)


@dataclass(frozen=True, slots=True)
class AssertViewUUID:
    """It must still be the same view, not another one under its name."""

    uuid: str
    type: ClassVar[str] = "assert-view-uuid"

    def check(self, base: ViewMetadata) -> None:
        """Raise CommitConflictError unless the assumption holds."""
        if base.view_uuid.lower() != self.uuid.lower():
            raise CommitConflictError(
                f"Not committed, the view was replaced: its uuid is {base.view_uuid}, expected "
                f"{self.uuid}. Load the view and apply the change again.",
                requirement=self.type,
            )

    def to_json(self) -> dict[str, Any]:
        """REST form."""
        return {"type": self.type, "uuid": self.uuid}


def apply_view_updates(
    base: ViewMetadata | None, updates: Iterable[ViewUpdate], *, now_ms: int
) -> ViewMetadata:
    """The metadata after a commit.

    As Iceberg's Java does it: a version that says the same as one that is kept is not added again;
    of the versions the newest by id are kept, as many as `version.history.num-entries` says, with
    those that these updates add and the current one; the log begins behind what is gone.

    Args:
        base: current metadata; None creates a view, which the updates must define completely.
        updates: in order.
        now_ms: milliseconds since the epoch.

    Returns:
        `base` itself when nothing changes.

    Raises:
        InvalidViewError: updates that cannot be applied.
        InvalidPropertyError: a property with an unusable value.
    """
    draft = _ViewDraft(base, now_ms)
    for update in updates:
        draft.apply(update)
    return draft.build()


def version_updates(schema: Schema, version: ViewVersion) -> tuple[ViewUpdate, ...]:
    """What makes a version with its schema current; its `schema_id` does not matter."""
    added = AddViewVersion(replace(version, schema_id=LAST_ADDED))
    return AddSchema(schema), added, SetCurrentViewVersion()


def new_view_metadata(
    *,
    view_uuid: str,
    location: str,
    schema: Schema,
    version: ViewVersion,
    properties: Mapping[str, str],
    now_ms: int,
) -> ViewMetadata:
    """The metadata of a new view. Raises InvalidViewError, InvalidPropertyError."""
    updates = (
        AssignUUID(view_uuid),
        SetLocation(location),
        SetProperties(properties),
        *version_updates(schema, version),
    )
    return apply_view_updates(None, updates, now_ms=now_ms)


class _ViewDraft:
    """The state between updates."""

    def __init__(self, base: ViewMetadata | None, now_ms: int) -> None:
        self._base, self._now_ms = base, now_ms
        self._m = base if base is not None else ViewMetadata("", "", (), 0, (), ())
        self._added: set[int] = set()
        self._last_schema: int | None = None
        self._last_version: int | None = None
        self._entry: VersionLogEntry | None = None

    def apply(self, update: ViewUpdate) -> None:
        """Change the state."""
        match update:
            case AssignUUID(uuid):
                self._assign_uuid(uuid)
            case UpgradeFormatVersion(version):
                if version != FORMAT_VERSION:
                    raise InvalidViewError(f"Views have format version 1, not {version}.")
            case AddSchema(schema):
                self._add_schema(schema)
            case SetLocation(location):
                if not location:
                    raise InvalidViewError("A view needs a location.")
                self._m = replace(self._m, location=full_uri(location.rstrip("/") or location))
            case SetProperties(updates):
                check_property_texts(updates)
                self._set_properties({**self._m.properties, **updates})
            case RemoveProperties(removals):
                gone = set(removals)
                kept = {key: text for key, text in self._m.properties.items() if key not in gone}
                self._set_properties(kept)
            case AddViewVersion(version):
                self._add_version(version)
            case SetCurrentViewVersion(view_version_id=version_id):
                self._set_current(version_id)

    def build(self) -> ViewMetadata:
        """The metadata, checked."""
        m = self._m
        if not m.view_uuid or not m.location or m.current_version_id == 0:
            raise InvalidViewError("A new view needs a uuid, a location and a current version.")
        if self._entry is not None:
            m = replace(m, version_log=(*m.version_log, self._entry))
        properties = ViewProperties(m.properties)
        if self._base is not None and not properties.drop_dialect_allowed:
            _check_dialects(self._base, m)
        kept = max(properties.history_num_entries, len(self._added | {m.current_version_id}))
        m = _expire(m, kept)
        return self._base if self._base is not None and m == self._base else m

    def _assign_uuid(self, uuid: str) -> None:
        if self._m.view_uuid and self._m.view_uuid.lower() != uuid.lower():
            raise InvalidViewError(
                f"View {self._m.location} keeps its uuid {self._m.view_uuid}; {uuid} is another."
            )
        self._m = replace(self._m, view_uuid=self._m.view_uuid or uuid.lower())

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        self._m = replace(self._m, properties=properties)

    def _add_schema(self, schema: Schema) -> None:
        for known in self._m.schemas:
            if known == schema:
                self._last_schema = known.schema_id
                return
        schema_id = max((schema.schema_id + 1 for schema in self._m.schemas), default=0)
        fresh = Schema(
            *schema.fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids
        )
        self._m = replace(self._m, schemas=(*self._m.schemas, fresh))
        self._last_schema = schema_id

    def _add_version(self, version: ViewVersion) -> None:
        if version.schema_id == LAST_ADDED:
            if self._last_schema is None:
                raise InvalidViewError("No schema was added that -1 could mean.")
            version = replace(version, schema_id=self._last_schema)
        if version.schema_id not in {schema.schema_id for schema in self._m.schemas}:
            raise InvalidViewError(f"Cannot add version with unknown schema: {version.schema_id}.")
        _check_one_a_dialect(version)
        for known in self._m.versions:
            if known.says_the_same_as(version):
                self._last_version = known.version_id
                return
        version_id = max((version.version_id + 1 for version in self._m.versions), default=1)
        version_id = max(version_id, version.version_id)
        added = replace(version, version_id=version_id)
        self._m = replace(self._m, versions=(*self._m.versions, added))
        self._added.add(version_id)
        self._last_version = version_id

    def _set_current(self, version_id: int) -> None:
        if version_id == LAST_ADDED:
            if self._last_version is None:
                raise InvalidViewError("No version was added that -1 could mean.")
            version_id = self._last_version
        if version_id == self._m.current_version_id:
            return
        versions = [version for version in self._m.versions if version.version_id == version_id]
        if not versions:
            raise InvalidViewError(f"Cannot set current version to unknown version: {version_id}.")
        at_ms = versions[0].timestamp_ms if version_id in self._added else self._now_ms
        self._m = replace(self._m, current_version_id=version_id)
        self._entry = VersionLogEntry(at_ms, version_id)


def _check_one_a_dialect(version: ViewVersion) -> None:
    seen: set[str] = set()
    for representation in version.representations:
        if isinstance(representation, SqlRepresentation):
            dialect = representation.dialect.lower()
            if dialect in seen:
                raise InvalidViewError(
                    f"Invalid view version: Cannot add multiple queries for dialect {dialect}"
                )
            seen.add(dialect)


def _check_dialects(base: ViewMetadata, new: ViewMetadata) -> None:
    before, after = (set(view.current_version().dialects()) for view in (base, new))
    lost = before - after
    if lost:
        name = ViewProperties.drop_dialect_allowed.name
        raise InvalidViewError(
            f"Cannot replace view due to loss of view dialects ({name}=false): the new version has "
            f"no SQL in {', '.join(sorted(lost))}. Add it, or set the property to true."
        )


def _expire(metadata: ViewMetadata, kept: int) -> ViewMetadata:
    """Without the versions beyond `kept`, and without the log up to the last of those."""
    if len(metadata.versions) <= kept:
        return metadata
    ids = sorted((version.version_id for version in metadata.versions), reverse=True)
    others = [version_id for version_id in ids if version_id != metadata.current_version_id]
    named = {metadata.current_version_id, *others[: kept - 1]}
    log: list[VersionLogEntry] = []
    for entry in metadata.version_log:
        log = [*log, entry] if entry.version_id in named else []
    return replace(
        metadata,
        versions=tuple(version for version in metadata.versions if version.version_id in named),
        version_log=tuple(log),
    )


def view_requirement_from_json(document: Any, where: str = "requirement") -> AssertViewUUID:
    """Read one view requirement (REST catalog: ViewRequirement).

    >>> view_requirement_from_json({"type": "assert-view-uuid", "uuid": "a"})
    AssertViewUUID(uuid='a')

    Raises CorruptMetadataError naming `where`, also for a type that is not known.
    """
    kind = require_str(document, "type", where)
    if kind != AssertViewUUID.type:
        raise CorruptMetadataError(f"{where}: unknown requirement {kind!r} of a view.")
    return AssertViewUUID(require_str(document, "uuid", where))


def view_update_from_json(document: Any, where: str = "update") -> ViewUpdate:
    """Read one view update (REST catalog: ViewUpdate).

    >>> view_update_from_json({"action": "set-current-view-version", "view-version-id": 3})
    SetCurrentViewVersion(view_version_id=3)

    Raises CorruptMetadataError naming `where`, also for an action that is not known.
    """
    action = require_str(document, "action", where)
    if action == AddViewVersion.action:
        version = require_object(document.get("view-version"), f"{where}.view-version")
        return AddViewVersion(version_from_json(version, f"{where}.view-version"))
    if action == SetCurrentViewVersion.action:
        return SetCurrentViewVersion(require_int(document, "view-version-id", where))
    update = update_from_json(document, where)
    match update:
        case (
            AssignUUID()
            | UpgradeFormatVersion()
            | AddSchema()
            | SetLocation()
            | SetProperties()
            | RemoveProperties()
        ):
            return update
    raise CorruptMetadataError(f"{where}: {action} is no update of a view.")
