"""A producer connected to a real broker in virtual time, with faults for its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from plog.errors import ErrorCode
from plog.records.batch import parse_header
from plog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from plog.wire.schema import ApiMessage
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite


def ready(**options: Any) -> ProducerSite:
    """Return the site of a producer that has sent one record."""
    site = ProducerSite(**options)
    site.know()
    site.sent(b"first", partition=0)
    site.flush()
    site.sim.requests.clear()
    return site


def faults(site: ProducerSite, *outcomes: str | None) -> list[str | None]:
    """Set the faults of the next produce requests; None means no fault."""
    left = list(outcomes)

    def fault(request: ApiMessage) -> str | None:
        return left.pop(0) if left and isinstance(request, ProduceRequest) else None

    site.sim.on_request = fault
    return left


def sent_data(site: ProducerSite) -> list[PartitionProduceData]:
    """Return all batches that were sent, in order."""
    return [
        data
        for request in site.produce_requests()
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def sequences(site: ProducerSite) -> list[tuple[int, int]]:
    """Return the epoch and first sequence number of every batch that was sent."""
    headers = [parse_header(data.records or b"") for data in sent_data(site)]
    return [(header.producer_epoch, header.base_sequence) for header in headers]


Answer = Callable[[PartitionProduceData], PartitionProduceResponse | None]


def answer_with(site: ProducerSite, answer: Answer) -> None:
    """Respond in place of the broker if `answer` returns a result for a batch of a request."""

    def interfere(request: ApiMessage, ask: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        if isinstance(request, ProduceRequest):
            answers = [answer(data) for data in request.topic_data[0].partition_data]
            if any(answers):
                site.sim.requests.append(request)
                return later([x for x in answers if x is not None])
        return ask()

    async def later(answers: list[PartitionProduceResponse]) -> ProduceResponse:
        await site.sim.sleep(0.001)
        topic = TopicProduceResponse(name=TOPIC, partition_responses=answers)
        return ProduceResponse(responses=[topic])

    site.sim.interfere = interfere


def change_answers(
    site: ProducerSite, asked: type[ApiMessage], change: Callable[[Any], None]
) -> None:
    """Change the broker's responses to one kind of request."""

    def interfere(request: ApiMessage, ask: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        return changed(ask()) if isinstance(request, asked) else ask()

    async def changed(answer: Awaitable[Any]) -> Any:
        response = await answer
        change(response)
        return response

    site.sim.interfere = interfere


def codes(site: ProducerSite, *outcomes: int, **fields: Any) -> list[int]:
    """Set the error codes for the next batches; after them the broker responds again."""
    left = list(outcomes)

    def answer(data: PartitionProduceData) -> PartitionProduceResponse | None:
        if not left:
            return None
        code = left.pop(0)
        if code == ErrorCode.NONE:
            return None
        return PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, **fields)

    answer_with(site, answer)
    return left


def forget_producers(site: ProducerSite) -> None:
    """Make the broker forget all producers, as it does after a day without a request."""
    site.sim.broker.log(TOPIC).producer_state.producers.clear()
