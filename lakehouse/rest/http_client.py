"""Requests to a REST server: who asks, how long it waits, what is asked again.

Properties, the names that Iceberg's own clients use: `rest.client.connection-timeout-ms` (10000),
`rest.client.socket-timeout-ms` (60000), `header.<name>` (sent with each request), those of a login;
and `rest.retry-timeout-ms`, ours: how long what can be asked again is asked again (10000).

A login is nobody's, a name with a password, a token, or an OAuth2 client:
https://iceberg.apache.org/docs/latest/catalog-properties/ (OAuth2), RFC 6749 section 4.4; requests
may be signed beside it (`lakehouse.rest.request_signing`).
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

import orjson
from requests import Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectTimeout, RequestException
from requests.models import PreparedRequest

from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, InvalidPropertyError, StorageError
from lakehouse.patience import Patience, patience
from lakehouse.rest.google_login import GoogleLogin
from lakehouse.rest.request_signing import RequestSigner, signs

OF_CLIENT = (
    *("header.", "rest.", "token", "credential", "oauth2-server-uri"),
    *("scope", "audience", "resource"),
    *("client.access-key-id", "client.secret-access-key", "client.session-token"),
    *("client.profile-name", "client.region"),
)
"""How the names of properties begin that a client looks at."""
RETRY_TIMEOUT = "rest.retry-timeout-ms"
_RETRY_MS = "10000"
_CONNECT, _READ = "rest.client.connection-timeout-ms", "rest.client.socket-timeout-ms"
_HEADER = "header."
_CONNECTIONS = 64
_BUSY = (429, 500, 502, 503, 504)
_READS = ("GET", "HEAD")
_NOT_KNOWN = (401, 419)
_NOT_REACHED = ("NewConnectionError", "NameResolutionError", "ProxyError")


class HttpClient:
    """Sends requests to one server. Safe to share between threads.

    Args:
        uri: of the server, without a password, without a slash at its end.
        properties: see the module.
        basic: name and password for HTTP Basic.
        environment: clock and sleep.

    Attributes:
        uri: see above.
    """

    def __init__(
        self,
        uri: str,
        properties: Mapping[str, str],
        basic: tuple[str, str] | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.uri = uri
        environment = environment or Environment.system()
        timed = {RETRY_TIMEOUT: _RETRY_MS, **properties}
        self._patience = patience(timed, RETRY_TIMEOUT, environment)
        self._timeout = (_seconds(properties, _CONNECT, 10.0), _seconds(properties, _READ, 60.0))
        self._headers = {
            key[len(_HEADER) :]: value
            for key, value in properties.items()
            if key.startswith(_HEADER)
        }
        self._session = _Session()
        # a name and password of ~/.netrc are not for this server
        self._session.auth = _unchanged
        adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        self._login = login_of(uri, properties, basic, self._post_form, environment)
        self._signer = RequestSigner(properties) if signs(properties) else None

    def send(
        self,
        method: str,
        url: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        repeatable: bool = False,
    ) -> Response:
        """The answer, whatever its status.

        Args:
            method: of HTTP.
            url: absolute, or below the server's.
            body: is sent as JSON; None: there is none.
            query: parameters.
            headers: more of them.
            token: in place of the client's login.
            repeatable: whether the request may be sent again where it met no answer, or a 5xx, for
                `rest.retry-timeout-ms`; GET and HEAD always are.

        Raises:
            StorageError: there was none, or the server was busy all the time; with context
                outcome "failed" where the server certainly did nothing.
        """
        data = None if body is None else orjson.dumps(body)
        named = {**self._headers, **(headers or {})}
        if data is not None:
            named.setdefault("Content-Type", "application/json")
        is_read = method in _READS
        waits = self._patience if repeatable or is_read else Patience(0)
        busy = _BUSY if repeatable else tuple(status for status in _BUSY if status != 500)
        perhaps_done = False

        def attempt() -> Response:
            nonlocal perhaps_done
            try:
                answer = self._once(method, self._absolute(url), data, query, named, token)
            except StorageError as error:
                perhaps_done = perhaps_done or error.commit_outcome != "failed"
                if perhaps_done:
                    error.commit_outcome = None
                raise
            if (is_read or repeatable) and answer.status_code in busy:
                perhaps_done = perhaps_done or answer.status_code != 429
                raise StorageError(
                    f"{self.uri} answered HTTP {answer.status_code}",
                    retryable=True,
                    commit_outcome=None if perhaps_done else "failed",
                )
            return answer

        return waits.call(attempt)

    def _once(
        self,
        method: str,
        url: str,
        data: bytes | None,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        token: str | None,
    ) -> Response:
        login = self._login if token is None else FixedLogin(f"Bearer {token}")
        authorization = login.authorization()
        for last in (False, True):
            named = dict(headers)
            if authorization is not None:
                named["Authorization"] = authorization
            answer = self._request(method, url, data, query, named, self._signer)
            if not last and self._signer is not None and self._signer.has_others(answer):
                continue
            if last or answer.status_code not in _NOT_KNOWN or not login.refused(authorization):
                return answer
            authorization = login.authorization()
        raise AssertionError("unreachable")

    def _request(
        self,
        method: str,
        url: str,
        data: bytes | str | Mapping[str, str] | None,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        signer: RequestSigner | None = None,
    ) -> Response:
        try:
            return self._session.request(
                method,
                url,
                data=data,
                params=query,
                headers=headers,
                auth=signer,
                timeout=self._timeout,
                # what changes something is not sent to where it was not meant for, and a signature
                # is for one address
                allow_redirects=method in _READS and signer is None,
            )
        except RequestException as error:
            raise StorageError(
                f"{self.uri} did not answer: {type(error).__name__}",
                retryable=True,
                commit_outcome="failed" if _was_not_sent(error) else None,
            ) from error

    def _post_form(self, url: str, form: Mapping[str, str]) -> Response:
        def attempt() -> Response:
            try:
                answer = self._request("POST", self._absolute(url), dict(form), None, self._headers)
            except StorageError as error:  # a token more does no harm
                error.commit_outcome = "failed"
                raise
            if answer.status_code in _BUSY:
                text = f"{url} answered HTTP {answer.status_code}"
                raise StorageError(text, retryable=True, commit_outcome="failed")
            return answer

        return self._patience.call(attempt)

    def _absolute(self, url: str) -> str:
        return urljoin(f"{self.uri}/", url.lstrip("/"))


class _Session(Session):
    """Proxies and certificates as the environment has them when a server is asked first.

    Looking at them each time takes a third of a request's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[tuple[str, str], Any] = {}

    def merge_environment_settings(
        self, url: str, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        """As Session has it, where all else is as always."""
        if proxies or stream or verify is not None or cert is not None:
            return super().merge_environment_settings(url, proxies, stream, verify, cert)
        key = urlsplit(url)[:2]
        if key not in self._settings:
            settings = super().merge_environment_settings(url, {}, stream, verify, cert)
            self._settings[key] = settings
        return dict(self._settings[key])


@lru_cache(maxsize=64)
def _shared(uri: str, properties: tuple[tuple[str, str], ...]) -> HttpClient:
    bare, basic = without_login(uri, "of the catalog")
    return HttpClient(bare, dict(properties), basic)


def shared_client(uri: str, properties: Mapping[str, str]) -> HttpClient:
    """A client for a catalog with these properties, shared by all of this process."""
    named = {key: value for key, value in properties.items() if key.startswith(OF_CLIENT)}
    return _shared(uri, tuple(sorted(named.items())))


def without_login(uri: str, shown: str) -> tuple[str, tuple[str, str] | None]:
    """The URL without user and password, and those two.

    Args:
        uri: of the server.
        shown: the same without secrets: errors quote it.

    Raises:
        InvalidInputError: it is none, or has parameters.
    """
    try:
        parts = urlsplit(uri)
        known = bool(parts.hostname) and parts.port != 0 and "@" not in parts.path
    except ValueError:  # quotes a part of the URL, which may be a part of the password
        known = False
    if not known:
        raise InvalidInputError(
            f"The URL {shown} of the REST catalog cannot be read. Percent-encode what is special "
            "in the password."
        )
    if parts.query or parts.fragment:
        raise InvalidInputError(
            f"The URL {shown} of the REST catalog has parameters, which no request would carry. "
            "Give them as properties of the catalog, such as token."
        )
    if "@" not in parts.netloc:
        return uri.rstrip("/"), None
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    bare = urlunsplit(parts._replace(netloc=host)).rstrip("/")
    return bare, (unquote(user), unquote(password))


def _unchanged(request: PreparedRequest) -> PreparedRequest:
    return request


def _was_not_sent(error: Exception) -> bool:
    """Whether the server certainly saw nothing of the request."""
    if isinstance(error, ConnectTimeout):
        return True
    reason: Any = error.args[0] if error.args else None
    return type(getattr(reason, "reason", reason)).__name__ in _NOT_REACHED


def _seconds(properties: Mapping[str, str], name: str, default: float) -> float:
    text = properties.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise InvalidPropertyError(f"{name} is a number of milliseconds, not {text!r}")
    return int(text) / 1000


_EARLY_SHARE, _EARLY_MS_MAX = 0.1, 300_000
"""How long before its end a token is replaced: a share of its life, some minutes at most."""
_OPTIONAL = ("audience", "resource")
_SERVED = ("none", "oauth2", "basic", "sigv4", "google")

Post = Callable[[str, Mapping[str, str]], Response]
"""Sends a form to a URL. Raises StorageError where there is no answer."""


class Login(Protocol):
    """What stands in a request's `Authorization`."""

    def authorization(self) -> str | None:
        """The header's value, taken before each request. Raises StorageError."""

    def refused(self, authorization: str | None) -> bool:
        """Take note that the server refused a value; whether `authorization` has another now."""


class FixedLogin(Login):
    """The same value always, or none."""

    def __init__(self, value: str | None) -> None:
        self._value = value

    def authorization(self) -> str | None:
        return self._value

    def refused(self, authorization: str | None) -> bool:
        """There is no other one."""
        return authorization != self._value


class ClientCredentials:
    """A token for an id and a secret, renewed before it ends, and where it is refused.

    Args:
        url: of the token's issuer.
        form: of the request, with the secret.
        post: sends it.
        environment: clock.
    """

    def __init__(
        self, url: str, form: Mapping[str, str], post: Post, environment: Environment
    ) -> None:
        self._url, self._form, self._post = url, form, post
        self._environment = environment
        self._lock = threading.Lock()
        self._token: str | None = None
        self._until_ms: float = 0

    def authorization(self) -> str | None:
        """The header's value, with a token that is good for a while."""
        with self._lock:
            if self._token is None or self._environment.now_ms() >= self._until_ms:
                self._token, self._until_ms = self._ask()
            return f"Bearer {self._token}"

    def refused(self, authorization: str | None) -> bool:
        """Forget the token, unless another thread did so already."""
        with self._lock:
            if authorization == f"Bearer {self._token}":
                self._token = None
        return True

    def _ask(self) -> tuple[str, float]:
        asked_ms = self._environment.now_ms()
        answer = self._post(self._url, self._form)
        document = _object(answer)
        token = document.get("access_token")
        if answer.status_code != 200 or not isinstance(token, str):
            # the description is the server's; the form with the secret is quoted nowhere
            reason = str(document.get("error_description") or document.get("error") or "")[:200]
            raise StorageError(
                f"{self._url} gave no token (HTTP {answer.status_code}): {reason or 'no reason'}",
                commit_outcome="failed",
            )
        seconds = document.get("expires_in")
        if not isinstance(seconds, int | float) or seconds <= 0:
            return token, float("inf")
        life_ms = seconds * 1000
        return token, asked_ms + life_ms - min(life_ms * _EARLY_SHARE, _EARLY_MS_MAX)


def login_of(
    uri: str,
    properties: Mapping[str, str],
    basic: tuple[str, str] | None,
    post: Post,
    environment: Environment,
) -> Login:
    """The login that properties name.

    Google's; else `credential` (`id:secret`, or a secret alone) with `oauth2-server-uri`, `scope`,
    `audience` and `resource`; else `token`; else the name and password of the URL; else none.

    Args:
        uri: of the server, which issues tokens where no `oauth2-server-uri` is given.
        properties: of the catalog.
        basic: name and password.
        post: sends a form.
        environment: clock.

    Raises:
        InvalidInputError: a login of a kind that this client does not have.
    """
    kind = properties.get("rest.auth.type", "none")
    if kind.lower() not in _SERVED:
        raise InvalidInputError(
            f"rest.auth.type = {kind}: this client cannot log in so. It knows "
            f"{', '.join(_SERVED)}; Microsoft Entra gives tokens by oauth2: credential, "
            "oauth2-server-uri and scope."
        )
    if kind.lower() == "google":
        return GoogleLogin(properties)
    credential = properties.get("credential")
    if credential:
        client, colon, secret = credential.partition(":")
        form = {
            "grant_type": "client_credentials",
            **({"client_id": client, "client_secret": secret} if colon else {}),
            **({} if colon else {"client_secret": credential}),
            "scope": properties.get("scope", "catalog"),
            **{name: properties[name] for name in _OPTIONAL if name in properties},
        }
        url = properties.get("oauth2-server-uri") or f"{uri}/v1/oauth/tokens"
        return ClientCredentials(url, form, post, environment)
    if properties.get("token"):
        return FixedLogin(f"Bearer {properties['token']}")
    if basic is not None:
        encoded = base64.b64encode(":".join(basic).encode()).decode()
        return FixedLogin(f"Basic {encoded}")
    return FixedLogin(None)


def _object(answer: Response) -> dict[str, Any]:
    try:
        document = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
