"""Which tables the plain assets of a project write, for those who look after tables."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

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
    found = [one for one in definitions if isinstance(one, dg.AssetsDefinition)]
    return tuple(
        AssetTable.of(key, one.metadata_by_key.get(key, {}), namespace).name
        for one in found
        if one.is_executable
        for key in sorted(one.keys)
        if one.get_io_manager_key_for_asset_key(key) == IO_MANAGER and not _gives_nothing(one, key)
    )


def _gives_nothing(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    output = asset.get_output_name_for_asset_key(key)
    return asset.op.output_def_named(output).dagster_type.is_nothing
