"""Compare the durable end of each log with the simulated disk: what is really durable there.

A wrong durable end loses records only if the power fails at the right moment. So a run with few
power losses would rarely show it otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plogd.log.file_names import LOG_SUFFIX, segment_path
from tests.sim.checker import Anomaly

if TYPE_CHECKING:
    from plogd.broker import Broker
    from plogd.log.log import Log
    from tests.helpers.sim.sim_files import SimFiles


class DurableEnds:
    """The durable ends of the logs of one machine."""

    def __init__(self) -> None:
        self._seen: dict[Log, int] = {}

    def new_life(self) -> None:
        """Forget the logs of the previous process."""
        self._seen.clear()

    def check(self, files: SimFiles, broker: Broker) -> None:
        """Raise Anomaly if records are not on disk although the whole log is said to be durable."""
        for log in broker.log_manager.logs.values():
            end_offset = log.durable_end_offset
            if self._seen.get(log) == end_offset or not log.is_writable:
                continue
            self._seen[log] = end_offset
            # The position of another end is not known.
            if end_offset == log.log_end_offset:
                self._check_log(files, log)

    def _check_log(self, files: SimFiles, log: Log) -> None:
        # The sealed ones are being replaced by compactions.
        for segment in log.unsynced.unsealed:
            path = segment_path(log.directory, segment.base_offset, LOG_SUFFIX)
            size_bytes = log.active_size if segment is log.segments.active else segment.size_bytes
            durable_bytes = files.durable_bytes(path)
            if durable_bytes < size_bytes:
                raise Anomaly(
                    "false-durable-end",
                    f"{log.topic_partition}: the durable end is {log.durable_end_offset}, but only"
                    f" {durable_bytes} of {size_bytes} bytes of {path} are on disk",
                )
