"""Tokens that are forged, old, of others or of an issuer; secrets that stay secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import subprocess
import sys
import time
from dataclasses import replace

import pyarrow as pa
import pytest
import requests
import yaml
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

import lakehouse as lh
from lakehouse.server.access.hashed_secrets import HashedSecret
from tests.server.conftest import open_lake
from tests.server.guarded import SECRETS, guarded, rules_file
from tests.server.test_rest_protocol import error
from tests.servers import ROOT, ServeProcess
from tests.waiting import serving

ISSUER = "https://login.example.com"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
SAML = {"subject_token_type": "saml"}
ACCESS = "urn:ietf:params:oauth:token-type:access_token"
ROLES = {"analyst": [{"in": "ann", "may": ["read"]}]}
OWN_KEY = b"k" * 48
TABLE = "/namespaces/ann/tables/t"


class Keys(http.server.ThreadingHTTPServer):
    """An issuer's public keys, which it may change."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), KeysHandler)
        self.keys, self.asked = [], 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/jwks.json"


class KeysHandler(http.server.BaseHTTPRequestHandler):
    server: Keys

    def do_GET(self):
        self.server.asked += 1
        body = json.dumps(KeySet(self.server.keys).as_dict(private=False)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


@pytest.fixture(scope="module")
def issuer_key():
    return RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


@pytest.fixture(scope="module")
def server(tmp_path_factory, issuer_key):
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "own.key").write_bytes(OWN_KEY)
    (folder / "file.json").write_text(json.dumps(KeySet([issuer_key]).as_dict(private=False)))
    with serving(Keys()) as keys:
        keys.keys = [issuer_key]
        rules = rules_file(
            folder,
            roles=ROLES,
            issuers={
                ISSUER: {"jwks": keys.url, "audience": "lake", "roles": "groups"},
                "https://file": {"jwks": "file.json", "audience": "lake", "name": "email"},
            },
            tokens={"seconds": 600, "key-file": "own.key"},
        )
        lake = open_lake("sqlite", folder / "lake")
        lake.create_table("ann.t", pa.schema({"id": pa.int64()}))
        with guarded(lake, rules) as found:
            found.keys = keys
            yield found


def claims(**other):
    now = int(time.time())
    told = {"iss": ISSUER, "aud": "lake", "sub": "carl", "exp": now + 60, "groups": ["analyst"]}
    told |= other
    return {key: value for key, value in told.items() if value is not None}


def own_claims(**other):
    now = int(time.time())
    return {"iss": "lakehouse", "aud": "lakehouse", "sub": "ann", "exp": now + 60} | other


def sign(key, told, **header):
    algorithm = {"RSA": "RS256", "oct": "HS256", "EC": "ES256"}[key.key_type]
    head = {"alg": algorithm, **({"kid": key.kid} if key.kid else {}), **header}
    return jwt.encode(head, told, key, algorithms=["RS256", "HS256", "ES256", "RS512"])


def part(document):
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def confused(public, told):
    """A public key taken for a secret one: a reader who trusts `alg` would find it good."""
    signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(told)}"
    found = hmac.new(public, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(found).rstrip(b'=').decode()}"


def load(server, token):
    return server.ask(token, "GET", TABLE)


def test_tokens_of_an_issuer_give_its_roles(server, issuer_key):
    assert load(server, sign(issuer_key, claims())).status_code == 200
    assert load(server, sign(issuer_key, claims(groups="other analyst"))).status_code == 200
    assert load(server, sign(issuer_key, claims(aud=["else", "lake"]))).status_code == 200
    assert load(server, sign(issuer_key, claims(groups=["root-of-all"]))).status_code == 403
    assert load(server, sign(issuer_key, claims(groups=None))).status_code == 403
    by_file = claims(iss="https://file", email="c@x", groups=None, roles="analyst")
    assert load(server, sign(issuer_key, by_file)).status_code == 200


def test_tokens_that_do_not_hold(server, issuer_key):
    now = int(time.time())
    stranger = RSAKey.generate_key(2048, {"kid": "one"})
    own = OctKey.import_key(OWN_KEY)
    good = sign(issuer_key, claims())
    head, body, signature = good.split(".")
    wrong = {
        "another key": sign(stranger, claims()),
        "another audience": sign(issuer_key, claims(aud="other")),
        "no audience": sign(issuer_key, claims(aud=None)),
        "another issuer": sign(issuer_key, claims(iss="https://evil.example.com")),
        "no issuer": sign(issuer_key, claims(iss=None)),
        "no end": sign(issuer_key, claims(exp=None)),
        "an end that is no number": sign(issuer_key, claims(exp="tomorrow")),
        "not yet": sign(issuer_key, claims(nbf=now + 600)),
        "no name": sign(issuer_key, claims(sub=None)),
        "a name that is none": sign(issuer_key, claims(sub=["carl"])),
        "one of our own names": sign(issuer_key, claims(sub="root")),
        "the public key as a secret": confused(issuer_key.as_pem(private=False), claims()),
        "no signature": f"{part({'alg': 'none'})}.{body}.",
        "no signature, own": f"{part({'alg': 'none'})}.{part(own_claims(sub='root'))}.",
        "another body": f"{head}.{part(claims(sub='root'))}.{signature}",
        "cut": good[:-4],
        "own issuer, its key": sign(issuer_key, own_claims(sub="root")),
        "own, another key": sign(OctKey.import_key(b"x" * 48), own_claims(sub="root")),
        "own, another catalog": sign(own, own_claims(aud="other")),
        "own, nobody": sign(own, own_claims(sub="nobody")),
        "own, endless": sign(own, {**own_claims(), "exp": None}),
        "deep": f"{part({'alg': 'RS256'})}.{base64.urlsafe_b64encode(b'[' * 9000).decode()}.x",
        "deep head": f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.{body}.x",
        "long": "a." * 20_000,
        "words": "a.b.c",
        "empty": "",
    }
    for why, token in wrong.items():
        answer = load(server, token)
        assert answer.status_code == 401, (why, answer.text)
        assert error(answer)[1] == "NotAuthorizedException"
        assert token == "" or token[:100] not in answer.text
    assert load(server, sign(own, own_claims())).status_code == 200


