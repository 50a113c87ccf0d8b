from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse.lake
from tests.unit.cli.conftest import SCHEMA, Command

COMMANDS = [
    "tables",
    "describe",
    "history",
    "files",
    "plan",
    "sql",
    "compact",
    "expire",
    "rewrite-manifests",
    "remove-orphans",
    "relocate",
    "rewrite-table-path",
    "backup",
    "restore",
    "health",
    "advise",
    "analyze",
    "lineage",
    "rollback",
    "tag",
    "merge",
    "upsert",
]


@pytest.mark.parametrize(
    ("typed", "told"),
    [("tabels", "Did you mean tables?"), ("remove-orphan", "Did you mean remove-orphans?")],
)
def test_a_mistyped_command_is_told_which_was_meant(run, typed, told):
    answer = run(typed)
    assert told in answer.err
    assert answer.code == 2


def test_tables_lists_name_rows_files_bytes_and_snapshot(run, table):
    (line,) = run("tables", "--json").json
    sizes = table.inspect.files()["file_size_in_bytes"].to_pylist()
    assert line == {
        "name": "raw.events",
        "rows": 60,
        "files": 6,
        "bytes": sum(sizes),
        "snapshot_id": table.metadata.current_snapshot_id,
    }
    pretty = run("tables").out
    assert "raw.events" in pretty
    assert "60" in pretty


def test_tables_leaves_out_what_pipelines_keep_their_state_in(run, table, warehouse):
    name = "raw.__spark_autocdc_aux_state_events"
    lake = lakehouse.lake.load_catalog(warehouse)
    lake.create_table(name, SCHEMA)
    assert [line["name"] for line in run("tables", "--json").json] == [table.name]
    assert name in run("health", "--json").out


def test_tables_of_an_empty_catalog(tmp_path):
    run = Command(str(tmp_path / "empty"))
    assert run("tables", "--json").json == []
    assert "No tables" in run("tables").out


def test_options_before_the_command_hold_and_the_commands_own_win(table, warehouse, tmp_path):
    run = Command(warehouse)
    assert len(run("--catalog", warehouse, "tables", "--json", catalog=False).json) == 1
    assert len(run("--catalog", tmp_path / "other", "tables", "--json").json) == 1


def test_the_catalog_comes_from_the_environment_and_then_from_the_folder(tmp_path, monkeypatch):
    elsewhere = str(tmp_path / "warehouse")
    lakehouse.lake.load_catalog(elsewhere).create_table("raw.events", SCHEMA)
    run = Command(elsewhere)
    assert (
        len(run("tables", "--json", catalog=False, env={"LAKEHOUSE_CATALOG": elsewhere}).json) == 1
    )
    monkeypatch.chdir(tmp_path)
    assert run("tables", "--json", catalog=False).json == []
    assert not (tmp_path / ".lakehouse").exists()
    (tmp_path / ".lakehouse").mkdir()
    (tmp_path / "warehouse").rename(tmp_path / ".lakehouse" / "warehouse")
    assert "it is a copy" in run("tables", catalog=False).err
    assert run("relocate", "--json", catalog=False).json["moved"].keys() == {"raw.events"}
    assert [line["name"] for line in run("tables", "--json", catalog=False).json] == ["raw.events"]


def test_a_backup_is_restored_to_another_catalog_and_a_table_is_staged(run, table, tmp_path):
    rows = table.scan().to_arrow().sort_by("id")
    made = run("backup", str(tmp_path / "kept"), "--json").json
    assert made["tables"] == ["raw.events"]
    assert made["copied_files"] == made["files"] > 0
    assert run("backup", str(tmp_path / "kept"), "--json").json["copied_files"] == 0
    assert "Dry run" in run("restore", str(tmp_path / "kept"), "--dry-run").out
    other = Command(str(tmp_path / "other"))
    done = other("restore", str(tmp_path / "kept"), "--number", "1", "--json").json
    assert done["restored"].keys() == {"raw.events"}
    restored = lakehouse.lake.load_catalog(str(tmp_path / "other")).load_table("raw.events")
    assert restored.scan().to_arrow().sort_by("id") == rows
    assert "no backup 9" in other("restore", str(tmp_path / "kept"), "--number", "9").err
    staged = run("rewrite-table-path", "raw.events", table.location, "s3://new/events", "--json")
    listed = table.catalog.storage(table.location).read(staged.json["file_list_location"])
    assert all(",s3://new/events/" in line for line in listed.decode().split())


