"""A server of Iceberg's REST protocol: what it says of itself, its paths, what it answers.

REST catalog: CatalogConfig.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import orjson
from requests import Response

from lakehouse.environment import Environment
from lakehouse.errors import CorruptMetadataError
from lakehouse.rest.http_client import OF_CLIENT, HttpClient
from lakehouse.rest.refusals import CATALOG, NAMESPACE, refusal
from lakehouse.spec.identifier import Identifier, dotted
from lakehouse.spec.json_fields import (
    optional_list,
    optional_str,
    require_list,
    require_object,
    require_str,
    string_map,
)

_PREFIX = "/v1/{prefix}"


class RestSession:
    """The catalog that a server has for us.

    Args:
        client: asks the server for its configuration.
        warehouse: the catalog's name, or location, at the server; None: the server knows.
        properties: given by the user, between the server's defaults and its overrides.
        basic: name and password, where the server names another address.
        environment: clock and ids.

    Attributes:
        config: what the server said.

    Raises what `answer` raises: there is no such server, or no such warehouse.
    """

    def __init__(
        self,
        client: HttpClient,
        warehouse: str | None,
        properties: Mapping[str, str],
        basic: tuple[str, str] | None,
        environment: Environment,
    ) -> None:
        self._environment = environment
        query = {} if warehouse is None else {"warehouse": warehouse}
        answer = client.send("GET", "v1/config", query=query)
        document = _checked(answer, warehouse or client.uri, CATALOG)
        self.config = ServerConfig.from_json(document, properties)
        self._client = client
        configured = self.config.properties
        if _of_client(configured) != _of_client(properties):
            uri = configured.get("uri", client.uri).rstrip("/")
            self._client = HttpClient(uri, configured, basic, environment)

    @property
    def uri(self) -> str:
        """Where the server is."""
        return self._client.uri

    def offers(self, endpoint: str) -> bool:
        """Whether the server has `GET /namespaces` and so on, written without the prefix."""
        method, _, path = endpoint.partition(" ")
        return self.config.offers(f"{method} {_PREFIX}{path}")

    def path(self, namespace: tuple[str, ...], kind: str = "", name: str | None = None) -> str:
        """The path of a namespace, of all its tables or views, of one of them.

        Args:
            namespace: its levels.
            kind: what follows: `tables`, `views`, `register`, `properties`.
            name: of one of these.
        """
        parts = ["namespaces", self.config.segment(namespace), kind]
        parts += [quote(name, safe="")] if name is not None else []
        return "/".join(part for part in parts if part)

    def url(self, path: str) -> str:
        """The address of a path below the catalog's."""
        prefix = quote(self.config.prefix, safe="/")
        return "/".join(part for part in (self.uri, "v1", prefix, path) if part)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        keyed: bool = False,
    ) -> Response:
        """The answer, whatever its status.

        Args:
            method: of HTTP.
            path: below the catalog's.
            body: is sent as JSON.
            query: parameters.
            headers: more of them.
            token: in place of the client's login.
            keyed: whether the request takes an `Idempotency-Key`; where the server does, it is
                sent with one, and may so be sent again.

        Raises StorageError where there is none.
        """
        named = dict(headers or {})
        keyed = keyed and self.config.takes_keys
        if keyed:
            named["Idempotency-Key"] = str(time_ordered_uuid(self._environment))
        return self._client.send(
            method,
            self.url(path),
            body,
            query=query,
            headers=named,
            token=token,
            repeatable=keyed,
        )

    def answer(
        self,
        method: str,
        path: str,
        name: str,
        subject: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        keyed: bool = False,
    ) -> dict[str, Any]:
        """The JSON of an answer; empty where it has no body.

        Args:
            method: of HTTP.
            path: below the catalog's.
            name: of what is requested, for errors.
            subject: which kind of thing that is (`lakehouse.rest.refusals`).
            body: is sent as JSON.
            query: parameters.
            keyed: as `send` has it.

        Raises:
            NotFoundError | AlreadyExistsError | NamespaceNotEmptyError: of the subject's kind.
            InvalidInputError | UnsupportedFeatureError: the server does not do that.
            StorageError: there was no answer, or the caller may not ask.
            CorruptMetadataError: the answer is no JSON.
        """
        return _checked(self.send(method, path, body, query=query, keyed=keyed), name, subject)

    def exists(self, path: str, endpoint: str, name: str, subject: str) -> bool:
        """Whether something is there: by HEAD where the server has that, else by loading it."""
        method = "HEAD" if self.offers(f"HEAD {endpoint}") else "GET"
        answer = self.send(method, path)
        if answer.status_code == 404:
            return False
        if answer.status_code >= 400:
            raise refusal(answer, name, subject)
        return True

    def pages(
        self, path: str, key: str, name: str, subject: str, query: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """The items of a list, of all its pages."""
        token = ""
        while True:
            asked = {**(query or {}), "pageToken": token}
            answer = self.answer("GET", path, name, subject, query=asked)
            yield from require_list(answer.get(key) or [], key)
            following = optional_str(answer, "next-page-token", "answer") or ""
            if not following or following == token:
                return
            token = following

    def identifiers(self, namespace: tuple[str, ...], kind: str) -> list[Identifier]:
        """Sorted identifiers of a namespace's `tables` or `views`."""
        pages = self.pages(self.path(namespace, kind), "identifiers", dotted(namespace), NAMESPACE)
        return sorted(
            Identifier(
                tuple(require_list(listed.get("namespace"), "identifiers.namespace")),
                require_str(listed, "name", "identifiers"),
            )
            for listed in pages
        )


def time_ordered_uuid(environment: Environment) -> uuid.UUID:
    """A UUID of version 7: the time, then chance (RFC 9562)."""
    chance = environment.new_uuid().int & ((1 << 80) - 1)
    number = (environment.now_ms() << 80) | chance
    number = number & ~(0xF << 76) | (7 << 76)
    return uuid.UUID(int=number & ~(0x3 << 62) | (0x2 << 62))


def body_of(answer: Response, name: str) -> dict[str, Any]:
    """The JSON of an answer. Raises CorruptMetadataError."""
    try:
        return dict(orjson.loads(answer.content))
    except (orjson.JSONDecodeError, TypeError, ValueError) as error:
        raise CorruptMetadataError(f"{name}: the server's answer is no JSON: {error}") from error


def _checked(answer: Response, name: str, subject: str) -> dict[str, Any]:
    if answer.status_code >= 300:
        raise refusal(answer, name, subject)
    return body_of(answer, name) if answer.content else {}


def _of_client(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value for key, value in properties.items() if key == "uri" or key.startswith(OF_CLIENT)
    }


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

    >>> config = ServerConfig.from_json(
    ...     {"defaults": {"a": "1", "b": "1"}, "overrides": {"prefix": "x"}}, {"b": "2"}
    ... )
    >>> dict(config.properties), config.prefix, config.takes_keys
    ({'a': '1', 'b': '2', 'prefix': 'x'}, 'x', False)
    >>> config.offers("POST /v1/{prefix}/transactions/commit")
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
        config = require_object(document, "config")
        properties = {
            **string_map(config.get("defaults") or {}, "config.defaults"),
            **given,
            **string_map(config.get("overrides") or {}, "config.overrides"),
        }
        listed = frozenset(
            str(endpoint) for endpoint in optional_list(config, "endpoints", "config")
        )
        if not listed:
            old_views = properties.get("view-endpoints-supported", "false").lower() == "true"
            listed = _ASSUMED | _ASSUMED_OF_VIEWS if old_views else _ASSUMED
        lifetime = optional_str(config, "idempotency-key-lifetime", "config")
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
