"""Hunts: rounds that each make something at random, and compare what comes of it with an oracle."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.spark import build_session
from tests.hostile import (
    audited_assets,
    debezium_events,
    followed_tables,
    frames_of_assets,
    redefinitions,
    replayed_tables,
    spark_sessions,
)
from tests.hostile.foreign_mutants import Mutant
from tests.spark_config import BRIEF

Session = Callable[[], Any]
"""Opens Spark when the first round needs it."""


@dataclass(frozen=True)
class Hunt:
    """Rounds, and faults that we had, which they have to find.

    Attributes:
        round_of: of a seed, in an empty folder; raises where what came is not what had to come.
        rounds: that find every mutant.
        mutants: the faults.
        spark: whether a round needs a session.
        histories: so many there are in a round.
    """

    round_of: Callable[[int, Path, Session], None]
    rounds: int
    mutants: Sequence[Mutant]
    spark: bool = False
    histories: int = 1

    def fault(self, seed: int, session: Session) -> str | None:
        """What the round of a seed finds; None: nothing."""
        quiet = contextlib.redirect_stderr(io.StringIO())  # Dagster's log
        with tempfile.TemporaryDirectory() as folder, quiet:
            try:
                self.round_of(seed, Path(folder), session)
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                return f"seed {seed}: {error!r:.1500}"
        return None


HUNTS = {
    "debezium": Hunt(debezium_events.round_of, 1000, debezium_events.MUTANTS),
    "frames": Hunt(frames_of_assets.round_of, 100, frames_of_assets.MUTANTS),
    "audited": Hunt(audited_assets.round_of, 60, audited_assets.MUTANTS),
    "derived": Hunt(redefinitions.derived_round, 60, redefinitions.OF_DERIVED),
    "followed": Hunt(followed_tables.round_of, 60, followed_tables.MUTANTS, histories=8),
    "replayed": Hunt(replayed_tables.round_of, 30, replayed_tables.MUTANTS, histories=8),
    "sources": Hunt(redefinitions.source_round, 60, redefinitions.OF_SOURCES, spark=True),
    "caches": Hunt(spark_sessions.cached_round, 40, spark_sessions.OF_CACHES, spark=True),
    "options": Hunt(spark_sessions.written_round, 40, spark_sessions.OF_OPTIONS, spark=True),
    "defaults": Hunt(spark_sessions.defaults_round, 40, spark_sessions.OF_DEFAULTS, spark=True),
}


def faults_of(name: str, seeds: range) -> list[str]:
    """What rounds of a hunt find, in a process of its own or not."""
    gc.freeze()  # garbage is looked for among what rounds make, not among all modules
    return [fault for seed in seeds if (fault := HUNTS[name].fault(seed, session)) is not None]


@functools.cache
def session() -> SparkSession:
    """One of Spark, opened when the first story needs it."""
    config = {**BRIEF, "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
    return build_session("killed", master="local[1]", config=config)
