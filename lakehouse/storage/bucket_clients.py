"""Clients of buckets and containers, made as a storage's properties say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from obstore.store import AzureStore, GCSStore, S3Store

WRITER_ID = "lakehousewriterid"
"""Metadata of created objects.

Azure takes identifiers only, and some proxies drop names with underscores.
"""
RETRY_TIMEOUT = "storage.retry-timeout-ms"
"""How long a request that failed for a transient reason is repeated."""
Provider = Callable[[], dict[str, Any]]
"""Gives the credentials of now."""
_REGION = "client.region"
"""What servers say in place of `s3.region`."""
_RETRIES_MAX = 1_000_000

_S3_OPTIONS = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.anonymous": "skip_signature",
    "s3.force-virtual-addressing": "virtual_hosted_style_request",
}
_GCS_OPTIONS = {
    "gcs.service-account-key": "service_account_key",
    "gcs.service-account-path": "service_account",
    "gcs.endpoint": "url",
}
_AZURE_OPTIONS = {
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
    "adls.endpoint": "endpoint",
}
S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_GCS_SCHEMES = frozenset({"gs", "gcs"})
_AZURE_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs", "az"})
SCHEMES = S3_SCHEMES | _GCS_SCHEMES | _AZURE_SCHEMES


def open_store(
    scheme: str,
    authority: str,
    properties: Mapping[str, str],
    retry_ms: int,
    provider: Provider | None,
) -> Any:
    """The client of a bucket or container.

    Args:
        scheme: of its locations.
        authority: its name, with that of its account where it has one.
        properties: of the storage (`lakehouse.storage.object_store`).
        retry_ms: how long it repeats what failed for a transient reason itself.
        provider: gives the credentials of S3, asked again when they end.

    Raises obstore's errors.
    """
    # Not as `client_options`, which would replace the environment's (AWS_ALLOW_HTTP, proxies).
    client = {"timeout": f"{int(properties.get('storage.timeout-ms', '30000'))} ms"}
    retry: Any = {
        "max_retries": _RETRIES_MAX if retry_ms else 0,
        "retry_timeout": timedelta(milliseconds=retry_ms),
    }
    options: Any
    if scheme in S3_SCHEMES:
        options = client | _options(properties, _S3_OPTIONS)
        if options.get("endpoint", "").startswith("http://"):
            options["allow_http"] = "true"
        given: dict[str, Any] = {} if provider is None else {"credential_provider": provider}
        return S3Store(authority, config=options, retry_config=retry, **given)
    if scheme in _GCS_SCHEMES:
        options = client | _options(properties, _GCS_OPTIONS)
        return GCSStore(authority, config=options, retry_config=retry)
    container, at, host = authority.partition("@")
    options = client | _options(properties, _AZURE_OPTIONS)
    if at:
        options.setdefault("account_name", host.partition(".")[0])
    return AzureStore(container, config=options, retry_config=retry)


def _options(properties: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {
        **(
            {"region": properties[_REGION]}
            if "s3.region" in names and _REGION in properties
            else {}
        ),
        **{option: properties[name] for name, option in names.items() if name in properties},
    }
