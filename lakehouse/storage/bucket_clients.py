"""Clients of buckets and containers, made as a storage's properties say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from obstore.store import AzureStore, GCSStore, S3Store

from lakehouse.errors import InvalidPropertyError

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
    "gcs.oauth2.token": "bearer_token",
    "gcs.service.host": "base_url",
    "gcs.no-auth": "skip_signature",
}
_AZURE_OPTIONS = {
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
    "adls.token": "token",
    "adls.anon": "skip_signature",
    "adls.endpoint": "endpoint",
}
_AZURE_CONNECTION = "adls.connection-string"
_OF_CONNECTION = {
    "AccountName": "adls.account-name",
    "AccountKey": "adls.account-key",
    "SharedAccessSignature": "adls.sas-token",
    "BlobEndpoint": "adls.endpoint",
}
_BY_ACCOUNT = ("adls.sas-token.", "adls.connection-string.")
_PUBLIC_AZURE = "core.windows.net"
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
        provider: gives the credentials, asked again when they end.

    Raises obstore's errors; InvalidPropertyError.
    """
    # Not as `client_options`, which would replace the environment's (AWS_ALLOW_HTTP, proxies).
    client = {"timeout": f"{int(properties.get('storage.timeout-ms', '30000'))} ms"}
    retry: Any = {
        "max_retries": _RETRIES_MAX if retry_ms else 0,
        "retry_timeout": timedelta(milliseconds=retry_ms),
    }
    given: dict[str, Any] = {} if provider is None else {"credential_provider": provider}
    container, _, host = authority.partition("@")
    store: Any
    if scheme in S3_SCHEMES:
        store, options = S3Store, _options(properties, _S3_OPTIONS)
    elif scheme in _GCS_SCHEMES:
        store, options = GCSStore, _options(properties, _GCS_OPTIONS)
    else:
        store, options = AzureStore, _options(azure_properties(host, properties), _AZURE_OPTIONS)
    if (options.get("endpoint") or options.get("base_url") or "").startswith("http://"):
        options["allow_http"] = "true"
    return store(container, config=client | options, retry_config=retry, **given)


def azure_properties(host: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of a storage as those of one of its accounts.

    `adls.sas-token.<host>` and `adls.connection-string.<host>` are the account's own; a connection
    string says what else stands in properties of its own, and they come before it.

    Args:
        host: of the account, as a location has it (`account.dfs.core.windows.net`); may be empty.
        properties: of the storage.

    Raises InvalidPropertyError: a connection string that is none.
    """
    resolved = dict(properties)
    account, _, suffix = host.partition(".")
    for start in _BY_ACCOUNT:
        for name in (account, host):
            if name and start + name in properties:
                resolved[start[:-1]] = properties[start + name]
    if _AZURE_CONNECTION in resolved:
        resolved = _of_connection(resolved[_AZURE_CONNECTION]) | resolved
    if account:
        resolved["adls.account-name"] = account
    service, _, domain = suffix.partition(".")
    if service in ("dfs", "blob") and domain != _PUBLIC_AZURE:
        resolved.setdefault("adls.endpoint", f"https://{account}.blob.{domain}")
    return resolved


def _of_connection(text: str) -> dict[str, str]:
    parts = [part.partition("=") for part in text.strip().split(";") if part]
    named = {name: value for name, _, value in parts}
    if not all(equals for _, equals, _ in parts) or not {"AccountName", "BlobEndpoint"} & set(
        named
    ):
        # it holds a key
        raise InvalidPropertyError(
            f"{_AZURE_CONNECTION} is AccountName=...;AccountKey=...;..., as Azure shows it."
        )
    properties = {
        _OF_CONNECTION[name]: value for name, value in named.items() if name in _OF_CONNECTION
    }
    suffix = named.get("EndpointSuffix", _PUBLIC_AZURE)
    if suffix != _PUBLIC_AZURE and "AccountName" in named:
        properties.setdefault("adls.endpoint", f"https://{named['AccountName']}.blob.{suffix}")
    return properties


def _options(properties: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {
        **(
            {"region": properties[_REGION]}
            if "s3.region" in names and _REGION in properties
            else {}
        ),
        **{option: properties[name] for name, option in names.items() if name in properties},
    }
