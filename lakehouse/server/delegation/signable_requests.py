"""Which requests to S3 the server signs for a client: those about files of one table.

A signature is the server's own access. So everything in a request is named here that may be in it,
and what is not is refused: methods, parameters, headers, the bucket and the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.etree import ElementTree as ET

from lakehouse.errors import ForbiddenError

IsOwn = Callable[[str], bool]
_OBJECT = {
    "GET": frozenset({"versionId", "partNumber", "uploadId", "max-parts", "part-number-marker"}),
    "HEAD": frozenset({"versionId", "partNumber"}),
    "PUT": frozenset({"partNumber", "uploadId"}),
    "POST": frozenset({"uploads", "uploadId"}),
    "DELETE": frozenset({"uploadId", "versionId"}),
}
_LISTING = frozenset(
    {
        *("list-type", "prefix", "delimiter", "continuation-token", "start-after", "max-keys"),
        *("encoding-type", "fetch-owner"),
    }
)
_DELETION = frozenset({"delete"})
_ANYWHERE = frozenset({"x-id"})
"""What Amazon's libraries add, for their logs."""
_READS = ("GET", "HEAD")
_AMZ = re.compile(
    r"x-amz-(content-sha256|decoded-content-length|trailer|user-agent|sdk-[a-z-]+"
    r"|checksum-[a-z0-9-]+|meta-[a-z0-9-]+|storage-class"
    r"|server-side-encryption[a-z-]*|expected-bucket-owner|request-payer)"
)
_OVERRIDES = frozenset(
    {"x-http-method-override", "x-http-method", "x-method-override", "x-original-url"}
    | {"x-rewrite-url", "x-forwarded-host", "authorization"}
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_DECODED_TIMES = 4
_KEYS_MAX = 1000
_XML_BYTES_MAX = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SignRequest:
    """What a client wants signed (REST catalog: RemoteSignRequest).

    Attributes:
        method: of HTTP.
        uri: of the request.
        headers: with lower-case names.
        body: of a request that deletes several objects.
    """

    method: str
    uri: str
    headers: Mapping[str, Sequence[str]]
    body: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the store answers.

    Attributes:
        scheme: http or https.
        host: with its port where that is not the scheme's own.
        region: of its signatures.
    """

    scheme: str
    host: str
    region: str


def check_signable(
    request: SignRequest, endpoint: Endpoint, is_own: IsOwn, *, writes: bool
) -> None:
    """Raise ForbiddenError unless a request is about files of the table alone.

    Args:
        request: what is to be signed.
        endpoint: of the store.
        is_own: whether a location lies in the table's folders.
        writes: whether the caller may change the table.
    """
    if request.method not in _OBJECT:
        raise _refused(f"the method {request.method!r}")
    if request.method not in _READS and not writes:
        raise ForbiddenError(f"Who may not write to the table has no {request.method} signed.")
    _check_headers(request, endpoint)
    bucket, key, query = _taken_apart(request.uri, endpoint)
    if key:
        _check_parameters(query, _OBJECT[request.method])
        _check_own(f"s3://{bucket}/{key}", is_own)
    elif request.method == "GET":
        _check_parameters(query, _LISTING)
        if query.get("list-type") != "2":
            raise _refused("a listing of another kind than list-type=2")
        prefix = query.get("prefix", "")
        if not prefix.endswith("/"):
            raise _refused(f"a listing of {prefix!r}, which is no folder")
        _check_own(f"s3://{bucket}/{prefix}x", is_own)
    elif request.method == "POST":
        _check_parameters(query, _DELETION)
        for deleted in _deleted_keys(request.body):
            _check_own(f"s3://{bucket}/{deleted}", is_own)
    else:
        raise _refused("a bucket")


def _taken_apart(uri: str, endpoint: Endpoint) -> tuple[str, str, dict[str, str]]:
    """Bucket, key and parameters."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise _refused("a URI that cannot be read") from error
    if parts.scheme != endpoint.scheme or parts.fragment or parts.username is not None:
        raise _refused("a URI with another scheme, a login or a fragment")
    if _CONTROL.search(uri) or " " in uri or not uri.isascii():
        raise _refused("a URI with characters that are to be encoded")
    host = (parts.hostname or "") + (f":{port}" if port is not None else "")
    raw = parts.path
    if host == endpoint.host:
        bucket, _, raw = raw.lstrip("/").partition("/") if raw.startswith("/") else ("", "", "")
        if parts.path.startswith("//"):
            raise _refused("a URI without a bucket")
    elif host.endswith(f".{endpoint.host}"):
        bucket, raw = host[: -len(endpoint.host) - 1], raw.removeprefix("/")
    else:
        raise _refused(f"the host {host!r}")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise _refused(f"the bucket {bucket[:80]!r}")
    return bucket, _key(raw), _parameters(parts.query)


def _key(raw: str) -> str:
    """The key, of which no reading is another place.

    Stores decode once; what stands between decodes again, or removes dots.
    """
    try:
        key = text = unquote(raw, errors="strict")
    except UnicodeDecodeError:
        raise _bad_key() from None
    for _ in range(_DECODED_TIMES):
        # some servers leave out what follows a semicolon
        segments = [segment.partition(";")[0] for segment in text.split("/")]
        if _CONTROL.search(text) or "" in segments[:-1] or {".", ".."} & {*segments}:
            raise _bad_key()
        following = unquote(text, errors="replace")
        if following == text:
            return key
        text = following
    raise _bad_key()


def _bad_key() -> ForbiddenError:
    return _refused("a key with '.', '..', '//' or control characters")


def _parameters(query: str) -> dict[str, str]:
    if ";" in query:
        raise _refused("a ';' among the parameters")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=32, errors="strict")
    except ValueError as error:
        raise _refused("parameters that cannot be read") from error
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise _refused("a parameter that is given twice")
    return dict(pairs)


