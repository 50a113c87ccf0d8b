"""The file that says who may do what.

```yaml
roles:
  analyst:
  - {in: "*", may: [read]}
  loader:
  - {in: raw, may: [write, create]}
  - {in: marts.orders, may: [read]}
principals:
  ann: {secret: scrypt$..., roles: [analyst]}   # as `lakehouse new-principal ann` prints it
issuers:                                        # of tokens that others sign
  https://login.example.com:
    jwks: https://login.example.com/jwks.json   # or a file beside this one
    audience: lakehouse
    name: email                                 # claim with the principal's name; sub by default
    roles: groups                               # claim with the names of roles
tokens: {seconds: 3600, key-file: tokens.key}   # for several servers, and after a restart
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Annotated

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, ValidationError

from lakehouse.errors import InvalidIdentifierError, InvalidInputError
from lakehouse.server.access.hashed_secrets import HashedSecret
from lakehouse.server.access.privileges import Caller, Grant, Path, Privilege
from lakehouse.spec.identifier import parse_namespace

_KEY_BYTES_MIN = 32


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _path(value: object) -> Path:
    if value == "*":
        return ()
    if not isinstance(value, str):
        raise ValueError('write "*", a namespace or a table')  # noqa: TRY004 - pydantic's own
    try:
        return parse_namespace(value)
    except InvalidIdentifierError as error:
        raise ValueError(error.message) from error


class _Grant(_Part):
    path: Annotated[Path, BeforeValidator(_path)] = Field(alias="in")
    may: frozenset[Privilege] = Field(min_length=1)


class _Principal(_Part):
    secret: Annotated[InstanceOf[HashedSecret], BeforeValidator(HashedSecret.parse)]
    roles: tuple[str, ...]


class Issuer(_Part):
    """Somebody whose tokens are taken.

    Attributes:
        jwks: URL or file of its public keys (RFC 7517).
        audience: `aud` of its tokens for this server.
        name: claim that names the principal.
        roles: claim that names roles: a list, or words in a string.
    """

    jwks: str
    audience: str = Field(min_length=1)
    name: str = "sub"
    roles: str = "roles"


class _Tokens(_Part):
    seconds: int = Field(default=3600, ge=10, le=7 * 86400)
    key_file: str | None = Field(default=None, alias="key-file")


class _Document(_Part):
    roles: dict[str, tuple[_Grant, ...]] = Field(default_factory=dict)
    principals: dict[str, _Principal] = Field(default_factory=dict)
    issuers: dict[str, Issuer] = Field(default_factory=dict)
    tokens: _Tokens = _Tokens()


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may do what.

    Attributes:
        roles: grants by the name of the role.
        secrets: of principals, by name.
        roles_of: names of roles, by the name of the principal.
        issuers: of tokens that others sign, by `iss`.
        token_seconds: how long our own tokens are good for.
        token_key: signs them; None: one that ends with the process.
    """

    roles: Mapping[str, tuple[Grant, ...]]
    secrets: Mapping[str, HashedSecret]
    roles_of: Mapping[str, tuple[str, ...]]
    issuers: Mapping[str, Issuer]
    token_seconds: int
    token_key: bytes | None

    def caller(self, name: str, roles: Iterable[str]) -> Caller:
        """A principal with the grants of roles; names that are no roles here give nothing."""
        grants = (grant for role in roles for grant in self.roles.get(role, ()))
        return Caller(name, tuple(grants))


def read_rules(file: File) -> Rules:
    """Read the file.

    Raises InvalidInputError: it cannot be read, or says something else. No secret is quoted.
    """
    document = _document(file)
    _check_roles(file, document)
    return Rules(
        roles={
            name: tuple(Grant(grant.path, grant.may) for grant in grants)
            for name, grants in document.roles.items()
        },
        secrets={name: principal.secret for name, principal in document.principals.items()},
        roles_of={name: principal.roles for name, principal in document.principals.items()},
        issuers={
            name: issuer if "://" in issuer.jwks else _beside(file, issuer)
            for name, issuer in document.issuers.items()
        },
        token_seconds=document.tokens.seconds,
        token_key=_token_key(file, document.tokens.key_file),
    )


def _document(file: File) -> _Document:
    try:
        return _Document.model_validate(yaml.safe_load(file.read_text("utf-8")))
    except (OSError, UnicodeError) as error:
        raise InvalidInputError(f"{file} cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise InvalidInputError(f"{file} is no YAML{line}: {error.problem}") from None
    except (yaml.YAMLError, RecursionError):
        raise InvalidInputError(f"{file} is no YAML that can be read.") from None
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_context=False)
        ]
        raise InvalidInputError(f"{file}: {'; '.join(problems)}") from None


def _check_roles(file: File, document: _Document) -> None:
    if not document.principals and not document.issuers:
        raise InvalidInputError(
            f"{file} names neither principals nor issuers: nobody could do anything."
        )
    for name, principal in document.principals.items():
        for role in principal.roles:
            if role not in document.roles:
                raise InvalidInputError(
                    f"{file}: principal {name} has the role {role}, which is not defined."
                )


def _beside(file: File, issuer: Issuer) -> Issuer:
    return issuer.model_copy(update={"jwks": (file.parent / issuer.jwks).absolute().as_uri()})


def _token_key(file: File, name: str | None) -> bytes | None:
    if name is None:
        return None
    try:
        key = (file.parent / name).read_bytes().strip()
    except OSError as error:
        raise InvalidInputError(f"{file}: the key of tokens cannot be read: {error}") from error
    if len(key) < _KEY_BYTES_MIN:
        raise InvalidInputError(
            f"{file}: the key of tokens in {name} has fewer than {_KEY_BYTES_MIN} bytes. "
            f"Make one: openssl rand -base64 48 > {name}"
        )
    return key
