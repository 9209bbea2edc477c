"""Count a producer's records for audits, and report the counts every 10 seconds.

The reporter counts whole batches when their outcome is known: acknowledged records, and records
that may be in the log although they have failed. In a transaction, it counts them when the
transaction ends. `plog.audit` defines the counts and the reports; audit_topic.py writes reports.

A report never changes once it has its number, and it is sent until the broker acknowledges it. The
topic may therefore contain a report twice, but always with the same contents. Counts that arrive in
the meantime are merged into the next report. Errors are logged; they never reach the application.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plog.audit import AUDIT_HEADER, AUDIT_TOPIC, AuditCounts, AuditReport
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Cancelled, Network, Task
from plog.client.producer.audit_topic import AuditTopic
from plog.client.producer.producer_batch import ProducerBatch
from plog.client.settings import ProducerSettings
from plog.client.task_completion import TaskCompletion
from plog.client.values import NO_TIMESTAMP
from plog.errors import PlogError
from plog.wire.schema import WireError

if TYPE_CHECKING:
    from plog.records.codec import Header

log = logging.getLogger("plog.client")

REPORT_INTERVAL_S = 10.0
"""The time between two reports, and the time limit for sending one."""
CLOSE_TIMEOUT_S = 10.0
"""The time limit for the last report if the application closes the producer without a timeout."""
# An entry with the longest possible topic name takes about 400 bytes in JSON.
_REPORT_WINDOWS_MAX = 200
"""The maximum number of windows in a report, so that it is smaller than max.message.bytes."""
_WINDOWS_MAX = 10_000
"""The maximum number of windows with unreported counts, which limits the memory for them."""


class AuditReporter:
    """The unreported counts of a producer, and the task that reports them.

    Use only in the engine's thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ProducerSettings,
        *,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        name = settings.plog_audit_producer or settings.client_id or socket.gethostname()
        # The header contains the name as UTF-8, which cannot encode lone surrogates.
        self.producer = name.encode("utf-8", "replace").decode()
        self.header: Header = (AUDIT_HEADER, self.producer.encode())
        """The header that the producer adds to each record."""
        self.instance = "".join(f"{int(network.random() * (1 << 32)):08x}" for _ in range(4))
        self._cluster = cluster
        self._network = network
        self._close_timeout_s = close_timeout_s
        self._topic = AuditTopic(cluster)
        self._is_transactional = settings.transactional_id is not None
        self._counts, self._in_doubt = AuditCounts(), AuditCounts()
        """What the next report will contain."""
        self._open_counts, self._open_in_doubt = AuditCounts(), AuditCounts()
        """The same for the current transaction."""
        self._reports: deque[AuditReport] = deque()
        """Reports that the broker has not acknowledged, in order."""
        self._number = 0
        """The number of the last report."""
        self._since_ms = network.wall_ms()
        """When the last report was created."""
        self._task: Task | None = None
        self._has_failed = False
        """The last attempt to send reports has failed; the failure is logged only once."""
        self._trouble: Exception | None = None
        self._closing = network.signal()
        self._has_final = False
        """The final report has been created."""
        self._is_sending = False
        self._sent = network.signal()
        """Set when an attempt to send reports has ended."""
        self._ended = network.signal()
        """Set when the reporter has stopped."""

    # -- outcomes of records --------------------------------------------------------------------

    def written(self, batch: ProducerBatch, append_time: int) -> None:
        """Count an acknowledged batch, which still contains its records."""
        self._add(self._open_counts if self._is_transactional else self._counts, batch, append_time)

    def failed(self, batch: ProducerBatch) -> None:
        """Count a failed batch, which still contains its records, if it may have been written."""
        if batch.may_be_written:
            counts = self._open_in_doubt if self._is_transactional else self._in_doubt
            self._add(counts, batch, NO_TIMESTAMP)

    def _add(self, counts: AuditCounts, batch: ProducerBatch, append_time: int) -> None:
        topic = batch.topic_partition.topic
        # An application may copy reports, for example to another cluster.
        if topic == AUDIT_TOPIC or not batch.records:
            return
        # With LogAppendTime, the broker has replaced the timestamps of all records.
        if append_time == NO_TIMESTAMP:
            timestamps = [record[1] for record in batch.records]
        else:
            timestamps = [append_time] * len(batch.records)
        counts.add_batch(topic, timestamps, [record[3] for record in batch.records], self.producer)
        if not self._is_transactional:
            self._counted()

    def transaction_ended(self, is_committed: bool) -> None:
        """Keep the counts of the current transaction if it is committed, otherwise drop them."""
        if is_committed:
            self._counts.add_all(self._open_counts)
            self._in_doubt.add_all(self._open_in_doubt)
            self._counted()
        self._open_counts, self._open_in_doubt = AuditCounts(), AuditCounts()

    def _counted(self) -> None:
        if len(self._counts) + len(self._in_doubt) > _WINDOWS_MAX:
            self._discard()
        # The first report is sent immediately. If the producer is killed afterwards, audits know
        # the instance and do not take its unreported records for repeated ones.
        if self._task is None and not self._closing.is_set:
            self._task = self._network.spawn(self._run(), "sending audit reports")

    def _discard(self) -> None:
        """Drop the unreported counts, to limit the memory for them."""
        # Without a report of this number, audits notice that the counts are missing.
        self._number += 1
        log.warning(
            "discarded audit counts in more than %d time windows (%s); audits will name report %d"
            " of instance %s as missing",
            _WINDOWS_MAX,
            _text_of((self._counts, self._in_doubt)),
            self._number,
            self.instance,
        )
        self._counts, self._in_doubt = AuditCounts(), AuditCounts()

    # -- reports --------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Send reports until the reporter is closed."""
        # This task starts within the handling of a response, which should end first.
        await self._network.sleep(0)
        while not self._closing.is_set:
            self._sent.clear()
            self._is_sending = True
            with TaskCompletion(self._finish_sending):
                await self._attempt(Deadline(self._network, REPORT_INTERVAL_S))
            await self._closing.wait(REPORT_INTERVAL_S)

    def _finish_sending(self) -> None:
        self._is_sending = False
        self._sent.set()

    async def _attempt(self, deadline: Deadline, *, is_final: bool = False) -> bool:
        """Send all reports; return whether that succeeded."""
        try:
            await self._send_reports(deadline, is_final=is_final)
        except Cancelled:
            raise
        except Exception as error:
            # A bug in plog must not end the audit.
            if not isinstance(error, PlogError | WireError):
                log.exception("the producer's audit failed")
            elif not self._has_failed and not is_final:
                log.warning(
                    "cannot send an audit report to topic %s: %s; the producer continues and"
                    " sends the report later",
                    AUDIT_TOPIC,
                    error,
                )
            self._has_failed = True
            self._trouble = error
            return False
        self._has_failed = False
        self._trouble = None
        return True

    async def _send_reports(self, deadline: Deadline, *, is_final: bool) -> None:
        # Reports from earlier attempts keep their numbers and contents: they may be in the topic.
        await self._send_created(deadline)
        self._create_reports(is_final=is_final)
        await self._send_created(deadline)

    async def _send_created(self, deadline: Deadline) -> None:
        while self._reports:
            await self._topic.write(self._reports[0], deadline)
            self._reports.popleft()

    def _create_reports(self, *, is_final: bool) -> None:
        """Turn the counts into reports; without counts, create only a final report."""
        until_ms = self._network.wall_ms()
        # A producer that has never reported anything does not need a final report.
        wants_last = is_final and self._number > 0 and not self._has_final
        while self._counts or self._in_doubt or wants_last:
            counts = self._counts.take(_REPORT_WINDOWS_MAX)
            in_doubt = self._in_doubt.take(_REPORT_WINDOWS_MAX - len(counts))
            is_last = not self._counts and not self._in_doubt
            wants_last = wants_last and not is_last
            self._has_final |= is_final and is_last
            self._number += 1
            self._reports.append(
                AuditReport(
                    producer=self.producer,
                    instance=self.instance,
                    number=self._number,
                    since_ms=self._since_ms,
                    until_ms=until_ms,
                    is_final=is_final and is_last,
                    counts=counts,
                    in_doubt=in_doubt,
                )
            )
            self._since_ms = until_ms

    # -- close ----------------------------------------------------------------------------------

    async def close(self, timeout_s: float | None = None) -> None:
        """Send the last reports within `timeout_s`, and stop; a second call waits for the first.

        Call this when all records have their outcome. Counts that cannot be reported are named in
        a warning.
        """
        limit_s = self._close_timeout_s if timeout_s is None else timeout_s
        deadline = Deadline(self._network, limit_s)
        if self._closing.is_set:
            await self._ended.wait(deadline.wait_s)
            return
        self._closing.set()
        with TaskCompletion(self.stop):
            await self._send_last(deadline)

    async def _send_last(self, deadline: Deadline) -> None:
        # A commit that has no outcome yet may succeed later.
        self._in_doubt.add_all(self._open_counts)
        self._in_doubt.add_all(self._open_in_doubt)
        self._open_counts, self._open_in_doubt = AuditCounts(), AuditCounts()
        # An attempt in progress has taken a report, so wait for it.
        if self._is_sending and not await self._sent.wait(deadline.wait_s):
            return
        backoff = self._cluster.backoff(deadline)
        while not await self._attempt(deadline, is_final=True):
            # Waiting until the deadline would only delay a permanent error, such as a missing
            # permission.
            if not getattr(self._trouble, "retriable", False) or backoff.is_over:
                return
            await backoff.wait()

    def stop(self) -> None:
        """Stop without sending anything, and log what was not reported; idempotent."""
        self._closing.set()
        if self._ended.is_set:
            return
        self._ended.set()
        if self._task is not None:
            self._task.cancel()
        self._topic.close()
        left = [self._counts, self._in_doubt, self._open_counts, self._open_in_doubt]
        left += [counts for report in self._reports for counts in (report.counts, report.in_doubt)]
        if any(left):
            log.warning(
                "closed producer %s before its audit reports were acknowledged (%s)%s; audits will"
                " list these records as unreported",
                self.producer,
                _text_of(left),
                "" if self._trouble is None else f": {self._trouble}",
            )


def _text_of(several: Sequence[AuditCounts]) -> str:
    """Return the number of records by topic as text."""
    records: Counter[str] = Counter()
    for counts in several:
        for window, totals in counts.items():
            records[window.topic] += totals.records
    return ", ".join(f"{topic}: {count} records" for topic, count in sorted(records.items()))
