"""What a catalog knows of views: names, and one compare-and-swap per change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakehouse.spec.identifier import Identifier
from lakehouse.spec.views.view_metadata import ViewMetadata
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate


@dataclass(frozen=True, slots=True)
class StoredView:
    """One metadata file of one view, immutable.

    Attributes:
        identifier: the name it was loaded by.
        metadata: its content.
        metadata_location: the file that holds it.
    """

    identifier: Identifier
    metadata: ViewMetadata
    metadata_location: str


class Views(Protocol):
    """The views of a catalog. Safe to share between threads.

    A name is a table or a view, never both: what makes one of them refuses the other's name with
    TableAlreadyExistsError or ViewAlreadyExistsError, also in a race.
    """

    def names(self, namespace: tuple[str, ...]) -> list[Identifier]:
        """Sorted identifiers of the namespace's views. Raises NoSuchNamespaceError."""

    def exists(self, identifier: Identifier) -> bool:
        """Whether `load` would find it."""

    def load(self, identifier: Identifier) -> StoredView:
        """The view as it is now. Raises NoSuchViewError."""

    def create(self, identifier: Identifier, metadata: ViewMetadata) -> StoredView:
        """Make a new view.

        Raises ViewAlreadyExistsError, TableAlreadyExistsError, NoSuchNamespaceError,
        InvalidLocationError.
        """

    def commit(
        self,
        base: StoredView,
        requirements: Sequence[AssertViewUUID],
        updates: Sequence[ViewUpdate],
    ) -> StoredView:
        """Replace `base` by `base` plus updates, if it is still current.

        Raises:
            CommitConflictError: certainly not changed: others were first, or a requirement does not
                hold.
            CommitStateUnknownError: perhaps changed.
            NoSuchViewError: certainly not changed: the view was dropped meanwhile.
            InvalidInputError: certainly not changed: the updates make no sense.
        """

    def drop(self, identifier: Identifier) -> None:
        """Forget the view; its metadata files stay. Raises NoSuchViewError."""

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give a view another name.

        Raises NoSuchViewError, ViewAlreadyExistsError, TableAlreadyExistsError,
        NoSuchNamespaceError, UnsupportedFeatureError (filesystem catalogs).
        """

    def register(self, identifier: Identifier, metadata_location: str) -> StoredView:
        """Take an existing metadata file for a view.

        Raises what `create` raises, NoSuchFileError and CorruptMetadataError.
        """
