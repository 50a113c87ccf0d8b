"""The options of every command: where the catalog is."""

from __future__ import annotations

from typing import Annotated

import typer

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
