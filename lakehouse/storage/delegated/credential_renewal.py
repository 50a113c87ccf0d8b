"""Other credentials from the catalog's server (REST catalog: loadCredentials)."""

from __future__ import annotations

from collections.abc import Mapping

from lakehouse.rest.http_client import shared_client
from lakehouse.rest.refusals import CATALOG, refusal


def renewed_credentials(properties: Mapping[str, str], endpoint: str) -> str:
    """The server's answer, JSON.

    Args:
        properties: of the storage: `uri` and the login of the catalog, `token` of the table.
        endpoint: an address, or a path below `uri`.

    Raises StorageError, ForbiddenError.
    """
    client = shared_client(properties["uri"], properties)
    answer = client.send("GET", endpoint, token=properties.get("token"))
    if answer.status_code >= 300:
        raise refusal(answer, "credentials", CATALOG)
    return answer.text
