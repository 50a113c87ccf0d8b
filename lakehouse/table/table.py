"""One table: its current version, and verbs that make the next one."""

from __future__ import annotations

from lakehouse.table.html_view import table_html, table_text
from lakehouse.table.verbs.apply_verbs import ApplyVerbs
from lakehouse.table.verbs.change_verbs import ChangeVerbs
from lakehouse.table.verbs.upkeep_verbs import UpkeepVerbs


class Table(ApplyVerbs, ChangeVerbs, UpkeepVerbs):
    """A table, at the version that was loaded or last committed through this object.

    >>> schema = pa.schema({"day": pa.date32(), "visits": pa.int64()})
    >>> table = lake.create_table("raw.visits", schema)
    >>> _ = table.append(pa.table({"day": [dt.date(2026, 6, 1)], "visits": [7]}))
    >>> table.scan(where="visits > 5").to_arrow().to_pylist()
    [{'day': datetime.date(2026, 6, 1), 'visits': 7}]

    Reads see that version until `refresh()`. A method that commits moves the object to the
    version that it committed.

    Attributes:
        catalog: the catalog underneath.
        environment: clock, ids and randomness.
        listeners: receive a report of every planned scan.
    """

    def __repr__(self) -> str:
        return table_text(self.name, self.metadata)

    def _repr_html_(self) -> str:
        return table_html(self.name, self.metadata)
