"""Which commands there are, and the module of each: it is imported when the command is called."""

from __future__ import annotations

import difflib
import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class Listed(NamedTuple):
    """A command as `lakehouse --help` lists it.

    Attributes:
        module: where its function is registered.
        help: the first sentence of its docstring.
        frames: whether code of others may run in it, which may have frames of pandas.
    """

    module: str
    help: str
    frames: bool = False


COMMANDS = {
    "demo": Listed(
        "lakehouse.cli.demo",
        "Run the whole pipeline once on real events, with late files, checks and maintenance.",
        frames=True,
    ),
    "tables": Listed(
        "lakehouse.cli.catalog_commands",
        "List tables with rows, files, bytes and current snapshot, and views.",
    ),
    "describe": Listed(
        "lakehouse.cli.describe_command",
        "Show a table: schema, partitions, sort order, refs, properties, location, statements.",
    ),
    "history": Listed(
        "lakehouse.cli.snapshot_commands",
        "Show the snapshots of a table, newest first, with what each changed.",
    ),
    "rollback": Listed(
        "lakehouse.cli.snapshot_commands",
        "Make an earlier snapshot of a table current again.",
    ),
    "tag": Listed(
        "lakehouse.cli.snapshot_commands",
        "Name a snapshot, so that expiry keeps it and queries can read it by name.",
    ),
    "branch": Listed(
        "lakehouse.cli.branch_commands",
        "Branches of the whole lake: work on one, and publish all of it or nothing.",
        frames=True,
    ),
    "files": Listed(
        "lakehouse.cli.scan_commands",
        "List the data files that a scan would read, with partition, rows, bytes and delete files.",
    ),
    "plan": Listed(
        "lakehouse.cli.scan_commands",
        "Show which manifests and files a scan would read, which it skips, and why.",
    ),
    "sql": Listed(
        "lakehouse.cli.scan_commands",
        "Query and change tables with SQL.",
    ),
    "merge": Listed(
        "lakehouse.cli.merging.merge_commands",
        "Update, delete and insert rows by a condition on the rows of a file or table.",
        frames=True,
    ),
    "upsert": Listed(
        "lakehouse.cli.merging.merge_commands",
        "Update rows by key with the rows of a file or table, and insert those with new keys.",
        frames=True,
    ),
    "serve": Listed(
        "lakehouse.cli.serving.server_commands",
        "Serve the catalog over HTTP, by the Iceberg REST protocol.",
        frames=True,
    ),
    "new-principal": Listed(
        "lakehouse.cli.serving.server_commands",
        "Create a secret for a principal, and the lines for `serve --principals`.",
    ),
    "spark-connect": Listed(
        "lakehouse.cli.serving.server_commands",
        "Serve the catalog to Spark Connect clients, which only need PySpark.",
        frames=True,
    ),
    "mcp": Listed(
        "lakehouse.cli.serving.agent_commands",
        "Serve the catalog to agents, by the Model Context Protocol.",
        frames=True,
    ),
    "health": Listed(
        "lakehouse.cli.health_commands",
        "Measure tables from metadata: small files, deletes, manifests, snapshots, skew.",
    ),
    "advise": Listed(
        "lakehouse.cli.health_commands",
        "Rank maintenance by files removed per byte rewritten, and recommend changes of layout.",
    ),
    "adopt": Listed(
        "lakehouse.cli.health_commands",
        "Show what maintenance by policy would do to the tables of any catalog, and do it.",
    ),
    "tune": Listed(
        "lakehouse.cli.tuning_commands",
        "Try layouts of a table on a sample with its recorded queries, and adopt what pays.",
    ),
    "analyze": Listed(
        "lakehouse.cli.health_commands",
        "Write statistics: distinct counts, partition statistics or key filters.",
    ),
    "compact": Listed(
        "lakehouse.cli.maintenance_commands",
        "Rewrite small files into few of target size and apply deletes; the rows stay the same.",
    ),
    "expire": Listed(
        "lakehouse.cli.maintenance_commands",
        "Expire old snapshots and delete the files that only they need.",
    ),
    "rewrite-manifests": Listed(
        "lakehouse.cli.maintenance_commands",
        "Cluster the manifests of a table by partition, and write columnar manifests.",
    ),
    "remove-orphans": Listed(
        "lakehouse.cli.maintenance_commands",
        "Move files that no snapshot reaches to the trash, and purge old trash.",
    ),
    "relocate": Listed(
        "lakehouse.cli.maintenance_commands",
        "Make a copied warehouse name its own files.",
    ),
    "rewrite-table-path": Listed(
        "lakehouse.cli.maintenance_commands",
        "Stage a table's metadata for another location, and list the files to copy there.",
    ),
    "backup": Listed(
        "lakehouse.cli.maintenance_commands",
        "Back up tables, views, branches and their files, copying what no backup before has.",
    ),
    "restore": Listed(
        "lakehouse.cli.maintenance_commands",
        "Make the tables of a backup those of this catalog, each file verified.",
    ),
    "materialized-view": Listed(
        "lakehouse.cli.view_commands",
        "Views whose rows are kept in a table: create, refresh, see how fresh they are.",
    ),
    "delta": Listed(
        "lakehouse.cli.delta_commands",
        "Delta beside Iceberg: keep a log of Delta for tables, take over tables of Delta.",
    ),
    "new-source": Listed(
        "lakehouse.cli.sources.source_commands",
        "Read a sample of events, propose a source, and write its definition.",
        frames=True,
    ),
    "plan-changes": Listed(
        "lakehouse.cli.pipeline_commands",
        "Show what the current definitions would do to the existing tables; change nothing.",
        frames=True,
    ),
    "quarantine": Listed(
        "lakehouse.cli.pipeline_commands",
        "Count the quarantined lines of a source by reason; what change would take them.",
        frames=True,
    ),
    "retry-quarantine": Listed(
        "lakehouse.cli.pipeline_commands",
        "Make the next run try quarantined lines again, by the source's current definition.",
        frames=True,
    ),
    "fill-columns": Listed(
        "lakehouse.cli.pipeline_commands",
        "Fill columns from the fields that records had before the source declared them.",
        frames=True,
    ),
    "lineage": Listed(
        "lakehouse.cli.pipeline_commands",
        "Show the inputs of a materialization and the snapshots that were read.",
        frames=True,
    ),
    "why": Listed(
        "lakehouse.cli.pipeline_commands",
        "Show the landing files and lines that rows of a table were computed from, and prove it.",
        frames=True,
    ),
    "why-not": Listed(
        "lakehouse.cli.pipeline_commands",
        "Show what took a row that a table has not: a filter, a join, a check, or quarantine.",
        frames=True,
    ),
    "impact": Listed(
        "lakehouse.cli.pipeline_commands",
        "Show which rows of which tables landing lines, or rows of a table, went into.",
        frames=True,
    ),
    "undo": Listed(
        "lakehouse.cli.pipeline_commands",
        "Return every table that a run wrote to what it was before the run.",
        frames=True,
    ),
    "forget": Listed(
        "lakehouse.cli.pipeline_commands",
        "Delete a person's rows, or a delivery's, and their bytes in all files; else show a plan.",
        frames=True,
    ),
    "spark-archive": Listed(
        "lakehouse.cli.pipeline_commands",
        "Archive Spark's classes, so that sessions start in half the time.",
        frames=True,
    ),
    "semantics": Listed(
        "lakehouse.cli.semantics_commands",
        "Statements about tables and columns, and whether they still hold.",
        frames=True,
    ),
}


