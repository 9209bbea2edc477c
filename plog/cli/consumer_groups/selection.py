"""Select groups and partitions by the options of ``plog consumer-groups``."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import UsageError
from plog.client.admin.groups import GroupAdmin
from plog.client.network.cluster import Cluster

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members consume topics."""


async def group_names(cluster: Cluster, arguments: argparse.Namespace) -> list[str]:
    """Return the names of the groups that the options select."""
    if not arguments.all_groups:
        # A group that is named twice must not be reported or reset twice.
        return list(dict.fromkeys(arguments.group))
    listed = await GroupAdmin(cluster).list_groups()
    # The protocol type of a group that has committed offsets but never had members is empty.
    return [name for name, group in listed.items() if group.protocol_type in ("", CONSUMER)]


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """Parse a topic with optional partitions. Raises UsageError.

    >>> parse_topic("orders:0,1"), parse_topic("orders")
    (('orders', [0, 1]), ('orders', None))
    """
    topic, separator, numbers = text.partition(":")
    if not separator:
        return topic, None
    try:
        return topic, [int(number) for number in numbers.split(",")]
    except ValueError:
        raise UsageError(
            f"--topic {text}: partitions must be numbers, such as {topic}:0,1"
        ) from None
