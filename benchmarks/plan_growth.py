"""Planning time from 10 thousand to 2.7 million files: `python -m benchmarks.plan_growth`.

Option: `[--files-per-partition 4,37,372,1004]`.

The Atlas table of `plan_atlas` at several sizes, the same query at each (six days and one metric
name: about 432 files survive at every size), each plan in a process of its own with cold caches,
best of `--repeat`. Shown are processor seconds, which a busy machine disturbs least. Results and
plot are kept when the largest size is among them. The plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.atlas import FULL_FILES_PER_PARTITION, build  # noqa: E402
from benchmarks.plan_atlas import make_twins, measure, queries  # noqa: E402

CONTENDERS = ("with twins", "without twins", "pyiceberg")
COLOURS = {"with twins": "#1b6ca8", "without twins": "#6aaed6", "pyiceberg": "#999999"}


def run(folder: Path, sizes: list[int], repeat: int, peer_up_to: int) -> dict[str, Any]:
    points = [point(folder, size, repeat, peer_up_to) for size in sorted(sizes)]
    first, last = points[0], points[-1]
    grown = {
        name: round(last[name]["cpu_seconds"] / first[name]["cpu_seconds"], 2)
        for name in CONTENDERS
        if name in last
    }
    return {
        "benchmark": "plan_growth",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "versions": {
            name: version(name) for name in ("pyiceberg", "pyarrow", "datafusion", "numpy")
        },
        "points": points,
        "times_more_files": round(last["files"] / first["files"], 1),
        "times_more_seconds": grown,
    }


def point(folder: Path, size: int, repeat: int, peer_up_to: int) -> dict[str, Any]:
    """Every contender at one size."""
    atlas = build(folder, size)
    location, _ = make_twins(atlas.metadata_location)
    where = next(iter(queries(size).values()))
    sample: dict[str, Any] = {"files": atlas.files, "manifests": atlas.manifests}
    for name in CONTENDERS:
        if name != "pyiceberg" or atlas.files <= peer_up_to:
            best = measure(name, location, where, 1 if name == "pyiceberg" else repeat)
            sample[name] = {
                key: best[key] for key in ("seconds", "cpu_seconds", "rss_mib", "files", "digest")
            }
    assert len({sample[name]["digest"] for name in CONTENDERS if name in sample}) == 1, (
        "the contenders planned different files"
    )
    return sample


def draw(result: dict[str, Any], stem: Path) -> list[Path]:
    """The plot as PNG; returns the files."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ModuleNotFoundError:
        raise SystemExit(
            "the plot needs matplotlib; install it, then draw the kept results with --draw-only"
        ) from None
    matplotlib.use("Agg")
    figure, axes = importlib.import_module("matplotlib.pyplot").subplots(
        figsize=(8, 4.5), layout="constrained"
    )
    for name in CONTENDERS:
        shown = [point for point in result["points"] if name in point]
        if shown:
            seconds = [point[name]["cpu_seconds"] for point in shown]
            axes.plot(
                [point["files"] for point in shown],
                seconds,
                marker="o",
                label=name,
                color=COLOURS[name],
            )
            axes.annotate(
                f"{seconds[-1]:.2f} s",
                (shown[-1]["files"], seconds[-1]),
                xytext=(0, 7),
                textcoords="offset points",
                ha="right",
            )
    survivors = result["points"][-1]["with twins"]["files"]
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="files in the table",
        ylabel="planning, processor seconds",
    )
    axes.set_title(f"Atlas table, six days and one name: {survivors} files survive", fontsize=11)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False, loc="upper left")
    axes.margins(y=0.12)
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(".png")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


def show(result: dict[str, Any]) -> None:
    print(f"{'files':>10} {'survive':>8}" + "".join(f"{name:>16}" for name in CONTENDERS))
    for point in result["points"]:
        cells = (
            f"{point[name]['cpu_seconds']:.3f} s" if name in point else "" for name in CONTENDERS
        )
        print(
            f"{point['files']:10,} {point['with twins']['files']:8,}"
            + "".join(f"{cell:>16}" for cell in cells)
        )
    print(
        f"{result['times_more_files']} x the files take {result['times_more_seconds']} x the "
        "seconds"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    full = f"4,37,372,{FULL_FILES_PER_PARTITION}"
    parser.add_argument(
        "--files-per-partition",
        default=full,
        help="sizes; 2,688 partitions have so many files each",
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--peer-up-to",
        type=int,
        default=3_000_000,
        help="pyiceberg plans tables of at most so many files",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / ".lakehouse" / "benchmarks",
        help="tables kept between runs",
    )
    parser.add_argument(
        "--results", type=Path, default=ROOT / "benchmarks" / "results" / "plan_growth.json"
    )
    parser.add_argument(
        "--image",
        type=Path,
        default=ROOT / "docs" / "images" / "plan_growth",
        help="without suffix",
    )
    parser.add_argument("--draw-only", action="store_true", help="draw the kept results again")
    arguments = parser.parse_args()
    if arguments.draw_only:
        draw(json.loads(arguments.results.read_text()), arguments.image)
        return
    sizes = [int(size) for size in arguments.files_per_partition.split(",")]
    result = run(
        arguments.folder,
        sizes,
        arguments.repeat,
        arguments.peer_up_to,
    )
    show(result)
    if max(sizes) >= FULL_FILES_PER_PARTITION:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(result, indent=1) + "\n")
        draw(result, arguments.image)


if __name__ == "__main__":
    main()
