"""Break tables for as long as asked: `python -m tests.hostile --rounds 10000 [--seed 0]`.

With `--foreign`, tables that strangers write take their place: legal ones and bent ones, the right
answer or a typed error. With `--landing`, landing files do: each record becomes the row that it
says, or none, and each line is counted once. With `--killed`, runs of assets die at each change of
the storage, and what the next ones leave is looked at. With `--hunt NAME`, one of `HUNTS`. With
`--planted` (alone, or beside `--landing`, `--killed` or `--hunt`), faults that we had are planted
again, one at a time, and each has to be found within so many rounds. `--faults` lists these faults
by number, and the command that finds each.

Prints what came of it, the slowest verb and the most memory; ends with 1 if anything came that must
not: an error that is not ours, a wrong answer where a checksum stands guard, a file outside the
table that changed, more than 10 s for a verb (of processor and disk: on a quiet machine), more
than 1 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.hostile import killed_runs, landing_rounds
from tests.hostile.foreign_mutants import MUTANTS, OF_HISTORIES, OF_KILLED_RUNS, Mutant
from tests.hostile.foreign_rounds import Found, Strangers, rounds_of
from tests.hostile.hunts import HUNTS, Hunt, faults_of, session
from tests.hostile.landing_mutants import LANDING_MUTANTS
from tests.hostile.world import Tally, World

SECONDS_MAX, MIB_MAX = 10, 1024
PART = 100


def say(line: str) -> None:
    """One line of output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_each(faults: Sequence[str]) -> None:
    """What was found, at once: such runs are long."""
    for fault in faults:
        say(f"\n{fault}")


