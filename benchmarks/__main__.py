"""Runs all benchmarks, each in its process: `python -m benchmarks [--quick] [--show] [NAME ...]`.

At the end stands a table of the kept results. `--quick` runs small scales, to see that everything
works: its numbers mean nothing and the kept results stay as they were. `--show` only prints the
table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks"
RESULTS = FOLDER / "results"

QUICK: dict[str, tuple[str, ...]] = {
    "plan_atlas": ("--scale", "0.008", "--repeat", "1"),
    "plan_growth": ("--files-per-partition", "2,4", "--repeat", "1"),
    "plan_cost": ("--scale", "0.01"),
    "scale": ("--days", "7,8,9", "--files-per-partition", "8", "--tables", "20", "--repeat", "1"),
    "manifest_write": ("--entries", "8032"),
    "open_table": ("--snapshots", "100", "--repeat", "1"),
    "cold_start": ("--tables", "3", "--repeat", "1"),
    "call_counts": (),
    "optional_parts": ("--rows", "300000", "--scale", "0.004", "--repeat", "1"),
    "commit": ("--snapshots", "10", "--alone", "", "--commits", "3"),
    "delta_log": ("--files", "500", "--commits", "3"),
    "undo": ("--files", "500", "--runs", "3"),
    "why": ("--rows", "100000", "--days", "40", "--repeat", "1"),
    "race": ("--writers", "2", "--appends", "5", "--catalogs", "sqlite"),
    "lookup": ("--days", "8"),
    "arrow_read": ("--rows", "300000", "--repeat", "1", "--stream-mb", "64"),
    "tpch": ("--sf", "0.01", "--repeat", "1"),
    "merge": ("--rows", "20000", "--keys", "200", "--repeat", "1"),
    "writes": ("--rows", "20000", "--repeat", "1", "--columns", "20"),
    "incremental": ("--rows", "20000", "--keys", "2000", "--repeat", "1", "--queries", "users"),
    "compaction": ("--scale", "0.005", "--rounds", "1"),
    "streams": ("--batches", "5", "--rows", "10"),
    "tune": ("--rows", "20000", "--files", "20", "--repeat", "1", "--no-grid"),
    "week": ("--days", "0.3", "--every", "40"),
    "month": ("--days", "3"),
    "growth": ("--sizes", "1", "--repeat", "1"),
    "spark_read": ("--rows", "200000", "--days", "20", "--repeat", "1"),
    "spark_write": ("--rows", "200000", "--days", "3", "--repeat", "1"),
    "spark_s3": ("--rows", "200000", "--days", "3", "--repeat", "1"),
    "engines": ("--rows", "200000", "--days", "3", "--repeat", "1"),
    "spark_planning": ("--repeat", "1"),
    "one_day": ("--repeat", "1"),
    "ingest": ("--rows", "20000", "--days", "2", "--files", "2", "--repeat", "1"),
    "spark_merge": ("--rows", "60000", "--updates", "6000", "--inserts", "1500", "--repeat", "1"),
    "spark_join": ("--rows", "200000", "--buckets", "2", "--repeat", "1"),
    "group_commit": ("--seconds", "1", "--writers", "4", "--kinds", "sqlite"),
    "small_appends": (
        *("--commits", "20", "--peer-commits", "5"),
        *("--seconds", "1", "--writers", "4"),
    ),
    "rest": ("--seconds", "0.3", "--rounds", "1", "--files", "5376", "--repeat", "1"),
}
"""Every benchmark in the order of running, with what makes it quick."""


@dataclass(frozen=True)
class Ratio:
    """One comparison of a kept result.

    Attributes:
        case: what was asked.
        peer: compared with.
        times: how many times better ours is; below 1 it is worse.
        unit: of what.
    """

    case: str
    peer: str
    times: float
    unit: str = "time"


def plan_atlas(results: dict[str, Any]) -> Iterator[Ratio]:
    for title, query in results["queries"].items():
        for contender, times in query.items():
            if isinstance(times, dict) and "times_faster_than_pyiceberg" in times:
                yield Ratio(
                    f"{title}, {contender}", "pyiceberg", times["times_faster_than_pyiceberg"]
                )


def plan_growth(results: dict[str, Any]) -> Iterator[Ratio]:
    for contender, seconds in results["times_more_seconds"].items():
        case = f"{contender}: {results['times_more_files']} x the files, {seconds} x the seconds"
        yield Ratio(case, "growing with the table", results["times_more_files"] / seconds)


def plan_cost(results: dict[str, Any]) -> Iterator[Ratio]:
    for contender, costs in results["contenders"].items():
        if not contender.startswith("hive"):
            yield Ratio(contender, "Hive listing", costs["hive_requests_to_it"], "requests")
            yield Ratio(contender, "Hive listing", costs["hive_seconds_to_it"], "derived time")


def scale(results: dict[str, Any]) -> Iterator[Ratio]:
    for name, costs in results["model"].items():
        yield Ratio(name, "the cost model", 1 / costs["measured_to_predicted"], "cost")


def cold_start(results: dict[str, Any]) -> Iterator[Ratio]:
    processes = results["processes"]
    theirs = processes["load and plan, pyiceberg"]["cpu_seconds"]
    ours = processes["load and plan"]["cpu_seconds"]
    yield Ratio("load and plan in a process", "pyiceberg", theirs / ours, "processor time")


def open_table(results: dict[str, Any]) -> Iterator[Ratio]:
    for row in results["rows"]:
        yield Ratio(
            f"{row['snapshots']:,} snapshots in {row['ours_ms']} ms",
            "pyiceberg",
            row["times_faster_than_pyiceberg"],
        )


def call_counts(results: dict[str, Any]) -> Iterator[Ratio]:
    for name, before in results.get("before", {}).items():
        now = results["journeys"][name]
        case = f"{name}: {now['calls']:,} calls in {now['modules']} modules"
        yield Ratio(case, "an earlier checkout", before["calls"] / now["calls"], "calls")


def optional_parts(results: dict[str, Any]) -> Iterator[Ratio]:
    for cases in results["parts"].values():
        for case, (ours, *others) in (
            (case, tuple(times.items())) for case, times in cases.items()
        ):
            for name, times in others:
                faster = times["seconds"] / ours[1]["seconds"]
                yield Ratio(f"{case}: {ours[0]}", name, faster)


def manifest_write(results: dict[str, Any]) -> Iterator[Ratio]:
    for peer in ("pyiceberg", "fastavro"):
        yield Ratio(
            f"{results['ours_with_columnar']['entries_per_second']:,} entries/s",
            peer,
            results[f"times_faster_than_{peer}"],
        )


def commit(results: dict[str, Any]) -> Iterator[Ratio]:
    for row in results["rows"]:
        if "ratio" in row:
            yield Ratio(f"{row['snapshots']:,} snapshots", "pyiceberg", row["ratio"])


def delta_log(results: dict[str, Any]) -> Iterator[Ratio]:
    for kind, times in results["median_ms"].items():
        case = f"{kind} to a table of {results['files']:,} files, kept as Delta, too"
        yield Ratio(
            case, "the same without", times["without"]["clock"] / times["with_log"]["clock"]
        )


def undo(results: dict[str, Any]) -> Iterator[Ratio]:
    for how, seconds in results["seconds"].items():
        yield Ratio(f"{results['files']:,} files, {how}", "a second", 1 / seconds["p99"])


def why(results: dict[str, Any]) -> Iterator[Ratio]:
    for how in ("cold", "warm"):
        yield Ratio(f"{results['rows']:,} rows, {how}", "a second", 1 / results["seconds"][how])


def race(results: dict[str, Any]) -> Iterator[Ratio]:
    for row in results["rows"]:
        failed = (
            f"{row['lakehouse']['failed_percent']} % failed, pyiceberg "
            f"{row['pyiceberg']['failed_percent']} %"
        )
        yield Ratio(
            f"{row['catalog']}, {row['writers']} writers: {failed}",
            "pyiceberg",
            row["ratio"],
            "appends/s",
        )


def lookup(results: dict[str, Any]) -> Iterator[Ratio]:
    for name, times in results["times_faster"].items():
        yield Ratio("one key of one day, median", name, times)


def arrow_read(results: dict[str, Any]) -> Iterator[Ratio]:
    for case, times in results["cases"].items():
        for peer in ("duckdb", "pyiceberg"):
            yield Ratio(case, peer, times[peer] / times["lakehouse"])
            yield Ratio(
                case,
                peer,
                times[f"{peer} processor"] / times["lakehouse processor"],
                "processor time",
            )


def tpch(results: dict[str, Any]) -> Iterator[Ratio]:
    for case, measured in results["cases"].items():
        for how, summed in measured["summary"].items():
            if how != "plain":
                asked = f"{len(measured['queries'])} queries, {case}, {how}"
                yield Ratio(
                    asked, "the same over plain files", 1 / summed["ratio"], "processor time"
                )


def merge(results: dict[str, Any]) -> Iterator[Ratio]:
    for peer, times in results["times_ours"].items():
        if not peer.startswith("lakehouse"):
            yield Ratio(
                f"upsert of {results['keys']:,} keys into {results['rows']:,} rows", peer, times
            )


def writes(results: dict[str, Any]) -> Iterator[Ratio]:
    for step, contenders in results["steps"].items():
        for peer, times in contenders.items():
            if peer != "lakehouse":
                case = f"{step} in a table of {results['rows']:,} rows"
                ours = contenders["lakehouse"]
                yield Ratio(case, peer, times["seconds"] / ours["seconds"])
                processor = times["processor"] / ours["processor"]
                yield Ratio(case, peer, processor, "processor time")


def streams(results: dict[str, Any]) -> Iterator[Ratio]:
    ours = results["sinks"]["ours"]
    for sink, peer in (("parquet", "Spark's Parquet sink"), ("iceberg", "Iceberg's sink")):
        theirs = results["sinks"].get(sink, {})
        if theirs.get("batches") != ours["batches"]:
            continue
        for what, unit in (("files", "files"), ("bytes", "bytes"), ("median_ms", "time")):
            times = theirs[what] / ours[what]
            yield Ratio(f"{ours['batches']} batches, {what}", peer, times, unit)


def incremental(results: dict[str, Any]) -> Iterator[Ratio]:
    for result in results["results"]:
        case = (
            f"{result['query']}, {result['part']:.2%} of {results['rows']:,} rows {result['how']}"
        )
        yield Ratio(case, "computed in full", result["ratio"], "processor time")


def compaction(results: dict[str, Any]) -> Iterator[Ratio]:
    for peer, times in results["speed_of_ours"].items():
        yield Ratio(f"{results['input']['files']:,} files", peer, times)


def tune(results: dict[str, Any]) -> Iterator[Ratio]:
    for name, outcome in results["tables"].items():
        if "error" not in outcome:
            yield Ratio(name, "the defaults", 1 / outcome["bytes"]["ratio"], "bytes")
            yield Ratio(name, "the defaults", 1 / outcome["read_cpu_ms"]["ratio"], "processor time")


def month(results: dict[str, Any]) -> Iterator[Ratio]:
    for name, ratios in results["last_day_tuned_to"].items():
        for unit, ratio in ratios.items():
            yield Ratio("last day of a month of `tune = auto`", name, 1 / ratio, unit)


def week(results: dict[str, Any]) -> Iterator[Ratio]:
    for key, times in results["times_better_at_the_end"].items():
        yield Ratio(f"after a week: {key}", "no maintenance", times, key)
    days = results.get("advisor_one_day", results).get("days")
    for name, times in results.get("advisor_times_better", {}).items():
        yield Ratio(
            f"the advisor's first choice, {days} days",
            name.replace("_", " "),
            times,
            "files removed per GB",
        )


def growth(results: dict[str, Any]) -> Iterator[Ratio]:
    small, *_, large = sorted(map(int, results["sizes"]))
    before, after = (results["sizes"][str(size)]["costs"] for size in (small, large))
    for name, costs in after.items():
        case = f"{name}: {large // small} x what is there"
        yield Ratio(
            case,
            "growing with it",
            large / small * before[name]["again"] / costs["again"],
            "processor time",
        )


def rest(results: dict[str, Any]) -> Iterator[Ratio]:
    for row in results["rows"]:
        if "times_the_rate" in row:
            yield Ratio(row["case"], "Iceberg's reference", row["times_the_rate"], "rate")
            yield Ratio(row["case"], "Iceberg's reference", 1 / row["p99_to_it"], "p99")
    plans = results["planning"]
    if "reference" in plans:
        ours, theirs = plans["lakehouse"], plans["reference"]
        case = f"plan of {ours['files']:,} files"
        yield Ratio(case, "Iceberg's reference", theirs["next_s"] / ours["next_s"])


def group_commit(results: dict[str, Any]) -> Iterator[Ratio]:
    commits = {row["catalog"]: row["per_s"] for row in results["rows"] if row["mode"] == "commit"}
    for row in results["rows"]:
        if row["catalog"] in commits and row["mode"] != "commit":
            case = f"{row['catalog']}, {row['writers']} writers, {row['mode']}"
            times = row["per_s"] / commits[row["catalog"]]
            yield Ratio(case, "commits of the protocol", times, "appends/s")


def small_appends(results: dict[str, Any]) -> Iterator[Ratio]:
    rows = {row["who"]: row for row in results["rows"]}
    ours = rows["lakehouse, joined"]
    for name in ("DuckLake, inlined", "DuckLake", "pyiceberg"):
        if name in rows:
            times = ours["commits"] / rows[name]["commits"]
            yield Ratio("inserts", name, rows[name]["insert_s"] * times / ours["insert_s"])
    compacted = ours["compacted_aggregations_s"] / ours["aggregations_s"]
    yield Ratio("aggregations", "the compacted table", compacted)


def spark(results: dict[str, Any]) -> Iterator[Ratio]:
    for row in results["rows"]:
        if row["contender"] != "lakehouse":
            yield Ratio(row["case"], row["contender"], 1 / row["ours_to_it"])
            yield Ratio(
                row["case"], row["contender"], 1 / row["ours_to_it_processor"], "processor time"
            )
    for case, times in results.get("iceberg", {}).get("ours_to_it", {}).items():
        yield Ratio(case, "Iceberg's Spark runtime", 1 / times)


def spark_planning(results: dict[str, Any]) -> Iterator[Ratio]:
    for row in results["rows"]:
        case = f"{row['case']}: {row['more_ms']:+} ms"
        yield Ratio(case, "Parquet's relation", row["parquet_ms"] / row["ours_ms"])


def engines(results: dict[str, Any]) -> Iterator[Ratio]:
    for row in results["rows"]:
        if row["contender"] != "spark":
            yield Ratio(row["contender"], "the mart on Spark", row["ours_to_it"])


def one_day(results: dict[str, Any]) -> Iterator[Ratio]:
    yield Ratio("a day of flights, from click to done", "20 s", 20 / results["seconds"]["all"])


RATIOS: dict[str, Callable[[dict[str, Any]], Iterator[Ratio]]] = {
    "plan_atlas": plan_atlas,
    "plan_growth": plan_growth,
    "plan_cost": plan_cost,
    "scale": scale,
    "open_table": open_table,
    "cold_start": cold_start,
    "call_counts": call_counts,
    "optional_parts": optional_parts,
    "manifest_write": manifest_write,
    "commit": commit,
    "delta_log": delta_log,
    "undo": undo,
    "why": why,
    "race": race,
    "lookup": lookup,
    "arrow_read": arrow_read,
    "tpch": tpch,
    "merge": merge,
    "writes": writes,
    "incremental": incremental,
    "streams": streams,
    "compaction": compaction,
    "tune": tune,
    "week": week,
    "month": month,
    "growth": growth,
    "spark_read": spark,
    "spark_join": spark,
    "spark_merge": spark,
    "spark_write": spark,
    "spark_s3": spark,
    "engines": engines,
    "spark_planning": spark_planning,
    "one_day": one_day,
    "ingest": spark,
    "group_commit": group_commit,
    "small_appends": small_appends,
    "rest": rest,
}


def existing() -> list[str]:
    """The benchmarks that are there, in the order of running."""
    return [name for name in QUICK if (FOLDER / f"{name}.py").is_file()]


def run(names: list[str], *, quick: bool) -> list[str]:
    """Run them; returns those that failed or missed a target."""
    failed = []
    for number, name in enumerate(names, 1):
        print(f"\n[{number}/{len(names)}] {name}", flush=True)
        start = time.perf_counter()
        command = [sys.executable, "-m", f"benchmarks.{name}", *(QUICK[name] if quick else ())]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(
            f"[{number}/{len(names)}] {name}: exit code {code} after "
            f"{time.perf_counter() - start:.0f} s",
            flush=True,
        )
        if code:
            failed.append(name)
    return failed


def run_quick(names: list[str]) -> list[str]:
    """Run small scales; the kept results are put back whatever happens."""
    paths = [RESULTS / f"{name}.json" for name in names]
    before = {path: path.read_bytes() if path.is_file() else None for path in paths}
    try:
        return run(names, quick=True)
    finally:
        for path, data in before.items():
            if data is not None:
                path.write_bytes(data)
            else:
                path.unlink(missing_ok=True)


def show(names: list[str], results: Path = RESULTS) -> Table:
    """The kept results as a table."""
    table = Table(title="Kept results: how many times better ours is (below 1: worse)")
    for header in ("benchmark", "case", "peer", "of", "x"):
        table.add_column(header, justify="right" if header == "x" else "left", overflow="fold")
    for name in names:
        path = results / f"{name}.json"
        if not path.is_file():
            table.add_row(name, "not run yet", "", "", "")
            continue
        for row in RATIOS[name](json.loads(path.read_text())):
            table.add_row(name, row.case, row.peer, row.unit, f"{row.times:,.2f}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(existing())}; all of them by default",
    )
    parser.add_argument("--quick", action="store_true", help="small scales; keeps no result")
    parser.add_argument("--show", action="store_true", help="run nothing, print the kept results")
    arguments = parser.parse_args()
    names = arguments.names or existing()
    unknown = set(names) - set(existing())
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    failed: list[str] = []
    if not arguments.show:
        failed = run_quick(names) if arguments.quick else run(names, quick=False)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(show(names))
    if failed:
        print(f"failed, or missed a target: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
