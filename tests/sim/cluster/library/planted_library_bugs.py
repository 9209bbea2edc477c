"""Deliberate bugs of the client library that the simulator must find; see planted_bugs.py."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.group.committed_offsets import CommittedOffsets
from plog.client.settings import ProducerSettings
from plog.types import TopicPartition


def _no_sequences(stack: ExitStack) -> None:
    """Send batches, and send them again, without sequence numbers."""
    from_options = ProducerSettings.from_options

    def without(*args: Any, **options: Any) -> ProducerSettings:
        return from_options(*args, **options, enable_idempotence=False)

    stack.enter_context(patch.object(ProducerSettings, "from_options", without))


def _commit_ahead(stack: ExitStack) -> None:
    """Commit the offset after a record that the application has not received."""
    consumed = SubscriptionState.consumed

    def ahead(positions: SubscriptionState) -> dict[TopicPartition, Any]:
        return {
            partition: one._replace(offset=one.offset + 1)
            for partition, one in consumed(positions).items()
        }

    stack.enter_context(patch.object(SubscriptionState, "consumed", ahead))


def _skip_committed(stack: ExitStack) -> None:
    """Begin one record after the committed offset."""
    committed = CommittedOffsets.committed

    async def skip(
        offsets: CommittedOffsets, partitions: Collection[TopicPartition], **how: Any
    ) -> dict[TopicPartition, Any]:
        found = await committed(offsets, partitions, **how)
        return {
            partition: one and one._replace(offset=one.offset + 1)
            for partition, one in found.items()
        }

    stack.enter_context(patch.object(CommittedOffsets, "committed", skip))


LIBRARY_PLANTS: dict[str, Callable[[ExitStack], None]] = {
    "no-sequences": _no_sequences,
    "commit-ahead": _commit_ahead,
    "skip-committed": _skip_committed,
}