def test_analyze_counts_different_values_and_describe_shows_them(run, table):
    rows = table.scan().to_arrow()
    expected = {name: len(set(rows[name].to_pylist()) - {None}) for name in ("id", "region")}
    found = run("analyze", "raw.events", *(f"--column={name}" for name in expected), "--json").json
    assert found["distinct"] == expected
    columns = {
        one["name"]: one["distinct"]
        for one in run("describe", "raw.events", "--json").json["columns"]
    }
    assert {name: columns.pop(name) for name in expected} == expected
    assert set(columns.values()) == {None}
    assert run("analyze", "raw.events", "--column=nope").code != 0


def test_analyze_first_shows_what_it_would_read(run, table):
    version = table.metadata_location
    plan = run("analyze", "raw.events", "--column=region", "--dry-run", "--json").json
    files = table.scan().plan().files
    assert (plan["columns"], plan["files"], plan["rows"]) == (["region"], len(files), 60)
    assert plan["bytes"] == sum(file.file_size_in_bytes for file in files)
    assert "nothing was changed" in run("analyze", "raw.events", "--dry-run").out
    assert table.refresh().metadata_location == version
    assert run("analyze", "raw.events", "--column=nope", "--dry-run").code != 0


def test_describe_shows_schema_partitioning_and_refs(run, table):
    found = run("describe", "raw.events", "--json").json
    assert [column["name"] for column in found["columns"]] == ["id", "region", "at"]
    assert found["partition_spec"][0]["transform"] == "identity"
    assert found["refs"]["main"]["snapshot_id"] == table.metadata.current_snapshot_id
    assert found["location"] == table.location
    assert "region" in run("describe", "raw.events").out


def test_history_is_newest_first(run, table):
    found = run("history", "raw.events", "--json").json
    assert [line["snapshot_id"] for line in found] == [
        snapshot.snapshot_id for snapshot in reversed(table.snapshots())
    ]
    assert found[0]["refs"] == ["main"]
    assert found[0]["operation"] == "append"
    assert len(run("history", "raw.events", "--limit", 2, "--json").json) == 2
    assert "4 more" in run("history", "raw.events", "--limit", 2).out


def test_files_lists_what_a_scan_reads(run):
    found = run("files", "raw.events", "--json").json
    assert len(found) == 6
    assert sum(file["record_count"] for file in found) == 60
    assert {
        file["partition"]
        for file in run("files", "raw.events", "--where", "region = 'r1'", "--json").json
    } == {"region=r1"}
    assert len(run("files", "raw.events", "--limit", 2, "--json").json) == 2


def test_plan_counts_what_is_read_and_skipped(run):
    found = run("plan", "raw.events", "--where", "region = 'r1' and id < 20", "--json").json
    assert found["data_files"]["total"] == 6
    assert found["data_files"]["planned"] == 1
    assert "files" in run("plan", "raw.events").out


def test_plan_travels_in_time(run, table):
    first = table.snapshots()[0].snapshot_id
    assert (
        run("plan", "raw.events", "--snapshot", first, "--json").json["data_files"]["planned"] == 1
    )
    table.create_tag("start", first)
    assert run("plan", "raw.events", "--snapshot", "start", "--json").json["snapshot_id"] == first
    assert run("plan", "raw.events", "--snapshot", first, "--as-of", "1h").code == 2
    assert run("plan", "raw.events", "--as-of", "1d").code == 1


def test_compact_first_shows_then_does(run, table):
    plan = run("compact", "raw.events", "--min-input-files", 2, "--dry-run", "--json").json
    assert (plan["input_files"], plan["expected_files"]) == (6, 2)
    assert table.refresh().metadata.current_snapshot_id == plan["snapshot_id"]
    assert "nothing was changed" in run("compact", "raw.events", "--dry-run").out
    done = run("compact", "raw.events", "--min-input-files", 2, "--json").json
    assert (done["rewritten_files"], done["added_files"], done["stopped"]) == (6, 2, None)
    assert run("tables", "--json").json[0]["rows"] == 60


