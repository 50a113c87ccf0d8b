"""Locations as values: taking them apart, joining, comparing, and refusing those that escape.

Nothing is percent-decoded: a location is the literal name of a file, as in every Iceberg engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from lakehouse.errors import InvalidLocationError

LOCAL_SCHEMES = frozenset({"", "file"})
MEMORY_SCHEME = "memory"
SCHEME_ALIASES = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfss": "abfs",
    "wasb": "abfs",
    "wasbs": "abfs",
}
"""Scheme -> the one under which the same files are."""

# a commit asks for the same dozen again and again
_KEPT = 1024
_LENGTH_MAX = 4096
"""Characters: file systems of this machine take no more bytes, object stores 1024."""


@dataclass(frozen=True, slots=True)
class Location:
    """A location split into scheme, authority and path.

    Attributes:
        scheme: as written, lower case; empty for a plain path.
        authority: bucket, host or memory store; empty for local files.
        path: for local files absolute with leading slash, otherwise the key without one.
    """

    scheme: str
    authority: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether the location is a file of this machine."""
        return self.scheme in LOCAL_SCHEMES


@lru_cache(_KEPT)
def parse(location: str) -> Location:
    """Split a location; raises InvalidLocationError.

    It must not be empty, relative, longer than 4096 characters, or have `.`, `..` or NUL in its
    path.
    """
    if len(location) > _LENGTH_MAX:
        raise InvalidLocationError(
            f"A location has {_LENGTH_MAX} characters at most, not {len(location)}.",
            location=location[:_LENGTH_MAX],
        )
    if not location or "\x00" in location:
        raise InvalidLocationError(
            f"Not a location: {location!r}. Use an absolute path or a URI like s3://bucket/prefix.",
            location=location,
        )
    if location.startswith("/"):
        return Location("", "", _checked(location, location))
    scheme, colon, rest = location.partition(":")
    if not colon or not scheme.replace("+", "").replace("-", "").isalnum():
        raise InvalidLocationError(
            f"Location {location!r} is relative. Use an absolute path or a URI like "
            "s3://bucket/prefix.",
            location=location,
        )
    scheme = scheme.lower()
    if scheme == "file":
        path = rest
        if rest.startswith("//"):
            host, slash, tail = rest[2:].partition("/")
            if host not in {"", "localhost"}:
                raise InvalidLocationError(
                    f"Location {location!r} names the remote host {host!r}: write file:///path.",
                    location=location,
                )
            path = slash + tail
        if not path.startswith("/"):
            raise InvalidLocationError(
                f"Location {location!r} is relative: write file:///path.", location=location
            )
        return Location("file", "", _checked(path, location))
    if not rest.startswith("//"):
        raise InvalidLocationError(
            f"Location {location!r} is not a URI: write {scheme}://bucket/prefix, or an "
            "absolute path.",
            location=location,
        )
    authority, _, key = rest[2:].partition("/")
    if not authority:
        raise InvalidLocationError(
            f"Location {location!r} names no bucket: write {scheme}://bucket/prefix.",
            location=location,
        )
    return Location(scheme, authority, _checked(key, location))


def local_path(location: str) -> str:
    """The absolute path of a local location. Raises InvalidLocationError for any other scheme."""
    parsed = parse(location)
    if not parsed.is_local:
        raise InvalidLocationError(f"{location!r} is not a local file.", location=location)
    return parsed.path


def join(base: str, *parts: str) -> str:
    """`base` and `parts` with single slashes between; keeps the spelling of `base`."""
    return "/".join([base.rstrip("/"), *(part.strip("/") for part in parts)])


def parent(location: str) -> str:
    """The folder of a file, in its spelling."""
    return location.rpartition("/")[0]


def basename(location: str) -> str:
    """The last name of a location."""
    return location.rpartition("/")[2]


@lru_cache(_KEPT)
def canonical(location: str) -> str:
    """One spelling for all aliases of a file, to compare them.

    `/x`, `file:/x` and `file:///x` are one; so are s3, s3a and s3n; and
    `abfss://c@a.dfs.core.windows.net` and `wasbs://c@a.blob.core.windows.net`.
    """
    parsed = parse(location)
    segments = "/".join(segment for segment in parsed.path.split("/") if segment)
    if parsed.is_local:
        return f"file:///{segments}"
    scheme = SCHEME_ALIASES.get(parsed.scheme, parsed.scheme)
    return f"{scheme}://{one_authority(scheme, parsed.authority)}/{segments}"


def one_authority(scheme: str, authority: str) -> str:
    """An account of Azure under one name: its blobs are its files.

    Args:
        scheme: one of those that `SCHEME_ALIASES` gives.
        authority: of a location.
    """
    return authority.replace(".blob.", ".dfs.", 1) if scheme == "abfs" else authority


def is_within(location: str, root: str) -> bool:
    """Whether `location` is `root` or lies below it, whatever the aliases."""
    inner, outer = canonical(location).rstrip("/"), canonical(root).rstrip("/")
    return inner == outer or inner.startswith(outer + "/")


def lies_within(location: str, root: str) -> bool:
    """Like `is_within`, for untrusted locations: a malformed one lies nowhere."""
    try:
        return is_within(location, root)
    except InvalidLocationError:
        return False


def overlap(one: str, other: str) -> bool:
    """Whether one location contains the other."""
    return is_within(one, other) or is_within(other, one)


def _checked(path: str, location: str) -> str:
    if any(segment in {".", ".."} for segment in path.split("/")):
        raise InvalidLocationError(
            f"Location {location!r} contains '.' or '..': write the resolved path.",
            location=location,
        )
    return path
