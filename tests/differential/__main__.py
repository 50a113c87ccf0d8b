"""Two engines, the same histories, every file compared: `python -m tests.differential BEFORE`.

BEFORE is a commit, or the folder of a checkout. The engine of that commit and the one of this
checkout run the same seeded histories (`history.py`) one after the other in the same folder, since
metadata names its files by absolute paths. What they answered is compared value for value, every
file that they left byte for byte. Ends with 1 when anything differs, and keeps the two warehouses
of the first history that does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 25
WIDTH = 600


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("before", help="a commit, or the folder of a checkout")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    differing: list[int] = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        before = checkout(options.before, place / "engine")
        for first in range(options.first, options.first + options.seeds, CHUNK):
            count = min(CHUNK, options.first + options.seeds - first)
            old, new = place / "old", place / "new"
            run(before, place, first, count).rename(old)
            run(ROOT, place, first, count).rename(new)
            for seed in range(first, first + count):
                faults = list(differences(old / str(seed), new / str(seed), counts))
                if faults:
                    shown = (fault[:WIDTH] for fault in faults[:6])
                    sys.stdout.write("\n".join((f"seed {seed}:", *shown, "")))
                if faults and not differing:
                    kept = Path(tempfile.mkdtemp(prefix="differential-"))
                    shutil.copytree(old / str(seed), kept / "before")
                    shutil.copytree(new / str(seed), kept / "after")
                    sys.stdout.write(f"kept in {kept}\n")
                differing += [seed] * bool(faults)
            shutil.rmtree(old)
            shutil.rmtree(new)
    sys.stdout.write(
        f"{options.seeds:,} histories against {options.before}, {counts['steps']:,} steps"
        f" ({counts['refused']:,} refused), {counts['answers']:,} answers and"
        f" {counts['files']:,} files compared: {len(differing)} histories differ\n"
    )
    return int(bool(differing))


def checkout(before: str, folder: Path) -> Path:
    """The folder of the engine to compare with; a commit's is unpacked."""
    if (Path(before) / "lakehouse").is_dir():
        return Path(before).resolve()
    packed = folder.with_suffix(".tar")
    subprocess.run(
        ["git", "archive", "--output", packed, before, "lakehouse"], cwd=ROOT, check=True
    )
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder


def run(tree: Path, place: Path, first: int, count: int) -> Path:
    """Run the histories with the engine of a tree; the folder that they wrote."""
    folder = place / "histories"
    command = [Path(__file__).with_name("history.py"), tree, folder, first, count]
    subprocess.run(
        [sys.executable, *map(str, command)],
        check=True,
        cwd=place,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    return folder


def differences(old: Path, new: Path, counts: Counter[str]) -> Iterator[str]:
    """What differs between two runs of one history, a line each."""
    first, second = (json.loads((run / "answers.json").read_text()) for run in (old, new))
    counts["answers"] += len(second)
    counts["steps"] += sum(1 for answer in second if answer[1][:1] == "_")
    counts["refused"] += sum(
        1 for answer in second if answer[1][:1] == "_" and "Error: " in str(answer[2])[:60]
    )
    for before, after in zip(first, second, strict=False):
        if before != after:
            yield f"  answer {before!s:.250}\n      now {after!s:.250}"
    if len(first) != len(second):
        yield f"  {len(first)} answers before, {len(second)} now"
    files = [
        {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file()}
        for run in (old, new)
    ]
    for name in sorted(files[0].keys() | files[1].keys()):
        if name == "answers.json":
            continue
        counts["files"] += 1
        if name not in files[1]:
            yield f"  {name}: not written any more"
        elif name not in files[0]:
            yield f"  {name}: not written before"
        elif files[0][name].read_bytes() != files[1][name].read_bytes():
            yield f"  {name}: other bytes"


if __name__ == "__main__":
    raise SystemExit(main())
