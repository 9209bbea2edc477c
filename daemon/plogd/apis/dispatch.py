"""From a request's frame to its answer: header, row of the table, handler, and back to bytes.

Errors become codes here and in the rows' `refuse`: a `KafkaError` is told the client where the
protocol has a place for it, anything else is a bug, reported with its traceback, counted, and
answered UNKNOWN_SERVER_ERROR. What cannot be read, or is not served, ends the connection with one
reason. The frame is not used after the call returns.

Called by net/server_protocol.py for every request, in the order of a connection's requests.
Invariant: nothing is raised but CloseConnection, and a Later fails with nothing else, unless it was
cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from plog.errors import KafkaError
from plog.wire.api_keys import ApiKey
from plog.wire.frames import frame_response
from plog.wire.header import RequestHeader, UnknownApiKey, decode_request_header
from plog.wire.primitives import Part, WireError
from plog.wire.schema import ApiMessage, TooManyElements
from plog.wire.single_produce import read_single_produce
from plogd.apis.api_versions import unknown_version_response
from plogd.apis.closing import CloseConnection
from plogd.apis.context import ConnectionContext, RequestContext
from plogd.apis.old_clients import explain_api, explain_version
from plogd.apis.single_produce import single_produce_call
from plogd.apis.table import ADVERTISED, HANDLERS, Row
from plogd.log.file_records import FileRegion
from plogd.metrics import Counter
from plogd.ports import Cancelled, Later

if TYPE_CHECKING:
    from plogd.broker import Broker

__all__ = ["CloseConnection", "Dispatched", "Dispatcher"]

# What a client asks before it connects to the address it is told (net/advertised_check.py).
_QUESTIONS = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )
)

_PRODUCE_KEY = b"\0\0"

Parts: TypeAlias = list[Part]
"""A framed answer: bytes, and FileRegions to be closed by whoever sends them."""


class Dispatched(NamedTuple):
    """A request that has started."""

    is_produce: bool
    """Whether another Produce may start before this one is answered."""
    result: Parts | Later[Parts | None] | None
    """The answer, or a Later of it; None where there is none (acks=0)."""


class Dispatcher:
    """See the module's text. One for a broker; `dispatch(frame, connection)` by calling it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._max_elements = broker.config.plog_request_max_elements
        self._rows = {int(row.api_key): row for row in HANDLERS}
        self._produce_row = self._rows[ApiKey.PRODUCE]
        self._requests = broker.metrics.counters(
            "kafka_network_requestmetrics_requests_total",
            "Requests handled, by API and version.",
            ("request", "version"),
        )
        self._request_counters: dict[tuple[int, int], Counter] = {}
        self._refused = broker.metrics.counter(
            "plog_requests_closed_total", "Requests that ended their connection."
        )

    def __call__(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        """Start the request in `frame`. Raises CloseConnection."""
        try:
            return self._dispatch(frame, connection)
        except CloseConnection:
            self._refused.value += 1
            raise

    def _dispatch(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        if frame[:2] == _PRODUCE_KEY:
            single = read_single_produce(frame)
            if single is not None:
                produce, records = single
                call = single_produce_call(self._broker, produce)
                if call is not None:
                    self._begin(self._produce_row, produce.version, connection)
                    return Dispatched(True, call.start(records))
        try:
            header, position = decode_request_header(frame)
        except WireError as error:
            raise CloseConnection(f"no Kafka request: {error}") from error
        except UnknownApiKey as error:
            raise CloseConnection(explain_api(error.header, connection)) from error
        row = self._rows.get(header.api_key)
        if row is None:
            raise CloseConnection(explain_api(header, connection))
        if not row.first_version <= header.api_version <= row.last_version:
            return self._unknown_version(row, header, connection, frame)
        request = self._decode(row, frame[position:], header.api_version)
        self._begin(row, header.api_version, connection)
        context = RequestContext(header, connection, len(frame))
        started = self._handle(row, request, context)
        is_produce = header.api_key == ApiKey.PRODUCE and not context.runs_alone
        return Dispatched(is_produce, started)

    def _decode(self, row: Row, body: memoryview, version: int) -> ApiMessage:
        try:
            # An element takes a byte at least, so that nothing has to be counted in most requests.
            if len(body) <= self._max_elements:
                return row.request.decode(body, version)
            return row.request.decode_bounded(body, version, self._max_elements)
        except TooManyElements as error:
            raise CloseConnection(
                f"{row.name} request with more than plog.request.max.elements={self._max_elements}"
                " elements: ask for less at once"
            ) from error
        except WireError as error:
            raise CloseConnection(f"no {row.name} request: {error}") from error

    def _unknown_version(
        self, row: Row, header: RequestHeader, connection: ConnectionContext, frame: memoryview
    ) -> Dispatched:
        if row.api_key != ApiKey.API_VERSIONS:
            raise CloseConnection(explain_version(row, header, connection, frame))
        response = unknown_version_response(ADVERTISED)
        return Dispatched(False, frame_response(header.api_key, 0, header.correlation_id, response))

    def _begin(self, row: Row, version: int, connection: ConnectionContext) -> None:
        """A request can be read and will be handled."""
        if not connection.works and row.api_key not in _QUESTIONS:
            connection.works = True
            self._broker.on_client_works(connection)
        key = (row.api_key, version)
        counter = self._request_counters.get(key)
        if counter is None:
            counter = self._requests.labels(row.name, str(version))
            self._request_counters[key] = counter
        counter.value += 1

    # -- the handler and what becomes of it ----------------------------------------------------

    def _handle(
        self, row: Row, request: ApiMessage, context: RequestContext
    ) -> Parts | Later[Parts | None] | None:
        try:
            response = row.handle(request, context, self._broker)
        except CloseConnection:
            raise
        except Exception as error:
            return self._refuse(row, request, context, error)
        if isinstance(response, Later):
            return self._answer_later(row, request, context, response)
        return self._encode(row, request, context, response)

    def _answer_later(
        self, row: Row, request: ApiMessage, context: RequestContext, response: Later[Any]
    ) -> Later[Parts | None]:
        answer: Later[Parts | None] = Later(response.cancel)

        def on_value(value: ApiMessage | None) -> None:
            try:
                parts = self._encode(row, request, context, value)
            except CloseConnection as error:
                answer.fail(error)
            else:
                answer.succeed(parts)

        def on_error(error: Exception) -> None:
            if isinstance(error, Cancelled | CloseConnection):
                answer.fail(error)
                return
            try:
                parts = self._refuse(row, request, context, error)
            except CloseConnection as close:
                answer.fail(close)
            else:
                answer.succeed(parts)

        response.then(on_value, on_error)
        return answer

    def _encode(
        self, row: Row, request: ApiMessage, context: RequestContext, response: ApiMessage | None
    ) -> Parts | None:
        if response is None:
            return None
        try:
            return _framed(context, response)
        except Exception as error:
            _close_regions(response)
            bug = RuntimeError(f"the answer cannot be written: {error}")
            bug.__cause__ = error
            return self._refuse(row, request, context, bug)

    def _refuse(
        self, row: Row, request: ApiMessage, context: RequestContext, error: Exception
    ) -> Parts:
        """The answer that the request failed. Raises CloseConnection where that cannot be told."""
        if not isinstance(error, KafkaError):
            self._broker.report_bug(f"{row.name} from {context.connection}", error)
            error = KafkaError("unexpected error, see the broker's log")
        try:
            return _framed(context, row.refuse(request, context, error.bare()))
        except CloseConnection:
            raise
        except Exception as second_error:
            self._broker.report_bug(f"refusing {row.name}", second_error)
            raise CloseConnection(f"{row.name} failed unexpectedly") from second_error


def _framed(context: RequestContext, response: ApiMessage) -> Parts:
    header = context.header
    return frame_response(header.api_key, header.api_version, header.correlation_id, response)


def _close_regions(response: ApiMessage) -> None:
    """Let go of the files of an answer that will not be sent."""
    for topic in getattr(response, "responses", ()):
        for partition in getattr(topic, "partitions", ()):
            records = getattr(partition, "records", None)
            if isinstance(records, FileRegion):
                records.close()
