"""`lakehouse undo`: what a run wrote is gone, whatever else was written stays."""

from __future__ import annotations

import json
import random
from datetime import date
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.errors import InvalidInputError, NoSuchSnapshotError, ValidationConflictError
from lakehouse.ingestion.definition_changes import as_property
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import LakehouseIOManager, LakehouseResource, undo_job
from lakehouse.orchestration.lineage.undo import UNDONE_TAG, execute, plan, undo
from lakehouse.spec.metadata.snapshot import RUN_ID
from tests.orchestration.conftest import Pipe, event, june
from tests.seeds import seeds

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64())])


@pytest.fixture(params=["files", "sqlite"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lakehouse:
    if request.param == "files":
        return lh.load_catalog((tmp_path / "warehouse").as_uri())
    return lh.load_catalog(
        f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "warehouse").as_uri()
    )


def state(lake: Lakehouse) -> dict[str, list[str]]:
    return {
        name: sorted(map(str, lake.load_table(name).scan().to_arrow().to_pylist()))
        for name in lake.list_tables("t")
    }


def heads(lake: Lakehouse) -> dict[str, int | None]:
    return {
        name: lake.load_table(name).metadata.current_snapshot_id for name in lake.list_tables("t")
    }


@pytest.mark.parametrize("seed", seeds(12, 12))
def test_as_if_the_run_had_not_been(seed: int, lake: Lakehouse) -> None:
    """Brute force: the states of all tables before and after each run are known."""
    chance, names = random.Random(seed), ["t.a", "t.b", "t.c"]
    for name in names:
        lake.create_table(name, SCHEMA)
    wrote: list[set[str]] = []
    before: list[dict[str, list[str]]] = []
    for run in range(5):
        before.append(state(lake))
        wrote.append(set(chance.sample(names, chance.randint(1, 3))))
        for name in sorted(wrote[-1]):
            table = lake.load_table(name)
            for _ in range(chance.randint(1, 3)):
                rows = pa.table({"id": [chance.randrange(9)], "n": [run]}, schema=SCHEMA)
                summary = {RUN_ID: f"run-{run}"}
                verb = chance.choice(["append", "append", "overwrite", "delete", "upsert"])
                if verb == "delete":
                    table.delete(f"id < {chance.randrange(9)}", summary=summary)
                elif verb == "upsert":
                    table.upsert(rows, ["id"], summary=summary)
                elif verb == "overwrite":
                    table.overwrite(rows, f"id = {chance.randrange(9)}", summary=summary)
                else:
                    table.append(rows, summary=summary)
        if chance.random() < 0.5:
            lake.load_table(chance.choice(names)).compact(lh.CompactionOptions(min_input_files=2))
    run = chance.randrange(5)
    since = set().union(*wrote[run + 1 :]) if run < 4 else set()
    now, at = state(lake), heads(lake)
    ours = {name for name in names if _snapshots_of(lake, name, f"run-{run}")}
    if ours & {name for name in since if _changed_since(lake, name, run)}:
        with pytest.raises(ValidationConflictError, match=r"was changed since run .* by run run-"):
            plan(lake, f"run-{run}", names)
        assert heads(lake) == at
        return
    if not ours:  # it deleted what was not there
        with pytest.raises(InvalidInputError, match="there is nothing to undo"):
            plan(lake, f"run-{run}", names)
        return
    planned = plan(lake, f"run-{run}", names)
    assert state(lake) == now
    execute(lake, planned)
    assert state(lake) == {name: (before[run] if name in ours else now)[name] for name in names}
    with pytest.raises(ValidationConflictError, match="plan it again"):
        execute(lake, planned)
    # and it can be done again
    for one in planned.tables:
        lake.load_table(one.name).transaction().set_current_snapshot(one.head).commit()
    assert state(lake) == now


def _snapshots_of(lake: Lakehouse, name: str, run: str) -> list[int]:
    metadata = lake.load_table(name).metadata
    line = metadata.ancestors(metadata.current_snapshot_id)
    return [one.snapshot_id for one in line if one.summary.get(RUN_ID) == run]


def _changed_since(lake: Lakehouse, name: str, run: int) -> bool:
    return any(_snapshots_of(lake, name, f"run-{later}") for later in range(run + 1, 5))


def test_who_wrote_since_is_named_and_nothing_is_done(lake: Lakehouse) -> None:
    rows = pa.table({"id": [1], "n": [1]}, schema=SCHEMA)
    for name in ("t.a", "t.b"):
        lake.create_table(name, SCHEMA).append(rows, summary={RUN_ID: "run-1"})
    lake.load_table("t.b").append(rows)
    with pytest.raises(ValidationConflictError, match=r"t\.b was changed .* by no run of Dagster"):
        plan(lake, "run-1", ["t.a", "t.b"])
    assert [one.name for one in plan(lake, "run-1", ["t.a"]).tables] == ["t.a"]
    with pytest.raises(InvalidInputError, match=r"run run-2 wrote none of t\.a"):
        plan(lake, "run-2", ["t.a", "t.gone"])


def test_what_a_table_was_before_may_have_expired(lake: Lakehouse) -> None:
    rows = pa.table({"id": [1], "n": [1]}, schema=SCHEMA)
    for name in ("t.a", "t.b"):
        first = lake.create_table(name, SCHEMA).append(rows)
        lake.load_table(name).append(rows, summary={RUN_ID: "run-1"})
    lake.load_table("t.b").transaction().expire([first.snapshot_id]).commit()
    with pytest.raises(NoSuchSnapshotError, match=r"t\.b: snapshot .* has expired\. Nothing was"):
        plan(lake, "run-1", ["t.a", "t.b"])
    execute(lake, plan(lake, "run-1", ["t.a"]))
    assert state(lake)["t.a"] == [str({"id": 1, "n": 1})]


def test_a_commit_between_plan_and_undo_is_kept(lake: Lakehouse) -> None:
    rows = pa.table({"id": [1], "n": [1]}, schema=SCHEMA)
    for name in ("t.a", "t.b"):
        lake.create_table(name, SCHEMA).append(rows)
        lake.load_table(name).append(rows, summary={RUN_ID: "run-1"})
    planned = plan(lake, "run-1", ["t.a", "t.b"])
    lake.load_table("t.b").append(rows)
    with pytest.raises(ValidationConflictError, match=r"t\.b was at snapshot"):
        execute(lake, planned)
    assert lake.load_table("t.b").scan().count() == 3
    # one table after another where the catalog cannot do better
    assert lake.load_table("t.a").scan().count() == (2 if planned.together else 1)


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_ingestion_is_undone_and_its_files_are_taken_again(seed: int, pipe: Pipe) -> None:
    chance, pipe = random.Random(seed), pipe.with_source()
    tables = ["raw.events", "raw.events_quarantine", "raw.events_landing"]

    def rows() -> dict[str, list[str]]:
        return {
            name: sorted(map(str, pipe.lake.load_table(name).scan().to_arrow().to_pylist()))
            for name in tables
            if pipe.lake.table_exists(name)
        }

    def land(file: int) -> None:
        lines = [
            event(chance.randrange(30), 3 + chance.randrange(4))
            if chance.random() < 0.8
            else event(chance.randrange(30), 3, amount="much")
            for _ in range(12)
        ]
        pipe.land(f"{file}.jsonl.gz", lines, modified=1_780_000_000 + file)

    for file in range(3):
        land(file)
        pipe.index()
        before = rows()
        run, mode = f"run-{file}", chance.choice(["replace", "increment"])
        done = pipe.ingest_as(run, june(1, 20), mode)
        after = rows()
        if chance.random() < 0.5:
            pipe.lake.load_table("raw.events").compact(lh.CompactionOptions(min_input_files=2))
        execute(pipe.lake, plan(pipe.lake, run, tables))
        assert rows() == {name: before.get(name, []) for name in tables}
        # another run takes the same lines again
        assert pipe.ingest(june(1, 20), mode).counts == done.counts
        assert rows() == after
    # a run that indexed
    land(3)
    before = rows()
    pipe.index("indexed")
    after = rows()
    execute(pipe.lake, plan(pipe.lake, "indexed", tables))
    assert rows() == before
    pipe.index()
    assert rows() == after
    # files that were indexed since, and other versions of those that it took, stay as they are
    pipe.ingest_as("last", june(1, 20), "increment")
    land(4)
    pipe.index()
    (ledger,) = plan(pipe.lake, "last", ["raw.events_landing"]).tables
    assert (ledger.files_given_back, ledger.files_left) == (1, ())
    pipe.land("3.jsonl.gz", [event(99, 3)], modified=1_790_000_000)
    pipe.index()
    (ledger,) = plan(pipe.lake, "last", ["raw.events_landing"]).tables
    assert (ledger.files_given_back, ledger.files_left) == (0, ("3.jsonl.gz",))
    before = rows()["raw.events_landing"]
    execute(pipe.lake, plan(pipe.lake, "last", ["raw.events", "raw.events_landing"]))
    assert rows()["raw.events_landing"] == before
    pending = {"3.jsonl.gz", "4.jsonl.gz"}
    assert all(("'pending': True" in row) == any(file in row for file in pending)
               for row in before if "'event_day': None" not in row)  # fmt: skip


def test_from_dagster_to_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    resource = LakehouseResource(catalog=catalog, warehouse=(tmp_path / "warehouse").as_uri())

    @dg.asset(key_prefix="marts")
    def users() -> pa.Table:
        return pa.table({"id": [1, 2], "since": [date(2026, 6, 1)] * 2})

    @dg.asset(key_prefix="marts")
    def user_count(users: pa.Table) -> pa.Table:
        return pa.table({"users": [users.num_rows]})

    def materialize() -> str:
        with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
            done = dg.materialize(
                [users, user_count],
                instance=instance,
                resources={"io_manager": LakehouseIOManager(lakehouse=resource)},
            )
            return done.run_id

    first, second = materialize(), materialize()
    lake = resource.lake()
    before = heads_of(lake)
    options = ["-c", catalog, "-w", (tmp_path / "warehouse").as_uri()]
    run_cli(["undo", second[:8], "--dry-run", *options])
    assert "would be undone, in one transaction" in capsys.readouterr().out
    assert heads_of(lake) == before
    run_cli(["undo", second[:8], *options])
    assert "to redo" in capsys.readouterr().out
    assert {
        name: lake.load_table(name).current_snapshot().summary[RUN_ID] for name in before
    } == dict.fromkeys(before, first)
    run_cli(["lineage", "marts/users", "--json", *options])
    assert json.loads(capsys.readouterr().out)["undone"] is not None
    run_cli(["rollback", "marts.users", str(before["marts.users"]), "--force", *options])
    capsys.readouterr()
    run_cli(["lineage", "marts/users", "--json", *options])
    assert json.loads(capsys.readouterr().out)["undone"] is None, "it was redone"
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert UNDONE_TAG in instance.get_run_by_id(second).tags
        (seen,) = instance.fetch_observations(dg.AssetKey(["marts", "users"]), limit=1).records
        assert seen.asset_observation.metadata["lakehouse/undone_run"].value == second
    run_cli(["undo", "ffffffff", *options], code=1)
    assert "no run of this instance" in capsys.readouterr().err


def test_the_job_undoes_a_run_from_the_ui(tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    resource = LakehouseResource(catalog=catalog, warehouse=(tmp_path / "warehouse").as_uri())

    @dg.asset(key_prefix="marts")
    def users(context) -> pa.Table:
        return pa.table({"run": [context.run.run_id]})

    def rows() -> list[str]:
        return resource.lake().load_table("marts.users").scan().to_arrow()["run"].to_pylist()

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:

        def undone(**config: object) -> dg.ExecuteInProcessResult:
            return undo_job().execute_in_process(
                {"ops": {"undo__run": {"config": config}}},
                instance=instance,
                resources={"lakehouse": resource},
                raise_on_error=False,
            )

        io = {"io_manager": LakehouseIOManager(lakehouse=resource)}
        first, second = (
            dg.materialize([users], instance=instance, resources=io).run_id for _ in range(2)
        )
        assert undone(run=second[:8], dry_run=True).success
        assert rows() == [second]
        assert undone(run=second[:8]).success
        assert rows() == [first]
        assert UNDONE_TAG in instance.get_run_by_id(second).tags
        refused = undone(run=second)
        assert not refused.success
        (failed,) = [one for one in refused.all_events if one.is_step_failure]
        assert "nothing to undo" in failed.step_failure_data.user_failure_data.description
        assert rows() == [first]


def test_what_a_stream_has_read_does_not_come_again_and_undo_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    table = lake.create_table("t.a", SCHEMA)
    rows = pa.table({"id": [1], "n": [1]}, schema=SCHEMA)
    table.append(rows, commit_id=lh.StreamBatch("q1", 4))
    running: list[str] = []

    @dg.asset
    def streamed(context) -> None:
        for batch in (5, 6):
            table.append(
                rows, commit_id=lh.StreamBatch("q1", batch), summary={RUN_ID: context.run.run_id}
            )
        with pytest.raises(InvalidInputError, match=r"has not ended, .* terminate it first"):
            undo(lake, context.run.run_id, ["t.a"])
        running.append(context.run.run_id)

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        dg.materialize([streamed], instance=instance)
    head = lake.load_table("t.a").metadata.current_snapshot_id
    with pytest.raises(InvalidInputError, match=r"t\.a was written by stream:q1.* remove batch 5 "):
        undo(lake, running[0], ["t.a"])
    assert lake.load_table("t.a").metadata.current_snapshot_id == head
    undo(lake, running[0], ["t.a"], take_again=False)
    assert lake.load_table("t.a").scan().count() == 1
    # what comes again is written again, what stayed is not
    table = lake.load_table("t.a")
    done = [table.append(rows, commit_id=lh.StreamBatch("q1", one)).replayed for one in (4, 5, 6)]
    assert done == [True, False, False]
    assert table.scan().count() == 3


def heads_of(lake: Lakehouse) -> dict[str, int | None]:
    return {
        name: lake.load_table(name).metadata.current_snapshot_id
        for name in lake.list_tables("marts")
    }


def run_cli(arguments: list[str], code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        app(arguments)
    assert ended.value.code == code


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_by_rows_as_if_the_run_had_not_been(seed: int, lake: Lakehouse) -> None:
    """Brute force: the others' statements alone, on a table that never saw the run's."""
    chance = random.Random(seed)
    for name in ("t.a", "t.without"):
        lake.create_table(name, SCHEMA).append(
            pa.table({"id": list(range(9)), "n": [0] * 9}, schema=SCHEMA)
        )
    touched: dict[str, set[int]] = {"run": set(), "others": set()}
    for step in range(1, 7):
        who = "run" if step == 1 or (step != 2 and chance.random() < 0.5) else "others"
        ids = chance.sample(range(12), chance.randint(1, 2))
        touched[who] |= set(ids)
        verb = chance.choice(["append", "delete", "overwrite", "upsert"])
        for name in ("t.a",) if who == "run" else ("t.a", "t.without"):
            table = lake.load_table(name)
            listed = f"id in ({', '.join(map(str, ids))})"
            rows = pa.table({"id": ids, "n": [step] * len(ids)}, schema=SCHEMA)
            how = {"summary": {RUN_ID: who}}
            if verb == "delete":
                table.delete(listed, **how)
            elif verb == "overwrite":
                table.overwrite(rows, listed, **how)
            elif verb == "upsert" and table.scan(listed).count() == len(
                set(table.scan(listed).to_arrow()["id"].to_pylist())
            ):
                table.upsert(rows, ["id"], **how)
            else:
                table.append(rows, **how)
        if chance.random() < 0.2:
            lake.load_table("t.a").compact(lh.CompactionOptions(min_input_files=2))
    now = state(lake)
    try:
        planned = plan(lake, "run", ["t.a"], by_rows=True)
    except ValidationConflictError as error:
        assert touched["run"] & touched["others"], error  # noqa: PT017
        assert "changed by" in error.message  # noqa: PT017
        return
    except InvalidInputError:  # the run deleted what was not there
        assert now["t.a"] == now["t.without"]
        return
    assert state(lake) == now
    execute(lake, planned)
    after = state(lake)
    if not touched["run"] & touched["others"]:
        assert after["t.a"] == after["t.without"]
    with pytest.raises(ValidationConflictError, match="plan it again"):
        execute(lake, planned)


def test_by_rows_the_key_tells_which_are_the_same(lake: Lakehouse) -> None:
    """Who replaced a row that the run had deleted has touched it; without a key nobody can tell."""
    rows = pa.table({"id": [1, 2], "n": [0, 0]}, schema=SCHEMA)
    for keyed in (True, False):
        table = lake.create_table(f"t.{'keyed' if keyed else 'plain'}", SCHEMA)
        if keyed:
            table.set_properties(as_property({"upsert_keys": ["id"]}))
        table.append(rows)
        table.delete("id = 1", summary={RUN_ID: "run"})
        table.append(pa.table({"id": [1], "n": [5]}, schema=SCHEMA), summary={RUN_ID: "later"})
    with pytest.raises(ValidationConflictError, match=r"of run later: id=1, n=5"):
        plan(lake, "run", ["t.keyed"], by_rows=True)
    execute(lake, plan(lake, "run", ["t.plain"], by_rows=True))
    assert state(lake)["t.plain"] == ["{'id': 1, 'n': 0}", "{'id': 1, 'n': 5}", "{'id': 2, 'n': 0}"]
