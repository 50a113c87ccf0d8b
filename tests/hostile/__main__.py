"""Break tables for as long as asked: `python -m tests.hostile --rounds 10000 [--seed 0]`.

Prints what came of it, the slowest verb and the most memory; ends with 1 if anything came that must
not: an error that is not ours, a wrong answer where a checksum stands guard, a file outside the
table that changed, more than 10 s for a verb (of processor and disk: on a quiet machine), more
than 1 GB.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

from tests.hostile.world import Tally, World

SECONDS_MAX, MIB_MAX = 10, 1024


def say(line: str) -> None:
    """One line of output."""
    sys.stdout.write(line + "\n")


def main() -> int:
    """Run the rounds; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    arguments = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        worlds = [World(Path(folder) / f"v{version}", version) for version in (2, 3)]
        for seed in range(arguments.seed, arguments.seed + arguments.rounds):
            worlds[seed % 2].round(seed, tally)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    for (kind, outcome), count in sorted(tally.outcomes.items()):
        say(f"{kind:22} {outcome:28} {count:8,}")
    say(f"{arguments.rounds:,} rounds, {sum(tally.outcomes.values()):,} verbs")
    say(f"slowest: {tally.seconds_max:.2f} s ({tally.slowest}); most memory: {mib:,} MiB")
    say(f"{len(tally.faults)} faults")
    for fault in tally.faults[:20]:
        say(f"\n{fault}")
    return int(bool(tally.faults) or tally.seconds_max > SECONDS_MAX or mib > MIB_MAX)


if __name__ == "__main__":
    sys.exit(main())
