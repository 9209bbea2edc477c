"""Dispatch a request: decode its frame, call its API's handler, encode the response.

If a handler raises a `KafkaError`, the `refuse` function in the API's row returns the error
response. Any other exception is a bug: it is reported with its traceback, counted, and answered
with UNKNOWN_SERVER_ERROR. If a request cannot be decoded or its API is not supported, the
connection is closed and the reason is logged. The frame is not used after the call has returned.

Decoding and encoding are sliced: after every `SLICE` elements, the request waits for its next turn
(fair_queue.py), so a large request does not delay other clients. A request with fewer elements is
handled without waiting. A Produce is decoded without waiting if it has at most 2,000 elements; a
larger one runs alone (sliced_produce.py).

net/request_queue.py calls the dispatcher for every request on a connection, in order. Invariant: a
call raises only CloseConnection, and its Later fails only with CloseConnection or Cancelled.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeAlias

from plog.errors import KafkaError
from plog.wire.api_keys import ApiKey
from plog.wire.frames import frame_parts, frame_response
from plog.wire.header import RequestHeader, UnknownApiKey, decode_request_header
from plog.wire.primitives import Part, WireError
from plog.wire.schema import ApiMessage, TooManyElements
from plog.wire.single_fetch import SingleFetch, decode_single_fetch
from plog.wire.single_produce import SingleProduce, decode_single_produce
from plogd.apis.api_table import HANDLERS, Response, Row, served_rows
from plogd.apis.api_versions import unknown_version_response
from plogd.apis.close_connection import CloseConnection
from plogd.apis.encoded_response import (
    ResponseTooLarge,
    SharedAnswer,
    SharedResponse,
    SharedResponses,
    check_size,
    encode_in_slices,
    memory_bytes,
)
from plogd.apis.encoding_memory import Share, WorkMemory
from plogd.apis.large_requests import LargeFetch, LargeRequests, is_decoded, may_continue
from plogd.apis.request_context import RequestContext
from plogd.apis.unsupported_versions import explain_api, explain_version
from plogd.broker import Broker
from plogd.concurrency import shielded
from plogd.connection_context import ConnectionContext
from plogd.fair_queue import SLICE
from plogd.log.segment.file_records import FileRegion
from plogd.metrics import Counter
from plogd.ports import Cancelled, Later, MaybeLater, spawn

__all__ = ["CloseConnection", "Dispatched", "Dispatcher"]

# Requests that a client can send before it connects to the advertised address. Any other request
# proves that the client can reach that address (net/advertised_listeners_check.py).
_DISCOVERY_KEYS = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )
)

_FETCH_KEY = b"\0\x01"
_FEW_BYTES = 512
"""A request of at most this size is decoded in one turn: it has only a few hundred elements."""
_PRODUCE_ELEMENTS = 2_000
"""Maximum number of elements in a Produce decoded in one turn: a millisecond of work."""
_FEW_PRODUCE_BYTES = 10_000
"""A Produce of at most this size has fewer elements: each of them takes at least six bytes."""

Parts: TypeAlias = list[Part]
"""A framed response: bytes, and FileRegions that the transport closes."""

Request: TypeAlias = ApiMessage | SingleProduce | SingleFetch
"""A decoded request. The most common Produces and Fetches have a form with a faster decoder."""


class Dispatched(NamedTuple):
    """A request that has started."""

    is_produce: bool
    """Whether it is a Produce request, which is answered even while the broker stops."""
    result: Parts | Later[Parts | None] | None
    """The response, or a Later; None if there is no response (acks=0)."""
    runs_alone: bool = False
    """Whether the connection must not start another request, not even a Produce, before the
    response."""


class Dispatcher:
    """Starts requests; called with a frame and the connection on which it has arrived.

    Attributes:
        memory: counts the bytes of responses that are being encoded.
        large_requests: counts the elements of requests that are decoded in slices.
        shared_responses: holds responses that are encoded once for many clients.
    """

    def __init__(self, broker: Broker, rows: Iterable[Row] = HANDLERS) -> None:
        self._broker = broker
        self._max_elements = broker.config.plog_request_max_elements
        self._max_bytes = broker.config.plog_request_without_records_max_bytes
        self._max_response_bytes = broker.config.plog_response_max_bytes
        self.memory = WorkMemory(lambda: broker.config.plog_queued_max_response_bytes)
        self.large_requests = LargeRequests()
        self.shared_responses = SharedResponses(broker, self.memory)
        self._rows = served_rows(is_embedded=broker.config.has_embedded_store, rows=rows)
        self._produce_row = self._rows[ApiKey.PRODUCE]
        self._fetch_row = self._rows[ApiKey.FETCH]
        self._requests = broker.metrics.counters(
            "kafka_network_requestmetrics_requests_total",
            "Requests handled, by API and version.",
            ("request", "version"),
        )
        self._request_counters: dict[tuple[int, int], Counter] = {}
        self._refused = broker.metrics.counter(
            "plog_requests_closed_total", "Requests after which the broker closed the connection."
        )

    def __call__(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        """Start the request in `frame`. Raises CloseConnection."""
        try:
            return self._dispatch(frame, connection)
        except CloseConnection:
            self._refused.value += 1
            raise

    def _dispatch(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        # Checked first: on a busy broker, most requests are Produces and Fetches of these forms.
        single = decode_single_produce(frame)
        if single is not None:
            context = RequestContext(single.header, connection, len(frame))
            result = self._start(self._produce_row, single, context)
            # Faster than a call of the class.
            return tuple.__new__(Dispatched, (True, result, False))
        if frame[:2] == _FETCH_KEY and len(frame) <= _FEW_BYTES:
            fetch = decode_single_fetch(frame)
            if fetch is not None:
                context = RequestContext(fetch.header, connection, len(frame))
                return Dispatched(False, self._start(self._fetch_row, fetch, context))
        try:
            header, position = decode_request_header(frame)
        except WireError as error:
            raise CloseConnection(f"not a Kafka request: {error}") from error
        except UnknownApiKey as error:
            raise CloseConnection(explain_api(error.header, connection)) from error
        row = self._rows.get(header.api_key)
        if row is None:
            raise CloseConnection(explain_api(header, connection))
        if not row.first_version <= header.api_version <= row.last_version:
            return self._unknown_version(row, header, connection, frame)
        context = RequestContext(header, connection, len(frame))
        body = frame[position:]
        if row is self._produce_row:
            return self._dispatch_produce(row, body, context)
        if len(body) <= _FEW_BYTES:
            return Dispatched(False, self._start(row, self._decode(row, body, context), context))
        if len(body) > self._max_bytes:
            raise CloseConnection(
                f"{row.name} request of {len(body)} bytes is larger than"
                f" plog.request.without.records.max.bytes={self._max_bytes}; send smaller requests"
            )
        try:
            request = row.request.decode_bounded(body, context.version, SLICE)
        except TooManyElements:
            return Dispatched(False, self._start_large(row, body, context))
        except WireError as error:
            raise self._unreadable(row, error) from error
        return Dispatched(False, self._start(row, request, context))

    def _dispatch_produce(self, row: Row, body: memoryview, context: RequestContext) -> Dispatched:
        """Start a Produce; with many elements, it is decoded in slices and runs alone."""
        # A larger request will be rejected, so it is decoded in one turn, which does not need a
        # copy.
        may_be_copied = len(body) <= self._broker.config.plog_produce_parked_max_bytes
        if len(body) > _FEW_PRODUCE_BYTES and may_be_copied:
            try:
                request = row.request.decode_bounded(body, context.version, _PRODUCE_ELEMENTS)
            except TooManyElements:
                context.runs_alone = True
                # The records are views of the decoded buffer, and the transport reuses the frame.
                answer = self._start_large(row, body, context, copy=bytearray(body))
                # A client with acks=0 can disconnect before its records are appended.
                return Dispatched(
                    True, shielded(answer) if isinstance(answer, Later) else answer, True
                )
            except WireError as error:
                raise self._unreadable(row, error) from error
        else:
            request = self._decode(row, body, context)
        # The arguments are evaluated in this order: the handler sets `runs_alone`.
        return Dispatched(True, self._start(row, request, context), context.runs_alone)

    def _start(
        self, row: Row, request: Request, context: RequestContext
    ) -> MaybeLater[Parts | None]:
        self._begin(row, context.version, context.connection)
        try:
            response = row.handle(request, context, self._broker)
        except CloseConnection:
            raise
        except Exception as error:
            return self._refuse(row, request, context, error)
        if isinstance(response, Later):
            return _Answer(self, row, request, context, response)
        return self._encode(row, request, context, response)

    # -- decoding ------------------------------------------------------------------------------

    def _decode(self, row: Row, body: memoryview, context: RequestContext) -> ApiMessage:
        try:
            # An element takes at least one byte, so most requests are too small to exceed the
            # limit, and their elements need not be counted.
            if len(body) <= self._max_elements:
                return row.request.decode(body, context.version)
            return row.request.decode_bounded(body, context.version, self._max_elements)
        except WireError as error:
            raise self._unreadable(row, error) from error

    def _start_large(
        self,
        row: Row,
        body: memoryview,
        context: RequestContext,
        copy: bytearray | None = None,
    ) -> MaybeLater[Parts | None]:
        """Decode in slices, then start the request; only later slices need a `copy` of `body`."""
        data = body if copy is None else copy
        decoding = row.request.decode_in_slices(data, context.version, self._max_elements, SLICE)
        try:
            next(decoding)
        except StopIteration as end:
            return self._start(row, end.value, context)
        except WireError as error:
            raise self._unreadable(row, error) from error
        # The transport reuses the frame after this call, and decoding continues in later turns.
        copy = bytearray(body) if copy is None else copy
        return spawn(self._start_later(row, decoding, copy, context))

    async def _start_later(
        self,
        row: Row,
        decoding: Generator[None, Any, ApiMessage],
        body: bytearray,
        context: RequestContext,
    ) -> Parts | None:
        share = self.large_requests.begin(row.api_key)
        try:
            request = await self._decode_later(row, decoding, body, share)
            del body  # `_decode_later` has stopped counting its memory, so it must be freed.
            if row.api_key == ApiKey.FETCH:
                context.large_fetch = LargeFetch(self.large_requests, share)
            is_decoded(share, row.api_key)
            answer = self._start(row, request, context)
            return await answer if isinstance(answer, Later) else answer
        finally:
            share.release()
            if context.large_fetch is not None:
                context.large_fetch.release()

    async def _decode_later(
        self,
        row: Row,
        decoding: Generator[None, Any, ApiMessage],
        body: bytearray,
        share: Share,
    ) -> ApiMessage:
        memory = self._broker.copy_memory
        if memory is not None:
            memory.copied(len(body))
        try:
            while True:
                await self._broker.fair_queue.turn()
                if not may_continue(share):
                    await share.wait()
                    continue
                decoding.send(memoryview(body))
                share.resize(share.nbytes + SLICE)
        except StopIteration as end:
            request: ApiMessage = end.value
            return request
        except WireError as error:
            self._refused.value += 1  # `__call__` counts only errors that are raised during it.
            raise self._unreadable(row, error) from error
        finally:
            if memory is not None:
                memory.decoded(len(body))

    def _unreadable(self, row: Row, error: WireError) -> CloseConnection:
        if isinstance(error, TooManyElements):
            return CloseConnection(
                f"{row.name} request has more than plog.request.max.elements={self._max_elements}"
                " elements; split the request"
            )
        return CloseConnection(f"invalid {row.name} request: {error}")

    def _unknown_version(
        self, row: Row, header: RequestHeader, connection: ConnectionContext, frame: memoryview
    ) -> Dispatched:
        if row.api_key != ApiKey.API_VERSIONS:
            raise CloseConnection(explain_version(row, header, connection, frame))
        response = unknown_version_response([row.advertised])
        # In version 0, which every client can decode (KIP-511).
        return Dispatched(False, frame_response(header.api_key, 0, header.correlation_id, response))

    def _begin(self, row: Row, version: int, connection: ConnectionContext) -> None:
        """Count a request that has been decoded and will be handled."""
        if not connection.works and row.api_key not in _DISCOVERY_KEYS:
            connection.works = True
            self._broker.on_client_works(connection)
        key = (row.api_key, version)
        counter = self._request_counters.get(key)
        if counter is None:
            counter = self._requests.labels(row.name, str(version))
            self._request_counters[key] = counter
        counter.value += 1

    # -- the handler and its response ----------------------------------------------------------

    def _refuse(
        self, row: Row, request: Request, context: RequestContext, error: Exception
    ) -> MaybeLater[Parts | None]:
        """Return the error response. Raises CloseConnection if the API does not have one."""
        if not isinstance(error, KafkaError):
            self._broker.report_bug(f"{row.name} from {context.connection}", error)
            error = KafkaError("unexpected error; see the broker log")
        try:
            response = row.refuse(request, context, error.bare())
        except CloseConnection:
            raise
        except Exception as second_error:
            raise self._cannot_refuse(row, second_error) from second_error
        return self._encode(row, request, context, response, is_refusal=True)

    def _cannot_refuse(self, row: Row, error: Exception) -> CloseConnection:
        self._broker.report_bug(f"rejecting {row.name}", error)
        return CloseConnection(f"{row.name} failed unexpectedly")

    # -- encoding ------------------------------------------------------------------------------

    def _encode(
        self,
        row: Row,
        request: Request,
        context: RequestContext,
        response: Response | None,
        *,
        is_refusal: bool = False,
    ) -> MaybeLater[Parts | None]:
        """Return the framed response, or a Later if it has more elements than a slice."""
        if response is None:
            return None
        if isinstance(response, bytes):  # It is framed already.
            return [response]
        if isinstance(response, list):
            return frame_parts(context.header, response)
        if isinstance(response, SharedResponse):
            return spawn(self._share(row, request, context, response))
        try:
            parts = response.encode_bounded(context.version, SLICE)
            if parts is not None:
                check_size(memory_bytes(parts), self._bound_of(is_refusal))
        except Exception as error:
            _close_regions(response)
            return self._cannot_encode(row, request, context, error, is_refusal)
        if parts is None:
            return spawn(self._encode_later(row, request, context, response, is_refusal))
        return frame_parts(context.header, parts)

    async def _encode_later(
        self,
        row: Row,
        request: Request,
        context: RequestContext,
        response: ApiMessage,
        is_refusal: bool,
    ) -> Parts | None:
        max_bytes = self._bound_of(is_refusal)
        try:
            parts = await encode_in_slices(
                response, context.version, self._broker.fair_queue, self.memory, max_bytes
            )
        except Cancelled:  # The client has disconnected.
            _close_regions(response)
            raise
        except Exception as error:
            _close_regions(response)
            refused = self._cannot_encode(row, request, context, error, is_refusal)
            return await refused if isinstance(refused, Later) else refused
        return frame_parts(context.header, parts)

    async def _share(
        self, row: Row, request: Request, context: RequestContext, response: SharedResponse
    ) -> Parts | None:
        key, state = response.key, response.state
        try:
            shared = await self.shared_responses.get(key, state, context.version, response.make)
        except Cancelled:  # The client has disconnected.
            raise
        except Exception as error:
            refused = self._refuse(row, request, context, error)
            return await refused if isinstance(refused, Later) else refused
        return SharedAnswer(frame_parts(context.header, shared.parts), shared)

    def _bound_of(self, is_refusal: bool) -> int:
        # An error response has only the elements of the request, so the request's bounds apply.
        return sys.maxsize if is_refusal else self._max_response_bytes

    def _cannot_encode(
        self,
        row: Row,
        request: Request,
        context: RequestContext,
        error: Exception,
        is_refusal: bool,
    ) -> MaybeLater[Parts | None]:
        # An error response cannot be replaced with another one, so only closing remains.
        if is_refusal:
            raise self._cannot_refuse(row, error) from error
        if isinstance(error, ResponseTooLarge):
            return self._refuse(row, request, context, error)
        bug = RuntimeError(f"cannot encode the response: {error}")
        bug.__cause__ = error
        return self._refuse(row, request, context, bug)


class _Answer(Later[Parts | None]):
    """The framed response of a request whose handler waits."""

    __slots__ = ("_context", "_dispatcher", "_request", "_row", "_waiting")

    def __init__(
        self,
        dispatcher: Dispatcher,
        row: Row,
        request: Request,
        context: RequestContext,
        response: Later[Any],
    ) -> None:
        super().__init__(self._stop_waiting)
        self._dispatcher = dispatcher
        self._row = row
        self._request = request
        self._context = context
        self._waiting = response
        response.then(self._respond, self._respond_to_error)

    def _stop_waiting(self) -> None:
        self._waiting.cancel()

    def _respond(self, response: Response | None) -> None:
        encode = self._dispatcher._encode
        try:
            parts = encode(self._row, self._request, self._context, response)
        except CloseConnection as close:
            self.fail(close)
        else:
            self._send(parts)

    def _respond_to_error(self, error: Exception) -> None:
        if isinstance(error, Cancelled | CloseConnection):
            self.fail(error)
            return
        refuse = self._dispatcher._refuse
        try:
            parts = refuse(self._row, self._request, self._context, error)
        except CloseConnection as close:
            self.fail(close)
        else:
            self._send(parts)

    def _send(self, parts: MaybeLater[Parts | None]) -> None:
        if isinstance(parts, Later):  # The response is encoded in slices.
            self._waiting = parts
            parts.then(self.succeed, self.fail)
        else:
            self.succeed(parts)


def _close_regions(response: ApiMessage) -> None:
    """Close the files of a response that will not be sent."""
    for topic in getattr(response, "responses", ()):
        for partition in getattr(topic, "partitions", ()):
            records = getattr(partition, "records", None)
            if isinstance(records, FileRegion):
                records.close()
