"""Pyarrow's own S3 client, which looks for an endpoint nowhere by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs

SIGNED_ELSEWHERE = "s3.remote-signing-enabled"
"""Storage property: whether somebody else has the keys, and signs requests with them."""
S3_ENDPOINT = "s3.endpoint"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_VIRTUAL = "s3.force-virtual-addressing"
_LOGIN = re.compile("//[^/@]*@")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def s3_endpoint(properties: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """The endpoint that properties or environment name; None: Amazon's."""
    return properties.get(S3_ENDPOINT) or _first(environ, _ENDPOINTS)


def s3_region(properties: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """The region that properties or environment name."""
    named = properties.get("s3.region") or properties.get("client.region")
    return named or _first(environ, _REGIONS)


def s3_client_settings(properties: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Where the store is, as properties of clients (pyiceberg's names, and Java's); no secrets."""
    endpoint, region = s3_endpoint(properties, environ), s3_region(properties, environ)
    settings = {"s3.region": region, "client.region": region} if region else {}
    if endpoint:
        is_virtual = properties.get(_VIRTUAL, "false").lower() == "true"
        settings[S3_ENDPOINT] = _LOGIN.sub("//", endpoint)
        settings["s3.path-style-access"] = "false" if is_virtual else "true"
        if is_virtual:
            settings[_VIRTUAL] = "true"
    return settings


def is_signed_elsewhere(properties: Mapping[str, str]) -> bool:
    """Whether a storage has no keys, and somebody signs for it."""
    return properties.get(SIGNED_ELSEWHERE, "false").lower() == "true"


def refusal_reason(
    code: str, message: str, requested: str = "", there: str = "", prefix: str = ""
) -> str:
    """What a store says of a request that it refuses, in words that say what to do.

    Args:
        code: of the store.
        message: of the store.
        requested: when the request was signed, by the clock of who signed it.
        there: when it came, by the store's clock.
        prefix: what comes before, unless it is the clock.
    """
    if code != "RequestTimeTooSkewed":
        return f"{prefix}{code} {message}".strip()[:500]
    clocks = f": {requested} here, {there} there" if requested and there else ""
    return (
        f"the clock of who signed the request differs too much from the store's{clocks} ({code}). "
        "Set the clock, or have it kept by NTP; no privilege is missing."
    )


def arrow_s3(
    properties: Mapping[str, str], environ: Mapping[str, str], retry_ms: int
) -> pafs.FileSystem:
    """Pyarrow's file system for the storage with these properties.

    Args:
        properties: of an object storage; without credentials, those of Amazon's tools are taken.
        environ: where endpoint and region may be.
        retry_ms: how long what failed for a transient reason is repeated, about.
    """
    # its waits begin with 25 ms and double: so many are over just before the total
    attempts = max(1, int(math.log2(max(retry_ms, 1) / 25)))
    options: dict[str, Any] = {
        "retry_strategy": pafs.AwsDefaultS3RetryStrategy(max_attempts=attempts)
    }
    endpoint, region = s3_endpoint(properties, environ), s3_region(properties, environ)
    if endpoint:
        scheme, separator, host = endpoint.partition("://")
        options |= {
            "endpoint_override": host.rstrip("/") if separator else endpoint,
            "scheme": scheme if separator else "https",
        }
    if region:
        options["region"] = region
    for name, option in (
        ("s3.access-key-id", "access_key"),
        ("s3.secret-access-key", "secret_key"),
        ("s3.session-token", "session_token"),
    ):
        if name in properties:
            options[option] = properties[name]
    if properties.get("s3.anonymous", "false").lower() == "true":
        options["anonymous"] = True
    if properties.get(_VIRTUAL, "false").lower() == "true":
        options["force_virtual_addressing"] = True
    return pafs.S3FileSystem(**options)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)
