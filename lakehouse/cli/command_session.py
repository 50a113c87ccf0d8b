"""What every command shares: the catalog, where output goes, and how errors end.

What stands in tables and errors is data: a terminal shows it and never obeys it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Annotated, Any, Concatenate, ParamSpec

import orjson
import typer
from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    Group,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.table import Table as RichTable

from lakehouse.catalog.open_branches import BRANCH_VARIABLE
from lakehouse.cli.app import CatalogOption, NameOption, PropertyOption, WarehouseOption
from lakehouse.cli.catalog_settings import CatalogOptions, catalog_options
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError, NoSuchTableError, UnsupportedFeatureError
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.maintenance.shown_plan import Progress, Report
from lakehouse.table import Table

P = ParamSpec("P")

_WIDTH_MAX = 100_000

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_COMMON: dict[str, tuple[Any, object]] = {
    "catalog": (CatalogOption, None),
    "warehouse": (WarehouseOption, None),
    "name_": (NameOption, None),
    "property_": (PropertyOption, None),
    "json_": (JsonOption, False),
}


@dataclass
class Session:
    """What one run of a command needs: its catalog, its output and its options.

    Attributes:
        options: where the catalog is.
        json: whether results are printed as JSON.
        environment: clock and ids.
    """

    options: CatalogOptions
    json: bool = False
    environment: Environment = field(default_factory=Environment.system)

    @cached_property
    def lake(self) -> Lakehouse:
        """The catalog, on the branch that `LAKEHOUSE_BRANCH` names, opened at the first use."""
        branch = os.environ.get(BRANCH_VARIABLE)
        return self.shared_lake.on_branch(branch) if branch else self.shared_lake

    @cached_property
    def shared_lake(self) -> Lakehouse:
        """The catalog as everybody sees it."""
        options = self.options
        return load_catalog(
            uri=options.uri,
            warehouse=options.warehouse,
            name=options.name,
            environment=self.environment,
            **options.properties,
        )

    @cached_property
    def console(self) -> Console:
        """Standard output."""
        return _console()

    @cached_property
    def errors(self) -> Console:
        """Standard error."""
        return Console(stderr=True, highlight=False, soft_wrap=True)

    def table(self, name: str) -> Table:
        """Open a table. Raises NoSuchTableError, which names the tables that exist."""
        try:
            return self.lake.load_table(name)
        except NoSuchTableError as error:
            if self.lake.view_exists(name):
                raise NoSuchTableError(
                    f"{name} is a view, not a table: query it with lakehouse sql.", table=name
                ) from error
            names = self.lake.list_tables()
            listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            where = self.options.redact(self.options.uri)
            raise NoSuchTableError(
                f"No table {name} in {where}; it has "
                f"{listed or 'no tables. Is this the right --catalog?'}",
                table=name,
            ) from error

    def show(self, data: object, pretty: RenderableType) -> None:
        """Print `data` as JSON, or `pretty`, as the user asked."""
        if self.json:
            encoded = orjson.dumps(
                data,
                option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z,
                default=str,
            )
            sys.stdout.write(encoded.decode() + "\n")
        else:
            self.print_rows(pretty)

    def print_rows(self, rows: RenderableType) -> None:
        """Print a listing; what another program reads is as wide as the listing, cut nowhere."""
        console = self.console
        if isinstance(rows, RichTable | Group) and not (
            console.is_terminal or "COLUMNS" in os.environ
        ):
            unbounded = console.options.update(width=_WIDTH_MAX)
            width = Measurement.get(console, unbounded, rows).maximum
            console = _console(max(console.width, width))
        console.print(rows)

    def report(self, report: Report, *, dry_run: bool = False) -> None:
        """Print a plan or a result; after a dry run also that nothing was changed."""
        self.show(report.to_dict(), report)
        if dry_run:
            self.confirm_dry_run()

    def confirm_dry_run(self) -> None:
        """Say that nothing was changed."""
        if not self.json:
            self.console.print("Dry run: nothing was changed.", style="dim")

    def carry_out(
        self,
        plan: Report | Callable[[], Report],
        execute: Callable[..., Report],
        *,
        dry_run: bool,
    ) -> None:
        """Print the plan, made now where it is not yet, or what `execute(progress=...)` did."""
        if dry_run:
            self.report(plan if isinstance(plan, Report) else plan(), dry_run=True)
            return
        with self.progress() as progress:
            result = execute(progress=progress)
        self.report(result)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """A progress bar on standard error; silent when that is no terminal."""
        errors = self.errors
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with RichProgress(
            *columns, console=errors, transient=True, disable=self.json or not errors.is_terminal
        ) as bars:
            tasks: dict[str, TaskID] = {}

            def advance(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=total)
                bars.update(tasks[stage], completed=done, total=total)

            yield advance


def _console(width: int | None = None) -> Console:
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=width)
    console.push_render_hook(Visible())
    return console


def command(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Make a function of a Session a command, with the catalog's options and `--json`.

    An error becomes one line.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 130 interrupted.
    """

    @functools.wraps(function)
    def run(*args: Any, **arguments: Any) -> None:
        context: typer.Context = arguments.pop("context_")
        outer = context.find_object(dict) or {}
        common = {key: arguments.pop(key) or outer.get(key) for key in _COMMON}
        with one_line_errors() as errors:
            options = catalog_options(
                common["catalog"],
                common["warehouse"],
                common["name_"],
                common["property_"] or (),
            )
            errors.redact = options.redact
            function(Session(options, json=bool(common["json_"])), *args, **arguments)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *(
            parameter.replace(kind=kind)
            for parameter in [*inspect.signature(function, eval_str=True).parameters.values()][1:]
        ),
        *(
            inspect.Parameter(key, kind, default=default, annotation=option)
            for key, (option, default) in _COMMON.items()
        ),
        inspect.Parameter("context_", kind, annotation=typer.Context),
    ]
    del run.__wrapped__  # typer must see the signature below, not the function's
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass
class ErrorLine:
    """How an error is printed: `redact` takes the secrets out."""

    redact: Callable[[str], str] = str