def test_expired_tokens_are_told_so(server, issuer_key):
    past = int(time.time()) - 120
    own = OctKey.import_key(OWN_KEY)
    for token in (sign(issuer_key, claims(exp=past)), sign(own, own_claims(exp=past))):
        assert error(load(server, token)) == (419, "AuthenticationTimeoutException")
    # a signature that is wrong, too, says nothing
    stranger = sign(OctKey.import_key(b"x" * 48), own_claims(exp=past))
    assert load(server, stranger).status_code == 401


def test_what_was_remembered_ends_with_the_token(tmp_path):
    """By the clock of the server, which stands still but for the test."""
    clock = [time.time_ns() // 1_000_000]
    (tmp_path / "own.key").write_bytes(OWN_KEY)
    rules = rules_file(tmp_path, tokens={"seconds": 600, "key-file": "own.key"})
    lake = open_lake("sqlite", tmp_path / "lake")
    lake.create_table("ann.t", pa.schema({"id": pa.int64()}))
    lake.environment = replace(lake.environment, now_ms=lambda: clock[0])
    with guarded(lake, rules) as server:
        until = clock[0] // 1000 + 2
        token = sign(OctKey.import_key(OWN_KEY), own_claims(exp=until))
        assert load(server, token).status_code == 200
        clock[0] = until * 1000 - 1
        assert load(server, token).status_code == 200
        clock[0] = (until + 1) * 1000
        assert load(server, token).status_code == 419


def test_keys_that_were_rotated_are_fetched_but_not_for_every_forgery(server, issuer_key):
    fresh = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})
    assert load(server, sign(issuer_key, claims())).status_code == 200
    before = server.keys.asked
    for _ in range(5):
        assert load(server, sign(fresh, claims())).status_code == 401
    assert server.keys.asked <= before + 1


def exchange(server, token, **form):
    form = {"grant_type": EXCHANGE, "subject_token": token, "subject_token_type": ACCESS} | form
    return requests.post(f"{server.url}/v1/oauth/tokens", data=form, timeout=30)


def test_tokens_are_exchanged(server, issuer_key):
    mine = exchange(server, server.token("ann")).json()
    assert load(server, mine["access_token"]).status_code == 200
    assert 590 <= mine["expires_in"] <= 600
    foreign = exchange(server, sign(issuer_key, claims())).json()
    assert load(server, foreign["access_token"]).status_code == 200
    # not for longer than the issuer said, however often
    again = exchange(server, foreign["access_token"]).json()
    assert again["expires_in"] <= foreign["expires_in"] <= 60
    assert server.ask(again["access_token"], "DELETE", TABLE).status_code == 403


def test_what_the_endpoint_of_tokens_refuses(server):
    def refused(**form):
        answer = requests.post(f"{server.url}/v1/oauth/tokens", data=form, timeout=30)
        assert "hunter2" not in answer.text
        return answer.status_code, answer.json()["error"]

    ann = {"client_id": "ann", "client_secret": SECRETS["ann"]}
    assert refused() == (400, "unsupported_grant_type")
    assert refused(grant_type="password", **ann) == (400, "unsupported_grant_type")
    client = {"grant_type": "client_credentials"}
    assert refused(**client) == (400, "invalid_request")
    assert refused(**client, **{**ann, "client_secret": "hunter2"}) == (401, "invalid_client")
    assert refused(**client, **{**ann, "client_id": "nobody"}) == (401, "invalid_client")
    assert refused(**client, **{**ann, "client_id": ""}) == (401, "invalid_client")
    assert exchange(server, "a.b.c").json()["error"] == "invalid_grant"
    assert exchange(server, "x", **SAML).json()["error"] == "invalid_request"
    url = f"{server.url}/v1/oauth/tokens"
    by_header = requests.post(url, data=client, auth=("ann", SECRETS["ann"]), timeout=30)
    assert "bearer" in by_header.json().values()
    assert by_header.headers["Cache-Control"] == "no-store"
    assert requests.post(url, data=b"x" * 100_000, timeout=30).status_code == 413
    assert requests.post(url, data=b"\xff=\xff", timeout=30).status_code == 400
    assert requests.post(url, data=b"&".join([b"a=b"] * 1000), timeout=30).status_code == 400


