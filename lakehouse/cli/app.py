"""The `lakehouse` command, and the options of every command that say where the catalog is."""

from __future__ import annotations

from typing import Annotated

import typer

from lakehouse.cli.command_list import CommandsByName

CatalogOption = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        "-c",
        help="Catalog: a folder, file://, s3://, sqlite:///, postgresql+psycopg:// or hms:// URI.",
        rich_help_panel="Catalog",
    ),
]
WarehouseOption = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        "-w",
        help="Location of new tables, for SQL catalogs.",
        rich_help_panel="Catalog",
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the catalog.", rich_help_panel="Catalog")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-P",
        metavar="KEY=VALUE",
        help="Catalog or storage property, repeatable.",
        rich_help_panel="Catalog",
    ),
]

app = typer.Typer(
    name="lakehouse",
    cls=CommandsByName,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 140},
    help=(
        "Iceberg tables from the command line. Catalog: --catalog, else LAKEHOUSE_CATALOG, else "
        ".lakehouse/warehouse here."
    ),
)


def _print_version(value: bool) -> None:
    if value:
        # slow to import, and needed here alone
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"lakehouse {version('pylakehouse')}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    catalog: CatalogOption = None,
    warehouse: WarehouseOption = None,
    name: NameOption = None,
    properties: PropertyOption = None,
    version_: Annotated[  # noqa: ARG001 - answered by its callback
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options here hold for the command that follows; the command's own win."""
    context.obj = {
        "catalog": catalog,
        "warehouse": warehouse,
        "name_": name,
        "property_": properties,
    }
