"""Where a statement's rows go: a branch, or a snapshot that waits to be published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError
from lakehouse.table.row_write import RowWrite
from lakehouse.table.table import Table
from lakehouse.transaction.operations.branches_and_tags import WAP_ID

_OPTION = "snapshot-property."


@dataclass(frozen=True)
class WriteTarget:
    """The branch written to, and what the snapshot says of the write.

    Attributes:
        branch: the branch; where the write is staged a name that nobody has.
        summary: entries for the snapshot's summary.
        unpublished: whether no branch is to name the snapshot.
        commit_id: the name of the commit, None if it has none.
    """

    branch: str
    summary: Mapping[str, str]
    unpublished: bool = False
    commit_id: str | None = None

    def row_write(self, table: Table) -> RowWrite:
        """The write, to be committed."""
        return RowWrite(
            table, self.branch, self.summary, self.commit_id, unpublished=self.unpublished
        )

    def with_summary(self, entries: Mapping[str, str]) -> WriteTarget:
        """With further entries."""
        return replace(self, summary={**self.summary, **entries})


def write_target(
    spark: SparkSession,
    table: Table,
    branch: str,
    options: Mapping[str, str],
    *,
    takes_branch: bool = False,
) -> WriteTarget:
    """Where a session writes that asks for a branch, with the write's options.

    With `write.wap.enabled` and `spark.wap.id` the write is staged under that id. The options
    `snapshot-property.*` are entries of the snapshot's summary.

    Args:
        spark: the session.
        table: that is written to.
        branch: that the table's name asks for.
        options: of the write.
        takes_branch: whether the option `branch` may name another one than main.

    Raises:
        InvalidInputError: a branch other than main with `spark.wap.id`; an option that names one
            where that says nothing, or beside another branch; a tag.
    """
    named = {key.lower(): text for key, text in options.items()}
    if "tag" in named or ("branch" in named and not takes_branch):
        option = "tag" if "tag" in named else "branch"
        raise InvalidInputError(
            f"{table.name}: the option {option} is one of reads; rows are written to "
            f"{table.name}.branch_{named[option]}",
            table=table.name,
        )
    if "branch" in named:
        if branch not in ("main", named["branch"]):
            raise InvalidInputError(
                f"{table.name}: the option branch is {named['branch']}, and the table's name, or "
                f"spark.wap.branch, says {branch}: leave one out",
                table=table.name,
            )
        branch = named["branch"]
    summary = {
        "engine-name": "spark",
        "engine-version": spark.version,
        "spark.app.id": spark.sparkContext.applicationId,
        **{key.removeprefix(_OPTION): options[key] for key in options if key.startswith(_OPTION)},
    }
    wap_id = spark.conf.get("spark.wap.id", None) if is_wap_enabled(table) else None
    if not wap_id:
        return WriteTarget(branch, summary)
    if branch != "main":
        raise InvalidInputError(
            f"{table.name}: spark.wap.id is {wap_id}, and what is staged under an id is based on "
            f"main, not on {branch}: RESET spark.wap.id",
            table=table.name,
        )
    staging = f"staged-{table.environment.new_uuid()}"
    return WriteTarget(staging, {**summary, WAP_ID: wap_id}, unpublished=True)


def wap_branch(spark: SparkSession, table: Table) -> str | None:
    """The branch that the session reads and writes instead of main (`spark.wap.branch`).

    Raises:
        InvalidInputError: `spark.wap.id`, too, is set.
    """
    if not is_wap_enabled(table):
        return None
    branch, wap_id = (
        spark.conf.get(f"spark.wap.{setting}", None) or None for setting in ("branch", "id")
    )
    if branch and wap_id:
        raise InvalidInputError(
            f"{table.name}: spark.wap.branch is {branch} and spark.wap.id is {wap_id}: RESET one",
            table=table.name,
        )
    return branch


def is_wap_enabled(table: Table) -> bool:
    """Whether the table follows settings of write-audit-publish."""
    return table.properties.get("write.wap.enabled", "").lower() == "true"
