"""`make conformance-rest`: Iceberg's REST Compatibility Kit against our server over SQLite.

What the kit leaves out unless a server says that it can is run as well (Whole*.java).
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import lakehouse as lh
from tests.server.conftest import serve

HOME = Path(__file__).parent
PACKAGE = "org.apache.iceberg.rest"
# the kit's own tests, and those that it leaves out
CLASSES = ("WholeCatalogTests", "WholeViewCatalogTests")
# What the kit asks of a server and this one does not do, and why.
# Of a server that says yes to the creation these fail as well: what the tests do next,
# RESTSessionCatalog refuses before it sends anything, by checkNamespaceIsValid ("Invalid
# namespace: "; namespaceExists is false by it), checkIdentifierIsValid ("Invalid table
# identifier: table_1") and checkViewIdentifierIsValid. The kit itself leaves them out, too.
EXPECTED = {
    **dict.fromkeys(
        (
            "createAndDropEmptyNamespace",
            "namespacePropertiesOnEmptyNamespace",
            "listTablesInEmptyNamespace",
            "listViewsInEmptyNamespace",
        ),
        "Iceberg's own client sends nothing about a namespace without a name but its creation",
    ),
}
FAILURE = re.compile(r"className = '[\w.]*\.(\w+)', methodName = '([^']+)'[^\n]*\n\s+=> ([^\n]*)")


def main() -> int:
    """Run the kit; exit code 1 when a test fails that is not expected to, 2 without Java."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.rest_kit")
    parser.add_argument("--report", type=Path, help="where to keep what JUnit printed")
    parser.add_argument("--test", action="append", help="Class#method; all, if none is named")
    options = parser.parse_args()
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            say(f"no {tool}: the kit needs a JDK, 17 or newer, and Apache Maven")
            return 2
    classpath = HOME / "target" / "classpath.txt"
    maven = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*maven, f"-Dmdep.outputFile={classpath}"], check=True)
    jars = f"{HOME / 'target'}:{classpath.read_text().strip()}"
    compiled = ["javac", "-nowarn", "-cp", jars, "-d", str(HOME / "target")]
    subprocess.run([*compiled, *(str(HOME / f"{one}.java") for one in CLASSES)], check=True)
    started = time.monotonic()
    logging.disable(logging.CRITICAL)  # what the server refuses is for the kit to judge
    with tempfile.TemporaryDirectory() as folder:
        lake = lh.load_catalog(
            f"sqlite:///{folder}/catalog.db",
            warehouse=f"{folder}/warehouse",
            name="rck_warehouse",
            **{"allowed-locations": tempfile.gettempdir()},
        )
        with serve(lake) as server:  # LAKEHOUSE_REST_WORKERS says by how many processes
            report = kit(jars, server.url, options.test)
    if options.report is not None:
        options.report.write_text(report)
    return judge(report, time.monotonic() - started)


def kit(classpath: str, url: str, tests: Sequence[str]) -> str:
    """What JUnit printed."""
    chosen = [f"--select-class={PACKAGE}.{one}" for one in CLASSES]
    if tests:
        chosen = [f"--select-method={PACKAGE}.{test}" for test in tests]
    settings = [f"-Duri={url}/", "-Drck.requires-namespace-create=true"]
    settings += ["-Drck.overrides-requested-location=true"]  # where dropped tables left files
    console = ["org.junit.platform.console.ConsoleLauncher", "execute", *chosen]
    command = ["java", "-Xmx768m", "-cp", classpath, *settings, *console]
    # `rck.local` starts a server of its own, on every interface
    done = subprocess.run(
        [*command, "--config", "rck.local=false", "--details=summary", "--disable-banner"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=1800,
    )
    return done.stdout + done.stderr


def judge(report: str, seconds: float) -> int:
    """Print the counts and the failures; 1 when one of them is not expected."""
    counts = {
        what: int(number)
        for number, what in re.findall(
            r"\[\s*(\d+) tests (found|successful|failed|aborted|skipped)", report
        )
    }
    reasons: Counter[str] = Counter()
    unexpected = []
    for _, name, message in FAILURE.findall(report):
        if name in EXPECTED:
            reasons[EXPECTED[name]] += 1
        else:
            unexpected.append(f"{name}: {message}")
    for reason, count in reasons.most_common():
        say(f"{count:5}  {reason}")
    for line in unexpected:
        say(f"UNEXPECTED  {line}")
    say(f"{counts}, {len(unexpected)} not expected, {seconds:.0f} s")
    complete = counts.get("found", 0) > 0 and counts["failed"] == reasons.total() + len(unexpected)
    return 0 if complete and not unexpected else 1


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
