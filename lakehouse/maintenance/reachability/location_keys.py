"""When two spellings of a location are the same file, and which files are bookkeeping. Pure.

`s3`, `s3a` and `s3n` are one scheme; `/x`, `file:/x` and `file:///x` one path; repeated slashes
count once. Where in doubt two spellings are the same: this is used to protect files, and a file too
many protected costs bytes, one too few costs data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.catalog.filesystem.version_files import HINT
from lakehouse.storage.location import SCHEME_ALIASES, basename, one_authority


def _split(location: str) -> tuple[str, str, str]:
    """(scheme, authority, path) with a path that begins with one slash."""
    head, colon, behind_scheme = location.partition(":")
    if not colon or "/" in head:
        scheme, behind_scheme = "file", location
    else:
        scheme = head.lower()
    authority = ""
    if behind_scheme.startswith("//"):
        authority, _, path = behind_scheme[2:].partition("/")
    else:
        path = behind_scheme
    return (
        scheme,
        authority,
        "/" + "/".join(part for part in path.split("/") if part not in ("", ".")),
    )


@dataclass(frozen=True, slots=True)
class LocationKeys:
    """Canonical keys of locations.

    Attributes:
        aliases: scheme -> scheme (`{"oss": "s3"}`) or scheme://authority -> scheme://authority
            (`{"hdfs://nn1": "hdfs://cluster"}`).
    """

    aliases: Mapping[str, str] = field(default_factory=dict)

    def key(self, location: str) -> str:
        """The same text for every spelling of the same file."""
        scheme, authority, path = _split(location)
        base = self.aliases.get(f"{scheme}://{authority}", f"{scheme}://{authority}")
        scheme, _, authority = base.partition("://")
        scheme = self.aliases.get(scheme, SCHEME_ALIASES.get(scheme, scheme))
        authority = one_authority(scheme, authority)
        if scheme == "file" and authority in ("localhost", ""):
            authority = ""
        return f"{scheme}://{authority}{path}"

    def path_of(self, location: str) -> str:
        """The path alone, without scheme and authority."""
        return _split(location)[2]

    def is_under(self, location: str, folder: str) -> bool:
        """Whether `location` is inside `folder`: `/a/b` itself and `/a/b2` are not in `/a/b`."""
        return self.key(location).startswith(self.key(folder).rstrip("/") + "/")

    def relative(self, location: str, folder: str) -> str:
        """`location` relative to `folder`, which must hold it."""
        return self.key(location).removeprefix(self.key(folder).rstrip("/") + "/")


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
