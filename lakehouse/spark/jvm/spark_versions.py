"""The versions of Spark that all Spark tests pass on (`make test-spark VERSION=4.1`)."""

from __future__ import annotations

# Version -> the newest Java that it runs on; the oldest is 17.
NEWEST_JAVA = {"4.1": 21, "4.2": 21, "4.3": 25}


def newest_java(spark_version: str) -> int | None:
    """The newest Java for a version such as 4.1.4; None where that is not known."""
    return NEWEST_JAVA.get(_minor(spark_version))


def note_on(spark_version: str) -> str:
    """A sentence for an error that may come from a version that nobody tried; else empty."""
    if _minor(spark_version) in NEWEST_JAVA:
        return ""
    return f" Spark {spark_version} is not among the versions known: {', '.join(NEWEST_JAVA)}."


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
