"""`make conformance-rest-client`: our client on Iceberg's REST catalog, which alone has keys of S3.

The catalog is Java's adapter over SQLite; the store is one that checks signatures. Iceberg's own
reader of Parquet is not asked.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.ports import free_port
from tests.conformance import client_checks
from tests.conformance.client_checks import Peer, answering, has_tools, run
from tests.guarded_s3 import GuardedStore, guarded_s3

HOME = Path(__file__).parent
CHECKS = (
    client_checks.strangers,
    client_checks.namespaces,
    client_checks.rows,
    client_checks.written_by_pyiceberg,
    client_checks.names_of_tables,
    client_checks.conflicts,
    client_checks.transactions,
    client_checks.views,
    client_checks.tags,
    client_checks.planned,
    client_checks.reported,
    client_checks.staged,
)


def main() -> int:
    """Run every check; exit code 1 when one fails, 2 without Java."""
    if not has_tools("java", "javac", "mvn"):
        return 2
    with (
        guarded_s3() as store,
        tempfile.TemporaryDirectory() as folder,
        running(store, Path(folder)) as url,
    ):
        return run(CHECKS, Peer(url, store))


@contextmanager
def running(store: GuardedStore, folder: Path) -> Iterator[str]:
    """Iceberg's catalog, running; gives its URL."""
    target = HOME / "target"
    classpath = target / "classpath.txt"
    maven = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*maven, f"-Dmdep.outputFile={classpath}"], check=True)
    jars = classpath.read_text().strip()
    subprocess.run(
        ["javac", "-nowarn", "-cp", jars, "-d", str(target), str(HOME / "Peer.java")], check=True
    )
    port = free_port()
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "jdbc.schema-version": "V1",
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": "s3://lake/peer",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
        "s3.path-style-access": "true",
        "include-credentials": "true",
        **store.keys,
    }
    given = [f"{name}={value}" for name, value in properties.items()]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = ["java", "-Xmx512m", quiet, "-cp", f"{jars}:{target}"]
    # it prints a trace for each thing that is not there
    server = subprocess.Popen(
        [*command, "org.apache.iceberg.rest.Peer", str(port), *given], stderr=subprocess.DEVNULL
    )
    with answering(server, f"http://127.0.0.1:{port}") as url:
        yield url


if __name__ == "__main__":
    sys.exit(main())
