"""What a pure layer may not reach for by itself: time, identity, chance.

Passed in, so that a run can be replayed from a seed.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, ids, randomness and sleep of one process.

    Attributes:
        now_ms: current time, milliseconds since the epoch, UTC.
        new_uuid: a fresh random UUID.
        random: uniform float in [0, 1), for jitter.
        sleep: pauses for the given seconds.
    """

    now_ms: Callable[[], int]
    new_uuid: Callable[[], uuid.UUID]
    random: Callable[[], float]
    sleep: Callable[[float], None]

    @classmethod
    def system(cls) -> Environment:
        """The real clock, random ids and real sleeping."""
        return cls(
            now_ms=lambda: time.time_ns() // 1_000_000,
            new_uuid=uuid.uuid4,
            random=random.random,
            sleep=time.sleep,
        )

    @classmethod
    def seeded(cls, seed: int, *, start_ms: int = 1_767_225_600_000) -> Environment:
        """A replayable world: ids and jitter follow the seed, sleeping just moves the clock."""
        rng = random.Random(seed)  # noqa: S311 - replay, not secrecy
        clock = [start_ms]

        def now_ms() -> int:
            clock[0] += 1
            return clock[0]

        def sleep(seconds: float) -> None:
            clock[0] += int(seconds * 1000)

        return cls(
            now_ms=now_ms,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
            random=rng.random,
            sleep=sleep,
        )

    def new_snapshot_id(self) -> int:
        """A random positive 63-bit integer (spec: snapshot-id is a unique long)."""
        value = self.new_uuid().int
        return (((value >> 64) ^ value) & 0x7FFF_FFFF_FFFF_FFFF) or 1