@contextlib.contextmanager
def one_line_errors() -> Iterator[ErrorLine]:
    """Turn every error into one line on standard error and exit code 1, never a traceback."""
    line = ErrorLine()
    try:
        yield line
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except LakehouseError as error:
        fail(line.redact(error.message))
    except Exception as error:  # noqa: BLE001 - the command line is where every error ends
        fail(line.redact(f"{type(error).__name__}: {error}"))


def fail(message: str) -> None:
    """Print one error line and exit with 1."""
    flat = visible(" ".join(message.split()))
    typer.secho("Error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    typer.echo(flat, err=True)
    raise typer.Exit(1)


def visible(text: str) -> str:
    r"""The text with control characters, and those that turn the direction of writing, escaped.

    >>> visible("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode() if _is_obeyed(character) else character
        for character in text
    )


class Visible(RenderHook):
    """Shows whatever is printed as `visible` does; only line breaks, and styles of ours, stay."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Escape control characters in what is printed."""
        return [_Shown(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Shown:
    shown: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _lines(console.render(self.shown, options))


def _lines(segments: Iterable[Segment]) -> Iterable[Segment]:
    for segment in segments:
        if segment.control or segment.text.isprintable():
            yield segment
        else:
            text = "\n".join(visible(line) for line in segment.text.split("\n"))
            yield Segment(text, segment.style)


def _is_obeyed(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"}


def load_module(name: str, extra: str) -> ModuleType:
    """Import a module of this package.

    Raises:
        UnsupportedFeatureError: a package of the extra is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            f"This command needs {error.name}, which is not installed: pip install "
            f"'pylakehouse[{extra}]'",
            module=error.name,
        ) from error
