"""The racks of the brokers that are available for replicas."""

from __future__ import annotations

from collections.abc import Collection

from plog.cli.options import UsageError
from plog.client.admin.brokers import BrokerAdmin
from plog.client.network.cluster import Cluster


async def available_racks(
    cluster: Cluster, brokers: Collection[int] | None = None, *, disable_rack_aware: bool
) -> dict[int, str | None]:
    """Return the racks of `brokers`, by default of all available brokers.

    Raises UsageError if a broker is not available, or if only some have racks. With
    `disable_rack_aware`, no broker has a rack.
    """
    known = (await BrokerAdmin(cluster).describe_cluster()).brokers
    wanted = sorted(known) if brokers is None else list(brokers)
    unknown = [broker for broker in wanted if broker not in known]
    if unknown:
        raise UsageError(
            f"Unknown broker id {unknown[0]}: the available brokers are {_joined(sorted(known))}"
        )
    if disable_rack_aware:
        return dict.fromkeys(wanted)
    racks = {broker: known[broker].rack or None for broker in wanted}
    without = [broker for broker, rack in racks.items() if rack is None]
    if without and len(without) < len(racks):
        raise UsageError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to"
            " make replica assignment without rack information. Brokers without a rack:"
            f" {_joined(without)}"
        )
    return racks


def _joined(brokers: Collection[int]) -> str:
    return ",".join(map(str, brokers))
