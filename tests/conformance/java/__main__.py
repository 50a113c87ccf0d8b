"""`make conformance-java`: random tables and histories, ours read by Java and Java's by us."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.spark import build_session
from tests.conformance.java.both_engines import BothEngines
from tests.conformance.java.evolving_history import EvolvingHistory
from tests.conformance.java.judge import Judge, JudgeError, MissingToolError, build
from tests.conformance.java.new_types import NewTypes
from tests.conformance.java.orders import ask
from tests.conformance.java.random_history import History
from tests.hostile.foreign_mutants import MUTANTS, OF_HISTORIES
from tests.hostile.foreign_stories import Story
from tests.spark_config import BRIEF


def main() -> int:
    """Run the cases; exit code 1 when any differs, 2 when Java or Maven is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.java", description=__doc__)
    parser.add_argument("--cases", type=int, default=25, help="how many tables")
    parser.add_argument("--seed", type=int, default=0, help="of the first table; the rest follow")
    parser.add_argument("--steps", type=int, default=10, help="of each history")
    parser.add_argument("--orders", action="store_true", help="ask for the table of orders too")
    parser.add_argument(
        "--histories", action="store_true", help="evolution beside equality deletes of any field"
    )
    parser.add_argument("--spark", action="store_true", help="read their last heads in Spark too")
    parser.add_argument(
        "--planted", action="store_true", help="plant faults in us, which the histories must find"
    )
    parser.add_argument(
        "--foreign", action="store_true", help="legal tables of strangers, read by Java"
    )
    parser.add_argument(
        "--types", action="store_true", help="variants, geometries, nanoseconds and their lineage"
    )
    parser.add_argument("--built", action="store_true", help="do not run Maven")
    parser.add_argument("--verbose", action="store_true", help="print every step")
    options = parser.parse_args()
    if not options.built:
        try:
            build()
        except MissingToolError as error:
            say(str(error))
            return 2
    started = time.monotonic()
    counts: Counter[str] = Counter()
    spark = None
    if options.spark:
        config = {**BRIEF, "spark.log.level": "OFF"}
        spark = build_session("histories", master="local[1]", config=config)
    seeds = range(options.seed, options.seed + options.cases)
    with Judge() as judge, tempfile.TemporaryDirectory() as folder:
        if options.foreign:
            return foreign(seeds, judge, Path(folder))
        if options.types:
            return new_types(seeds, judge, Path(folder), options.steps)
        if options.planted:
            return planted(seeds, judge, Path(folder), options)
        if options.orders:
            for line in ask(judge, Path(folder, "orders")):
                say(line)
        failed = [
            seed
            for seed in seeds
            if not one_table(seed, judge, Path(folder), counts, options, spark)
        ]
    for name, count in sorted(counts.items()):
        say(f"{count:9,}  {name}")
    say(
        f"{options.cases} tables, {counts['commits']:,} commits, "
        f"{sum(counts[name] for name in COMPARED):,} comparisons, {len(failed)} tables differ, "
        f"{time.monotonic() - started:.0f} s"
    )
    if failed:
        say(
            "again: python -m tests.conformance.java --built --verbose --cases 1 --steps "
            f"{options.steps}{' --histories' if options.histories else ''} --seed {failed[0]}"
        )
    return 1 if failed else 0


COMPARED = ("heads read by both", "snapshots read by both", "filters", "lineages compared")


def one_table(
    seed: int,
    judge: Judge,
    folder: Path,
    counts: Counter[str],
    options: argparse.Namespace,
    spark: SparkSession | None,
) -> bool:
    """Whether both agree about the table of a seed."""
    started = time.monotonic()
    place = folder / f"seed{seed}"
    place.mkdir()
    kind = EvolvingHistory if options.histories else History
    history = kind(seed, judge, place, counts)
    outcome, trace = "same", ""
    try:
        history.run(options.steps)
        if spark is not None and isinstance(history, EvolvingHistory):
            history.compare_with_spark(spark)
    except Exception as error:  # noqa: BLE001 - whatever happens, the seed must be reported
        outcome, trace = f"DIFFERENT: {type(error).__name__}: {error}", traceback.format_exc()
    say(f"seed {seed}: v{history.version}, {time.monotonic() - started:.1f} s, {outcome}")
    if options.verbose or trace:
        say("  " + "\n  ".join([*history.log, trace]))
    return not trace


def foreign(seeds: range, judge: Judge, folder: Path) -> int:
    """Whether Java finds the rows that brute force over the story of a table gives."""
    lake = BothEngines(judge, folder, "jdbc").lake
    lake.create_namespace("a")
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        name, place = f"a.t{seed}", folder / "warehouse" / "a" / f"t{seed}"
        story = Story(seed, place, for_java=True)
        lake.register_table(name, story.table.write(place))
        right = sorted(str(row[1]) for row in story.rows())
        try:
            rows = judge("rows", catalog=folder.name, table=name)
            got = sorted(str(row.get("1")) for row in rows)
            outcome = "same" if got == right else "DIFFERENT"
            told = f"{got} instead of {right}"
        except JudgeError as error:
            outcome, told = "Java raises", error.message
        outcomes[outcome] += 1
        if outcome != "same":
            say(f"seed {seed}: {outcome}: {told[:300]}")
    say(f"{len(seeds)} tables: {dict(outcomes)}")
    return int(set(outcomes) != {"same"})


def new_types(seeds: range, judge: Judge, folder: Path, steps: int) -> int:
    """Whether both read variants, geometries and nanoseconds of each other, and their lineage."""
    compared: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        place = folder / f"types{seed}"
        place.mkdir()
        try:
            table = NewTypes(judge, place, seed, compared)
            said = table.run(steps)
            said += table.filters_differ()
            said += [f"bounds of {what}" for what in table.bounds_differ()]
        except Exception as error:  # noqa: BLE001 - whatever happens, the seed must be reported
            said = [f"{type(error).__name__}: {error}"]
        failed += bool(said)
        for line in said:
            say(f"seed {seed}: {line[:1000]}")
    say(f"{len(seeds)} tables, {failed} differ; {dict(compared)}")
    return int(failed > 0)


def planted(seeds: range, judge: Judge, folder: Path, options: argparse.Namespace) -> int:
    """In which history each planted fault is found; the exit code is 1 if one is not.

    Those that bent tables and files that we take in show are for `tests.hostile --foreign`.
    """
    missed = 0
    for number, mutant in enumerate([*MUTANTS, *OF_HISTORIES]):
        if mutant.no_history or mutant.bends or mutant.taken:
            why = mutant.no_history or "histories are legal, this is not"
            say(f"{mutant.fault:70} by foreign tables alone: {why}")
            continue
        found = ""
        with mutant.planted_in():
            for seed in seeds:
                place = folder / f"m{number}-{seed}"
                place.mkdir()
                try:
                    EvolvingHistory(seed, judge, place, Counter()).run(options.steps)
                except Exception as error:  # noqa: BLE001 - that is what is looked for
                    found = f"history {seed - seeds.start + 1}: {type(error).__name__} {error}"
                    break
        missed += not found
        say(f"{mutant.fault:70} {found[:160] or 'not found'}")
    return int(missed > 0)


def say(text: str) -> None:
    """A line of the report, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
