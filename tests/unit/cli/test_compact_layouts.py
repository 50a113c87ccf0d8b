"""`compact` by partition, sorted and along a Z-curve, from the command line."""

from __future__ import annotations

import pytest


def files(run):
    return {
        one["partition"]: one["data_files"]
        for one in run("health", "raw.events", "--json").json[0]["partitions"]
    }


def test_only_the_partition_named(run, table):
    before = files(run)
    name = sorted(before)[0]
    done = run(
        "compact",
        "raw.events",
        "--min-input-files",
        2,
        "--partition",
        name,
        "--zorder-by",
        "id",
        "--zorder-by",
        "at",
        "--json",
    )
    assert done.json["rewritten_files"] == before[name] > 1
    assert files(run) == {**before, name: 1}
    wrong = run("compact", "raw.events", "--partition", "region=nowhere")
    assert wrong.code == 1
    assert "no files in partition region=nowhere" in wrong.err.replace("\n", " ")


def test_the_plan_says_how_rows_are_arranged(run, table):
    plan = run("compact", "raw.events", "--sort-by", "id desc", "--dry-run", "--json").json
    assert (plan["sort_by"], plan["zorder_by"]) == (["id desc"], [])
    assert "sorted by" in run("compact", "raw.events", "--sort-by", "id desc", "--dry-run").out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sort-by", "nope"],
        ["--zorder-by", "id"],
        ["--sort-by", "id", "--zorder-by", "id", "--zorder-by", "at"],
    ],
)
def test_what_cannot_be_arranged_is_an_error_and_changes_nothing(run, table, arguments):
    before = files(run)
    assert run("compact", "raw.events", *arguments).code == 1
    assert files(run) == before
