"""What `benchmarks.week` found: both worlds, and the advisor beside chance and taking turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORLDS = ("maintained", "unmaintained")
ADVISOR = ("advised", "by_chance", "in_turn")
AGAINST = {"last_day_against_second": 2, "last_day_against_fourth": 4}
"""On the second day the table holds two days of rows; from the fourth on as many as it keeps."""
KEYS = ("data_files", "manifests", "metadata_bytes", "planning_ms")


def draw(result: dict[str, Any], picture: Path) -> None:
    """Both weeks beside each other."""
    from matplotlib import pyplot  # noqa: ICN001, PLC0415 - needed here alone, and slow to import

    panels = (
        ("data_files", "data files (dotted: partitions)", 1),
        ("manifests", "manifests", 1),
        ("metadata_bytes", "metadata of the current version, MB", 1e6),
        ("planning_ms", "planning two queries, ms of processor time", 1),
    )
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 6.5), layout="constrained")
    for axis, (key, title, unit) in zip(axes.flat, panels, strict=True):
        for name, colour in (("unmaintained", "#c2410c"), ("maintained", "#1d4ed8")):
            samples = [sample for sample in result[name]["samples"] if key in sample]
            axis.plot(
                [sample["hour"] / 24 for sample in samples],
                [sample[key] / unit for sample in samples],
                color=colour,
                label=name,
                lw=1.2,
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("day", fontsize=8)
        axis.set_yscale("log")
        axis.grid(alpha=0.25, which="both")
    samples = result["maintained"]["samples"]
    axes.flat[0].plot(
        [sample["hour"] / 24 for sample in samples],
        [sample["partitions"] for sample in samples],
        color="#1d4ed8",
        ls=":",
        lw=1.2,
    )
    axes.flat[0].legend(fontsize=9, frameon=False)
    figure.suptitle(
        f"One table, one week, an increment every {result['every_minutes']} min; what is older "
        "than three days is deleted",
        fontsize=11,
    )
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


def flatness(samples: Sequence[dict[str, Any]], key: str, day: int) -> float:
    """Mean of the last day against that of another."""
    pairs = [(sample["hour"], sample[key]) for sample in samples if key in sample]
    end = pairs[-1][0]
    last = [value for hour, value in pairs if hour > end - end / 7]
    before = [value for hour, value in pairs if (day - 1) * end / 7 < hour <= day * end / 7]
    return round(sum(last) / max(1, len(last)) / max(1e-9, sum(before) / max(1, len(before))), 2)


def report(result: dict[str, Any]) -> None:
    """Put the parts together; fails when the two weeks differ in a row or an answer."""
    if all(name in result for name in WORLDS):
        maintained, other = (result[name] for name in WORLDS)
        for what in ("rows", "rows_sha256", "answers", "answers_sha256"):
            assert maintained[what] == other[what], f"maintenance changed {what}"
        for title, day in AGAINST.items():
            result[title] = {
                name: {
                    key: flatness(result[name]["samples"], key, day)
                    for key in ("partitions", *KEYS)
                }
                for name in WORLDS
            }
        last = {name: _last_day(result[name]["samples"]) for name in WORLDS}
        result["mean_of_the_last_day"] = last
        result["times_better_at_the_end"] = {
            key: round(last["unmaintained"][key] / last["maintained"][key], 1) for key in KEYS
        }
    advisor = result.get("advisor", {})
    if all(name in advisor for name in ADVISOR):
        first = advisor["advised"]["files_removed_per_gb"]
        result["advisor_times_better"] = {
            name: round(first / max(1, advisor[name]["files_removed_per_gb"]), 2)
            for name in ("by_chance", "in_turn")
        }
    for key in (
        *AGAINST,
        "mean_of_the_last_day",
        "times_better_at_the_end",
        "advisor_times_better",
    ):
        print(key, json.dumps(result.get(key)))


def _last_day(samples: Sequence[dict[str, Any]]) -> dict[str, float]:
    end = samples[-1]["hour"]
    members = [sample for sample in samples if sample["hour"] > end - end / 7]
    values = {
        key: [member[key] for member in members if key in member]
        for key in samples[-1] | {"planning_ms": 0}
        if key != "hour"
    }
    return {key: round(sum(numbers) / max(1, len(numbers)), 1) for key, numbers in values.items()}
