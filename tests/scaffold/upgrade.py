"""The warehouse of another commit, used by this checkout and by that commit again.

`python -m tests.scaffold.upgrade BEFORE [--events N]`: the demo of BEFORE fills a warehouse; this
checkout takes its place in the same folder, says what its definitions would change, computes a
table again from the snapshots that the old code recorded, and does what maintenance does; then the
old code reads it all. Ends with 1 where a row differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUMS = """
import hashlib, json, sys
import lakehouse as lh
lake = lh.load_catalog(sys.argv[1])
told = {}
for name in sorted(n for s in lake.list_namespaces() for n in lake.list_tables(s)):
    if name.split(".")[0] in ("raw", "clean", "marts"):
        table = lake.load_table(name)
        rows = sorted(map(repr, table.scan().to_arrow().to_pylist()))
        told[name] = [len(rows), hashlib.sha256(repr(rows).encode()).hexdigest()[:12]]
print(json.dumps(told))
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scaffold.upgrade", description=__doc__)
    parser.add_argument("before", help="a commit")
    parser.add_argument("--events", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakehouse-upgrade-") as scratch:
        place = Path(scratch)
        for commit, name in ((options.before, "old"), ("HEAD", "new")):
            packed = place / f"{name}.tar"
            subprocess.run(["git", "archive", "-o", packed, commit], cwd=ROOT, check=True)
            with tarfile.open(packed) as archive:
                archive.extractall(place / name, filter="data")
        here = Checkouts(place, f".lakehouse/synthetic-{options.events}")
        here.use("old")
        here.lakehouse("demo", "--synthetic", str(options.events))
        first = here.sums()
        here.use("new")
        steps = [("opened", here.sums())]
        for command in (
            ["plan-changes"],
            ["lineage", "marts/aircraft", "--replay"],
            ["compact", "clean.flights", "--all"],
            ["expire", "clean.flights", "--dry-run"],
        ):
            here.lakehouse(*command)
            steps.append((" ".join(command), here.sums()))
        here.use("old")
        steps.append((f"read by {options.before} again", here.sums()))
        wrong = [
            f"{step}: {name} has {told.get(name)}, not {wanted}"
            for step, told in steps
            for name, wanted in first.items()
            if told.get(name) != wanted
        ]
    sys.stdout.write("\n".join([*wrong, f"{len(first)} tables, {len(steps)} steps: "]))
    sys.stdout.write(f"{len(wrong)} differences from what {options.before} wrote\n")
    return 1 if wrong else 0


class Checkouts:
    """Two checkouts that take turns in one folder, with what they made."""

    def __init__(self, place: Path, home: str) -> None:
        self._place, self._home, self._used = place, home, ""

    def use(self, name: str) -> None:
        """Put a checkout in its place; what was made stays where it is."""
        here = self._place / "checkout"
        made = self._place / "made"
        if self._used:
            (here / ".lakehouse").rename(made)
            here.rename(self._place / self._used)
        (self._place / name).rename(here)
        if self._used:
            made.rename(here / ".lakehouse")
        self._used = name

    def lakehouse(self, *arguments: str) -> None:
        """Run a command of the checkout. Raises CalledProcessError.

        Of `plan-changes` 2 says that there are changes.
        """
        sys.stdout.write(f"{self._used}: lakehouse {' '.join(arguments)}\n")
        sys.stdout.flush()
        self._python("-c", "from lakehouse.cli import app; app()", *arguments)

    def sums(self) -> dict[str, list[object]]:
        """Rows and a digest of them, of each table of the pipeline."""
        found: dict[str, list[object]] = json.loads(
            self._python("-c", SUMS, str(self._folder / "warehouse")).splitlines()[-1]
        )
        return found

    @property
    def _folder(self) -> Path:
        return self._place / "checkout" / self._home

    def _python(self, *arguments: str) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LAKEHOUSE_", "DAGSTER_"))}
        made = {
            "LAKEHOUSE_CATALOG": str(self._folder / "warehouse"),
            "LAKEHOUSE_LANDING": str(self._folder / "landing"),
            "DAGSTER_HOME": str(self._folder / "dagster"),
            "PYTHONPATH": str(self._place / "checkout"),
        }
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._place / "checkout",
            env={
                **kept,
                **(made if "demo" not in arguments else {"PYTHONPATH": made["PYTHONPATH"]}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 2 if "plan-changes" in arguments else 0):
            sys.stdout.write(done.stdout)
            done.check_returncode()
        return done.stdout


if __name__ == "__main__":
    sys.exit(main())
