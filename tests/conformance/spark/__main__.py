"""`make conformance-spark`: the list beside Iceberg's runtime, both on Spark 4.1.

Each engine runs all statements in a process and a catalog of its own, and then reads every table
that the other one left. Needs a Python with PySpark 4.1 and Maven, which fetches the runtime.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.conformance.spark.comparison import BEGIN, END, outcome, tables
from tests.conformance.spark.statements import CASES

HOME = Path(__file__).parent
ROOT = HOME.parents[2]
JARS = ROOT / ".tools" / "iceberg-spark"
PAGE = ROOT / "docs" / "spark_conformance.md"


def main() -> int:
    """Run the list; exit code 1 where something differs without a reason, 2 without Maven."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.spark", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the tables of {PAGE.name}")
    parser.add_argument("--folder", type=Path, help="keep (or compare again) what both said")
    parser.add_argument("--again", action="store_true", help="run nothing: compare the folder")
    options = parser.parse_args()
    if shutil.which("mvn") is None and not options.again:
        say("no mvn: Apache Maven fetches Iceberg's Spark runtime")
        return 2
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not options.again:
            fetch()
            for arguments in (
                ["iceberg"], ["lakehouse"],
                ["iceberg", "--read", "lakehouse"], ["lakehouse", "--read", "iceberg"],
            ):  # fmt: skip
                run(folder, arguments)
        found = [
            outcome(
                number, case, *(kept(folder, engine)["cases"][str(number)] for engine in ENGINES)
            )
            for number, case in enumerate(CASES, 1)
        ]
        unread = [*unlike(folder, "iceberg", "lakehouse"), *unlike(folder, "lakehouse", "iceberg")]
        count = len(kept(folder, "iceberg-reads-lakehouse")["tables"])
    wrong = [one for one in found if not one.is_expected]
    for one in wrong:
        say(f"{one.kind.upper()}: {one.case.statement}\n{one.details}\n")
    for line in unread:
        say(line)
    text = tables(found, unread)
    say(text.partition("\n\n")[0])
    read = f"{2 * count} names of tables read by the other engine, {len(unread)} with other rows"
    say(read)
    say(f"{len(wrong)} differences without a reason, {time.monotonic() - started:.0f} s")
    if options.write:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")
    return int(bool(wrong or unread))


ENGINES = ("iceberg", "lakehouse")


def fetch() -> None:
    """Iceberg's runtime and the driver for its catalog, by Maven."""
    command = ["mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*command, f"-DoutputDirectory={JARS}"], check=True)


def run(folder: Path, arguments: list[str]) -> None:
    """One engine in a process of its own."""
    jars = ",".join(str(one) for one in sorted(JARS.glob("*.jar")))
    command = [sys.executable, "-m", "tests.conformance.spark.spark_runner", *arguments[:1]]
    done = subprocess.run(
        [*command, str(folder), *arguments[1:], "--jars", jars],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-4000:]}")


def kept(folder: Path, name: str) -> dict[str, Any]:
    """What a run wrote."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def unlike(folder: Path, reader: str, writer: str) -> list[str]:
    """Tables of which the reader sees other rows than the writer."""
    there, here = (kept(folder, name)["tables"] for name in (writer, f"{reader}-reads-{writer}"))
    return [
        f"{name} of {writer}, read by {reader}: {str(here[name])[:300]}, not {str(rows)[:300]}"
        for name, rows in there.items()
        if here[name] != rows
    ]


def say(text: str) -> None:
    """A line of the report, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
