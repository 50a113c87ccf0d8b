"""An archive of Spark's classes, with which a session starts in half the time.

The first seconds of a session go into twenty thousand classes that a JVM reads, checks and links.
It can keep them as they are in memory afterwards: a dynamic archive of class data (JEP 350), from
Java 25 on an AOT cache (JEP 514), 150 to 250 MB. `lakehouse spark-archive` makes one, once for each
version of Java and Spark; every session of this user starts with it. Java checks that it fits its
own build and the same JARs, and does without where it does not. `LAKEHOUSE_SPARK_ARCHIVE=off`
leaves it out.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from lakehouse.errors import LakehouseError
from lakehouse.spark.jvm.jre import JavaRuntime, cache_directory, java_runtime, newest_java

ARCHIVE_VARIABLE = "LAKEHOUSE_SPARK_ARCHIVE"
"""`off`: sessions start without the archive."""
_AOT_SINCE = 25
_TRAINING_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one Spark, which is there or can be made.

    Attributes:
        folder: of the user's archives.
        name: its own, but for its size.
        is_aot: whether it is an AOT cache.
    """

    folder: Path
    name: str
    is_aot: bool

    def file(self) -> Path | None:
        """Its file. One that is not as long as it was is none: Java would crash over it."""
        named = self.folder.glob(f"{self.name}-*")
        return next(
            (archive for archive in named if archive == self.path_of(archive.stat().st_size)), None
        )

    def path_of(self, size: int) -> Path:
        """Its file when it has so many bytes."""
        return self.folder / f"{self.name}-{size}.{'aot' if self.is_aot else 'jsa'}"

    def using(self) -> Sequence[str]:
        """Options of a JVM that starts with it; none where there is no archive."""
        path = self.file()
        if path is None:
            return ()
        named = "AOTCache" if self.is_aot else "SharedArchiveFile"
        # a JVM that cannot use it does without, and says nothing
        quiet = ("-Xlog:aot*=off", "-Xlog:cds*=off") if self.is_aot else ("-Xlog:cds*=off",)
        return (f"-XX:{named}={path}", *quiet)

    def dumping(self, path: Path) -> Sequence[str]:
        """Options of a JVM that writes its classes to `path` when it ends."""
        named = "AOTCacheOutput" if self.is_aot else "ArchiveClassesAtExit"
        quiet = ("-Xlog:aot*=off", "-Xlog:cds*=off") if self.is_aot else ("-Xlog:cds*=off",)
        return (f"-XX:{named}={path}", *quiet)


def archive_of(
    java: JavaRuntime,
    environ: Mapping[str, str] | None = None,
    jars: Path | None = None,
) -> ClassArchive:
    """The archive for this Java and these JARs, in the user's cache.

    Args:
        java: that Spark runs on.
        environ: names the cache; default `os.environ`.
        jars: folder of Spark's JARs; default those of PySpark.
    """
    env = os.environ if environ is None else environ
    folder = jars or Path(pyspark.__file__).parent / "jars"
    files = sorted(
        (jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in folder.glob("*.jar")
    )
    program = java.home / "bin" / "java"
    facts = [str(program.resolve()), java.version, str(folder.resolve()), files]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    name = f"spark-{pyspark.__version__}-java-{java.major}-{digest}"
    return ClassArchive(cache_directory(env), name, java.major >= _AOT_SINCE)


def archive_options(java: JavaRuntime, environ: Mapping[str, str] | None = None) -> str:
    """What a driver's Java options begin with: the archive, or nothing."""
    env = os.environ if environ is None else environ
    if env.get(ARCHIVE_VARIABLE, "").lower() == "off":
        return ""
    return "".join(f'"{option}" ' for option in archive_of(java, env).using())


def make_archive(*, again: bool = False) -> tuple[Path, bool]:
    """Run a session through what pipelines do, and keep its classes.

    It takes half a minute to a minute on two cores. Others may start sessions meanwhile: the
    archive appears when it is whole.

    Args:
        again: replace one that is there.

    Returns:
        The archive, and whether it was made now.

    Raises:
        LakehouseError: this Java makes none; the message ends with what it said.
        NotFoundError: there is no Java for Spark.
    """
    archive = archive_of(java_runtime(newest=newest_java(pyspark.__version__)))
    before = archive.file()
    if before is not None and not again:
        return before, False
    archive.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=archive.folder) as folder:
        made = Path(folder) / "made"
        output = _train(" ".join(f'"{option}"' for option in archive.dumping(made)), folder)
        if not made.is_file():
            raise LakehouseError(
                f"Java made no archive of Spark's classes; sessions start without one. It said: "
                f"{output[-500:] or 'nothing'}"
            )
        with made.open("rb") as file:
            os.fsync(file.fileno())
        path = made.replace(archive.path_of(made.stat().st_size))
    if before is not None and before != path:
        before.unlink(missing_ok=True)
    return path, True


def _train(options: str, folder: str) -> str:
    """Run the training with these Java options; what it printed."""
    command = [sys.executable, "-m", "lakehouse.spark.archive_training", options, folder]
    done = subprocess.run(  # noqa: S603 - this interpreter, a module of ours
        command,
        env=os.environ | {ARCHIVE_VARIABLE: "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TRAINING_TIMEOUT_S,
        check=False,
    )
    return done.stdout.strip()
