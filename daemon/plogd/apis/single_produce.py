"""The fast path of Produce for one partition; plog/wire/single_produce.py defines its requests.

Decisions are made in the usual places: `ReplicaManager.append_records` appends, and produce.py
builds responses with an error. A request that needs more checks (a client with a quota, an internal
topic, acks=0, an unknown topic id) takes the general path before it has any effect.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.wire.api_keys import ApiKey
from plog.wire.frames import frame_response
from plog.wire.messages.produce import ProduceResponse, TopicProduceResponse
from plog.wire.primitives import Part
from plog.wire.single_produce import SingleProduce, write_single_answer
from plogd.apis.produce import partition_response
from plogd.broker import Broker
from plogd.metadata.cache import INTERNAL_TOPICS
from plogd.ports import Cancelled, Later
from plogd.replica.delayed_produce import PartitionAppend


class SingleProduceCall:
    """A produce request in progress. `topic` is the topic's name even if the request has an id."""

    __slots__ = ("_broker", "_produce", "_topic")

    def __init__(self, broker: Broker, produce: SingleProduce, topic: str) -> None:
        self._broker = broker
        self._produce = produce
        self._topic = topic

    def start(self, records: memoryview) -> list[Part] | Later[list[Part] | None]:
        """Append the records; return the framed response or a Later."""
        produce, nbytes = self._produce, len(records)
        try:
            appended = self._broker.replica_manager.append_records(
                [(TopicPartition(self._topic, produce.partition), records)],
                required_acks=produce.acks,
                timeout_ms=produce.timeout_ms,
            )
        except Exception as error:
            return self._tell_bug(error)
        if not isinstance(appended, Later):
            return self._answer(appended, nbytes)
        answer: Later[list[Part] | None] = Later(appended.cancel)
        appended.then(
            lambda appends: answer.succeed(self._answer(appends, nbytes)),
            lambda error: self._failed(answer, error),
        )
        return answer

    def _answer(self, appends: list[PartitionAppend], nbytes: int) -> list[Part]:
        append = appends[0]
        self._broker.topic_stats.appended(append, nbytes)
        info = append.info
        if info is None or append.error is not None:
            return self._tell(append)
        first_offset, _, append_time_ms, *_ = info
        return [
            write_single_answer(
                self._produce, first_offset, append_time_ms, append.log_start_offset
            )
        ]

    def _failed(self, answer: Later[list[Part] | None], error: Exception) -> None:
        if isinstance(error, Cancelled):
            answer.fail(error)
        else:
            answer.succeed(self._tell_bug(error))

    def _tell_bug(self, error: Exception) -> list[Part]:
        self._broker.report_bug(f"Produce to {self._topic}-{self._produce.partition}", error)
        return self._tell(KafkaError("unexpected error; see the broker's log"))

    def _tell(self, result: PartitionAppend | KafkaError) -> list[Part]:
        """Return a complete response with the error."""
        produce = self._produce
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=self._topic,
                    topic_id=produce.topic_id,
                    partition_responses=[partition_response(produce.partition, result)],
                )
            ]
        )
        return frame_response(ApiKey.PRODUCE, produce.version, produce.correlation_id, response)


def single_produce_call(broker: Broker, produce: SingleProduce) -> SingleProduceCall | None:
    """Return the request ready to start; None if it must take the general path."""
    topic: str | None = produce.topic
    if not topic:
        topic = broker.cache.topic_name(produce.topic_id)
    if (
        not topic
        or topic in INTERNAL_TOPICS
        or produce.acks not in (1, -1)
        or broker.quotas.produce.is_set
    ):
        return None
    return SingleProduceCall(broker, produce, topic)
