"""Where the catalog is: options, then `LAKEHOUSE_*` in the environment, then `.lakehouse/warehouse` in the current folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from lakehouse.errors import InvalidInputError

DEFAULT_CATALOG = ".lakehouse/warehouse"
_SECRET_NAME = re.compile(
    r"secret|passw|token|credential|access[-_.]?key|private|sas", re.IGNORECASE
)
_URI_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
_HIDDEN = "***"


class Settings(BaseSettings):
    """`LAKEHOUSE_CATALOG`, `LAKEHOUSE_WAREHOUSE`, `LAKEHOUSE_NAME` and `LAKEHOUSE_PROPERTIES` (a JSON object of strings)."""

    model_config = SettingsConfigDict(
        env_prefix="LAKEHOUSE_", extra="ignore", hide_input_in_errors=True
    )

    catalog: str = DEFAULT_CATALOG
    warehouse: str | None = None
    name: str = "lakehouse"
    properties: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class CatalogOptions:
    """What `load_catalog` needs.

    Attributes:
        uri: of the catalog; may hold a password.
        properties: may hold secrets.
    """

    uri: str = field(repr=False)
    warehouse: str | None
    name: str
    properties: Mapping[str, str] = field(repr=False)

    def redact(self, text: str) -> str:
        """The text without any secret of these options."""
        for name, value in self.properties.items():
            if len(value) >= 4 and is_secret(name):
                text = text.replace(value, _HIDDEN)
        password = _URI_PASSWORD.search(self.uri)
        if password:
            text = text.replace(self.uri, hide_password(self.uri))
        return hide_password(text)


def is_secret(name: str) -> bool:
    """Whether a property of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def hide_password(text: str) -> str:
    """`scheme://user:password@host` with the password hidden, wherever it stands in the text."""
    return _URI_PASSWORD.sub(rf"\1:{_HIDDEN}@", text)


def hide_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties with the values of secret ones hidden."""
    return {
        name: _HIDDEN if is_secret(name) else hide_password(value)
        for name, value in properties.items()
    }


def catalog_options(
    catalog: str | None = None,
    warehouse: str | None = None,
    name: str | None = None,
    properties: Sequence[str] = (),
) -> CatalogOptions:
    """Options over environment over defaults.

    Raises:
        InvalidInputError: a property that is not `key=value`, or an unusable `LAKEHOUSE_*` variable.
    """
    try:
        settings = Settings()
    except (ValidationError, ValueError) as error:
        raise InvalidInputError("LAKEHOUSE_PROPERTIES must be a JSON object of strings") from error
    given = dict(settings.properties)
    for item in properties:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise InvalidInputError(
                f"A catalog property is given as key=value; {key!r} has no value"
            )
        given[key] = value
    reserved = sorted(given.keys() & {"uri", "warehouse", "name", "environment"})
    if reserved:
        raise InvalidInputError(
            f"{reserved[0]} is no catalog property: it is set by --catalog, --warehouse or --name"
        )
    return CatalogOptions(
        catalog or settings.catalog, warehouse or settings.warehouse, name or settings.name, given
    )
