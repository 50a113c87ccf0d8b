"""An S3 store that knows who asks: moto with its checks of signatures and policies switched on.

moto looks at the policies of a role, and not at that of a session; nor at its end, nor at the
prefix of a listing. Those three are added here, from what STS was told.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import botocore.session

from tests.cluster.ports import free_port
from tests.servers import MOTO, _wait_for
from tests.waiting import reaped

_SERVER = """
import datetime, fnmatch, json, os, sys
from moto.core.utils import utcnow
from moto.iam import access_control as ac
from moto.sts.models import AssumedRole, sts_backends

made, known = AssumedRole.__init__, ac.AssumedRoleAccessKey.__init__

def make(self, *args, **kwargs):
    made(self, *args, **kwargs)
    if "SESSION_SECONDS" in os.environ:
        seconds = float(os.environ["SESSION_SECONDS"])
        self.expiration = utcnow() + datetime.timedelta(seconds=seconds)

def know(self, account_id, partition, access_key_id, headers):
    known(self, account_id, partition, access_key_id, headers)
    for role in sts_backends[account_id][partition].assumed_roles:
        if role.access_key_id == access_key_id:
            # by when it was signed: how long a request waits here is a matter of load
            at = headers.get("X-Amz-Date")
            signed = datetime.datetime.strptime(at, "%Y%m%dT%H%M%SZ") if at else utcnow()
            if role.expiration < signed:
                raise ac.CreateAccessKeyFailure(reason="InvalidToken")
            self.policy = role.policy

AssumedRole.__init__ = make
ac.AssumedRoleAccessKey.__init__ = know
ac.AssumedRoleAccessKey.collect_policies = lambda self: [self.policy]
check = ac.IAMRequestBase.check_action_permitted

def permitted(self, resource):
    policy = getattr(self._access_key, "policy", None)
    if policy is None or self._action != "s3:ListBucket":
        return check(self, resource)
    prefix = self._data.get("prefix", [""])
    prefix = prefix[0] if isinstance(prefix, list) else prefix
    for one in json.loads(policy)["Statement"]:
        if self._action in one["Action"] and resource in one["Resource"]:
            allowed = one["Condition"]["StringLike"]["s3:prefix"]
            if any(fnmatch.fnmatchcase(prefix, pattern) for pattern in allowed):
                return None
    self._raise_access_denied()

ac.IAMRequestBase.check_action_permitted = permitted
"""
_TRUST = (
    '{"Version":"2012-10-17","Statement":[{"Effect":"Allow",'
    '"Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}'
)
_ALL = (
    '{"Version":"2012-10-17","Statement":[{"Effect":"Allow",'
    '"Action":["s3:*","sts:*"],"Resource":"*"}]}'
)


@dataclass
class GuardedStore:
    """A store with the buckets `lake` and `other`.

    Attributes:
        endpoint: of S3 and of STS.
        role: with access to everything.
        keys: storage properties that have access to everything.
    """

    endpoint: str
    role: str
    keys: dict[str, str] = field(repr=False)

    def client(self, **config: str) -> Any:
        """A client with storage properties, or without any access."""
        return _client("s3", self.endpoint, config or {"s3.access-key-id": "AKIAGUESSED"})


@contextmanager
def guarded_s3(session_seconds: float | None = None) -> Iterator[GuardedStore]:
    """A running store; sessions of its role last so long."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    more = {} if session_seconds is None else {"SESSION_SECONDS": str(session_seconds)}
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER + MOTO, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **more},
    )
    with reaped(server):
        _wait_for(endpoint)
        first = {"s3.access-key-id": "test", "s3.secret-access-key": "test"}
        s3, iam = _client("s3", endpoint, first), _client("iam", endpoint, first)
        for bucket in ("lake", "other"):
            s3.create_bucket(Bucket=bucket)
        iam.create_user(UserName="server")
        iam.put_user_policy(UserName="server", PolicyName="all", PolicyDocument=_ALL)
        key = iam.create_access_key(UserName="server")["AccessKey"]
        role = iam.create_role(RoleName="tables", AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
        asked = urllib.request.Request(  # noqa: S310
            f"{endpoint}/moto-api/reset-auth",
            data=b"0",
            headers={"Content-Type": "text/plain"},
            method="POST",
        )
        urllib.request.urlopen(asked, timeout=10).close()  # noqa: S310
        yield GuardedStore(
            endpoint,
            role,
            {
                "s3.endpoint": endpoint,
                "s3.region": "us-east-1",
                "s3.access-key-id": key["AccessKeyId"],
                "s3.secret-access-key": key["SecretAccessKey"],
            },
        )


def _client(service: str, endpoint: str, config: dict[str, str]) -> Any:
    return botocore.session.get_session().create_client(
        service,
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=config["s3.access-key-id"],
        aws_secret_access_key=config.get("s3.secret-access-key", "guessed"),
        aws_session_token=config.get("s3.session-token"),
    )
