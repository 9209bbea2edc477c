"""The port through which the controller changes what brokers host."""

from __future__ import annotations

from typing import Protocol

from plogd.metadata.cache import TopicState
from plogd.ports import Later


class Brokers(Protocol):
    """The controller's requests to a topic's brokers.

    On a single broker, `HostedTopics` implements them; in a cluster, `ClusterTerm`.

    Every call can be repeated. A call completes even if a broker does not respond, because this
    broker cannot become the controller again before the calls of its former term have completed.
    """

    def start_topic(self, topic: TopicState) -> Later[None]:
        """Create the logs for `topic` and start serving it. Fails with KafkaStorageError."""
        ...

    def stop_topic(self, topic: TopicState) -> Later[None]:
        """Stop serving `topic` and delete its logs."""
        ...

    def create_logs(self, topic: TopicState) -> Later[None]:
        """Create the missing logs for `topic`, which are not served yet.

        Fails with KafkaStorageError, in which case no logs were created.
        """
        ...

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        """Remove the logs of `topic` that no partition serves."""
        ...
