"""A warehouse with a table that gets broken, a neighbour, and a victim's folder beside it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import lakehouse as lh
from lakehouse.environment import Environment
from lakehouse.maintenance.compaction.compaction import compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.manifest_rewrite import (
    ManifestRewriteOptions,
    execute_columnar,
    plan_columnar,
    rewrite_manifests,
)
from lakehouse.maintenance.orphan_removal import OrphanOptions, remove_orphan_files
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from lakehouse.manifests.manifest_cache import DEFAULT_CACHE
from lakehouse.storage.location import local_path
from tests.hostile.mutations import as_avro, as_columnar, as_json, raw
from tests.integration.maintenance_support import at

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("d", pa.float64())])
LATER = 100
CHECKSUMMED = (
    "manifest bytes",
    "manifest list bytes",
    "columnar",
    "columnar values",
    "deletion vector",
)
"""What is broken in these is noticed, or changes no answer."""

Mutation = Callable[[random.Random, bytes, Path], bytes]


@dataclass
class Tally:
    """What came of the rounds.

    Attributes:
        outcomes: (kind, what came of it) -> how often.
        faults: what must not happen, with how to repeat it.
        seconds_max: of one verb.
        slowest: which.
    """

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds_max: float = 0.0
    slowest: str = ""


class World:
    """Made once; each round breaks one file of a copy and tries every verb.

    Args:
        root: an empty folder.
        format_version: of the table.
    """

    def __init__(self, root: Path, format_version: int) -> None:
        self.root, self.live, self.kept = root, root / "live", root / "kept"
        self.victim = root / "victim"
        self.victim.mkdir(parents=True)
        for name in ("thesis.txt", "data.parquet"):
            (self.victim / name).write_text(f"precious {name}")
        os.mkfifo(self.victim / "pipe")
        lake = lh.load_catalog(str(self.live), environment=Environment.seeded(1))
        mode = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update")}
        table = lake.create_table(
            "raw.t",
            SCHEMA,
            partition_by=["s"],
            properties=mode,
            format_version=format_version,
        )
        table.append(rows(0, 120, 40))
        table.append(rows(120, 140, 5))
        table.delete("id in (3, 77, 121)")
        table.compute_statistics()
        execute_columnar(table.catalog, plan_columnar(table.catalog, table.identifier))
        neighbour = lake.create_table("raw.neighbour", SCHEMA)
        neighbour.append(rows(0, 5, 2))
        table.refresh()
        self.truth = ids(table)
        self.folder = Path(local_path(table.location))
        long_ago = time.time() - 400 * 86_400
        for path in self.live.rglob("*"):
            os.utime(path, (long_ago, long_ago))
        shutil.copytree(self.live, self.kept)
        self.targets = self._targets(table)

    def _targets(self, table: lh.Table) -> list[tuple[str, Path, Mutation]]:
        """(kind, file, mutation)."""
        found: list[tuple[str, Path, Mutation]] = []
        current = Path(local_path(table.metadata_location))
        document = json.loads(current.read_bytes())
        lists = {Path(local_path(one["manifest-list"])) for one in document["snapshots"]}
        statistics = {
            Path(local_path(one["statistics-path"])) for one in document.get("statistics", ())
        }
        found += [("metadata", current, as_json), ("metadata bytes", current, raw)]
        for path in sorted(self.folder.rglob("*")):
            match path.suffix:
                case ".avro" if path in lists:
                    found += [("manifest list", path, as_avro), ("manifest list bytes", path, raw)]
                case ".avro":
                    found += [("manifest", path, as_avro), ("manifest bytes", path, raw)]
                case ".parquet" if path.name.endswith(".columnar.parquet"):
                    found += [("columnar", path, raw), ("columnar values", path, as_columnar)]
                case ".parquet":
                    found.append(("data file", path, raw))
                case _ if path in statistics:
                    found.append(("statistics", path, raw))
                case ".puffin":
                    found.append(("deletion vector", path, raw))
                case _ if path.name == "version-hint.text":
                    found.append(("version hint", path, raw))
        return found

    def census(self) -> dict[str, str]:
        """Every file outside the table, links and folders too, with what it holds."""
        outside = {}
        for path in self.root.rglob("*"):
            if path.is_relative_to(self.folder) or path.is_relative_to(self.kept):
                continue
            whole = path.is_file() and not path.is_symlink()
            outside[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if whole else ""
        return outside

    def round(self, seed: int, tally: Tally) -> None:
        """Break one file, try all verbs, put everything back."""
        rng = random.Random(seed)
        kinds = sorted({kind for kind, _, _ in self.targets})
        kind = rng.choice(kinds)
        _, path, mutation = rng.choice([one for one in self.targets if one[0] == kind])
        shutil.rmtree(self.live)
        shutil.copytree(self.kept, self.live)
        before = self.census()
        DEFAULT_CACHE.clear()
        path.write_bytes(mutation(rng, path.read_bytes(), self.victim))
        for name, verb in self._verbs(rng).items():
            start = time.perf_counter()
            said = f"seed {seed}, {kind}, {name}"
            try:
                outcome = verb(kind)
            except lh.LakehouseError as error:
                outcome = type(error).__name__
            except Exception:  # noqa: BLE001 - that is what is looked for
                outcome = "fault"
                tally.faults.append(f"{said}: {traceback.format_exc(limit=-4)}")
            seconds = time.perf_counter() - start
            if outcome == "wrong" and kind in CHECKSUMMED:
                tally.faults.append(f"{said}: another answer")
            tally.outcomes[kind, outcome] += 1
            if seconds > tally.seconds_max:
                tally.seconds_max, tally.slowest = seconds, said
            if self.census() != before:
                tally.faults.append(f"{said}: a file outside the table changed")
                return

    def _verbs(self, rng: random.Random) -> dict[str, Callable[[str], str]]:
        later = at(days=LATER)
        opened = lh.load_catalog(str(self.live))

        def table() -> lh.Table:
            return opened.load_table("raw.t")

        def read(_kind: str) -> str:
            return "right" if ids(table()) == self.truth else "wrong"

        def find(_kind: str) -> str:
            wanted = rng.choice([0, 3, 55, 121, 139])
            found = table().scan(f"id = {wanted}").to_arrow()["id"].to_pylist()
            return "right" if found == [one for one in self.truth if one == wanted] else "wrong"

        def done(verb: Callable[[lh.Table], object]) -> Callable[[str], str]:
            def run(_kind: str) -> str:
                verb(table())
                return "done"

            return run

        everything = ExpiryOptions(older_than_ms=1 << 62, remove_old_metadata=True)
        writing = {
            "append": lambda one: one.append(rows(500, 503, 2)),
            "delete": lambda one: one.delete("id = 55"),
            "delete by value": lambda one: one.delete("d > 20"),
            "overwrite": lambda one: one.overwrite(rows(600, 602, 1), "id < 20"),
            "compact": lambda one: compact(
                one.catalog, one.identifier, CompactionOptions(min_input_files=1)
            ),
            "rewrite manifests": lambda one: rewrite_manifests(
                one.catalog, one.identifier, ManifestRewriteOptions(force=True)
            ),
            "statistics": lambda one: one.compute_statistics(),
            "tag": lambda one: one.create_tag(f"t{rng.random()}"),
        }
        deleting = {
            "expire": lambda one: expire_snapshots(
                one.catalog, one.identifier, everything, environment=later
            ),
            "orphans": lambda one: remove_orphan_files(
                one.catalog, one.identifier, OrphanOptions(trash=False), environment=later
            ),
        }
        chosen = rng.sample(sorted(writing), 3)
        return {
            "read": read,
            "find": find,
            "health": done(lambda one: one.health()),
            "history": done(lambda one: (one.history(), one.inspect.files())),
            **{name: done(writing[name]) for name in chosen},
            **{name: done(verb) for name, verb in deleting.items()},
            "drop": done(lambda one: opened.drop_table(one.name, purge=True)),
        }


def rows(start: int, stop: int, groups: int) -> pa.Table:
    """Rows with ids [start, stop) in so many partitions."""
    numbers = range(start, stop)
    return pa.table(
        {"id": numbers, "s": [f"s{n % groups}" for n in numbers], "d": [n / 3 for n in numbers]},
        schema=SCHEMA,
    )


def ids(table: lh.Table) -> list[int]:
    """All of them, in order."""
    return sorted(table.scan().to_arrow()["id"].to_pylist(), key=lambda one: (one is None, one))
