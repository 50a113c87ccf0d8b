"""Which commands there are, and the module of each: it is imported when the command is called."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class Listed(NamedTuple):
    """A command as `lakehouse --help` lists it.

    Attributes:
        module: where its function is registered.
        help: the first sentence of its docstring.
    """

    module: str
    help: str


COMMANDS = {
    "demo": Listed(
        "lakehouse.cli.demo",
        "Run the whole pipeline once on real events, with late files, checks and maintenance.",
    ),
    "tables": Listed(
        "lakehouse.cli.catalog_commands",
        "List the tables with rows, files, bytes and current snapshot; and the views.",
    ),
    "describe": Listed(
        "lakehouse.cli.catalog_commands",
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
        "Update, delete and insert rows by those of a file or of another table.",
    ),
    "upsert": Listed(
        "lakehouse.cli.merging.merge_commands",
        "Update the rows whose keys a file or another table has, and insert the others.",
    ),
    "serve": Listed(
        "lakehouse.cli.serving.server_commands",
        "Serve the catalog over HTTP to everything that speaks Iceberg REST.",
    ),
    "new-principal": Listed(
        "lakehouse.cli.serving.server_commands",
        "Make a secret for a principal, and the lines for the file of `serve --principals`.",
    ),
    "spark-connect": Listed(
        "lakehouse.cli.serving.server_commands",
        "Serve the catalog to Spark Connect clients, which need PySpark alone.",
    ),
    "mcp": Listed(
        "lakehouse.cli.serving.agent_commands",
        "Serve the catalog to agents by the Model Context Protocol.",
    ),
    "health": Listed(
        "lakehouse.cli.health_commands",
        "Measure tables from metadata alone: small files, deletes, manifests, snapshots, skew.",
    ),
    "advise": Listed(
        "lakehouse.cli.health_commands",
        "Rank what maintenance can do by files removed per byte rewritten; say what to change.",
    ),
    "analyze": Listed(
        "lakehouse.cli.health_commands",
        "Count distinct values of columns, or rows of partitions, or make filters of keys.",
    ),
    "compact": Listed(
        "lakehouse.cli.maintenance_commands",
        "Turn small files into few of target size, deletes applied; rows stay the same.",
    ),
    "expire": Listed(
        "lakehouse.cli.maintenance_commands",
        "Forget old snapshots and delete exactly the files that only they reached.",
    ),
    "rewrite-manifests": Listed(
        "lakehouse.cli.maintenance_commands",
        "Cluster the manifests of a table by partition, with their columnar manifests.",
    ),
    "remove-orphans": Listed(
        "lakehouse.cli.maintenance_commands",
        "Move files that no snapshot reaches to the trash, and purge old trash.",
    ),
    "new-source": Listed(
        "lakehouse.cli.sources.source_commands",
        "Look at events in files, propose a source for them, and write its definition.",
    ),
    "plan-changes": Listed(
        "lakehouse.cli.pipeline_commands",
        "Show what the present definitions would do to the present tables; nothing is done.",
    ),
    "retry-quarantine": Listed(
        "lakehouse.cli.pipeline_commands",
        "Have the next run judge quarantined lines by the source's present definition.",
    ),
    "lineage": Listed(
        "lakehouse.cli.pipeline_commands",
        "Show each input of a materialization at the snapshot that was read.",
    ),
    "spark-archive": Listed(
        "lakehouse.cli.pipeline_commands",
        "Keep Spark's classes as Java has them in memory: sessions start in half the time.",
    ),
    "semantics": Listed(
        "lakehouse.cli.semantics_commands",
        "What tables mean, and whether it is still true.",
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
        importlib.import_module(COMMANDS[cmd_name].module).register(app)
        return typer.main.get_group(app).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Names and help, as click prints them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.help) for name, listed in COMMANDS.items()])


def _no_options() -> None:
    """Makes a group of one command a group."""
