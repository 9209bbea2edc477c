"""React to log directories of brokers that fail while the brokers run.

A broker reports the failure with a znode that contains its id. The controller then sends the states
of all partitions of the broker once more, and learns from the response which replicas are offline.
broker_changes.py elects other leaders for them. The znode is removed after that; if the controller
stops before, the next one finds the znode, and also sends all states.

Source: Kafka 3.9 KafkaController.processLogDirEventNotification; KIP-112.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plog.errors import KafkaError, NotController
from plogd.controller.term import Term
from plogd.metadata.store import Change, Key, MetadataStore
from plogd.ports import Report, spawn


class LogDirFailures:
    """The reports of brokers in one term; `failed` gets the id of a broker."""

    def __init__(
        self,
        term: Term,
        *,
        store: MetadataStore,
        failed: Callable[[int], None],
        report: Report,
    ) -> None:
        self._term = term
        self._store = store
        self._failed = failed
        self._report = report

    def handle(self) -> None:
        """Handle the reports in the store, and remove them."""
        reports = self._store.load(("log_dir_failure",))
        if not reports:
            return
        for broker_id in sorted({value for value, _ in reports.values()}):
            self._failed(broker_id)
        spawn(self._remove(reports)).then(_ignore, self._not_removed)

    async def _remove(self, reports: Mapping[Key, tuple[Any, int]]) -> None:
        changes = [
            Change(key=key, value=None, expected=version) for key, (_, version) in reports.items()
        ]
        # A report that was handled twice may have been removed already.
        await self._term.write_each(changes)

    def _not_removed(self, error: Exception) -> None:
        if isinstance(error, NotController):
            return
        if not isinstance(error, KafkaError | ValueError):
            raise error
        # The next report, or the next controller, finds them again.
        self._report(
            "cannot remove the reports about failed log directories: {error}",
            error=str(error),
            level="warn",
        )


def _ignore(_: None) -> None:
    """Do nothing."""
