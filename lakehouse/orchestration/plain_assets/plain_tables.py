"""Which tables the plain assets of a project write, for those who look after tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dagster as dg

from lakehouse.orchestration.asset_attributes import code_digest, is_ours
from lakehouse.orchestration.plain_assets.asset_table import AssetTable

IO_MANAGER = "io_manager"
"""The resource that holds the values of assets which name no other."""


def plain_tables(definitions: Iterable[object], namespace: str = "default") -> tuple[str, ...]:
    """Names of the tables of assets that give their value to the I/O manager.

    Args:
        definitions: of Dagster; those that are no assets are passed over.
        namespace: of assets whose key has one part, see `LakehouseIOManager.namespace`.

    Raises:
        InvalidInputError: an asset's metadata is not what it should be.
    """
    return tuple(
        AssetTable.of(key, asset.metadata_by_key.get(key, {}), namespace).name
        for asset, key in plain_assets(definitions)
    )


def plain_assets(definitions: Iterable[object]) -> list[tuple[dg.AssetsDefinition, dg.AssetKey]]:
    """A project's assets that give their value to the I/O manager, in the definitions' order."""
    found = [
        one
        for one in definitions
        if isinstance(one, dg.AssetsDefinition) and not is_ours(one.node_def)
    ]
    return [
        (one, key)
        for one in found
        if one.is_executable
        for key in sorted(one.keys)
        if one.get_io_manager_key_for_asset_key(key) == IO_MANAGER and not _gives_nothing(one, key)
    ]


def with_code_versions(definitions: Iterable[Any]) -> list[Any]:
    """The definitions; plain assets have a `code_version`, so that Dagster tells changed code.

    It is the one that the user gave, else a digest of the function's code and of the plain values
    that it closes over. Functions that it calls are not part of it: who changes them gives a
    `code_version`.
    """
    found = list(definitions)
    plain = {id(asset) for asset, _ in plain_assets(found)}
    return [_versioned(one) if id(one) in plain else one for one in found]


def code_version(asset: dg.AssetsDefinition, key: dg.AssetKey) -> str:
    """What tells the code of an asset from other code; empty: nothing does."""
    return asset.code_versions_by_key.get(key) or code_digest(asset.node_def)


def _versioned(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    return asset.map_asset_specs(
        lambda spec: spec.replace_attributes(code_version=code_version(asset, spec.key) or None)
    )


def _gives_nothing(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    output = asset.get_output_name_for_asset_key(key)
    return asset.op.output_def_named(output).dagster_type.is_nothing
