"""Names of columns whose case may differ from the schema's."""

from __future__ import annotations

from pyiceberg.schema import Schema, index_by_name


def spelled(name: str, schema: Schema, *, case_sensitive: bool) -> str:
    """A dotted name as the schema spells it, or as it is where no column has it.

    A name that a column has exactly is that column's, whatever else there is.

    Raises:
        ValueError: several columns have it in another case, none in this one.
    """
    if case_sensitive:
        return name
    # pyiceberg keeps its own index: only names in another case are worth one of ours
    if _has(schema, name, case_sensitive=True) or not _has(schema, name, case_sensitive=False):
        return name
    known = index_by_name(schema)
    alike = {column: one for one, column in known.items() if one.lower() == name.lower()}
    if len(alike) > 1:
        raise ValueError(f"{name} may be {' or '.join(sorted(alike.values()))}")
    return next(iter(alike.values()), name)


def _has(schema: Schema, name: str, *, case_sensitive: bool) -> bool:
    try:
        schema.find_field(name, case_sensitive)
    except ValueError:
        return False
    return True
