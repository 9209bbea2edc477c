"""Which groups and partitions the options of ``plog consumer-groups`` mean."""

from __future__ import annotations

import argparse
from typing import Final

from plog.cli.options import UsageError
from plog.client.admin.groups import GroupAdmin
from plog.client.network.cluster import Cluster

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members consume topics."""


async def group_names(cluster: Cluster, arguments: argparse.Namespace) -> list[str]:
    """The groups the options mean."""
    if not arguments.all_groups:
        return list(dict.fromkeys(arguments.group))
    listed = await GroupAdmin(cluster).list_groups()
    return [name for name, group in listed.items() if group.protocol_type in ("", CONSUMER)]


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """A topic, and the partitions behind it if there are some. Raises UsageError.

    >>> parse_topic("orders:0,1"), parse_topic("orders")
    (('orders', [0, 1]), ('orders', None))
    """
    topic, separator, numbers = text.partition(":")
    if not separator:
        return topic, None
    try:
        return topic, [int(number) for number in numbers.split(",")]
    except ValueError:
        raise UsageError(f"--topic {text}: partitions are numbers, such as {topic}:0,1") from None
