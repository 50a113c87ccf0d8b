"""Taking secrets out of texts: passwords and tokens in URLs, values of properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"secret|passw|token|credential|access[-_.]?key|private|sas|signature|^sig$", re.IGNORECASE
)
_LOGIN = re.compile(r"(://[^/\s:@?#]*):(\S+)@")
"""Up to the last `@`: people forget to percent-encode those of their password."""
_QUERY = re.compile(r"([?&;])([^=&;?\s]+)=([^&;\s'\")]+)")


def is_secret(name: str) -> bool:
    """Whether a property of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def hide_in_urls(text: str) -> str:
    """The text, with the passwords and the secret parameters of its URLs hidden.

    >>> hide_in_urls("cannot reach http://ann:p@ss@host/api?token=abc&page=2")
    'cannot reach http://ann:***@host/api?token=***&page=2'
    """
    without = _LOGIN.sub(rf"\1:{HIDDEN}@", text)
    return _QUERY.sub(
        lambda match: (
            f"{match[1]}{match[2]}={HIDDEN}" if is_secret(unquote(match[2])) else match[0]
        ),
        without,
    )


def hide_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties with the values of secret ones hidden."""
    return {
        name: HIDDEN if is_secret(name) else hide_in_urls(value)
        for name, value in properties.items()
    }


def secrets_of(uri: str) -> list[str]:
    """The password and the secret parameters of a URL.

    As they stand, decoded, and the parts that a reader of it may take a password with special
    characters apart into; the longest first.
    """
    secrets = [match[2] for match in _LOGIN.finditer(uri)]
    secrets += [match[3] for match in _QUERY.finditer(uri) if is_secret(unquote(match[2]))]
    whole = {*secrets, *map(unquote, secrets)}
    parts = {part for secret in whole for part in re.split(r"[@/?#:]", secret)}
    return sorted((whole | parts) - {""}, key=len, reverse=True)
