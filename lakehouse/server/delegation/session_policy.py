"""What credentials for one table allow, as Amazon's policies say it (IAM: policy grammar)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from lakehouse.storage.location import parse

_READS = ("s3:GetObject", "s3:GetObjectVersion")
_WRITES = (
    *("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"),
    "s3:ListMultipartUploadParts",
)
_SPECIAL = re.compile(r"[*?$]")


def session_policy(folders: Sequence[str], *, writes: bool, partition: str = "aws") -> str:
    """The policy of a session: the table's folders, to read or also to write.

    >>> print(session_policy(["s3://lake/raw/t"], writes=False)[:71])
    {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:Ge

    Args:
        folders: locations on S3.
        writes: whether objects may be put and deleted.
        partition: of Amazon's resource names.
    """
    parsed = [parse(one) for one in folders]
    objects = [
        f"arn:{partition}:s3:::{one.authority}/{_literal(one.path.rstrip('/'))}/*" for one in parsed
    ]
    statements: list[dict[str, Any]] = [
        {
            "Effect": "Allow",
            "Action": [*_READS, *(_WRITES if writes else ())],
            "Resource": sorted(objects),
        }
    ]
    for bucket in sorted({one.authority for one in parsed}):
        resource = f"arn:{partition}:s3:::{bucket}"
        prefixes = sorted(
            f"{_literal(one.path.rstrip('/'))}/*" for one in parsed if one.authority == bucket
        )
        statements.append(
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [resource],
                "Condition": {"StringLike": {"s3:prefix": prefixes}},
            }
        )
        statements.append(
            {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [resource]}
        )
    return orjson.dumps({"Version": "2012-10-17", "Statement": statements}).decode()


def _literal(key: str) -> str:
    """A key in which nothing is a wildcard or a variable."""
    return _SPECIAL.sub(lambda found: f"${{{found[0]}}}", key)