def test_expire_first_shows_then_does(run, table):
    plan = run("expire", "raw.events", "--older-than", "0s", "--dry-run", "--json").json
    assert len(plan["expired_snapshots"]) == 5
    assert len(table.refresh().metadata.snapshots) == 6
    doomed = [location for found in plan["files"].values() for location in found]
    assert (
        plan["bytes"]
        == sum(table.storage.size(location) for location in [*doomed, *plan["old_metadata"]])
        > 0
    )
    done = run("expire", "raw.events", "--older-than", "0s", "--retain-last", 2, "--json").json
    assert len(done["expired_snapshot_ids"]) == 4
    assert len(table.refresh().metadata.snapshots) == 2
    assert "snapshots expired" in run("expire", "raw.events").out


def test_rewrite_manifests_first_shows_then_does(run, table):
    before = table.inspect.manifests().num_rows
    plan = run("rewrite-manifests", "raw.events", "--dry-run", "--json").json
    assert plan["manifests"] == before
    done = run("rewrite-manifests", "raw.events", "--json").json
    assert done["replaced_manifests"] + done["kept_manifests"] == before


def test_remove_orphans_refuses_the_young(run, table):
    table.storage.write(f"{table.location}/data/lost.parquet", b"x")
    refused = run("remove-orphans", "raw.events", "--older-than", "1h")
    assert refused.code == 1
    assert "24 hours" in refused.err
    plan = run(
        "remove-orphans", "raw.events", "--older-than", "0s", "--force", "--dry-run", "--json"
    ).json
    assert [one["location"].rsplit("/", 1)[-1] for one in plan["orphans"]] == ["lost.parquet"]
    done = run("remove-orphans", "raw.events", "--older-than", "0s", "--force", "--json").json
    assert done["moved_files"] == 1


def test_health_of_one_and_of_all(run):
    (one,) = run("health", "raw.events", "--json").json
    assert (one["table"], one["data_files"], one["records"]) == ("raw.events", 6, 60)
    assert run("health", "--json").json[0]["table"] == "raw.events"
    pretty = run("health").out
    assert "█" in pretty
    assert "region=r0" in pretty


def test_health_with_the_files_on_disk(run, table):
    (one,) = run("health", "raw.events", "--disk", "--json").json
    assert one["disk"]["unreferenced_files"] == 0
    assert one["disk"]["live_bytes"] > one["bytes"]
    assert run("health", "raw.events", "--json").json[0]["disk"] is None
    assert "unreferenced on disk" in run("health", "--disk").out


def test_advice_ranks_and_shows_bars(run):
    (none,) = run("advise", "raw.events", "--json").json
    assert none["choices"] == []
    assert "nothing to do" in run("advise").out
    eager = ("-P", "lakehouse.maintenance.min-input-files=2")
    (one,) = run("advise", "raw.events", "--json", *eager).json
    choices = sorted(one["choices"], key=lambda choice: choice["bytes"])
    assert choices == one["choices"]
    assert {choice["partition"] for choice in choices} == {"region=r0", "region=r1"}
    assert [choice["files_removed"] for choice in choices] == [2, 2]
    pretty = run("advise", *eager).out
    assert "█" in pretty
    assert "3 small files become 1" in pretty
    assert run("advise", "raw.events", "--filter", "nope").code == 1


def test_compact_follows_the_policy_of_table_and_project(run, table):
    def planned(*arguments):
        return run("compact", "raw.events", "--dry-run", "--json", *arguments).json["input_files"]

    project = ("-P", "lakehouse.maintenance.min-input-files=3")
    assert (planned(), planned(*project), planned("--min-input-files", 3)) == (0, 6, 6)
    table.set_properties({"lakehouse.maintenance.min-input-files": "4"})
    assert (planned(*project), planned("--min-input-files", 3)) == (0, 6)
    assert planned("--all", "--budget", 1) == 0
    assert run("compact", "raw.events", "--branch", "nope").code == 1


