"""Names of columns whose case may differ from the schema's."""

from __future__ import annotations

from pyiceberg.schema import Schema, index_by_name

from lakehouse.spec.schema.iceberg_types import once


def spelled(name: str, schema: Schema, *, case_sensitive: bool) -> str:
    """A dotted name as the schema spells it, or as it is where no column has it.

    A name that a column has exactly is that column's, whatever else there is.

    Raises:
        ValueError: several columns have it in another case, none in this one.
    """
    if case_sensitive:
        return name
    alike = once(schema, "_lazy_lower_to_names", lambda: _in_lower_case(schema)).get(
        name.lower(), {}
    )
    if name in alike:
        return name
    named = {column: one for one, column in alike.items()}
    if len(named) > 1:
        raise ValueError(f"{name} may be {' or '.join(sorted(named.values()))}")
    return next(iter(named.values()), name)


def _in_lower_case(schema: Schema) -> dict[str, dict[str, int]]:
    """Ids by the names that are alike but for their case, by these in lower case."""
    found: dict[str, dict[str, int]] = {}
    for name, column in index_by_name(schema).items():
        found.setdefault(name.lower(), {})[name] = column
    return found
