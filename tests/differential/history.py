"""Random histories through the public surface alone, written so that two engines can run them.

`python history.py TREE FOLDER FIRST COUNT` runs the histories of COUNT seeds from FIRST on
with the engine in TREE, each in a folder of its own, and writes beside its warehouse what it
answered: rows after each step, plans, counts, errors. What a history does follows from its seed
alone and never from an answer, so that two engines walk the same way.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
START_MS = 1_767_225_600_000
KINDS = {
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "decimal(9, 2)": pa.decimal128(9, 2),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
TERMS = {
    "long": ("{}", "bucket(4, {})", "truncate(10, {})"),
    "int": ("{}", "bucket(3, {})"),
    "string": ("{}", "truncate(1, {})", "bucket(2, {})"),
    "date": ("month({})", "{}"),
    "timestamptz": ("day({})", "hour({})"),
    "decimal(9, 2)": ("truncate(100, {})",),
    "boolean": ("{}",),
    "binary": ("truncate(1, {})",),
    "double": (),
}
MODES = ("copy-on-write", "merge-on-read")


def value(random: Random, kind: str) -> Any:
    """A value of a type, among few, so that keys meet; null now and then."""
    if random.random() < 0.1:
        return None
    number = random.randrange(40)
    match kind:
        case "long" | "int":
            return number - 5
        case "double":
            return number / 4
        case "string":
            return "abcdefgh"[number % 8] * (number % 3 + 1)
        case "date":
            return (DAY + dt.timedelta(days=number * 3)).date()
        case "timestamptz":
            return DAY + dt.timedelta(hours=number)
        case "decimal(9, 2)":
            return Decimal(number * 25).scaleb(-2)
        case "boolean":
            return number % 2 == 0
        case _:
            return bytes([number % 4, number])


def literal(given: Any, kind: str) -> str:
    """The value in a filter."""
    match given:
        case bool() | int() | float():
            return str(given).lower()
        case Decimal():
            return str(given)
        case bytes():
            return f"x'{given.hex()}'"
        case dt.datetime():
            return f"timestamp '{given:%Y-%m-%d %H:%M:%S}+00:00'"
        case dt.date():
            return f"date '{given}'"
        case _:
            return f"'{given}'"


class History:
    """One table, from its creation to its last step.

    Args:
        lakehouse: the package whose engine runs it.
        seed: decides everything.
        folder: absent; the warehouse goes there.
    """

    def __init__(self, lakehouse: Any, seed: int, folder: Path) -> None:
        from lakehouse.environment import Environment

        self._lh = lakehouse
        self._random = Random(seed)
        self._clock = Environment.seeded(seed, start_ms=START_MS)
        self._folder = folder
        folder.mkdir(parents=True)
        self._lake = lakehouse.load_catalog(f"file://{folder}/warehouse", environment=self._clock)
        self._columns: dict[str, str] = {"id": "long"}
        self._branches = ["main"]
        self._number = 0
        self.answers: list[Any] = []

    def run(self, steps: int) -> None:
        """Create the table and take the steps."""
        self._create()
        for _ in range(steps):
            self._step()
        self._number = -1
        for snapshot in range(len(self._table.snapshots())):
            point = self._table.snapshots()[snapshot].snapshot_id
            self._answer("then", lambda at=point: self._rows(snapshot_id=at))

    def _create(self) -> None:
        chosen = self._random
        for number in range(chosen.randint(2, 6)):
            self._columns[f"c{number}"] = chosen.choice(sorted(KINDS))
        fields = [pa.field(name, KINDS[kind]) for name, kind in self._columns.items()]
        properties = {
            "format-version": chosen.choice("223"),
            "write.delete.mode": chosen.choice(MODES),
            "write.update.mode": chosen.choice(MODES),
            "write.merge.mode": chosen.choice(MODES),
            "write.delete.granularity": chosen.choice(("file", "partition")),
            "commit.manifest.min-count-to-merge": chosen.choice(("3", "100")),
            "write.target-file-size-bytes": chosen.choice(("512", "536870912")),
            "write.metadata.compression-codec": chosen.choice(("none", "gzip")),
            "write.parquet.row-group-limit": chosen.choice(("3", "1048576")),
        }
        terms = self._terms(chosen.choice((0, 1, 1, 2)))
        self._table = self._lake.create_table(
            "a.t", pa.schema(fields), partition_by=terms, properties=properties
        )
        self.answers.append(["created", terms, properties])

    def _terms(self, count: int) -> list[str]:
        names = self._random.sample(sorted(self._columns), min(count, len(self._columns)))
        return [
            self._random.choice(TERMS[self._columns[name]]).format(name)
            for name in names
            if TERMS[self._columns[name]]
        ]

    def _step(self) -> None:
        weights: dict[Callable[[], Any], int] = {
            self._append: 6,
            self._delete: 4,
            self._update: 3,
            self._upsert: 3,
            self._merge: 2,
            self._overwrite: 2,
            self._apply: 1,
            self._transaction: 2,
            self._schema: 3,
            self._spec: 1,
            self._sort: 1,
            self._property: 1,
            self._compact: 2,
            self._manifests: 1,
            self._expire: 1,
            self._orphans: 1,
            self._branch: 1,
            self._rollback: 1,
            self._add_files: 1,
            self._statistics: 1,
            self._race: 2,
            self._again: 1,
        }
        (step,) = self._random.choices(list(weights), list(weights.values()))
        self._number += 1
        self._answer(step.__name__, step)
        where = self._filter()
        self._answer("rows", self._rows)
        self._answer(f"where {where}", lambda: self._rows(where=where))
        self._answer("plan", lambda: self._plan(where))

    def _answer(self, name: str, ask: Callable[[], Any]) -> None:
        """Keep what came back, or the error as its user sees it."""
        try:
            answer = ask()
        except self._lh.LakehouseError as error:
            answer = f"{type(error).__name__}: {error}"
            self._table.refresh()
        self.answers.append([self._number, name, answer])

    def _rows(self, **asked: Any) -> list[str]:
        found = self._table.scan(**asked).to_arrow()
        lines = sorted(repr(row) for row in found.to_pylist())
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return [str(found.schema.names), f"{len(lines)} rows", digest]

    def _plan(self, where: str) -> list[str]:
        tasks = self._table.scan(where=where).plan().tasks
        return sorted(
            f"{task.data_file.file_path} {len(task.deletes)} {task.start} {task.length}"
            for task in tasks
        )

    def _filter(self) -> str:
        chosen = self._random
        name = chosen.choice(sorted(self._columns))
        kind = self._columns[name]
        given = value(chosen, kind)
        if given is None:
            return f"{name} is {chosen.choice(('', 'not '))}null"
        if kind in ("boolean", "binary"):
            return f"{name} = {literal(given, kind)}"
        sign = chosen.choice(("=", "<", ">=", "<>"))
        simple = f"{name} {sign} {literal(given, kind)}"
        return f"{simple} and id > 3" if chosen.random() < 0.3 else simple

    def _data(self, columns: Mapping[str, str] | None = None, keys: bool = False) -> pa.Table:
        """Rows of some columns; `id` is never null, and once each as a key."""
        columns = columns or self._columns
        count = self._random.randint(1, 12)
        ids = self._random.sample(range(30), count)
        drawn = {
            name: [value(self._random, kind) for _ in range(count)]
            for name, kind in columns.items()
        }
        if "id" in columns and (keys or self._random.random() < 0.9):
            drawn["id"] = ids
        return pa.table(
            {name: pa.array(values, KINDS[columns[name]]) for name, values in drawn.items()}
        )

    def _target(self) -> str:
        return self._random.choice(self._branches) if self._random.random() < 0.2 else "main"

    def _append(self) -> Any:
        return result(self._table.append(self._data(), branch=self._target()))

    def _delete(self) -> Any:
        return result(self._table.delete(self._filter(), branch=self._target()))

    def _update(self) -> Any:
        name = self._random.choice(sorted(self._columns))
        given = value(self._random, self._columns[name])
        text = "null" if given is None else literal(given, self._columns[name])
        where = self._filter()
        return result(self._table.update({name: text}, where=where))

    def _upsert(self) -> Any:
        return result(self._table.upsert(self._data(keys=True), keys=["id"]))

    def _merge(self) -> Any:
        data = self._data(keys=True)
        merge = self._table.merge(data, on=["id"])
        if self._random.random() < 0.4:
            merge = merge.when_matched_delete(f"t.id < {self._random.randrange(20)}")
        merge = merge.when_matched_update_all()
        if self._random.random() < 0.7:
            merge = merge.when_not_matched_insert_all()
        if self._random.random() < 0.2:
            merge = merge.when_not_matched_by_source_delete("t.id > 20")
        return result(merge.execute())

    def _overwrite(self) -> Any:
        return result(self._table.overwrite(self._data(), where=self._filter()))

    def _apply(self) -> Any:
        data = self._data(keys=True)
        verbs = [self._random.choice("IUD") for _ in range(len(data))]
        changes = data.append_column("op", pa.array(verbs)).append_column(
            "at", pa.array([self._number * 100 + i for i in range(len(data))], pa.int64())
        )
        return result(
            self._table.apply_changes(
                changes, keys=["id"], sequence_by=["at"], delete_when="op = 'D'"
            )
        )

    def _transaction(self) -> Any:
        transaction = self._table.transaction()
        transaction.append(self._table.write_files(self._data()))
        self._table.delete(self._filter()) if self._random.random() < 0.3 else None
        transaction.set_properties({"owner": f"team{self._number}"})
        return result(transaction.commit())

    def _schema(self) -> Any:
        chosen = self._random
        names = sorted(set(self._columns) - {"id"})
        with self._table.update_schema() as schema:
            match chosen.randrange(5):
                case 0 if len(names) > 2:
                    name = chosen.choice(names)
                    schema.drop_column(name)
                    self._columns.pop(name)
                    return f"drop {name}"
                case 1 if names:
                    name = chosen.choice(names)
                    schema.rename_column(name, f"{name}r")
                    self._columns[f"{name}r"] = self._columns.pop(name)
                    return f"rename {name}"
                case 2 if "int" in self._columns.values():
                    name = next(n for n in names if self._columns[n] == "int")
                    schema.update_column(name, type="long")
                    self._columns[name] = "long"
                    return f"promote {name}"
                case 3 if names:
                    name = chosen.choice(names)
                    schema.move_first(name)
                    return f"first {name}"
                case _:
                    name, kind = f"n{self._number}", chosen.choice(sorted(KINDS))
                    schema.add_column(name, kind)
                    self._columns[name] = kind
                    return f"add {name} {kind}"

    def _spec(self) -> Any:
        terms = self._terms(self._random.choice((0, 1, 2)))
        with self._table.update_partition_spec() as spec:
            spec.set(*terms)
        return terms

    def _sort(self) -> Any:
        name = self._random.choice(sorted(self._columns))
        with self._table.update_sort_order() as order:
            order.set(f"{name} desc")
        return name

    def _property(self) -> Any:
        name, values = self._random.choice(
            (
                ("write.delete.mode", MODES),
                ("write.merge.mode", MODES),
                ("write.parquet.compression-codec", ("zstd", "snappy", "gzip")),
                ("write.metadata.metrics.default", ("truncate(16)", "counts", "full", "none")),
                ("format-version", ("3",)),
            )
        )
        self._table.set_properties({name: self._random.choice(values)})
        return name

    def _compact(self) -> Any:
        options = self._lh.CompactionOptions(
            min_input_files=self._random.choice((1, 2)),
            target_file_size_bytes=self._random.choice((4096, 1 << 29)),
        )
        done = self._table.compact(options)
        return [done.rewritten_files, done.added_files]

    def _manifests(self) -> Any:
        options = self._lh.ManifestRewriteOptions(force=self._random.random() < 0.7)
        return self._table.rewrite_manifests(options).replaced_manifests

    def _expire(self) -> Any:
        keep = self._random.randint(1, 4)
        older = DAY + dt.timedelta(days=1)
        self._table.expire_snapshots(older_than=older, retain_last=keep)
        return [snapshot.snapshot_id for snapshot in self._table.snapshots()]

    def _orphans(self) -> Any:
        stray = self._folder / "warehouse" / "a" / "t" / "data" / f"stray{self._number}.parquet"
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_bytes(b"nothing")
        return self._table.remove_orphan_files(
            older_than=dt.datetime(2100, 1, 1, tzinfo=dt.UTC), force=True
        ).moved_files

    def _branch(self) -> Any:
        name = f"b{self._number}"
        if len(self._branches) > 1 and self._random.random() < 0.5:
            gone = self._branches.pop()
            if self._random.random() < 0.5:
                self._table.fast_forward("main", gone)
                return f"fast forward to {gone}"
            self._table.remove_ref(gone)
            return f"remove {gone}"
        if self._random.random() < 0.3:
            self._table.create_tag(name.replace("b", "t"))
            return "tag"
        self._table.create_branch(name)
        self._branches.append(name)
        return f"branch {name}"

    def _rollback(self) -> Any:
        back = self._random.randint(1, 3)
        history = self._table.history()
        if len(history) <= back:
            return "too short"
        self._table.rollback_to(
            sorted(history, key=lambda s: s.sequence_number)[-1 - back].snapshot_id
        )
        return back

    def _add_files(self) -> Any:
        landed = self._folder / "warehouse" / "a" / "t" / "data" / f"landed{self._number}.parquet"
        landed.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(self._data(), landed)
        return result(self._table.add_files([f"file://{landed}"]))

    def _statistics(self) -> Any:
        match self._random.randrange(3):
            case 0:
                return str(self._table.compute_statistics().distinct)
            case 1:
                return self._table.compute_partition_statistics().partitions
            case _:
                return self._table.compute_key_filters(["id"]).files

    def _race(self) -> Any:
        """Another handle commits between the loading and the commit of this one."""
        other = self._lake.load_table("a.t")
        verbs = self._random.sample(
            (self._append, self._delete, self._upsert, self._update, self._compact), 2
        )
        mine, self._table = self._table, other
        try:
            answers = [verbs[0]()]
        finally:
            self._table = mine
        return [*answers, verbs[1]()]

    def _again(self) -> Any:
        """The same named write twice: it lands once."""
        data, name = self._data(), f"write-{self._number}"
        first = self._table.append(data, commit_id=name)
        second = self._table.append(data, commit_id=name)
        return [first.snapshot_id, second.snapshot_id]


def result(done: Any) -> Any:
    """A result's counts and summary."""
    if done is None:
        return None
    return {
        name: str(getattr(done, name))
        for name in ("snapshot_id", "rows_inserted", "rows_updated", "rows_deleted", "summary")
        if hasattr(done, name)
    }


def main() -> None:
    tree, folder, first, count = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:5])
    sys.path.insert(0, str(tree))
    import lakehouse

    if not Path(lakehouse.__file__).is_relative_to(tree):
        raise SystemExit(f"The engine is {lakehouse.__file__}, not that of {tree}.")
    for seed in range(first, first + count):
        history = History(lakehouse, seed, folder / str(seed))
        try:
            history.run(12)
        except Exception as error:  # noqa: BLE001 - an answer to compare, like any other
            history.answers.append(f"ended by {type(error).__name__}: {error}")
        (folder / str(seed) / "answers.json").write_text(
            json.dumps(history.answers, indent=1, default=str)
        )


if __name__ == "__main__":
    main()
