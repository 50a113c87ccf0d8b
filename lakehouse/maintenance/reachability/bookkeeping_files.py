"""Files beside a table's content that a catalog or maintenance keeps: known by their names."""

from __future__ import annotations

import re

from lakehouse.catalog.filesystem.version_files import HINT
from lakehouse.storage.location import basename

_METADATA = re.compile(r"^v?(\d+)(?:-[0-9a-fA-F-]{36})?(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_JOURNAL = re.compile(r"expiry-[0-9a-f-]{36}\.journal\.json$")


def metadata_version(location: str) -> int | None:
    """12 for `v12.metadata.json` and `00012-<uuid>.metadata.json`; None for other names."""
    match = _METADATA.match(basename(location))
    return int(match.group(1)) if match else None


def is_journal(location: str) -> bool:
    """Whether a location is the journal of an expiry."""
    return _JOURNAL.search(basename(location)) is not None


def is_bookkeeping(location: str) -> bool:
    """Whether it is a metadata file, a version hint or the journal of an expiry."""
    name = basename(location)
    return metadata_version(name) is not None or name == HINT or is_journal(name)
