"""The versions of Spark that all Spark tests pass on (`make test-spark VERSION=4.1`)."""

from __future__ import annotations

from lakehouse.errors import UnsupportedFeatureError

# Version -> the newest Java that it runs on; the oldest is 17.
NEWEST_JAVA = {"4.1": 21, "4.2": 21, "4.3": 25}


def newest_java(spark_version: str) -> int | None:
    """The newest Java for a version such as 4.1.4; None where that is not known."""
    return NEWEST_JAVA.get(_minor(spark_version))


def java_since(spark_version: str) -> str:
    """The first version of Spark that has the same Java of this package as one such as 4.3.0.

    Raises:
        UnsupportedFeatureError: nobody tried the Java on this version.
    """
    minor = _minor(spark_version)
    if minor not in NEWEST_JAVA:
        raise UnsupportedFeatureError(
            f"Spark {spark_version} is not among the versions that lakehouse runs on: "
            f"{', '.join(NEWEST_JAVA)}. Install one of them: pip install 'pyspark==4.3.*'"
        )
    return "4.1" if minor == "4.1" else "4.2"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