def test_rollback_first_shows_then_does_and_can_be_undone_by_id(run, table):
    first, last = table.snapshots()[0].snapshot_id, table.metadata.current_snapshot_id
    shown = run("rollback", "raw.events", first, "--dry-run", "--json").json
    assert shown["snapshot_id"] == first
    assert table.refresh().metadata.current_snapshot_id == last
    run("rollback", "raw.events", first)
    assert table.refresh().metadata.current_snapshot_id == first
    refused = run("rollback", "raw.events", last)
    assert refused.code == 1
    assert "--force" in refused.err
    run("rollback", "raw.events", last, "--force")
    assert table.refresh().metadata.current_snapshot_id == last
    assert run("rollback", "raw.events").code == 2
    assert run("rollback", "raw.events", first, "--as-of", "1h").code == 2


def test_tag_and_its_removal(run, table):
    first = table.snapshots()[0].snapshot_id
    assert (
        run("tag", "raw.events", "q3", "--snapshot", first, "--keep", "90d", "--json").json[
            "snapshot_id"
        ]
        == first
    )
    ref = table.refresh().metadata.ref("q3")
    assert (ref.type, ref.max_ref_age_ms) == ("tag", 90 * 86_400_000)
    assert run("tag", "raw.events", "q3").code == 1
    run("tag", "raw.events", "q3", "--delete")
    assert "q3" not in table.refresh().metadata.refs
    assert run("tag", "raw.events", "main", "--delete").code == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(run, name):
    answer = run(name, "--help", catalog=False)
    assert answer.code == 0
    assert "--json" in answer.out
    assert "--catalog" in answer.out
    if name in ("compact", "expire", "rewrite-manifests", "relocate", "restore", "merge"):
        assert "--dry-run" in answer.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "raw.nope"],
        ["describe", "nope"],
        ["describe", "../../etc"],
        ["plan", "raw.events", "--where", "no_such_column = 1"],
        ["plan", "raw.events", "--where", "id ="],
        ["plan", "raw.events", "--snapshot", "12345"],
        ["plan", "raw.events", "--snapshot", "no-such-tag"],
        ["expire", "raw.events", "--older-than", "soon"],
        ["compact", "raw.events", "--skip-recent", "soon"],
        ["rollback", "raw.events", "12345"],
        ["sql", "select * from raw.nope"],
        ["sql", "selekt"],
        ["sql", "select nope from raw.events"],
        ["sql", "drop table raw.nope"],
        ["sql", "select 1; select 2"],
        ["tables", "--property", "novalue"],
        ["tables", "--property", "warehouse=x"],
    ],
)
def test_errors_are_one_line_and_exit_code_one(run, arguments):
    answer = run(*arguments)
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    "arguments",
    [["nope"], ["tables", "--nope"], ["compact"], ["history", "raw.events", "--limit", "none"]],
)
def test_wrong_usage_is_exit_code_two(run, arguments):
    answer = run(*arguments)
    assert answer.code == 2
    assert "Traceback" not in answer.err


def test_a_table_that_is_not_there_is_answered_with_those_that_are(run):
    assert "it has raw.events" in run("describe", "raw.nope").err


def test_secrets_are_never_shown(run, table, tmp_path):
    canary = "canary-f00dfeed"
    table.set_properties({"s3.secret-access-key": canary, "note": "plain"})
    shown = run("describe", "raw.events")
    assert canary not in shown.out
    assert "plain" in shown.out
    assert canary not in run("describe", "raw.events", "--json").out
    failed = run(
        "tables",
        "--catalog",
        f"postgresql+psycopg://user:{canary}@127.0.0.1:1/nope",
        "--warehouse",
        tmp_path,
        "--property",
        "catalog.retry-timeout-ms=0",
        catalog=False,
    )
    assert failed.code == 1
    assert canary not in failed.out + failed.err
    failed = run("describe", "raw.nope", "--property", f"s3.secret-access-key={canary}")
    assert canary not in failed.out + failed.err
    assert canary not in run("tables", "--json", env={"LAKEHOUSE_PROPERTIES": "{" + canary}).err


