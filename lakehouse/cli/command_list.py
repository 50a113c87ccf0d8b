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
        module: of `lakehouse.cli`: it has a function of the command's name, or, where that is a
            group, `VERBS`: the functions of the group by their names.
        help: the first sentence of its docstring.
    """

    module: str
    help: str


_COMMANDS_OF = {
    "demo": {
        "demo": "Run the whole pipeline once on real events, with late files, "
        "checks and maintenance.",
    },
    "catalog_commands": {
        "tables": "List tables with rows, files, bytes and current snapshot, and views.",
    },
    "describe_command": {
        "describe": "Show a table: schema, partitions, sort order, refs, properties, "
        "location, statements.",
    },
    "snapshot_commands": {
        "history": "Show the snapshots of a table, newest first, with what each changed.",
        "rollback": "Make an earlier snapshot of a table current again.",
        "tag": "Name a snapshot, so that expiry keeps it and queries can read it by name.",
    },
    "branch_commands": {
        "branch": "Branches of the whole lake: work on one, and publish all of it or nothing.",
    },
    "scan_commands": {
        "files": "List the data files that a scan would read, with partition, rows, "
        "bytes and delete files.",
        "plan": "Show which manifests and files a scan would read, which it skips, and why.",
        "sql": "Query and change tables with SQL.",
    },
    "merge_commands": {
        "merge": "Update, delete and insert rows by a condition on the rows of a file or table.",
        "upsert": "Update rows by key with the rows of a file or table, and insert "
        "those with new keys.",
    },
    "server_commands": {
        "serve": "Serve the catalog over HTTP, by the Iceberg REST protocol.",
        "new-principal": "Create a secret for a principal, and the lines for `serve --principals`.",
        "spark-connect": "Serve the catalog to Spark Connect clients, which only need PySpark.",
        "mcp": "Serve the catalog to agents, by the Model Context Protocol.",
    },
    "health_commands": {
        "health": "Measure tables from metadata: small files, deletes, manifests, snapshots, skew.",
        "advise": "Rank maintenance by files removed per byte rewritten, and "
        "recommend changes of layout.",
        "adopt": "Show what maintenance by policy would do to the tables of any "
        "catalog, and do it.",
        "analyze": "Write statistics: distinct counts, partition statistics or key filters.",
    },
    "tuning_commands": {
        "tune": "Try layouts of a table on a sample with its recorded queries, "
        "and adopt what pays.",
    },
    "maintenance_commands": {
        "compact": "Rewrite small files into few of target size and apply deletes; "
        "the rows stay the same.",
        "expire": "Expire old snapshots and delete the files that only they need.",
        "rewrite-manifests": "Cluster the manifests of a table by partition, and write "
        "columnar manifests.",
        "remove-orphans": "Move files that no snapshot reaches to the trash, and purge old trash.",
        "relocate": "Make a copied warehouse name its own files.",
        "rewrite-table-path": "Stage a table's metadata for another location, and list the "
        "files to copy there.",
        "backup": "Back up tables, views, branches and their files, copying what "
        "no backup before has.",
        "restore": "Make the tables of a backup those of this catalog, each file verified.",
    },
    "view_commands": {
        "materialized-view": "Views whose rows are kept in a table: create, refresh, see "
        "how fresh they are.",
    },
    "delta_commands": {
        "delta": "Delta beside Iceberg: keep a log of Delta for tables, take over tables of Delta.",
    },
    "source_commands": {
        "new-source": "Read a sample of events, propose a source, and write its definition.",
    },
    "pipeline_commands": {
        "plan-changes": "Show what the current definitions would do to the existing "
        "tables; change nothing.",
        "quarantine": "Count the quarantined lines of a source by reason; what "
        "change would take them.",
        "retry-quarantine": "Make the next run try quarantined lines again, by the source's "
        "current definition.",
        "fill-columns": "Fill columns from the fields that records had before the "
        "source declared them.",
        "lineage": "Show the inputs of a materialization and the snapshots that were read.",
        "why": "Show the landing files and lines that rows of a table were "
        "computed from, and prove it.",
        "why-not": "Show what took a row that a table has not: a filter, a join, a "
        "check, or quarantine.",
        "impact": "Show which rows of which tables landing lines, or rows of a table, went into.",
        "undo": "Return every table that a run wrote to what it was before the run.",
        "forget": "Delete a person's rows, or a delivery's, and their bytes in all "
        "files; else show a plan.",
        "spark-archive": "Archive Spark's classes, so that sessions start in half the time.",
    },
    "semantics_commands": {
        "semantics": "Statements about tables and columns, and whether they still hold.",
    },
}
COMMANDS = {
    name: Listed(module, text)
    for module, commands in _COMMANDS_OF.items()
    for name, text in commands.items()
}
# code of others may run in these, which may have frames of pandas
_WITH_FRAMES = {
    "branch_commands",
    "demo",
    "merge_commands",
    "pipeline_commands",
    "semantics_commands",
    "server_commands",
    "source_commands",
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
        listed = COMMANDS[cmd_name]
        if listed.module not in _WITH_FRAMES:
            _expect_no_frames()
        with _uncollected():
            module = importlib.import_module(f"lakehouse.cli.{listed.module}")
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.callback()(_no_options)
        verbs = getattr(module, "VERBS", None)
        if verbs is None:
            app.command(cmd_name)(getattr(module, cmd_name.replace("-", "_")))
        else:
            group = typer.Typer(no_args_is_help=True, help=listed.help)
            app.add_typer(group, name=cmd_name)
            for name, verb in verbs.items():
                group.command(name)(verb)
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
