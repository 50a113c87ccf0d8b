"""python -m tests.simulation --seeds N [--from N] [--workers 2] [--replay N | --mutants [NAME]]."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.mutants import MUTANTS
from tests.simulation.plans import plan_of
from tests.simulation.world import outcome, shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--replay", type=int)
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="planted bugs; all by default")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    if options.replay is not None:
        seed, snapshots, broken = outcome(options.replay)
        sys.stdout.write(
            f"seed {seed}: {broken or f'{snapshots} snapshots, no invariant broken'}\n"
        )
        return 1 if broken else 0
    if options.mutants is not None:
        return _mutants(options.mutants or sorted(MUTANTS), options.seeds)
    started, snapshots, broken = time.monotonic(), 0, []
    with ProcessPoolExecutor(
        options.workers, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        for seed, count, error in pool.map(
            outcome, range(options.first, options.first + options.seeds), chunksize=10
        ):
            snapshots += count
            if error is not None:
                broken.append(seed)
                small = shrink(seed, plan_of(seed))
                sys.stdout.write(
                    f"{error}\n"
                    f"shrunk: {small}\n"
                    f"replay: python -m tests.simulation --replay {seed}\n"
                    "\n"
                )
    seconds = time.monotonic() - started
    sys.stdout.write(
        f"{options.seeds} seeds, {snapshots} snapshots, {len(broken)} broken, {seconds:.0f} s\n"
    )
    return 1 if broken else 0


def _mutants(names: list[str], seeds: int) -> int:
    """Print at which seed each planted bug is found."""
    missed = 0
    for name in names:
        planted = MUTANTS[name]
        own = planted.first_seed(range(seeds), planted.plan)
        of_all = planted.first_seed(range(seeds))
        missed += own is None or of_all is None
        sys.stdout.write(f"{name}: its own plan {own}, plans of all seeds {of_all}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
