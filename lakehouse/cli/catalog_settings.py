"""Where the command line finds its catalog.

Options first, then `LAKEHOUSE_CATALOG`, `LAKEHOUSE_WAREHOUSE`, `LAKEHOUSE_NAME` and
`LAKEHOUSE_PROPERTIES` (a JSON object of strings), then `.lakehouse/warehouse` in the current
folder. An empty variable is none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from lakehouse.catalog.catalog_by_uri import kind_of
from lakehouse.catalog.configured import CatalogChoice, choose_catalog
from lakehouse.catalog.redaction import HIDDEN, hide_in_urls, is_secret, secrets_of
from lakehouse.errors import InvalidInputError

DEFAULT_CATALOG = ".lakehouse/warehouse"


class CatalogOptions(CatalogChoice):
    """What opens the catalog, and which parts of it are secret."""

    def redact(self, text: str) -> str:
        """The text without any secret of these options."""
        secrets = [value for name, value in self.properties.items() if is_secret(name)]
        for secret in (*secrets, *secrets_of(self.uri)):
            if len(secret) >= 4:
                text = text.replace(secret, HIDDEN)
        return hide_in_urls(text)


def catalog_options(
    catalog: str | None = None,
    warehouse: str | None = None,
    name: str | None = None,
    properties: Sequence[str] = (),
) -> CatalogOptions:
    """Options over environment over defaults.

    A warehouse in the environment belongs to the catalog there: a folder given as `catalog` is its
    own.

    Raises:
        InvalidInputError: a property that is not `key=value`, or an unusable `LAKEHOUSE_*`
            variable.
    """
    options = _properties(os.environ.get("LAKEHOUSE_PROPERTIES") or "{}")
    for item in properties:
        before = item.partition("=")[0]
        key, value = key_value(
            item, f"A catalog property is given as key=value; {before!r} has no value"
        )
        options[key] = value
    reserved = sorted(options.keys() & {"uri", "warehouse", "name", "environment"})
    if reserved:
        raise InvalidInputError(
            f"{reserved[0]} is no catalog property: it is set by --catalog, --warehouse or --name"
        )
    if not warehouse and not (catalog and kind_of(catalog) == "filesystem"):
        warehouse = os.environ.get("LAKEHOUSE_WAREHOUSE")
    chosen = choose_catalog(
        catalog or os.environ.get("LAKEHOUSE_CATALOG") or DEFAULT_CATALOG,
        warehouse=warehouse,
        name=name or os.environ.get("LAKEHOUSE_NAME"),
        properties=options,
    )
    return CatalogOptions(chosen.uri, chosen.warehouse, chosen.name, chosen.properties)


def key_value(text: str, otherwise: str) -> tuple[str, str]:
    """The two sides of `KEY=VALUE`. Raises InvalidInputError, which says `otherwise`."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InvalidInputError(otherwise)
    return key, value


def _properties(text: str) -> dict[str, str]:
    """The object of texts that `LAKEHOUSE_PROPERTIES` is; no error shows any of it."""
    try:
        properties = json.loads(text)
    except ValueError:
        properties = None
    if not isinstance(properties, dict) or not all(
        isinstance(value, str) for value in properties.values()
    ):
        raise InvalidInputError("LAKEHOUSE_PROPERTIES must be a JSON object of strings")
    return properties