def main() -> int:
    """Run the rounds; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="1000, or those of the hunt")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--foreign", action="store_true", help="tables that strangers write")
    parser.add_argument("--landing", action="store_true", help="landing files of the public")
    parser.add_argument("--killed", action="store_true", help="runs that die at each change")
    parser.add_argument("--hunt", choices=HUNTS, help="another kind of round")
    parser.add_argument("--faults", action="store_true", help="list those that are planted")
    parser.add_argument("--planted", action="store_true", help="find faults that we had")
    parser.add_argument("--processes", type=int, default=1, help="of --foreign, --hunt")
    arguments = parser.parse_args()
    if arguments.faults:
        return list_faults()
    hunt = HUNTS.get(arguments.hunt)
    rounds = arguments.rounds or (hunt.rounds if hunt else 1000)
    seeds = range(arguments.seed, arguments.seed + rounds)
    if hunt is not None:
        if arguments.planted:
            return planted_hunt(hunt, seeds)
        return hunted(arguments.hunt, seeds, arguments.processes)
    if arguments.landing:
        return planted_landing(seeds) if arguments.planted else landing(seeds)
    if arguments.killed:
        return planted_killed(seeds) if arguments.planted else killed(seeds)
    if arguments.planted:
        return planted(seeds)
    if arguments.foreign:
        return foreign(seeds, arguments.processes)
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        worlds = [World(Path(folder) / f"v{version}", version) for version in (2, 3)]
        for seed in seeds:
            worlds[seed % 2].round(seed, tally)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    for (kind, outcome), count in sorted(tally.outcomes.items()):
        say(f"{kind:22} {outcome:28} {count:8,}")
    say(f"{rounds:,} rounds, {sum(tally.outcomes.values()):,} verbs")
    say(f"slowest: {tally.seconds_max:.2f} s ({tally.slowest}); most memory: {mib:,} MiB")
    say(f"{len(tally.faults)} faults")
    for fault in tally.faults[:20]:
        say(f"\n{fault}")
    return int(bool(tally.faults) or tally.seconds_max > SECONDS_MAX or mib > MIB_MAX)


def foreign(seeds: range, processes: int) -> int:
    """Rounds over tables of strangers, so many at a time; the exit code."""
    found = Found()
    parts = [seeds[start : start + PART] for start in range(0, len(seeds), PART)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, part in enumerate(pool.imap_unordered(rounds_of, parts), 1):
            found.outcomes += part.outcomes
            found.faults += part.faults
            say_each(part.faults)
            if done % 5 == 0:
                say(f"{done * PART:,} tables, {len(found.faults)} faults")
    return told(found, len(seeds), "tables")


def landing(seeds: range) -> int:
    """Rounds over landing files; the exit code."""
    tally = landing_rounds.Tally()
    for seed in seeds:
        known = len(tally.faults)
        landing_rounds.round_of(seed, tally)
        say_each(tally.faults[known:])
    return told(tally, len(seeds), "files")


def killed(seeds: range) -> int:
    """Stories of runs that die at each of their changes; the exit code."""
    found = Found()
    for seed in seeds:
        known = len(found.faults)
        killed_runs.story(seed, session, sorted(killed_runs.WORLDS), found)
        say_each(found.faults[known:])
    return told(found, sum(found.outcomes.values()), "runs")


def hunted(name: str, seeds: range, processes: int) -> int:
    """Rounds of a hunt, so many at a time; the exit code."""
    faults = 0
    size = min(PART, -(-len(seeds) // processes))
    parts = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    with contextlib.ExitStack() as stack:
        each: Callable[..., Iterable[Sequence[str]]] = map
        if processes > 1:
            context = multiprocessing.get_context("spawn")
            each = stack.enter_context(context.Pool(processes)).imap_unordered
        for done, found in enumerate(each(functools.partial(faults_of, name), parts), 1):
            say_each(found)
            faults += len(found)
            if done < len(parts):
                say(f"{done * size:,} rounds, {faults} faults")
    histories = HUNTS[name].histories
    of = f" of {histories} histories each" if histories > 1 else ""
    say(f"{len(seeds):,} rounds{of}, {faults} faults")
    return int(faults > 0)


def planted_hunt(hunt: Hunt, seeds: range) -> int:
    """In which round each planted fault is found; the exit code is 1 if one is not."""
    missed = 0
    for mutant in hunt.mutants:
        with mutant.planted_in():
            found = next((seed for seed in seeds if hunt.fault(seed, session)), None)
        missed += found is None
        when = "not found" if found is None else f"round {found - seeds.start + 1}"
        say(f"{mutant.fault:78} {when}")
    return int(missed > 0)


def list_faults() -> int:
    """Each fault by its number, and the command that finds it."""
    hunts: dict[str, Sequence[Mutant]] = {
        "tests.hostile --planted": MUTANTS,
        "tests.hostile --landing --planted": LANDING_MUTANTS,
        "tests.hostile --killed --planted": OF_KILLED_RUNS,
        "tests.conformance.java --planted": OF_HISTORIES,
        **{f"tests.hostile --hunt {name} --planted": one.mutants for name, one in HUNTS.items()},
    }
    found = [(mutant.fault, command) for command, some in hunts.items() for mutant in some]
    for fault, command in sorted(found, key=lambda one: _number(one[0])):
        say(f"{fault:88} {command}")
    return 0


def _number(fault: str) -> tuple[int, str]:
    number, letter = re.match(r"(\d+)([a-z]?):", fault).groups()  # type: ignore[union-attr]
    return int(number), letter


def planted_killed(seeds: range) -> int:
    """In which story each planted fault is found; the exit code is 1 if one is not."""
    missed = 0
    for mutant in OF_KILLED_RUNS:
        found = Found()
        with mutant.planted_in():
            for seed in seeds:
                killed_runs.story(seed, session, ["plain asset"], found)
                if found.faults:
                    break
        missed += not found.faults
        when = f"story {seed - seeds.start + 1}" if found.faults else "not found"
        say(f"{mutant.fault:78} {when}")
    return int(missed > 0)


def told(tally: Found | landing_rounds.Tally, tried: int, what: str) -> int:
    """Print what came of it; the exit code."""
    for (kind, outcome), count in sorted(tally.outcomes.items()):
        say(f"{kind:46} {outcome:34} {count:8,}")
    say(f"{tried:,} {what}, {len(tally.faults)} faults")
    return int(bool(tally.faults))


def planted_landing(seeds: range) -> int:
    """In which file each planted fault is found; the exit code is 1 if one is not."""
    missed = 0
    for mutant in LANDING_MUTANTS:
        tally = landing_rounds.Tally()
        with mutant.planted_in():
            for seed in seeds:
                landing_rounds.round_of(seed, tally)
                if tally.faults:
                    break
        missed += not tally.faults
        when = f"file {seed - seeds.start + 1}" if tally.faults else "not found"
        say(f"{mutant.fault:70} {when}")
    return int(missed > 0)


def planted(seeds: range) -> int:
    """In which round each planted fault is found; the exit code is 1 if one is not."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, mutant in enumerate(MUTANTS):
            found = Found()
            strangers = Strangers.of(Path(folder) / f"m{number}", mutant)
            with mutant.planted_in():
                for seed in seeds:
                    strangers.round(seed, found)
                    if found.faults:
                        break
            missed += not found.faults
            when = f"round {seed - seeds.start + 1}" if found.faults else "not found"
            say(f"{mutant.fault:78} {when}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
