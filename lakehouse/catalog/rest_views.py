"""Views of a REST catalog, in the JSON of the specification (REST catalog: views)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

import orjson
from requests import Response
from requests.exceptions import RequestException

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import check_locations
from lakehouse.catalog.view_files import next_view
from lakehouse.catalog.view_protocol import StoredView
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptMetadataError,
    InvalidInputError,
    LakehouseError,
    NoSuchNamespaceError,
    NoSuchViewError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
    ViewAlreadyExistsError,
)
from lakehouse.spec.identifier import Identifier, parse_namespace
from lakehouse.spec.json_fields import optional_str, require_list, require_str
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.spec.views.view_json import version_to_json, view_from_json
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate


class RestClient(Protocol):
    """Requests to a server that knows who asks."""

    @property
    def serves_views(self) -> bool:
        """Whether the server lists views among its endpoints."""

    def namespace_path(self, namespace: tuple[str, ...]) -> str:
        """A namespace as a part of a path."""

    def ask(
        self, method: str, path: str, body: object = None, query: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request; the path is that below the server's prefix. Raises RequestException."""


class RestViews:
    """The views that a server keeps.

    Args:
        client: asks it.
        uri: where the server is, for messages.
        roots: below which views may be.
        environment: clock.
    """

    def __init__(
        self, client: RestClient, uri: str, roots: tuple[str, ...], environment: Environment
    ) -> None:
        self._client, self._uri, self._roots = client, uri, roots
        self._environment = environment

    def names(self, namespace: tuple[str, ...]) -> list[Identifier]:
        """Sorted identifiers of the namespace's views; none where the server has no views."""
        if not self._client.serves_views:
            return []
        found: list[Identifier] = []
        token = ""
        while True:
            answer = self._ask(
                "GET", self._all(namespace), ".".join(namespace), query={"pageToken": token}
            )
            for one in require_list(answer.get("identifiers"), "identifiers"):
                levels = require_list(one.get("namespace"), "identifiers.namespace")
                found.append(Identifier(tuple(levels), require_str(one, "name", "identifiers")))
            token = optional_str(answer, "next-page-token", "answer") or ""
            if not token:
                return sorted(found)

    def exists(self, identifier: Identifier) -> bool:
        """Whether `load` would find it."""
        if not self._client.serves_views:
            return False
        try:
            self._ask("HEAD", self._one(identifier), str(identifier))
        except NoSuchViewError:
            return False
        return True

    def load(self, identifier: Identifier) -> StoredView:
        """The view as it is now."""
        if not self._client.serves_views:
            raise NoSuchViewError(f"{self._uri} serves no views.", view=str(identifier))
        return _stored(identifier, self._ask("GET", self._one(identifier), str(identifier)))

    def create(self, identifier: Identifier, metadata: ViewMetadata) -> StoredView:
        """Make a new view; the server chooses its uuid."""
        self._require_views()
        check_locations(metadata, self._roots)
        version = version_to_json(metadata.current_version())
        body = {
            "name": identifier.name,
            "location": metadata.location,
            "schema": schema_to_json(metadata.schema()),
            "view-version": version,
            "properties": dict(metadata.properties),
        }
        path = self._all(identifier.namespace)
        return _stored(identifier, self._ask("POST", path, str(identifier), body))

    def commit(
        self,
        base: StoredView,
        requirements: Sequence[AssertViewUUID],
        updates: Sequence[ViewUpdate],
    ) -> StoredView:
        """Replace `base` by `base` plus updates; the server may apply them to a newer version."""
        name = base.identifier
        with before_the_swap():
            self._require_views()
            new = next_view(base, requirements, updates, self._environment.now_ms())
            if new is base.metadata:
                return base
            check_locations(new, self._roots)
        body = {
            "identifier": {"namespace": list(name.namespace), "name": name.name},
            "requirements": [one.to_json() for one in requirements],
            "updates": [one.to_json() for one in updates],
        }
        try:
            answer = self._ask("POST", self._one(name), str(name), body)
        except ViewAlreadyExistsError as error:  # 409 of a change
            raise CommitConflictError(
                f"View {name}: {error.message} Load it and try again.", view=str(name)
            ) from error
        except StorageError as error:
            raise CommitStateUnknownError(
                f"View {name}: the server did not tell whether the change happened "
                f"({error.message}). Load the view and look at its versions.",
                view=str(name),
            ) from error
        return _stored(name, answer)

    def drop(self, identifier: Identifier) -> None:
        """Forget the view; its metadata files stay."""
        self._require_views()
        self._ask("DELETE", self._one(identifier), str(identifier))

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give a view another name."""
        self._require_views()
        names = {"source": source, "destination": target}
        body = {
            key: {"namespace": list(one.namespace), "name": one.name} for key, one in names.items()
        }
        self._ask("POST", "views/rename", str(source), body)

    def register(self, identifier: Identifier, metadata_location: str) -> StoredView:
        """Take an existing metadata file for a view."""
        self._require_views()
        path = f"namespaces/{self._client.namespace_path(identifier.namespace)}/register-view"
        body = {"name": identifier.name, "metadata-location": metadata_location}
        return _stored(identifier, self._ask("POST", path, str(identifier), body))

    def _require_views(self) -> None:
        if not self._client.serves_views:
            raise UnsupportedFeatureError(f"{self._uri} serves no views.")

    def _all(self, namespace: tuple[str, ...]) -> str:
        return f"namespaces/{self._client.namespace_path(parse_namespace(namespace))}/views"

    def _one(self, identifier: Identifier) -> str:
        return f"{self._all(identifier.namespace)}/{quote(identifier.name, safe='')}"

    def _ask(
        self,
        method: str,
        path: str,
        name: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        try:
            answer = self._client.ask(method, path, body, query)
        except RequestException as error:
            raise StorageError(f"{self._uri}: {type(error).__name__}", retryable=True) from error
        if answer.status_code >= 400:
            raise _refusal(answer, name)
        if not answer.content:
            return {}
        try:
            return dict(orjson.loads(answer.content))
        except (orjson.JSONDecodeError, TypeError, ValueError) as error:
            raise CorruptMetadataError(
                f"{name}: the answer of {self._uri} is not JSON: {error}"
            ) from error


def _stored(identifier: Identifier, answer: Mapping[str, Any]) -> StoredView:
    metadata = view_from_json(answer.get("metadata"), f"view {identifier}")
    return StoredView(identifier, metadata, require_str(answer, "metadata-location", "answer"))


def _refusal(answer: Response, name: str) -> LakehouseError:
    """The error that a server answered, as ours."""
    status = answer.status_code
    try:
        error = dict(orjson.loads(answer.content))["error"]
        kind, message = str(error["type"]), str(error["message"])
    except (orjson.JSONDecodeError, TypeError, ValueError, KeyError):
        kind, message = "", answer.reason or f"HTTP {status}"
    text = f"{name}: {message.partition(chr(10))[0][:500]}"
    if status == 404:
        if kind == "NoSuchNamespaceException":
            return NoSuchNamespaceError(text, namespace=name)
        return NoSuchViewError(text, view=name)
    if status == 409 and message.startswith("Table"):
        return TableAlreadyExistsError(text, table=name, other_kind=True)
    if status == 409:
        return ViewAlreadyExistsError(text, view=name)
    if status in (406, 501):
        return UnsupportedFeatureError(text)
    if status < 500:
        return InvalidInputError(text)
    return StorageError(text, retryable=status == 503)
