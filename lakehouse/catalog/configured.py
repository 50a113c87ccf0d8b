"""Which catalog is meant: a location, or a name that pyiceberg's configuration knows.

https://py.iceberg.apache.org/configuration/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.catalog.catalog_by_uri import kind_of, not_opened
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.errors import InvalidInputError

DEFAULT_NAME = "lakehouse"
_TYPES = ("rest", "sql", "hive", "glue")
_NAMED_APART = ("uri", "warehouse", "type")
_NAME = re.compile(r"[\w-][\w.-]*")


@dataclass(frozen=True, slots=True)
class CatalogChoice:
    """Everything that opens a catalog.

    Attributes:
        uri: its location; may hold a password.
        warehouse: location of new tables; None where it is the catalog's own.
        name: of the catalog.
        properties: options of catalog and storage; may hold secrets.
    """

    uri: str = field(repr=False)
    warehouse: str | None
    name: str
    properties: Mapping[str, str] = field(repr=False)


def choose_catalog(
    catalog: str | None = None,
    *,
    uri: str | None = None,
    warehouse: str | None = None,
    name: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> CatalogChoice:
    """The catalog that is meant.

    A word that is neither path nor URI is a name when pyiceberg's configuration has it, when a
    `uri` is given beside it, or a `type`; otherwise it is a folder of the working directory, as
    `./word` always is. What is given comes before what is configured.

    Args:
        catalog: a name or a location.
        uri: the location, of a catalog that is named or is not.
        warehouse: location of new tables.
        name: the catalog's name where it is another than the one that it is configured under.
        properties: options; `type`, if there is one, is `sql`, `rest`, `hive` or `glue`.

    Raises:
        InvalidInputError: neither name nor location, a named catalog without a URI, a type that
            there is none of, or a configuration that cannot be read.
    """
    given = dict(properties or {})
    is_word = catalog is not None and _NAME.fullmatch(catalog) is not None
    if catalog is None and uri is None:
        raise InvalidInputError(
            "Which catalog? Give a location, such as file:///data/warehouse, or a configured name."
        )
    if catalog is not None and uri is not None and not is_word:
        raise InvalidInputError(
            f"Two locations of one catalog: {hide_in_urls(catalog)} and {hide_in_urls(uri)}"
        )
    configured = _configured(catalog) if catalog is not None and is_word else None
    if is_word and (configured is not None or uri is not None or "type" in given):
        given = {**(configured or {}), **given}
        name = name or catalog
        is_glue = given.get("type", "").lower() == "glue"
        uri = uri or given.get("uri") or ("glue://" if is_glue else None)
        if uri is None:
            variable = f"PYICEBERG_CATALOG__{str(catalog).upper().replace('-', '_')}__URI"
            raise InvalidInputError(
                f"Catalog {catalog!r} has no uri: give uri=..., set {variable}, or write it into "
                ".pyiceberg.yaml"
            )
    options = {key: value for key, value in given.items() if key not in _NAMED_APART}
    choice = CatalogChoice(
        str(uri or catalog), warehouse or given.get("warehouse"), name or DEFAULT_NAME, options
    )
    _check_type(given.get("type"), choice)
    return choice


def _configured(name: str) -> dict[str, str] | None:
    """What `.pyiceberg.yaml` and the environment say of a catalog; None if they say nothing.

    Here the reader of YAML is imported: a location needs none.
    """
    from pyiceberg.utils.config import Config  # noqa: PLC0415
    from strictyaml import YAMLError  # noqa: PLC0415

    try:
        properties = Config().get_catalog_config(name)
    except (ValueError, YAMLError, OSError) as error:
        # what the error says quotes the configuration, and that may be a secret
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}"
        raise InvalidInputError(
            "pyiceberg's configuration (.pyiceberg.yaml, PYICEBERG_*) cannot be read for catalog "
            f"{name!r}: {type(error).__name__}{where}"
        ) from None
    if properties is None:
        return None
    for key, value in properties.items():
        if not isinstance(value, str):
            raise InvalidInputError(
                f"pyiceberg's configuration of catalog {name!r}: {key} is a text, not a "
                f"{type(value).__name__}"
            )
    return {key: str(value) for key, value in properties.items()}


def _check_type(kind: str | None, choice: CatalogChoice) -> None:
    if "py-catalog-impl" in choice.properties:
        raise InvalidInputError(
            f"Catalog {choice.name!r} asks for a class of its own (py-catalog-impl): supported are "
            f"the types {', '.join(_TYPES)}, and folders"
        )
    if kind is None:
        return
    if kind.lower() not in _TYPES:
        way_out = not_opened(kind.lower())
        raise InvalidInputError(
            f"Catalog {choice.name!r} is of type {kind!r}: supported are {', '.join(_TYPES)}, and "
            f"folders, which have no type.{f' {way_out}' if way_out else ''}"
        )
    if kind.lower() != kind_of(choice.uri):
        raise InvalidInputError(
            f"Catalog {choice.name!r} is of type {kind!r}, but its uri is that of a "
            f"{kind_of(choice.uri)} catalog: {hide_in_urls(choice.uri)}"
        )
