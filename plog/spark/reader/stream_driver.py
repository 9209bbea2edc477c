"""`StreamDriver`: what the reader of a streaming query needs in the driver."""

from __future__ import annotations

import time

from plog.spark.options.source_options import SourceOptions
from plog.spark.reader.cluster_lookup import ClusterLookup
from plog.spark.reader.group_progress import GroupProgress
from plog.spark.reader.stream_planning import StreamPlanner


class StreamDriver:
    """The planner of a query and its connections. Spark ends its process, and never closes it."""

    def __init__(self, options: SourceOptions) -> None:
        lookup = ClusterLookup(options.client)
        self.clock = _SystemClock()
        self.planner = StreamPlanner(lookup, options, self.clock)
        # A coordinator that does not answer delays a batch for this long.
        commits = ClusterLookup({**options.client, "default.api.timeout.ms": "5000"})
        self.progress = GroupProgress(commits, options.commit_group)


class _SystemClock:
    """The real time."""

    def now_ms(self) -> int:
        # The wall clock may be set back, which would extend delays.
        return int(time.monotonic() * 1000)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
