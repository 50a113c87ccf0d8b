"""Requirements and updates of views from their REST form, the reverse of their `to_json()`."""

from __future__ import annotations

from typing import Any

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.json_fields import require_int, require_object, require_str
from lakehouse.spec.metadata.commit_json import update_from_json
from lakehouse.spec.metadata.table_updates import (
    AddSchema,
    AssignUUID,
    RemoveProperties,
    SetLocation,
    SetProperties,
    UpgradeFormatVersion,
)
from lakehouse.spec.views.view_json import version_from_json
from lakehouse.spec.views.view_updates import (
    AddViewVersion,
    AssertViewUUID,
    SetCurrentViewVersion,
    ViewUpdate,
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
    found = update_from_json(document, where)
    match found:
        case (
            AssignUUID()
            | UpgradeFormatVersion()
            | AddSchema()
            | SetLocation()
            | SetProperties()
            | RemoveProperties()
        ):
            return found
    raise CorruptMetadataError(f"{where}: {action} is no update of a view.")
