"""`lakehouse tune`: a trial is bounded and changes nothing; what is adopted keeps every row."""

import itertools
import signal
import subprocess
import sys
from dataclasses import replace

import duckdb
import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError
from lakehouse.tuning import adoption
from lakehouse.tuning.layouts import Layout, Measured, Prices, Query, QueryCost, judge
from lakehouse.tuning.trial import check_queries, layout_of, query_of, tune, workload_of

FILES, ROWS = 60, 500
QUERIES = ["key = 7", "at >= '1970-01-05T00:00:00+00:00' and at < '1970-01-06T00:00:00+00:00'"]


def keys(part: int) -> pa.Table:
    rng = np.random.default_rng(part)
    key = rng.integers(0, 300, ROWS)
    at = np.arange(part * ROWS, (part + 1) * ROWS) * 60_000_000
    names = [f"name {one % 40}" for one in key]
    columns = {"at": pa.array(at, pa.timestamp("us", "UTC")), "key": key, "name": names}
    return pa.table({**columns, "price": key * 1.5})


@pytest.fixture
def lake(tmp_path):
    made = lh.load_catalog(str(tmp_path / "warehouse"))
    table = made.create_table("a.keys", keys(0).schema)
    for part in range(FILES):
        table.append(keys(part))
    return made


def paths(table):
    return sorted(file.file_path for file in table.scan().plan().files)


def rows(table, where=None, **at):
    return sorted(table.scan(where=where, **at).to_arrow().to_pylist(), key=repr)


def test_a_trial_reads_two_percent_and_changes_nothing(lake, tmp_path):
    table = lake.load_table("a.keys")
    before = sorted(tmp_path.rglob("*"))
    trial = tune(table, check_queries(QUERIES[:1], table.schema()))
    assert sorted(tmp_path.rglob("*")) == before
    assert trial.verdict.adopt, trial.verdict.why
    assert 0 < trial.sampled_bytes <= 0.02 * trial.live_bytes
    assert trial.proposed.bytes < trial.today.bytes
    assert max(trial.proposed.times()) < 0.5 * max(trial.today.times())


def test_a_table_with_layout_by_age_is_judged_by_the_partitions_that_are_there(tmp_path):
    """130 days in a few months: by the table's spec they would be as many files."""
    lake = lh.load_catalog(str(tmp_path))
    policy = {"lakehouse.maintenance.layout-by-age": "10d: month(at)"}
    table = lake.create_table("a.old", keys(0).schema, partition_by=["day(at)"], properties=policy)
    data = pa.concat_tables(keys(part) for part in range(12))
    at = pc.multiply(data["at"].cast(pa.int64()), 30).cast(data["at"].type)
    table.append(data.set_column(0, "at", at))
    table.compact(lh.CompactionOptions(min_input_files=2))
    trial = tune(table, check_queries(QUERIES[:1], table.schema()))
    assert trial.today.files < 6
    assert {one.files for one in trial.tried} == {trial.today.files}


def test_of_a_few_files_some_columns_are_sampled_and_manifests_count(tmp_path):
    """A query that opens one file today reads the manifests of all."""
    lake = lh.load_catalog(str(tmp_path))
    rng = np.random.default_rng(3)
    parts = [
        pa.table(
            {
                "text": [rng.bytes(20).hex() for _ in range(4000)],
                "seq": np.arange(part * 4000, (part + 1) * 4000),
                "parent": rng.integers(0, 500, 4000),
            }
        )
        for part in range(20)
    ]
    table = lake.create_table("a.few", parts[0].schema)
    for part in parts:
        table.append(part)
    trial = tune(table, check_queries(["seq = 41234", "parent = 7"], table.schema()))
    assert 0 < trial.sampled_bytes <= 0.02 * trial.live_bytes
    assert trial.sampled_rows >= 4000
    assert [(one.files, one.manifests) for one in trial.today.queries] == [(1, 20), (20, 20)]
    assert trial.verdict.adopt, trial.verdict.why


