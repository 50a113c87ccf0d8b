"""What is stale, against the rows themselves: over random histories no day that differs is missed,
and none is named for a rewrite."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse.environment import Environment
from lakehouse.errors import CorruptMetadataError
from lakehouse.ingestion.source import EventTime, Source
from lakehouse.ingestion.source_tables import event_ts_in
from lakehouse.ingestion.stamp import RunStamp
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.orchestration.assets.derived_table import DerivedTable, RefreshMode
from lakehouse.orchestration.assets.partition_filter import Partitioning
from lakehouse.orchestration.assets.sql_model import SqlModel
from lakehouse.orchestration.assets.staleness import (
    RefreshState,
    Staleness,
    partitions_of,
    refresh_state,
    staleness,
)
from lakehouse.orchestration.automation.landing_state import stale
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.spec.manifests.data_file import STATUS_ADDED, STATUS_DELETED, STATUS_EXISTING
from lakehouse.spec.metadata.snapshot import REFRESH_STATE
from lakehouse.table import Table
from tests.seeds import seeds

DAYS = [dt.date(2026, 6, number) for number in range(1, 13)]
CHANGES = {STATUS_ADDED: "added", STATUS_DELETED: "removed"}
BY_DAY = Partitioning(dg.DailyPartitionsDefinition("1970-01-01"), "event_ts", "clean/events")
SCHEMA = pa.schema([("event_ts", pa.timestamp("us", "UTC")), ("id", pa.int64())])


def rows(days: list[dt.date], start: int) -> pa.Table:
    at = [dt.datetime(one.year, one.month, one.day, 13, tzinfo=dt.UTC) for one in days]
    return pa.table({"event_ts": at, "id": list(range(start, start + len(days)))}, SCHEMA)


def by_day(table: Table) -> dict[dt.date, list[int]]:
    found: dict[dt.date, list[int]] = {}
    for row in table.scan().to_arrow().to_pylist():
        found.setdefault(row["event_ts"].date(), []).append(row["id"])
    return {one: sorted(ids) for one, ids in found.items()}


def shown(days: Iterable[dt.date]) -> str:
    return ", ".join(map(str, sorted(days)))


@dataclass
class Pair:
    """An input, and a table that copies it day by day."""

    lake: Lakehouse
    rng: random.Random
    partition_by: list[str]
    serial: int = 0
    # input rows of each day when it was copied for the last time
    seen: dict[dt.date, list[int]] = field(default_factory=dict)
    # days that snapshots changed since they were copied, and whether any did since the last copy
    touched: set[dt.date] = field(default_factory=set)
    changed: bool = False
    # what was done, for who reads why a test failed
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("raw.events", "clean.events"):
            self.lake.create_table(name, SCHEMA, partition_by=self.partition_by)

    @property
    def raw(self) -> Table:
        return self.lake.load_table("raw.events")

    @property
    def clean(self) -> Table:
        return self.lake.load_table("clean.events")

    def stale(self, by: Partitioning | None = BY_DAY) -> Staleness:
        return staleness(self.clean, {"raw.events": self.raw}, by, by)

    def stale_days(self) -> set[dt.date]:
        return set(map(dt.date.fromisoformat, self.stale().partitions))

    def some_days(self) -> list[dt.date]:
        return sorted(self.rng.sample(DAYS, self.rng.choice([1, 1, 3])))

    def append(self, days: list[dt.date] | None = None) -> None:
        days = self.some_days() if days is None else days
        self.serial += 100
        self.steps.append(f"append {self.serial}: {shown(days)}")
        self.raw.append(rows(days, self.serial))
        self.touched |= set(days)
        self.changed = True

    def overwrite(self) -> None:
        days = self.some_days()
        self.serial += 100
        self.steps.append(f"overwrite {self.serial}: {shown(days)}")
        self.raw.overwrite(rows(days, self.serial), event_ts_in(days))
        self.touched |= set(days)
        self.changed = True

    def delete(self) -> None:
        day = self.rng.choice(DAYS)
        ids = by_day(self.raw).get(day, [])
        if ids:
            gone = self.rng.choice(ids)
            self.steps.append(f"delete {gone} of {ids}: {shown([day])}")
            self.raw.delete(f"id = {gone}")
            self.touched.add(day)
            self.changed = True

    def rewrite(self) -> None:
        self.steps.append("rewrite")
        self.raw.compact()
        self.raw.rewrite_manifests()

    def refresh(self, days: list[dt.date]) -> None:
        """What a run does: it copies days, and says from what."""
        self.steps.append(f"refresh: {shown(days)}")
        found = self.stale()
        data = self.raw.scan(event_ts_in(days)).to_arrow().cast(SCHEMA)
        summary = {REFRESH_STATE: found.after(map(str, days)).to_json()}
        self.clean.overwrite(data, event_ts_in(days), summary=summary)
        now = by_day(self.raw)
        self.seen |= {day: now.get(day, []) for day in days}
        self.touched -= set(days)
        self.changed = False

    def differ(self) -> set[dt.date]:
        now = by_day(self.raw)
        return {day for day in DAYS if now.get(day, []) != self.seen.get(day, [])}

    @contextmanager
    def told(self) -> Iterator[None]:
        """Beside an error stands what led to it: ids and the order of files are new every time."""
        try:
            yield
        except BaseException as error:
            for line in self.story():
                error.add_note(line)
            raise

    def story(self) -> Iterator[str]:
        """What was done, what there is, and what is said to be stale."""
        yield from self.steps
        yield f"touched: {shown(self.touched)}; changed: {self.changed}"
        for table in (self.raw, self.clean):
            yield f"{table.name}, {table.metadata_location}"
            for one in table.metadata.ancestors(table.metadata.current_snapshot_id):
                yield f"  {one.snapshot_id} {one.timestamp_ms} {one.operation} {one.summary}"
        for entry in self.raw.inspect.all_entries().to_pylist():
            if entry["status"] != STATUS_EXISTING:
                name = entry["data_file"]["file_path"].partition("/data/")[2]
                yield f"  {entry['snapshot_id']} {CHANGES[entry['status']]} {name}"
        yield f"rows: {by_day(self.raw)}"
        yield f"rows when they were copied: {self.seen}"
        yield f"rows of the copy: {by_day(self.clean)}"
        yield f"state: {refresh_state(self.clean)}"
        yield f"stale: {self.stale()}; as a whole: {self.stale(None)}"


def lake_of(folder: Path, chance: int) -> Lakehouse:
    """Ids of snapshots and names of files, and thereby their order, follow from a number."""
    drawn = random.Random(chance)
    environment = replace(
        Environment.system(), new_uuid=lambda: UUID(int=drawn.getrandbits(128), version=4)
    )
    return load_catalog((folder / "warehouse").as_uri(), environment=environment)


@pytest.fixture
def lake(tmp_path: Path) -> Lakehouse:
    return load_catalog((tmp_path / "warehouse").as_uri())


@pytest.mark.parametrize("partition_by", [["day(event_ts)"], ["month(event_ts)"], []])
@pytest.mark.parametrize("seed", seeds(1, of=4))
def test_what_is_stale_is_what_changed(tmp_path: Path, seed: int, partition_by: list[str]) -> None:
    rng = random.Random(seed)
    chance = random.SystemRandom().getrandbits(32)
    pair = Pair(lake_of(tmp_path, chance), rng, partition_by)
    pair.steps.append(f"ids follow from {chance}")
    with pair.told():
        live(pair, rng)


def live(pair: Pair, rng: random.Random) -> None:
    """A random history of the input, looked at after every change."""
    pair.append(DAYS)
    mode = rng.choice(["copy-on-write", "merge-on-read"])
    pair.raw.set_properties({"write.delete.mode": mode})
    pair.refresh(DAYS)
    for _ in range(25):
        rng.choice([pair.append, pair.append, pair.overwrite, pair.delete, pair.rewrite])()
        found = pair.stale_days()
        assert pair.differ() <= found
        if pair.partition_by == ["day(event_ts)"]:
            assert found == pair.touched
        assert pair.stale(None).whole == pair.changed
        if rng.random() < 0.3:
            pair.refresh(pair.some_days())
    pair.refresh(sorted(pair.stale_days()) or DAYS)
    assert by_day(pair.clean) == by_day(pair.raw)
    assert not pair.stale_days()


def test_where_the_history_is_gone_everything_is_stale(lake: Lakehouse) -> None:
    pair = Pair(lake, random.Random(1), ["day(event_ts)"])
    pair.append(DAYS[:4])
    pair.refresh(DAYS)
    pair.append([DAYS[0]])
    pair.append([DAYS[1]])
    assert pair.stale_days() == {DAYS[0], DAYS[1]}
    old = pair.raw.metadata.current_snapshot_id
    pair.raw.delete(event_ts_in([DAYS[0]]))
    pair.raw.expire_snapshots(older_than=dt.datetime(2100, 1, 1, tzinfo=dt.UTC), retain_last=1)
    assert pair.stale_days() == set(DAYS[:4]), "days that only the derived table has as well"
    pair.refresh(DAYS)
    assert by_day(pair.clean) == by_day(pair.raw)
    assert pair.raw.metadata.current_snapshot_id != old


@pytest.mark.parametrize("is_known", [True, False], ids=["bounds", "rows"])
@pytest.mark.parametrize(
    "kind",
    [
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
        "date that became a timestamp",
    ],
    ids=str,
)
def test_the_days_of_a_table_whatever_the_type_of_its_times(
    lake: Lakehouse, kind: pa.DataType | str, is_known: bool
) -> None:
    """Judge: the rows. Before 1970 and the last instant of a day, too."""
    is_promoted = isinstance(kind, str)
    days = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 6, 3)]
    if is_promoted or kind == pa.date32():
        values = pa.array(days, pa.date32())
    else:
        at = [dt.datetime.combine(day, dt.time(23, 59, 59, 999_999), dt.UTC) for day in days]
        values = pa.array(at, pa.timestamp("us", "UTC")).cast(kind)
    properties = {"format-version": "3"}
    if not is_known:
        properties["write.metadata.metrics.default"] = "none"
    schema = pa.schema([("at", values.type)])
    table = lake.create_table("raw.times", schema, properties=properties)
    for value in values:
        table.append(pa.table({"at": pa.array([value.as_py()], values.type)}))
    if is_promoted:
        with table.update_schema() as update:
            update.update_column("at", type="timestamp")
    by_day = Partitioning(BY_DAY.definition, "at", "clean/events")
    assert partitions_of(table, by_day) == set(map(str, days))


def test_a_rollback_of_the_input_is_a_change(lake: Lakehouse) -> None:
    pair = Pair(lake, random.Random(1), ["day(event_ts)"])
    pair.append(DAYS[:2])
    first = pair.raw.metadata.current_snapshot_id
    pair.append([DAYS[5]])
    pair.refresh(DAYS)
    pair.raw.rollback_to(first)
    assert pair.differ() <= pair.stale_days()
    pair.refresh(sorted(pair.stale_days()))
    assert by_day(pair.clean) == by_day(pair.raw)


def test_a_table_that_was_never_computed_and_one_whose_state_is_damaged(lake: Lakehouse) -> None:
    pair = Pair(lake, random.Random(1), ["day(event_ts)"])
    assert pair.stale_days() == set()
    assert not pair.stale(None).whole, "nothing has been read yet"
    pair.append(DAYS[:2])
    assert pair.stale_days() == set(DAYS[:2])
    assert staleness(None, {"raw.events": pair.raw}, None, None).whole
    pair.clean.append(rows(DAYS[:1], 1), summary={REFRESH_STATE: "{}"})
    with pytest.raises(CorruptMetadataError, match=REFRESH_STATE):
        pair.stale()


def test_a_state_survives_its_text() -> None:
    state = RefreshState(
        {"raw.events": 5, "raw.other": None}, ("2026-06-01", "2026-06-02", "2026-06-08", "eu", "x")
    )
    assert RefreshState.from_json(state.to_json()) == state


def defined(definition: str, pair: Pair, by: Partitioning | None = BY_DAY) -> Staleness:
    return staleness(pair.clean, {"raw.events": pair.raw}, by, by, definition)


def test_another_definition_makes_every_day_stale_until_each_was_computed_by_it(
    tmp_path: Path,
) -> None:
    pair = Pair(load_catalog(str(tmp_path)), random.Random(1), ["day(event_ts)"])
    with pair.told():
        pair.append(DAYS[:4])
        found = defined("old", pair)
        summary = {REFRESH_STATE: found.after(map(str, DAYS[:4])).to_json()}
        pair.clean.overwrite(pair.raw.scan().to_arrow().cast(SCHEMA), summary=summary)
        assert not defined("old", pair).partitions
        changed = defined("new", pair)
        assert (changed.redefined, set(changed.partitions)) == (True, set(map(str, DAYS[:4])))
        assert all(why.startswith("definition@new") for why in changed.partitions.values())
        one_day = event_ts_in(DAYS[:1])
        pair.clean.overwrite(
            pair.raw.scan(one_day).to_arrow().cast(SCHEMA),
            one_day,
            summary={REFRESH_STATE: changed.after(map(str, DAYS[:1])).to_json()},
        )
        left = defined("new", pair)
        assert (left.redefined, set(left.partitions)) == (False, set(map(str, DAYS[1:4])))
        assert set(defined("old", pair).partitions) == set(map(str, DAYS[:4])), (
            "back again is a change, too"
        )
        assert defined("new", pair, None).whole is False
        assert defined("old", pair, None).whole
        assert set(defined("", pair).partitions) == set(map(str, DAYS[1:4])), (
            "one that is unknown changes nothing"
        )


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("select id, event_ts  from raw.events -- a comment", True),
        ("select id,\n\tevent_ts from raw.events", True),
        ("select id, event_ts from raw.events where id > 1", False),
        ("select id, event_ts from raw.others", False),
        ("select 'a  b' id, event_ts from raw.events", False),
        ("select 'a b' id, event_ts from raw.events", False),
    ],
)
def test_the_digest_of_a_model_tells_queries_apart_and_not_their_layout(
    sql: str, same: bool
) -> None:
    base = SqlModel(name="clean.x", sql="select id, event_ts from raw.events").table()
    other = SqlModel(name="clean.x", sql=sql).table()
    assert (base.definition == other.definition) is same
    assert base.definition


def times(factor: int):
    def transform(frames):
        return frames["raw.events"].selectExpr(f"id * {factor} as id")

    return transform


def plus(frames):
    return frames["raw.events"].selectExpr("id + 1 as id")


def test_the_digest_of_a_transform_is_its_code_and_what_it_closes_over() -> None:
    def digest(transform, code_version: str = "") -> str:
        return DerivedTable(
            name="clean.x", inputs=("raw.events",), transform=transform, code_version=code_version
        ).definition

    assert digest(times(2)) == digest(times(2))
    assert len({digest(times(2)), digest(times(3)), digest(plus), digest(plus, "1")}) == 4
    assert digest(plus, "1") != digest(plus, "2")
    assert digest(min) == "", "built-in functions have no source"


def test_a_model_whose_query_changed_is_asked_for_and_computed_again(tmp_path: Path) -> None:
    lakehouse = LakehouseResource(catalog=str(tmp_path))
    lake = lakehouse.lake()
    raw = lake.create_table("raw.numbers", pa.schema([("id", pa.int64())]))
    raw.append(pa.table({"id": [1, 2]}))
    source = Source(
        name="numbers", event_time=EventTime("at"), first_day=DAYS[0], bucket="id", columns=()
    )

    def model(factor: int) -> DerivedTable:
        query = f"select id * {factor} as id from raw.numbers"
        return SqlModel(name="marts.numbers", sql=query, engine="duckdb").table()

    def materialize(table: DerivedTable) -> dg.AssetMaterialization:
        asset = table.build(None)
        assert asset.code_versions_by_key[table.key] == table.definition
        resources = {"lakehouse": lakehouse, "spark": LakehouseSpark()}
        config = {"ops": {table.op_name: {"config": {"mode": RefreshMode.STALE.name}}}}
        done = dg.materialize([asset], resources=resources, run_config=config)
        (event,) = done.asset_materializations_for_node(table.op_name)
        return event

    def ids() -> list[int]:
        return sorted(lake.load_table("marts.numbers").scan().to_arrow()["id"].to_pylist())

    old, new = model(10), model(100)
    assert materialize(old).metadata["lakehouse/definition"].value == old.definition
    assert (ids(), stale(lake, source, [old])) == ([10, 20], {})
    (cause,) = stale(lake, source, [new]).values()
    assert cause.startswith(f"definition@{new.definition}")
    assert materialize(new).metadata["lakehouse/definition"].value == new.definition
    assert (ids(), stale(lake, source, [new])) == ([100, 200], {})


def test_a_replaced_day_of_a_moved_month_is_the_day_alone() -> None:
    """Its file holds other days, written again beside it; who replaced it says which it was."""
    lake = load_catalog(f"memory://moved-{random.randrange(1 << 60)}")
    aged = {"lakehouse.maintenance.layout-by-age": "0d: month(event_ts)"}
    days = [dt.date(2024, 1, number) for number in range(1, 11)]
    raw = lake.create_table("raw.events", SCHEMA, partition_by=["day(event_ts)"], properties=aged)
    raw.append(rows(days, 0))
    raw.compact()
    copied = raw.current_snapshot()
    state = RefreshState({"raw.events": copied.snapshot_id})
    clean = lake.create_table("clean.events", SCHEMA)
    clean.append(rows(days, 0), summary={REFRESH_STATE: state.to_json()})
    stamp = RunStamp("run", "raw/events", "2024-01-03")
    for summary, expected in ((stamp.summary([days[2]]), {days[2]}), (stamp.summary(), set(days))):
        raw.rollback_to(copied.snapshot_id)
        raw.overwrite(rows([days[2]], 50), event_ts_in([days[2]]), summary=summary)
        files = {task.data_file.spec_id for task in raw.scan().plan().tasks}
        assert files == {raw.metadata.default_spec_id, 1}  # rows that stay are where they were
        assert len(list(raw.scan().plan().tasks)) == 2
        found = staleness(clean, {"raw.events": raw}, BY_DAY, BY_DAY)
        assert set(found.partitions) == set(map(str, expected))


@pytest.mark.parametrize("rewrite", ["compact", "rewrite_manifests"])
def test_what_a_table_was_computed_from_outlives_maintenance(rewrite: str, tmp_path: Path) -> None:
    """Who compacts and expires leaves nothing stale: else every day would be computed again."""
    lake = load_catalog((tmp_path / "warehouse").as_uri())
    source = lake.create_table("raw.a", SCHEMA)
    source.append(rows(DAYS[:2], 0))
    table = lake.create_table("marts.a", SCHEMA)
    state = RefreshState({"raw.a": source.refresh().metadata.current_snapshot_id}, (str(DAYS[5]),))
    for first in (0, 1):
        summary = {REFRESH_STATE: state.to_json()}
        table.append(rows(DAYS[first : first + 1], first), summary=summary)
    table = table.refresh()
    if rewrite == "compact":
        table.compact(CompactionOptions(min_input_files=2))
    else:
        table.rewrite_manifests()
    table = table.refresh()
    assert table.metadata.current_snapshot().operation == "replace"
    table.expire_snapshots(retain_last=1, older_than="2100-01-01")
    table = table.refresh()
    assert len(table.metadata.snapshots) == 1
    assert refresh_state(table) == state
    found = staleness(table, {"raw.a": lake.load_table("raw.a")}, BY_DAY, BY_DAY)
    assert set(found.partitions) == {str(DAYS[5])}
