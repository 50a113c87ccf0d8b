"""What a procedure is: parameters and columns as Spark types them, and what it does."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse
from lakehouse.table.table import Table

Rows = Iterable[Sequence[Any]]
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Call:
    """One call of a procedure.

    Attributes:
        lake: the lakehouse.
        spark: the session that calls.
        catalog: the lakehouse's name there.
        arguments: by name; what the call leaves out is not among them.
    """

    lake: Lakehouse
    spark: SparkSession
    catalog: str
    arguments: Mapping[str, Any]

    def table(self, argument: str = "table") -> Table:
        """The table that an argument names: `raw.events`, or `lake.raw.events`.

        Raises NoSuchTableError.
        """
        return self.lake.load_table(self.name(argument))

    def name(self, argument: str = "table") -> str:
        """The name of a table of this lakehouse."""
        given: str = self.arguments[argument].replace("`", "")
        within = given.removeprefix(f"{self.catalog}.")
        return within if within != given and "." in within else given

    def get(self, name: str, default: Any = None) -> Any:
        """An argument that may be left out."""
        return self.arguments.get(name, default)

    def time(self, name: str) -> dt.datetime | None:
        """A point in time; None where it is left out."""
        micros = self.arguments.get(name)
        return None if micros is None else _EPOCH + dt.timedelta(microseconds=micros)

    def where(self) -> str | None:
        """The argument `where` in the words of `table.scan(where=...)`.

        Text in double quotes is a string and names stand in backticks, as in Spark's statements.
        """
        given: str | None = self.arguments.get("where")
        if given is None:
            return None
        conf = self.spark.conf
        names = conf.get("spark.sql.ansi.doubleQuotedIdentifiers") == "true"
        names = names and conf.get("spark.sql.ansi.enabled") == "true"

        def as_here(found: re.Match[str]) -> str:
            text = found[0]
            inner = text[1:-1].replace(text[0] * 2, text[0])
            if text[0] == "`" or (text[0] == '"' and names):
                return '"' + inner.replace('"', '""') + '"'
            return text if text[0] == "'" else "'" + inner.replace("'", "''") + "'"

        return _QUOTED.sub(as_here, given)

    def options(self) -> dict[str, str]:
        """The argument `options` as a dictionary."""
        return dict(self.arguments.get("options") or {})


@dataclass(frozen=True)
class Procedure:
    """One procedure that `CALL` runs.

    Attributes:
        name: in the namespace `system`.
        required: names and Spark types of arguments that every call gives.
        optional: of those that it may leave out.
        returns: names and Spark types of the columns of what it returns.
        run: gives the rows.
    """

    name: str
    required: Mapping[str, str]
    optional: Mapping[str, str]
    returns: Mapping[str, str]
    run: Callable[[Call], Rows]

    @property
    def description(self) -> str:
        """The first line of what `run` says of itself."""
        return (self.run.__doc__ or "").strip().splitlines()[0]

    def told(self) -> dict[str, Any]:
        """For `LakeProcedure.java`."""
        parameters = [
            {"name": name, "type": kind, "required": given is self.required}
            for given in (self.required, self.optional)
            for name, kind in given.items()
        ]
        return {
            "name": self.name,
            "description": self.description,
            "parameters": parameters,
            "returns": ", ".join(f"`{name}` {kind}" for name, kind in self.returns.items()),
        }

    def rows(self, call: Call) -> list[list[Any]]:
        """Do it. Raises InvalidInputError for a required argument that is null."""
        missing = [one for one in self.required if call.arguments.get(one) is None]
        if missing:
            raise InvalidInputError(f"CALL system.{self.name}: {missing[0]} must not be null")
        return [list(one) for one in self.run(call)]
