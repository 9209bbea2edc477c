"""What an application calls to have transactions; every `ProducerCore` has it, used or not."""

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
    """See the module's text. Engine's thread only.

    All raise IllegalState where they do not fit, TransactionAbortable if the transaction has to be
    aborted and may be begun anew, RequestTimedOut after `timeout_s` (``max.block.ms``); all else
    means that this producer has to be closed: ProducerFenced, TransactionalIdAuthorizationFailed …
    """

    transactions: TransactionManager | None = None
    """None without a ``transactional.id``."""

    async def init_transactions(self, timeout_s: float | None = None) -> None:
        """Get ready for transactions: once, before the first.

        Fences other producers with the same ``transactional.id``, and aborts what they have left
        open. May be called again if it fails, also after RequestTimedOut.
        """
        await self._transactions().init(timeout_s)

    async def begin_transaction(self) -> None:
        """Begin a transaction: all that is sent from now on is committed with it, or not at all."""
        await self._transactions().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata | str,
        timeout_s: float | None = None,
    ) -> None:
        """Commit a group's offsets with the transaction: those behind the last record worked on.

        `group_metadata` is the consumer's, taken when its records were; so a member that has lost
        its place in the group is refused (KIP-447). A group's id alone does without that. Turn
        ``enable.auto.commit`` off in the consumer. A call that ends too early, by RequestTimedOut
        or because it is cancelled, spoils the transaction.
        """
        transactions = self._transactions()
        if isinstance(group_metadata, str):
            group_metadata = GroupMetadata(group_metadata)
        if not isinstance(group_metadata, GroupMetadata):
            raise TypeError(
                f"{group_metadata!r} is no group: give what consumer.group_metadata() returns, or"
                " a group's id"
            )
        checked = {
            checked_partition(partition): checked_offset(offset)
            for partition, offset in offsets.items()
        }
        await transactions.add_offsets(checked, group_metadata, timeout_s)

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent is written, and commit it.

        After RequestTimedOut, call it again: how it ends is not known before. Raises
        TransactionAbortable if a record was not written.
        """
        await self._transactions().commit(timeout_s)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Drop what was not sent yet, and have nobody see what was."""
        await self._transactions().abort(timeout_s)

    def _transactions(self) -> TransactionManager:
        if self.transactions is None:
            raise IllegalState("this producer has no transactions: give it a transactional_id")
        return self.transactions
