"""Logging in at a REST catalog with Google's credentials, as BigLake wants it.

Properties, the names of Iceberg's Java library: `rest.auth.type=google`,
`gcp.auth.credentials-path` (the key file of a service account; else what Google's tools find: the
file that `GOOGLE_APPLICATION_CREDENTIALS` names, a login of gcloud, the machine's account),
`gcp.auth.scopes`.
Through google-auth (`pip install google-auth`).
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from typing import Any

from requests import Session

from lakehouse.errors import InvalidInputError, StorageError, UnsupportedFeatureError

_SCOPES = "https://www.googleapis.com/auth/cloud-platform"


class GoogleLogin:
    """A token of Google's, renewed before it ends, and where it is refused.

    Args:
        properties: see the module.

    Raises:
        UnsupportedFeatureError: google-auth is not installed.
        InvalidInputError: there are no credentials, or none that can be read.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        try:
            google = importlib.import_module("google.auth")
        except ImportError as error:
            raise UnsupportedFeatureError(
                "rest.auth.type=google needs google-auth: pip install google-auth."
            ) from error
        accounts = importlib.import_module("google.oauth2.service_account")
        transport = importlib.import_module("google.auth.transport.requests")
        self._errors = importlib.import_module("google.auth.exceptions")
        self._request = transport.Request(Session())
        self._lock = threading.Lock()
        path = properties.get("gcp.auth.credentials-path")
        scopes = properties.get("gcp.auth.scopes", _SCOPES).replace(",", " ").split()
        try:
            self._credentials: Any = (
                accounts.Credentials.from_service_account_file(path, scopes=scopes)
                if path
                else google.default(scopes=scopes)[0]
            )
        except (self._errors.GoogleAuthError, OSError, ValueError) as error:
            raise InvalidInputError(
                f"rest.auth.type=google: {error} Give gcp.auth.credentials-path."
            ) from error

    def authorization(self) -> str:
        """The header's value, with a token that is good for a while."""
        with self._lock:
            if not self._credentials.valid:
                try:
                    self._credentials.refresh(self._request)
                except self._errors.GoogleAuthError as error:
                    raise StorageError(
                        f"Google gave no token: {error}", commit_outcome="failed"
                    ) from error
            return f"Bearer {self._credentials.token}"

    def refused(self, authorization: str | None) -> bool:
        """Forget the token, unless another thread did so already."""
        with self._lock:
            if authorization == f"Bearer {self._credentials.token}":
                self._credentials.token = None
        return True
