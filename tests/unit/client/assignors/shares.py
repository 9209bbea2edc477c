"""Helpers for tests of assignors."""

from __future__ import annotations

from collections.abc import Mapping

from plog.client.assignors import Assignor, Subscription


def wants(*topics: str, instance: str | None = None) -> Subscription:
    """Return a new member's subscription."""
    return Subscription(topics=topics, group_instance_id=instance)


def divided(
    assignor: Assignor, counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, list[str]]:
    """Return each member's partitions as text."""
    shares = assignor.assign(counts, members)
    return {member: [str(one) for one in share.partitions] for member, share in shares.items()}