def test_what_is_refused_is_not_called_proposed(lake):
    table = lake.load_table("a.keys")
    asked = check_queries(QUERIES[:1], table.schema())
    for prices in (Prices(), Prices(cpu_hour=0, gb_month=0)):
        trial = tune(table, asked, prices=prices)
        console = Console(record=True, width=200)
        console.print(trial)
        shown = console.export_text()
        assert ("proposed" in shown, "refused" in shown) == (
            trial.verdict.adopt,
            not trial.verdict.adopt,
        )
    assert not trial.verdict.adopt


@pytest.mark.slow
def test_what_is_adopted_keeps_rows_answers_and_time_travel(lake):
    table = lake.load_table("a.keys")
    old = table.snapshots()[20].snapshot_id
    before, then = rows(table), rows(table, snapshot_id=old)
    answers = [rows(table, where) for where in QUERIES]
    size = sum(file.file_size_in_bytes for file in table.scan().plan().files)
    was = layout_of(table.metadata)

    adoption.adopt(table, tune(table, check_queries(QUERIES[:1], table.schema())))
    with pytest.raises(InvalidInputError, match="is being adopted"):
        adoption.adopt(table, tune(table, check_queries(QUERIES[:1], table.schema())))
    table.append(keys(FILES))  # beside the rewriting
    done, steps = None, 0
    while done is None or done.action == "adopted":
        done = adoption.step(table, budget_bytes=size // 3)
        steps += 1
    assert done.action == "kept", done.why
    assert steps > 2
    assert len(done.rewritten.snapshot_ids) == 1
    assert sum(file.file_size_in_bytes for file in table.scan().plan().files) < 0.7 * size
    assert not adoption.waiting(table)

    assert rows(table) == sorted([*before, *keys(FILES).to_pylist()], key=repr)
    assert rows(table, snapshot_id=old) == then
    for where, answer in zip(QUERIES, answers, strict=True):
        new = [row for row in rows(table, where) if row["at"] < keys(FILES)["at"][0].as_py()]
        assert new == answer

    now = len(table.scan().plan().files)
    adoption.undo(table)
    assert layout_of(table.metadata) == was
    assert not [name for name in table.properties if name.startswith("write.parquet.row")]
    assert len(table.scan().plan().files) == now
    with pytest.raises(InvalidInputError, match="no layout was adopted"):
        adoption.undo(table)


@pytest.mark.slow
def test_random_keys_beside_an_order_of_time_get_bloom_filters(tmp_path):
    """No order serves both queries. The judge of the files: DuckDB."""
    rng, count, parts = np.random.default_rng(5), 120_000, 20
    ids = [f"{number:016x}" for number in rng.integers(0, 1 << 62, count)]
    data = pa.table(
        {
            "at": pa.array(np.arange(count) * 1_000_000, pa.timestamp("us", "UTC")),
            "id": ids,
            **{f"c{at}": rng.random(count).round(2) for at in range(6)},
        }
    )
    lake = lh.load_catalog(str(tmp_path))
    table = lake.create_table("a.traces", data.schema)
    for part in range(parts):
        table.append(data.slice(part * count // parts, count // parts))
    period = "at >= '1970-01-01T10:00:00+00:00' and at < '1970-01-01T11:00:00+00:00'"
    queries = [
        query_of(period, table.schema(), runs=100),
        query_of(f"id = '{ids[777]}'", table.schema(), runs=30),
    ]
    trial = tune(table, queries)
    adopted = adoption.adopt(table, trial)
    assert adopted.proposed.layout.bloom_filters() == ["id"]
    done = adoption.step(table)
    assert done.action == "kept", done.why
    assert rows(table, f"id = '{ids[777]}'") == data.slice(777, 1).to_pylist()
    assert rows(table, f"id = '{ids[777]}' and c0 > 2") == rows(table, "id = 'ffff'") == []
    for file in table.scan().plan().files:
        chunks = (
            "SELECT bool_and(bloom_filter_offset IS NOT NULL) "
            f"FROM parquet_metadata('{file.file_path}') WHERE path_in_schema = 'id'"
        )
        assert duckdb.execute(chunks).fetchone() == (True,)
    adoption.undo(table)
    assert not any("bloom" in name for name in table.properties)


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", [0, 1])
def test_what_does_not_help_on_the_real_table_is_undone(lake, meanwhile):
    """And its files are those of before, unless rows came meanwhile."""
    table = lake.load_table("a.keys")
    files, before = paths(table), rows(table)
    was, head = layout_of(table.metadata), table.current_snapshot().snapshot_id
    adoption.adopt(table, tune(table, check_queries(QUERIES[:1], table.schema())))
    for part in range(meanwhile):
        table.append(keys(FILES + part))
    disappoint(table)
    done = adoption.step(table)
    assert (done.action, done.why) == ("undone", "the real table gains nothing")
    assert adoption.STATE not in table.refresh().properties
    assert layout_of(table.metadata) == was
    assert not set(paths(table)) & set(files)
    assert (len(paths(table)) == FILES) is not bool(meanwhile)
    more = [row for part in range(meanwhile) for row in keys(FILES + part).to_pylist()]
    assert rows(table) == sorted([*before, *more], key=repr)
    assert rows(table, QUERIES[0]) == [row for row in rows(table) if row["key"] == 7]
    assert rows(table, snapshot_id=head) == before


@pytest.mark.slow
def test_small_files_that_others_add_meanwhile_are_no_fault_of_a_layout(lake):
    """Of a table that was compacted before, so that they are most of its files."""
    table = lake.load_table("a.keys")
    table.compact(lh.CompactionOptions(min_input_files=2))
    before = rows(table)
    adoption.adopt(table, tune(table, check_queries(QUERIES[:1], table.schema())))
    more = keys(FILES)
    for start in range(20):
        table.append(more.slice(start, 1))
    done = adoption.step(table)
    assert done.action == "kept", done.why
    assert (done.after.files, done.after.bytes < done.before.bytes) == (1, True)
    assert rows(table) == sorted([*before, *more.slice(0, 20).to_pylist()], key=repr)


def disappoint(table):
    """As if more had been promised than any layout holds."""
    state = {**orjson.loads(table.properties[adoption.STATE]), "bytes": 1}
    table.set_properties({adoption.STATE: orjson.dumps(state).decode()})


def test_whole_files_refuse_what_a_sample_proposed_in_vain(lake):
    """Of one file that is sorted and compressed well nothing can be gained."""
    best = {"write.parquet.compression-level": "15", "write.parquet.row-group-limit": "4096"}
    data = lake.load_table("a.keys").scan().to_arrow().sort_by([("key", "ascending")])
    table = lake.create_table("a.best", data.schema, sort_by=["key"], properties=best)
    table.append(data)
    asked = check_queries(QUERIES[:1], table.schema())
    trial = forced(tune(table, asked))
    files, properties = paths(table), dict(table.properties)
    confirmed = adoption.adopt(table, trial)
    table.refresh()
    assert not confirmed.verdict.adopt
    assert confirmed.verdict.why.startswith("whole files ")
    assert (paths(table), table.properties) == (files, properties)


def test_a_column_whose_first_page_is_too_large_is_not_sampled(tmp_path):
    """One column in three files: a page is a third of it. Its files decide."""
    lake, rng = lh.load_catalog(str(tmp_path)), np.random.default_rng(5)
    parts = [pa.table({"v": rng.integers(0, 500, 3000)}) for _ in range(3)]
    table = lake.create_table("a.narrow", parts[0].schema)
    for part in parts:
        table.append(part)
    before = rows(table)
    trial = tune(table, check_queries(["v = 7"], table.schema()))
    assert (trial.sampled_bytes, trial.sampled_rows) == (0, 0)
    confirmed = adoption.adopt(table, trial)
    assert confirmed.verdict.adopt, confirmed.verdict.why
    assert confirmed.proposed.layout.sort_by == ("v",)
    assert adoption.step(table).action == "kept"
    size = sum(file.file_size_in_bytes for file in table.scan().plan().files)
    assert size < 0.5 * trial.live_bytes
    assert size == pytest.approx(confirmed.proposed.bytes, rel=0.1)
    assert rows(table) == before


def test_the_command_says_what_was_tried_and_keeps_it_as_rows(lake, tmp_path):
    def run(*words):
        place = ("--catalog", str(tmp_path / "warehouse"), "--json")
        done = CliRunner().invoke(app, ["tune", "a.keys", *words, *place])
        assert done.exit_code == 0, done.stderr
        return orjson.loads(done.stdout)

    proposed = run("--query", QUERIES[0])
    assert proposed["adopt"]
    assert run("--query", QUERIES[0], "--apply")["action"] == "kept"
    assert run("--undo")["action"] == "undone"
    history = lake.load_table(adoption.HISTORY).scan().to_arrow().sort_by("at")
    assert history["action"].to_pylist() == ["proposed", "kept", "undone"]
    assert set(history["table"].to_pylist()) == {"a.keys"}


KILLED = """
import os, signal, sys
from lakehouse.cli import app
from lakehouse.tuning import adoption
from lakehouse.tuning.pilot import Pilot
from lakehouse.tuning.trial import Meter

calls = iter(range(3))
within = sys.argv.pop(1)
kind = {"trial": Meter, "pilot": Pilot}.get(within, Meter)
whole = kind.measure

def measure(self, layout):
    if next(calls, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, layout)

def copied(table, files, whole=adoption._copied):
    for file in whole(table, files):
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        yield file

if within == "undo":
    adoption._copied = copied
elif within == "adoption":
    adoption.step = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
else:
    kind.measure = measure
app()
"""


@pytest.mark.slow
@pytest.mark.parametrize("within", ["trial", "pilot", "adoption"])
def test_a_killed_trial_leaves_nothing_and_a_killed_adoption_goes_on(lake, tmp_path, within):
    table = lake.load_table("a.keys")
    before, files = rows(table), sorted(tmp_path.rglob("*"))
    words = ["tune", "a.keys", "--query", QUERIES[0], "--apply"]
    words += ["--catalog", str(tmp_path / "warehouse"), "--json"]
    done = subprocess.run([sys.executable, "-c", KILLED, within, *words], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (sorted(tmp_path.rglob("*")) == files) is (within != "adoption")
    assert rows(table.refresh()) == before
    again = CliRunner().invoke(app, words)
    assert (again.exit_code, orjson.loads(again.stdout)["action"]) == (0, "kept"), again.stderr
    assert rows(table.refresh()) == before


@pytest.mark.slow
def test_files_that_a_killed_undo_copied_back_are_orphans_and_no_row_is_lost(lake, tmp_path):
    table = lake.load_table("a.keys")
    before, was = rows(table), layout_of(table.metadata)
    adoption.adopt(table, tune(table, check_queries(QUERIES[:1], table.schema())))
    disappoint(table)
    words = ["tune", "a.keys", "--apply", "--catalog", str(tmp_path / "warehouse"), "--json"]
    done = subprocess.run([sys.executable, "-c", KILLED, "undo", *words], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    table.refresh()
    assert (rows(table), adoption.is_adopting(table)) == (before, True)
    live, on_disk = paths(table), len(list(tmp_path.rglob("*.parquet")))
    young = lh.OrphanOptions(older_than_ms=2**62, force=True, trash=False)
    assert table.remove_orphan_files(young).deleted_files == 4
    assert (paths(table), len(list(tmp_path.rglob("*.parquet")))) == (live, on_disk - 4)
    again = CliRunner().invoke(app, words)
    assert (again.exit_code, orjson.loads(again.stdout)["action"]) == (0, "undone"), again.stderr
    table.refresh()
    assert (rows(table), layout_of(table.metadata), len(paths(table))) == (before, was, FILES)
    assert table.remove_orphan_files(young).deleted_files == 0


def test_the_workload_is_what_scan_reports_recorded(lake):
    schema = lake.load_table("a.keys").schema()
    hour = 3_600_000
    reports = [
        {"table": "a.keys", "predicate": "key = 7", "timestamp_ms": 0, "projection": ["key"]},
        {
            "table": "a.keys",
            "predicate": "key = 8",
            "timestamp_ms": 48 * hour,
            "projection": ["key"],
        },
        {"table": "a.keys", "predicate": "gone = 8", "timestamp_ms": 0, "projection": None},
        {"table": "a.other", "predicate": "key = 8", "timestamp_ms": 0, "projection": None},
    ]
    (found,) = [query for query, _ in workload_of(reports, "a.keys", schema)]
    assert found == Query(where="key = 8", columns=1, runs=1.0)
    assert [one.where for one, _ in workload_of([], "a.keys", schema)] == ["true"]


def measured(size, groups):
    cost = QueryCost(files=1, footers=groups, groups=groups, rows=groups * 1000)
    return Measured(
        layout=Layout(), bytes=size, files=1, row_ns=100, write_ns=1000, queries=(cost,)
    )


@pytest.mark.parametrize(
    ("proposed", "rows", "why"),
    [
        (measured(0.5e9, 5), 10**6, "saves"),
        (measured(0.5e9, 11), 10**6, "slower"),
        (measured(1.2e9, 1), 10**6, "x the bytes"),
        (measured(1e9, 10), 10**6, "gain nothing"),
        (measured(0.9e9, 9), 10**12, "rewriting costs"),
    ],
)
def test_a_change_has_to_pay_and_to_slow_no_query_down(proposed, rows, why):
    verdict = judge(
        proposed,
        measured(1e9, 10),
        [Query(where="key = 1")],
        live_bytes=10**9,
        rows=rows,
        prices=Prices(),
    )
    assert why in verdict.why
    assert verdict.adopt == (why == "saves")


@pytest.mark.parametrize("action", ["kept", "undone"])
def test_what_was_judged_is_left_alone_until_the_table_has_doubled_or_a_month_is_over(
    tmp_path, action
):
    day, now = 24 * 3600 * 1000, [10**12]
    environment = replace(Environment.system(), now_ms=lambda: now[0])
    lake = lh.load_catalog(str(tmp_path), environment=environment)
    table = lake.create_table("a.keys", keys(0).schema)
    table.append(keys(0))
    size = sum(file.file_size_in_bytes for file in table.scan().plan().files)

    def due():
        return [adoption.is_due(lake, table, adopts=adopts) for adopts in (False, True)]

    assert due() == [True, True]
    before, after = measured(size, 1), measured(0.8 * size, 1)
    judged = adoption.Adoption(
        identifier=table.identifier, action=action, why="", layout=Layout(),
        workload=(Query(where="true"),), before=before, after=after,
    )  # fmt: skip
    adoption.record(lake, judged, None)
    assert due() == [False, False]
    now[0] += day
    assert due() == [True, False]
    now[0] += 28 * day
    assert due() == [True, False]
    now[0] += day
    assert due() == [True, True]
    now[0] -= 28 * day
    table.append(keys(1))
    table.append(keys(2))
    assert due() == [True, True]


def oddities():
    """Tables that a trial has to live with."""
    count = 3000
    numbers = np.arange(count)
    yield "empty", keys(0).slice(0, 0)
    yield "one row", keys(0).slice(0, 1)
    nulls = {"a": pa.nulls(count, pa.int64()), "b": pa.nulls(count, pa.string())}
    yield "all null", pa.table(nulls)
    strange = {"a b": numbers, "sélect": numbers, "x.y": ["v"] * count, "back`tick": numbers}
    yield "names", pa.table({**strange, "1": [1.5, float("nan")] * (count // 2)})
    columns = {
        "s": [{"a": n, "l": [n, None]} for n in range(count)],
        "m": pa.array([[("k", n)] for n in range(count)], pa.map_(pa.string(), pa.int64())),
        "d": pa.array(numbers).cast(pa.decimal128(38, 0)),
        "n": pa.array([-(2**63), 2**63 - 1, None] * (count // 3)),
        "b": [b"\xff\x00"] * count,
        "t": pa.array([0, 1, None] * (count // 3), pa.time64("us")),
        "f": [float("inf"), float("-inf"), None] * (count // 3),
    }
    yield "nested", pa.table(columns)


@pytest.mark.parametrize(("name", "data"), list(oddities()))
def test_any_table_can_be_tried(tmp_path, name, data):
    lake = lh.load_catalog(str(tmp_path))
    table = lake.create_table("a.odd", data.schema)
    edges = [0, 1, 3, 1000, 2000, 3000]
    for start, end in itertools.pairwise(edges):
        if start < data.num_rows:
            table.append(data.slice(start, end - start))
    before = rows(table)
    trial = tune(table)
    assert trial.rows == data.num_rows
    assert orjson.loads(trial.to_json())["table"] == "a.odd"
    if trial.verdict.adopt:
        adoption.adopt(table, trial)
        adoption.step(table)
    assert repr(rows(table)) == repr(before)


def random_table(seed):
    """Some columns of random kinds, in random parts, with queries."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(600, 3000))
    kinds = {
        "whole": lambda: rng.integers(0, int(rng.integers(2, 5000)), count),
        "real": lambda: np.round(rng.normal(0, 50, count), int(rng.integers(0, 5))),
        "word": lambda: [f"w{one}" for one in rng.zipf(1.5, count) % 200],
        "at": lambda: pa.array(np.sort(rng.integers(0, 10**13, count)), pa.timestamp("us", "UTC")),
        "day": lambda: pa.array(rng.integers(0, 40, count).astype("int32")).cast(pa.date32()),
        "money": lambda: pa.array(rng.integers(0, 10**6, count)).cast(pa.decimal128(20, 0)),
        "hole": lambda: pa.array(rng.integers(0, 9, count), mask=rng.random(count) < 0.9),
        "deep": lambda: [{"a": int(one), "l": [int(one)] * 2} for one in rng.integers(0, 9, count)],
        "flag": lambda: rng.random(count) < 0.3,
    }
    chosen = ["whole", *rng.permutation(sorted(set(kinds) - {"whole"}))[: rng.integers(1, 6)]]
    data = pa.table({name: kinds[name]() for name in chosen})
    queries = {"whole": "whole = 1", "word": "word = 'w1'", "real": "real > 40", "hole": "hole = 3"}
    asked = [queries[name] for name in chosen if name in queries] + ["true"]
    cuts = sorted({0, count, *rng.integers(1, count, int(rng.integers(1, 12))).tolist()})
    return data, cuts, asked


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))]
)
def test_whatever_is_adopted_keeps_rows_answers_and_time_travel(tmp_path, seed):
    """Rows by Polars' reader of the files that are live, which is not ours."""
    data, cuts, asked = random_table(seed)
    lake = lh.load_catalog(str(tmp_path))
    table = lake.create_table("a.any", data.schema)
    for start, end in itertools.pairwise(cuts):
        table.append(data.slice(start, end - start))
    heads = [one.snapshot_id for one in table.snapshots()]
    answers = {where: rows(table, where) for where in asked}
    then = [rows(table, snapshot_id=head) for head in heads]
    size = sum(file.file_size_in_bytes for file in table.scan().plan().files)

    trial = forced(tune(table, check_queries(asked, table.schema())))
    if trial.verdict.adopt:
        trial = adoption.adopt(table, trial)
    done = adoption.step(table.refresh()) if trial.verdict.adopt else None
    table.refresh()

    found = pl.concat([pl.read_parquet(path.removeprefix("file://")) for path in paths(table)])
    assert sorted(found.to_arrow().cast(data.schema).to_pylist(), key=repr) == sorted(
        data.to_pylist(), key=repr
    )
    assert {where: rows(table, where) for where in asked} == answers
    assert [rows(table, snapshot_id=head) for head in heads] == then
    assert sum(file.file_size_in_bytes for file in table.scan().plan().files) <= size
    if done is not None and done.action == "undone":
        assert not [name for name in table.properties if "tuning" in name]


def forced(trial):
    """What the sample was against is tried on whole files, too."""
    if trial.today is None:
        return trial
    return replace(trial, verdict=replace(trial.verdict, adopt=True))
