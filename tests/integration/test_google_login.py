"""A REST catalog that lets in who has a token of Google's; google-auth signs, joserfc verifies."""

from __future__ import annotations

import json
import sys
import time
import urllib.parse
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

import lakehouse as lh
from lakehouse.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from tests.rest_server import Handler, rest
from tests.waiting import serving

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
AUDIENCE = "https://oauth2.googleapis.com/token"  # whoever the issuer is
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Issuer(ThreadingHTTPServer):
    """Gives tokens for assertions that its key signed: `given`, of which `ended` are refused."""

    def __init__(self, key, seconds):
        super().__init__(("127.0.0.1", 0), Tokens)
        self.key, self.seconds, self.given, self.ended = key, seconds, [], set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/token"


class Tokens(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(urllib.parse.parse_qsl(body))
        claims = jwt.decode(form["assertion"], self.server.key, algorithms=["RS256"]).claims
        is_good = (claims["aud"], claims["scope"]) == (AUDIENCE, SCOPE)
        is_good = is_good and claims["exp"] > time.time()
        if is_good:
            self.server.given.append(f"t{len(self.server.given)}")
            document = {"access_token": self.server.given[-1], "expires_in": self.server.seconds}
        else:
            document = {"error": "invalid_grant", "error_description": "not for me"}
        data = json.dumps(document).encode()
        self.send_response(200 if is_good else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Guarded(Handler):
    """Lets in who has a token that was given and has not ended."""

    issuer: Issuer

    def _answer(self, method):
        kind, _, token = (self.headers["Authorization"] or "").partition(" ")
        if kind == "Bearer" and token in self.issuer.given and token not in self.issuer.ended:
            super()._answer(method)
            return
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def running(tmp_path, seconds=3600):
    """The catalog, the issuer, and a file of credentials for both."""
    key = RSAKey.generate_key(2048)
    path = tmp_path / "key.json"
    with serving(Issuer(key, seconds)) as issuer, rest(tmp_path) as server:
        server.RequestHandlerClass = type("Guarding", (Guarded,), {"issuer": issuer})
        document = {
            "type": "service_account",
            "private_key": key.as_pem(private=True).decode(),
            "client_email": "us@project.iam.gserviceaccount.com",
            "token_uri": issuer.url,
        }
        path.write_text(json.dumps(document))
        yield server, issuer, path


def opened(server, **more):
    options = {"rest.auth.type": "google", "rest.retry-timeout-ms": "0", **more}
    return lh.load_catalog(server.url, **options)


@pytest.mark.parametrize("way", ["property", "environment"])
def test_a_token_is_had_and_replaced_when_it_is_refused(tmp_path, monkeypatch, way):
    with running(tmp_path) as (server, issuer, path):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        given = {"gcp.auth.credentials-path": str(path)} if way == "property" else {}
        lake = opened(server, **given)
        lake.create_table("a.t", ROWS.schema).append(ROWS)
        assert issuer.given == ["t0"]
        issuer.ended.add("t0")
        lake.load_table("a.t").append(ROWS)
        assert lake.load_table("a.t").scan().count() == 6
        assert issuer.given == ["t0", "t1"]


def test_a_token_that_ends_soon_is_replaced_before(tmp_path):
    """google-auth takes those of the last minutes for ended."""
    with running(tmp_path, seconds=60) as (server, issuer, path):
        lake = opened(server, **{"gcp.auth.credentials-path": str(path)})
        lake.list_tables()
        before = len(issuer.given)
        lake.list_tables()
        assert len(issuer.given) > before


def test_what_lacks_is_named(tmp_path, monkeypatch):
    with running(tmp_path) as (server, _, path):
        with pytest.raises(StorageError, match=r"Google gave no token.*not for me"):
            opened(
                server,
                **{"gcp.auth.credentials-path": str(path), "gcp.auth.scopes": "other"},
            ).list_tables()
        with pytest.raises(InvalidInputError, match="credentials-path"):
            opened(server, **{"gcp.auth.credentials-path": str(tmp_path / "none")})
        with pytest.raises(InvalidInputError, match=r"entra.*oauth2-server-uri"):
            opened(server, **{"rest.auth.type": "entra"})
        monkeypatch.setitem(sys.modules, "google.auth", None)
        with pytest.raises(UnsupportedFeatureError, match="pip install google-auth"):
            opened(server)