def test_version_and_help_without_a_command(run):
    assert run("--version", catalog=False).out.startswith("lakehouse ")
    assert "compact" in run("--help", catalog=False).out


EVIL = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202egpj \r\x08\x7f"


def test_a_terminal_shows_what_is_in_tables_and_never_obeys_it(run, table):
    table.append(pa.table({"id": [99], "region": [EVIL], "at": [0]}, schema=SCHEMA))
    said = [
        run("sql", f"select region as {chr(34)}{EVIL}{chr(34)} from raw.events where id = 99"),
        run("files", "raw.events"),
        run("history", "raw.events"),
        run("plan", "raw.events", "--where", f"region = '{EVIL}'"),
        run("health", "raw.events"),
        run("describe", "raw.events"),
        run("describe", f"raw.{EVIL}"),
        run("sql", f"select {EVIL}"),
    ]
    for answer in said:
        obeyed = set(answer.out + answer.err) & set(EVIL) - set(" 0123456789[];mownedgpjJ")
        assert not obeyed, answer
    assert r"\x1b[2J\x1b]0;owned \x9b31m \u202egpj" in said[0].out


def test_a_branch_of_the_lake(run, table, monkeypatch):
    assert run("branch", "create", "dev").code == 1
    run("branch", "create", "dev", "--all")
    monkeypatch.setenv("LAKEHOUSE_BRANCH", "dev")
    run("sql", "delete from raw.events where id < 10")
    left = run("sql", "select count(*) as n from raw.events", "--json").json
    monkeypatch.delenv("LAKEHOUSE_BRANCH")
    assert run("branch", "list", "--json").json == [{"branch": "dev", "tables": 1}]
    (told,) = run("branch", "diff", "dev", "--json").json
    gone = told["rows_removed"]
    assert gone > 0
    assert left[0]["n"] == 60 - gone
    assert (told["rows_added"], told["commits_on_main_since"]) == (0, 0)
    run("branch", "publish", "dev", "--dry-run")
    assert table.refresh().scan().count() == 60
    assert run("branch", "publish", "dev", "--json").json["version"] == 1
    assert table.refresh().scan().count() == 60 - gone
    table.refresh().append(table.scan("id = 59").to_arrow())
    for at, rows in (("1", 60 - gone), ("2100-01-01", 61 - gone), ("", 61 - gone)):
        asked = ("sql", "select count(*) as n from raw.events", "--json")
        assert run(*asked, "--at", at).json == [{"n": rows}]
        assert run(*asked, "-P", f"at={at}").json == [{"n": rows}]
    told = run("sql", "delete from raw.events", "--at", "1")
    assert (told.code, "read only" in told.err) == (1, True)
    assert "those from 1 to 1" in run("sql", "select 1", "--at", "2").err
    run("branch", "create", "other", "--all")
    assert run("branch", "drop", "other", "--json").json["tables"] == []
    assert run("branch", "list", "--json").json == []


def test_sql_shows_every_digit_of_a_time(run):
    time = "arrow_cast('2020-01-01T00:00:00.123456789', 'Timestamp(Nanosecond, Some(\"UTC\"))')"
    shown = "2020-01-01 00:00:00.123456789Z"
    query = f"SELECT {time} AS t, make_array({time}) AS l, named_struct('a', {time}) AS s"
    assert run("sql", query, "--json").json == [{"t": shown, "l": [shown], "s": {"a": shown}}]
    assert shown in run("sql", query).out
    assert run("sql", f"SELECT {time} AS t", "--format", "csv").out == f"t\n{shown}\n"


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("SELECT 1 AS one", ["start and imports", "the engine's imports", "the query", "output"]),
        ("DELETE FROM raw.events WHERE id = 1", ["start and imports", "the statement"]),
    ],
)
def test_sql_names_what_it_spends(run, query, parts):
    done = run("sql", query, "--timing")
    total, _, told = done.err.strip().partition(" s of processor: ")
    named = [part.rpartition(" ") for part in told.split(", ")]
    assert [name for name, _, _ in named] == parts
    assert sum(float(seconds) for _, _, seconds in named) == pytest.approx(float(total), abs=0.05)
