"""The transaction methods of `ProducerCore`; they raise IllegalState without a transactional.id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plog.client.errors import IllegalState
from plog.client.group.group_metadata import GroupMetadata
from plog.client.values import OffsetAndMetadata, checked_offset, checked_partition
from plog.types import TopicPartition

if TYPE_CHECKING:
    from plog.client.transactions.transaction_manager import TransactionManager


class TransactionCalls:
    """The transaction methods that applications call. Use only in the engine's thread.

    Every method raises IllegalState if the producer's state does not allow the call. It raises
    TransactionAbortable if the transaction must be aborted; afterwards, the application can retry
    the transaction. After `timeout_s` (default ``max.block.ms``), it raises RequestTimedOut. After
    any other error, such as ProducerFenced or TransactionalIdAuthorizationFailed, the producer must
    be closed.
    """

    transactions: TransactionManager | None = None
    """None without a ``transactional.id``."""

    async def init_transactions(self, timeout_s: float | None = None) -> None:
        """Prepare the producer for transactions; call this once, before the first transaction.

        The call fences other producers with the same ``transactional.id`` and aborts their open
        transactions. If it fails, even with RequestTimedOut, call it again.
        """
        await self._transactions().init(timeout_s)

    async def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on are committed together or not at all."""
        await self._transactions().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata | str,
        timeout_s: float | None = None,
    ) -> None:
        """Commit a group's offsets, those of the next records to read, with the transaction.

        Get `group_metadata` from the consumer when you read the records: the coordinator then
        rejects offsets from a consumer that has left the group (KIP-447). A plain group ID skips
        this check. Set ``enable.auto.commit`` to false in the consumer. If the call times out or is
        cancelled, the transaction fails.
        """
        transactions = self._transactions()
        if isinstance(group_metadata, str):
            group_metadata = GroupMetadata(group_metadata)
        if not isinstance(group_metadata, GroupMetadata):
            raise TypeError(
                f"{group_metadata!r} is not a group: pass the value of consumer.group_metadata(),"
                " or a group ID"
            )
        # Check the arguments before the call starts: an invalid argument must not make the
        # transaction fail.
        checked = {
            checked_partition(partition): checked_offset(offset)
            for partition, offset in offsets.items()
        }
        await transactions.add_offsets(checked, group_metadata, timeout_s)

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Wait until all records of the transaction are written, then commit the transaction.

        After RequestTimedOut, call this method again to find out the outcome. Raises
        TransactionAbortable if a record was not written.
        """
        await self._transactions().commit(timeout_s)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Abort the transaction: drop its unsent records, and hide its written records.

        Consumers with ``isolation.level=read_committed`` do not see records of aborted
        transactions.
        """
        await self._transactions().abort(timeout_s)

    def _transactions(self) -> TransactionManager:
        if self.transactions is None:
            raise IllegalState(
                "the producer does not support transactions: create it with a transactional_id"
            )
        return self.transactions
