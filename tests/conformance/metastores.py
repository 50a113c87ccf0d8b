"""The suite of catalogs, races, kills on Hive Metastores 3.1.3 and 4.0.1: `make test-metastores`.

Maven fetches their standalone distributions and Hadoop with its S3 (680 MB); a JDK of 17 or newer
runs them, each over a database in one PostgreSQL and a store of S3. Iceberg's Java is the judge of
what is written, there and in Glue (moto's), and so is pyiceberg, in Glue and where the metastore
has the calls of its client (3.1.3).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from tests.cluster.loopback import LoopbackPostgres
from tests.cluster.ports import free_port
from tests.conformance.java import judge
from tests.servers import s3
from tests.waiting import eventually, reaped

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools/metastore"
POM = Path(__file__).parent / "hive/pom.xml"
SUITES = (
    "tests/integration/test_catalogs.py",
    "tests/integration/test_views.py",
    "tests/integration/test_hive_metastore.py",
    "tests/integration/test_glue.py",
)
VERSIONS = {"hive3": "3.1.3", "hive4": "4.0.1"}
_SCHEMA_TOOLS = {
    "hive3": "org.apache.hadoop.hive.metastore.tools.MetastoreSchemaTool",
    "hive4": "org.apache.hadoop.hive.metastore.tools.schematool.MetastoreSchemaTool",
}
_SERVER = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_LOCK_SECONDS = 5
"""After which a lock without heartbeats is let go; 300 s unless set."""


class MetastoreProcess:
    """A metastore in a process of its own, which can be killed and started again.

    Args:
        name: of `VERSIONS`.
        folder: its settings, log and warehouse.
        database: JDBC URL of its empty database.
        store: storage properties of the S3 in which it may make folders.
    """

    def __init__(self, name: str, folder: Path, database: str, store: dict[str, str]) -> None:
        self.name, self.port = name, free_port()
        self.uri = f"hms://127.0.0.1:{self.port}"
        self._folder = folder
        home = TOOLS / f"apache-hive-metastore-{VERSIONS[name]}-bin"
        settings = {
            "javax.jdo.option.ConnectionURL": database,
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": "postgres",
            "metastore.warehouse.dir": f"file://{folder}/managed",
            "metastore.warehouse.external.dir": f"file://{folder}/external",
            "metastore.expression.proxy": (
                "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
            ),
            "metastore.task.threads.always": (
                "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
            ),
            # version 4 lets no lock go unless its housekeeping is on
            "metastore.housekeeping.threads.on": "true",
            "metastore.timedout.txn.reaper.start": "1s",
            "metastore.timedout.txn.reaper.interval": "2s",
            "metastore.txn.timeout": f"{_LOCK_SECONDS}s",
            "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "fs.s3a.endpoint": store["s3.endpoint"],
            "fs.s3a.access.key": store["s3.access-key-id"],
            "fs.s3a.secret.key": store["s3.secret-access-key"],
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
        }
        properties = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in settings.items()
        )
        (folder / "conf").mkdir(parents=True)
        (folder / "conf/metastore-site.xml").write_text(
            f"<configuration>{properties}</configuration>"
        )
        self._environ = {
            **os.environ,
            "METASTORE_HOME": str(home),
            "METASTORE_CONF_DIR": str(folder / "conf"),
        }
        self._command = [
            *(judge.java("java"), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", f"{folder}/conf:{home}/lib/*:{TOOLS}/*"),
        ]
        self._run(_SCHEMA_TOOLS[name], "-dbType", "postgres", "-initSchema").wait()

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*self._command, *arguments],
                cwd=self._folder,
                env=self._environ,
                stdout=log,
                stderr=log,
            )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Up and answering inside the block."""
        with reaped(self._run(_SERVER, "-p", str(self.port))):
            log = self._folder / "log"
            failed = "Metastore Thrift Server threw an exception"  # and yet its process goes on
            eventually(lambda: _answers(self.uri) or failed in log.read_text())
            assert failed not in log.read_text(), log.read_text()[-4000:]
            yield


def _answers(uri: str) -> bool:
    from lakehouse.catalog import open_catalog
    from lakehouse.errors import StorageError

    catalog = open_catalog(uri, **{"catalog.retry-timeout-ms": "0"})
    try:
        return bool(catalog.list_namespaces())
    except StorageError:
        return False
    finally:
        catalog.close()


def java() -> judge.Judge:
    """Iceberg's Java with its catalog for Glue, and that for Hive, with the client of version 3."""
    home = TOOLS / f"apache-hive-metastore-{VERSIONS['hive3']}-bin"
    return judge.Judge(f"{TOOLS}/*:{home}/lib/*")


def build() -> None:
    """Fetch what is not there."""
    fetched = (f"apache-hive-metastore-{VERSIONS['hive4']}-bin", "hadoop-aws-3.3.6.jar")
    if not all((TOOLS / name).exists() for name in fetched):
        subprocess.run(
            [
                *("mvn", "-B", "-q", "-f", str(POM)),
                *("dependency:copy-dependencies", "dependency:unpack"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={TOOLS}"),
            ],
            check=True,
        )
    judge.build()


@contextmanager
def metastores(folder: Path, store: dict[str, str]) -> Iterator[dict[str, MetastoreProcess]]:
    """Both, each over a database of its own; not running yet."""
    port = free_port()
    with LoopbackPostgres(folder / "postgres", port) as server:
        with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
            for name in VERSIONS:
                connection.execute(f"CREATE DATABASE {name}")
        yield {
            name: MetastoreProcess(
                name, folder / name, f"jdbc:postgresql://127.0.0.1:{port}/{name}", store
            )
            for name in VERSIONS
        }


def main(arguments: list[str]) -> int:
    """Run the suites; further arguments are pytest's."""
    build()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        store = running.enter_context(s3())
        servers = running.enter_context(metastores(Path(folder), store))
        for server in servers.values():
            running.enter_context(server.running())
        uris = {name: server.uri for name, server in servers.items()}
        command = [sys.executable, "-m", "pytest", "-q", "-k", "hive or glue", *SUITES]
        environ = {
            **os.environ,
            "LAKEHOUSE_METASTORES": json.dumps(uris),
            "LAKEHOUSE_METASTORES_STORE": json.dumps(store),
        }
        return subprocess.call([*command, *arguments], cwd=ROOT, env=environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