class CommandsByName(TyperGroup):
    """The group of all commands. Listing them imports none: a second saved at each `--help`."""

    # Typer's signature, of its private copy of click.
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command, its module imported now; None for a name that is none."""
        if cmd_name not in COMMANDS:
            return None
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.callback()(_no_options)
        if not COMMANDS[cmd_name].frames:
            _expect_no_frames()
        with _uncollected():
            importlib.import_module(COMMANDS[cmd_name].module).register(app)
        return typer.main.get_group(app).commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named; a name that is none gets those that are spelled alike."""
        similar = [] if args[0] in COMMANDS else difflib.get_close_matches(args[0], COMMANDS)
        if similar:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(similar)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Names and help, as click prints them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.help) for name, listed in COMMANDS.items()])


def _no_options() -> None:
    """Makes a group of one command a group."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Imports make what stays; looking for garbage in it takes a tenth of a command's time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _expect_no_frames() -> None:
    """Have pyarrow look for pandas now, in vain; what imports pandas afterwards gets it.

    It looks before it makes its first array, to know frames by, and what it imports then is a
    fifth of a short command.
    """
    if "pandas" not in sys.modules:
        import pyarrow  # noqa: PLC0415, ICN001 - the list of commands imports nothing

        sys.meta_path.insert(0, _NoPandas)
        try:
            pyarrow.array([None])
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """A finder of modules by which there is no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        """None, which leaves a module to other finders, but for one."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
