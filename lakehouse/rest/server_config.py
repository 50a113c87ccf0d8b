"""What a server says of itself (REST catalog: CatalogConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from lakehouse.spec.json_fields import optional_list, optional_str, require_object, string_map

_NAMESPACES = "/v1/{prefix}/namespaces"
_NAMESPACE = f"{_NAMESPACES}/{{namespace}}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"
_VIEWS = f"{_NAMESPACE}/views"
_VIEW = f"{_VIEWS}/{{view}}"
_ASSUMED = frozenset(
    {
        f"GET {_NAMESPACES}",
        f"POST {_NAMESPACES}",
        f"GET {_NAMESPACE}",
        f"DELETE {_NAMESPACE}",
        f"POST {_NAMESPACE}/properties",
        f"GET {_TABLES}",
        f"POST {_TABLES}",
        f"GET {_TABLE}",
        f"POST {_TABLE}",
        f"DELETE {_TABLE}",
        f"POST {_NAMESPACE}/register",
        f"POST {_TABLE}/metrics",
        "POST /v1/{prefix}/tables/rename",
        "POST /v1/{prefix}/transactions/commit",
    }
)
"""Of a server that lists no endpoints."""
_ASSUMED_OF_VIEWS = frozenset(
    {
        f"GET {_VIEWS}",
        f"POST {_VIEWS}",
        f"GET {_VIEW}",
        f"POST {_VIEW}",
        f"DELETE {_VIEW}",
        "POST /v1/{prefix}/views/rename",
    }
)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server's configuration, with what the client was given.

    >>> found = ServerConfig.from_json(
    ...     {"defaults": {"a": "1", "b": "1"}, "overrides": {"prefix": "x"}}, {"b": "2"}
    ... )
    >>> dict(found.properties), found.prefix, found.takes_keys
    ({'a': '1', 'b': '2', 'prefix': 'x'}, 'x', False)
    >>> found.offers("POST /v1/{prefix}/transactions/commit")
    True

    Attributes:
        properties: the server's defaults, over them what was given, over that its overrides.
        endpoints: what the server has, `GET /v1/{prefix}/namespaces` and so on.
        takes_keys: whether a request may carry an `Idempotency-Key`.
    """

    properties: Mapping[str, str] = field(repr=False)
    endpoints: frozenset[str]
    takes_keys: bool

    @classmethod
    def from_json(cls, document: Any, given: Mapping[str, str]) -> ServerConfig:
        """Read the server's answer. Raises CorruptMetadataError."""
        found = require_object(document, "config")
        properties = {
            **string_map(found.get("defaults") or {}, "config.defaults"),
            **given,
            **string_map(found.get("overrides") or {}, "config.overrides"),
        }
        listed = frozenset(str(one) for one in optional_list(found, "endpoints", "config"))
        if not listed:
            old_views = properties.get("view-endpoints-supported", "false").lower() == "true"
            listed = _ASSUMED | _ASSUMED_OF_VIEWS if old_views else _ASSUMED
        lifetime = optional_str(found, "idempotency-key-lifetime", "config")
        return cls(properties, listed, lifetime is not None)

    @property
    def prefix(self) -> str:
        """What stands before the paths of the catalog; empty where nothing does."""
        return self.properties.get("prefix", "")

    def offers(self, endpoint: str) -> bool:
        """Whether the server has an endpoint."""
        return endpoint in self.endpoints

    def joined(self, namespace: tuple[str, ...]) -> str:
        """A namespace as a parameter has it."""
        separator = unquote(self.properties.get("namespace-separator", "%1F"))
        return separator.join(namespace)

    def segment(self, namespace: tuple[str, ...]) -> str:
        """A namespace as a part of a path."""
        return quote(self.joined(namespace), safe="")
