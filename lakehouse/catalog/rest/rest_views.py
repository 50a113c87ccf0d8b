"""Views of a REST catalog, in the JSON of the specification (REST catalog: views)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakehouse.catalog.catalog_protocol import CHOSEN_BY_CATALOG
from lakehouse.catalog.commit_outcome import before_the_swap, is_certain
from lakehouse.catalog.confinement import check_locations
from lakehouse.catalog.metadata_files import next_view
from lakehouse.catalog.view_protocol import StoredView, Views
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    NoSuchViewError,
    StorageError,
    UnsupportedFeatureError,
    ViewAlreadyExistsError,
)
from lakehouse.rest.refusals import VIEW
from lakehouse.rest.rest_session import RestSession
from lakehouse.spec.identifier import Identifier, parse_namespace
from lakehouse.spec.json_fields import require_str
from lakehouse.spec.schema.schema_json import schema_to_json
from lakehouse.spec.views.view_json import version_to_json, view_from_json
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate

_ENDPOINT = "GET /namespaces/{namespace}/views"


class RestViews(Views):
    """The views that a server keeps.

    Args:
        session: asks it.
        roots: below which views may be; none: the server knows.
        environment: clock.
    """

    def __init__(
        self, session: RestSession, roots: tuple[str, ...], environment: Environment
    ) -> None:
        self._session, self._roots, self._environment = session, roots, environment

    def names(self, namespace: tuple[str, ...]) -> list[Identifier]:
        """Sorted identifiers of the namespace's views; none where the server has no views."""
        if not self._serves_views:
            return []
        return self._session.identifiers(parse_namespace(namespace), "views")

    def exists(self, identifier: Identifier) -> bool:
        if not self._serves_views:
            return False
        endpoint = "/namespaces/{namespace}/views/{view}"
        return self._session.exists(self._one(identifier), endpoint, str(identifier), VIEW)

    def load(self, identifier: Identifier) -> StoredView:
        if not self._serves_views:
            raise NoSuchViewError(f"{self._session.uri} serves no views.", view=str(identifier))
        return _stored(identifier, self._ask("GET", self._one(identifier), str(identifier)))

    def create(self, identifier: Identifier, metadata: ViewMetadata) -> StoredView:
        """Make a new view; the server chooses its uuid."""
        self._require_views()
        version = version_to_json(metadata.current_version())
        body = {
            "name": identifier.name,
            "schema": schema_to_json(metadata.schema()),
            "view-version": version,
            "properties": dict(metadata.properties),
        }
        if metadata.location != CHOSEN_BY_CATALOG:
            check_locations(metadata, self._roots)
            body["location"] = metadata.location
        path = self._session.path(identifier.namespace, "views")
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
            "requirements": [requirement.to_json() for requirement in requirements],
            "updates": [update.to_json() for update in updates],
        }
        try:
            answer = self._ask("POST", self._one(name), str(name), body, keyed=True)
        except ViewAlreadyExistsError as error:  # 409 of a change
            raise CommitConflictError(
                f"View {name}: {error.message} Load it and try again.", view=str(name)
            ) from error
        except StorageError as error:
            if is_certain(error):
                raise
            raise CommitStateUnknownError(
                f"View {name}: the server did not tell whether the change happened "
                f"({error.message}). Load the view and look at its versions.",
                view=str(name),
            ) from error
        return _stored(name, answer)

    def drop(self, identifier: Identifier) -> None:
        self._require_views()
        self._ask("DELETE", self._one(identifier), str(identifier), keyed=True)

    def rename(self, source: Identifier, target: Identifier) -> None:
        self._require_views()
        names = {"source": source, "destination": target}
        body = {
            key: {"namespace": list(name.namespace), "name": name.name}
            for key, name in names.items()
        }
        self._ask("POST", "views/rename", str(source), body, keyed=True)

    def register(self, identifier: Identifier, metadata_location: str) -> StoredView:
        self._require_views()
        path = self._session.path(identifier.namespace, "register-view")
        body = {"name": identifier.name, "metadata-location": metadata_location}
        return _stored(identifier, self._ask("POST", path, str(identifier), body, keyed=True))

    def _require_views(self) -> None:
        if not self._serves_views:
            raise UnsupportedFeatureError(f"{self._session.uri} serves no views.")

    @property
    def _serves_views(self) -> bool:
        return self._session.offers(_ENDPOINT)

    def _one(self, identifier: Identifier) -> str:
        return self._session.path(identifier.namespace, "views", identifier.name)

    def _ask(
        self, method: str, path: str, name: str, body: object = None, *, keyed: bool = False
    ) -> dict[str, Any]:
        return self._session.answer(method, path, name, VIEW, body, keyed=keyed)


def _stored(identifier: Identifier, answer: Mapping[str, Any]) -> StoredView:
    metadata = view_from_json(answer.get("metadata"), f"view {identifier}")
    return StoredView(identifier, metadata, require_str(answer, "metadata-location", "answer"))
