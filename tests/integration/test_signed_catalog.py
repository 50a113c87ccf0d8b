"""A REST catalog that lets only signed requests in, as AWS does: botocore signs each once more."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from urllib.parse import parse_qsl

import pyarrow as pa
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import lakehouse as lh
from lakehouse.errors import ForbiddenError, InvalidInputError
from tests.rest_server import Handler, rest

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
SIGNED = {
    "rest.sigv4-enabled": "true",
    "rest.signing-name": "glue",
    "rest.signing-region": "eu-central-1",
    "rest.retry-timeout-ms": "0",
}
KEYS = {"client.access-key-id": "AKIDGOOD", "client.secret-access-key": "s+/cret"}


class Guarded(Handler):
    """Answers what is signed with a key that the server knows: key -> (secret, session token)."""

    known: dict[str, tuple[str, str | None]]
    ended: set[str]
    seen: list[str]

    def _answer(self, method):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.rfile = io.BytesIO(body)
        if fault := self._fault(body):
            data = json.dumps({"message": fault}).encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)
        else:
            super()._answer(method)

    def _fault(self, body):
        kind, _, rest_of_it = (self.headers["Authorization"] or "").partition(" ")
        if kind != "AWS4-HMAC-SHA256":
            return "Missing Authentication Token"
        said = dict(part.strip().split("=", 1) for part in rest_of_it.split(","))
        key, _, region, service, _ = said["Credential"].split("/")
        self.seen.append(key)
        if key in self.ended:
            return "The security token included in the request is expired"
        if key not in self.known or (region, service) != ("eu-central-1", "glue"):
            return "The security token included in the request is invalid."
        secret, token = self.known[key]
        names = said["SignedHeaders"].split(";")
        must = {"host", "x-amz-date"} | ({"x-amz-security-token"} if token else set())
        must |= {"content-type"} if "Content-Type" in self.headers else set()
        path, _, query = self.path.partition("?")
        request = AWSRequest(
            self.command,
            f"http://{self.headers['Host']}{path}",
            {name: self.headers[name] for name in names},
            body,
            dict(parse_qsl(query, keep_blank_values=True)),
        )
        request.context["timestamp"] = self.headers["X-Amz-Date"]
        auth = SigV4Auth(Credentials(key, secret, token), service, region)
        text = auth.string_to_sign(request, auth.canonical_request(request))
        right = (
            must <= set(names)
            and self.headers.get("X-Amz-Security-Token") == token
            and self.headers["X-Amz-Content-SHA256"] == hashlib.sha256(body).hexdigest()
            and auth.signature(text, request) == said["Signature"]
        )
        return None if right else "The request signature we calculated does not match yours."


@pytest.fixture
def server(tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with rest(tmp_path) as running:
        running.RequestHandlerClass = type(
            "Known",
            (Guarded,),
            {
                "known": {"AKIDGOOD": ("s+/cret", None), "ASIATWO": ("two", "token/2==")},
                "ended": set(),
                "seen": [],
            },
        )
        yield running


def connect(server, **more):
    return lh.load_catalog(server.url, **{**SIGNED, **more})


@pytest.mark.parametrize("keys", ["client.", "rest.", "environment", "profile", "session"])
def test_every_request_is_signed_with_the_keys_that_there_are(server, tmp_path, monkeypatch, keys):
    given = {}
    if keys == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDGOOD")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s+/cret")
    elif keys == "profile":
        given = {"client.profile-name": "work"}
        (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(
            "[work]\naws_access_key_id = AKIDGOOD\naws_secret_access_key = s+/cret\n"
        )
    elif keys == "session":
        given = {"client.access-key-id": "ASIATWO", "client.secret-access-key": "two"}
        given["client.session-token"] = "token/2=="
    else:
        given = {name.replace("client.", keys): value for name, value in KEYS.items()}
    lake = connect(server, **given)
    for namespace in ("plain", ("two levels", "with a+b & ü"), ("a%2Fb",)):
        lake.create_namespace(namespace)
        name = (*((namespace,) if isinstance(namespace, str) else namespace), "t & =t")
        lake.create_table(name, ROWS.schema).append(ROWS)
        assert lake.load_table(name).scan().count() == 3
        assert len(lake.list_tables(namespace)) == 1
        assert lake.table_exists(name)
    assert "two levels.with a+b & ü" in map(str, lake.list_namespaces())
    assert not lake.table_exists("plain.none")


def test_a_login_beside_the_signature_goes_as_original_authorization(server):
    heard = []
    checked = server.RequestHandlerClass._answer

    def answer(handler, method):
        heard.append(handler.headers["Original-Authorization"])
        checked(handler, method)

    server.RequestHandlerClass._answer = answer
    connect(server, token="mine", **KEYS).create_namespace("a")  # noqa: S106
    assert set(heard) == {"Bearer mine"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"client.secret-access-key": "other"}, "does not match.*key AKIDGOOD"),
        ({"client.access-key-id": "AKIDOTHER"}, "is invalid.*key AKIDOTHER, for glue in eu-c"),
        ({"rest.signing-region": "us-east-1"}, "for glue in us-east-1.*rest.signing-region"),
        ({"rest.signing-name": "s3tables"}, "for s3tables in eu-central-1.*rest.signing-name"),
        ({"rest.sigv4-enabled": "false"}, "Missing Authentication Token$"),
    ],
)
def test_a_refusal_names_the_key_and_what_it_was_for(server, given, said):
    with pytest.raises(ForbiddenError, match=said) as caught:
        connect(server, **{**KEYS, **given})
    assert "s+/cret" not in repr(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no keys of AWS to sign with"),
        ({"client.access-key-id": "A"}, "secret-access-key are given together"),
        ({"rest.signing-region": "", **KEYS}, "no region to sign for"),
        ({"rest.signing-region": "", "client.profile-name": "none"}, "profile-name.*none"),
        ({"rest.auth.type": "kerberos", **KEYS}, "rest.auth.type = kerberos"),
    ],
)
def test_what_lacks_is_named(server, monkeypatch, given, said):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInputError, match=said):
        connect(server, **given)
    assert server.RequestHandlerClass.seen == []


def test_keys_that_a_server_calls_ended_are_looked_up_anew(server, tmp_path):
    """As a tool for single sign-on writes them: the file says nothing of their end."""
    file = tmp_path / "AWS_SHARED_CREDENTIALS_FILE"
    text = "[default]\naws_access_key_id={}\naws_secret_access_key={}\naws_session_token={}\n"
    guard = server.RequestHandlerClass
    guard.known["ASIAONE"] = ("one", "token/1")
    file.write_text(text.format("ASIAONE", "one", "token/1"))
    lake = connect(server)
    table = lake.create_table("a.t", ROWS.schema)
    guard.ended.add("ASIAONE")
    with pytest.raises(ForbiddenError, match="expired"):
        table.append(ROWS)
    file.write_text(text.format("ASIATWO", "two", "token/2=="))
    guard.seen.clear()
    table.append(ROWS)
    assert guard.seen[:2] == ["ASIAONE", "ASIATWO"]
    assert set(guard.seen[1:]) == {"ASIATWO"}
    assert lake.load_table("a.t").scan().count() == 3


def test_keys_that_end_soon_are_replaced_before(server, tmp_path):
    """By a program of the user's, which says when they end."""
    guard = server.RequestHandlerClass
    guard.known |= {f"ASIA{number}": (f"s{number}", f"t{number}") for number in range(99)}
    program = tmp_path / "keys.py"
    program.write_text(
        "import datetime, json, pathlib\n"
        f"calls = pathlib.Path({str(tmp_path / 'calls')!r})\n"
        "n = int(calls.read_text()) + 1 if calls.exists() else 0\n"
        "calls.write_text(str(n))\n"
        "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=n and 600 or 5)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'ASIA{n}', 'SecretAccessKey': f's{n}',\n"
        "    'SessionToken': f't{n}', 'Expiration': end.isoformat()}))\n"
    )
    (tmp_path / "AWS_CONFIG_FILE").write_text(
        f"[default]\ncredential_process = {sys.executable} {program}\n"
    )
    lake = connect(server)
    lake.create_table("a.t", ROWS.schema).append(ROWS)
    assert lake.load_table("a.t").scan().count() == 3
    assert guard.seen[-1] == "ASIA1"
    assert set(guard.seen) <= {"ASIA0", "ASIA1"}
    assert (tmp_path / "calls").read_text() == "1"
