"""Table properties that maintenance reads, parsed with a clear error."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse.errors import InvalidPropertyError, MaintenanceRefusedError
from lakehouse.spec.identifier import Identifier

GC_ENABLED = "gc.enabled"
TARGET_FILE_SIZE = "write.target-file-size-bytes"
TARGET_FILE_SIZE_DEFAULT = 512 << 20
MANIFEST_TARGET_SIZE = "commit.manifest.target-size-bytes"
MANIFEST_TARGET_SIZE_DEFAULT = 8 << 20


def positive_int(properties: Mapping[str, str], name: str, default: int) -> int:
    """The property as an integer above zero.

    Raises:
        InvalidPropertyError: it is set to something else.
    """
    text = properties.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise InvalidPropertyError(
            f"Table property {name} must be a positive integer, not {text!r}", property=name
        )
    return value


def refuse_without_gc(identifier: Identifier, properties: Mapping[str, str], action: str) -> None:
    """Raise MaintenanceRefusedError when `gc.enabled` is false: files of this table may belong to another one as well."""
    if properties.get(GC_ENABLED, "true").strip().lower() == "false":
        raise MaintenanceRefusedError(
            f"Cannot {action} of {identifier}: its property {GC_ENABLED} is false, other tables may use its files",
            table=str(identifier),
        )
