"""Table locations as Hadoop's file systems spell them."""

from __future__ import annotations

from lakehouse.errors import UnsupportedFeatureError

_SCHEMES = {"": "file", "file": "file", "s3": "s3a", "s3a": "s3a", "s3n": "s3a"}


def spark_location(location: str) -> str:
    """The location for Spark: a bare path becomes `file://`, `s3://` becomes `s3a://`; the path is taken literally.

    Raises:
        UnsupportedFeatureError: a location that only this process can see (`memory://`).
    """
    scheme, separator, rest = location.partition("://")
    if not separator:
        path = location.removeprefix("file:")
        return "file://" + path
    if scheme == "memory":
        raise UnsupportedFeatureError(f"Spark cannot read {location}: the files are in this process's memory", location=location)
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}"