def _check_parameters(query: Mapping[str, str], allowed: frozenset[str]) -> None:
    other = query.keys() - allowed - _ANYWHERE
    if other:
        raise _refused(f"the parameter {min(other)[:80]!r}")


def _check_headers(request: SignRequest, endpoint: Endpoint) -> None:
    for name, values in request.headers.items():
        if name in _OVERRIDES or (name.startswith("x-amz-") and not _AMZ.fullmatch(name)):
            raise _refused(f"the header {name[:80]!r}")
        if any(_CONTROL.search(value) for value in values):
            raise _refused(f"control characters in the header {name[:80]!r}")
    hosts = request.headers.get("host", ())
    netloc = urlsplit(request.uri).netloc
    if any(host != netloc for host in hosts):
        raise _refused(f"another host than {endpoint.host}")


def _check_own(location: str, is_own: IsOwn) -> None:
    if not is_own(location):
        raise ForbiddenError("What is not of the table is not signed for.")


def _deleted_keys(body: str | None) -> list[str]:
    """The keys that a body names (S3: DeleteObjects)."""
    if body is None or len(body) > _XML_BYTES_MAX or "<!" in body:
        raise _refused("the deletion of several objects without a body that names them")
    try:
        root = ET.fromstring(body)  # noqa: S314 - no declarations, see above
    except (ET.ParseError, ValueError) as error:
        raise _refused("a body that is no XML") from error
    keys = []
    for node in root:
        kind = node.tag.rpartition("}")[2]
        if kind == "Quiet":
            continue
        named = [child.text or "" for child in node if child.tag.rpartition("}")[2] == "Key"]
        if kind != "Object" or len(named) != 1:
            raise _refused("a body that names something else than objects")
        keys.append(_checked_key(named[0]))
    if not keys or len(keys) > _KEYS_MAX:
        raise _refused(f"the deletion of {len(keys)} objects")
    return keys


def _checked_key(key: str) -> str:
    _key(key.replace("%", "%25"))
    return key


def _refused(what: str) -> ForbiddenError:
    return ForbiddenError(f"Requests to the storage are signed for files of a table, not {what}.")