def test_a_principal_that_is_taken_away_has_no_token_any_more(tmp_path):
    (tmp_path / "own.key").write_bytes(OWN_KEY)
    lake = open_lake("sqlite", tmp_path / "lake")
    lake.create_table("ann.t", pa.schema({"id": pa.int64()}))
    rules = rules_file(tmp_path, tokens={"key-file": "own.key"})
    with guarded(lake, rules) as first:
        token = first.token("ann")
    with guarded(lake, rules) as second:  # the key is kept: a restart ends no tokens
        assert load(second, token).status_code == 200
    rules.write_text(rules.read_text().replace("\n  ann:\n    roles:", "\n  eve:\n    roles:"))
    with guarded(lake, rules) as third:
        assert load(third, token).status_code == 401


def test_secrets_are_compared_whatever_the_name(server, monkeypatch):
    """As often for a name that is unknown as for a wrong secret."""
    hashed = HashedSecret.of("one")
    assert HashedSecret.parse(str(hashed)) == hashed
    assert "one" not in repr(hashed)
    assert str(HashedSecret.of("one")) != str(hashed)
    compared = []
    whole = HashedSecret.matches
    monkeypatch.setattr(
        HashedSecret, "matches", lambda self, secret: compared.append(self.n) or whole(self, secret)
    )
    for name in ("ann", "nobody"):
        assert requests.get(server.url, auth=(name, "wrong"), timeout=30).status_code == 401
    assert len(compared) == 2
    assert compared[0] == compared[1]


def test_a_principal_of_the_command_line_is_let_in(tmp_path):
    cli = [sys.executable, "-c", "from lakehouse.cli import app; app()", "new-principal"]

    def made(*arguments):
        done = subprocess.run([*cli, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = json.loads(made("eve", "--role", "analyst", "--json"))
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"roles": ROLES, "principals": told["principals"]}))
    lake = open_lake("filesystem", tmp_path / "lake")
    lake.create_table("ann.t", pa.schema({"id": pa.int64()}))
    with guarded(lake, rules) as server:
        name, _, secret = told["credential"].partition(":")
        answer = requests.get(f"{server.url}/v1{TABLE}", auth=(name, secret), timeout=30)
        assert answer.status_code == 200
    # the lines that people copy
    text = made("eve", "--role", "analyst")
    document = yaml.safe_load(text)
    secret = text.split("credential=eve:")[1].split()[0]
    assert HashedSecret.parse(document["principals"]["eve"]["secret"]).matches(secret)
    assert document["principals"]["eve"]["roles"] == ["analyst"]


@pytest.mark.slow
def test_no_secret_is_in_logs_errors_or_metadata(tmp_path):
    log, printed = tmp_path / "access.log", tmp_path / "printed"
    options = ["--principals", str(rules_file(tmp_path)), "--access-log", str(log)]
    warehouse = tmp_path / "warehouse"
    lake = lh.load_catalog(str(warehouse))
    lake.create_table("ann.t", pa.schema({"id": pa.int64()}))
    with ServeProcess(str(warehouse), str(warehouse), *options, log=printed) as server:
        url = server.url
        form = {"grant_type": "client_credentials", "client_id": "ann"}
        said = []
        for secret in (SECRETS["ann"], "wrong-hunter2"):
            answer = requests.post(
                f"{url}/v1/oauth/tokens", data={**form, "client_secret": secret}, timeout=30
            )
            said.append(answer.json().get("access_token") or answer.text)
        table = f"{url}/v1/namespaces/ann/tables/t"
        bearer = {"Authorization": f"Bearer {said[0]}"}
        change = {"updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
        assert requests.post(table, json=change, headers=bearer, timeout=30).status_code == 200
        forged = {"Authorization": "Bearer hunter2.hunter2.hunter2"}
        said += [requests.get(f"{table}x", headers=h, timeout=30).text for h in (forged, bearer)]
        said.append(requests.get(table, auth=("ann", "wrong-hunter2"), timeout=30).text)
        requests.get(f"{url}/", auth=("ann", SECRETS["ann"]), timeout=30)
        assert server.stop() == 0
    written = log.read_text()
    everything = [printed.read_text(), written, *said[1:]]
    everything += [one.read_text("utf-8", "replace") for one in warehouse.rglob("*.json")]
    assert len(everything) > 6
    for text in everything:
        assert "hunter2" not in text
        assert said[0].split(".")[2] not in text
    commits = [json.loads(line) for line in written.splitlines()]
    assert [
        (commit["principal"], commit["names"], commit["status"])
        for commit in commits
        if commit["operation"].startswith("POST /v1/{prefix}/namespaces/{namespace}/tables/{table}")
    ] == [("ann", ["ann.t"], 200)]
