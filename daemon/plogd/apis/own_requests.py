"""Requests that this broker sends to itself, such as those of the controller to its own broker.

The handler of the API gets the request directly, without a frame. Its rules are the same as for
other brokers: errors become error responses, and unexpected errors are reported as bugs. Both
implementations of `Peers` call this module.
"""

from __future__ import annotations

from plog.errors import KafkaError, RequestTimedOut
from plog.wire.api_keys import ApiKey
from plog.wire.header import RequestHeader
from plog.wire.schema import ApiMessage
from plogd.apis.api_table import HANDLERS, Response, Row, served_rows
from plogd.apis.encoded_response import SharedResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.concurrency import within
from plogd.connection_context import ConnectionContext
from plogd.ports import Cancelled, Later, spawn

_ADDRESS = ("127.0.0.1", 0)


class OwnRequests:
    """Calls the handlers of `rows` as if a request had arrived on the inter-broker listener."""

    def __init__(self, broker: Broker, rows: tuple[Row, ...] = HANDLERS) -> None:
        self._broker = broker
        self._rows = served_rows(is_embedded=broker.config.has_embedded_store, rows=rows)
        config = broker.config
        listener = config.inter_broker_listener()
        self._connection = ConnectionContext(
            listener_name=config.used_inter_broker_listener_name,
            security_protocol=config.security_inter_broker_protocol
            if listener is None
            else listener.protocol,
            client_address=_ADDRESS,
            local_address=_ADDRESS,
            client_software_name="plog",
            # No client has to prove that it can reach the advertised address.
            works=True,
        )

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and the highest version of each API, by key."""
        return {key: (row.first_version, row.last_version) for key, row in self._rows.items()}

    def ask(self, request: ApiMessage, version: int, timeout_ms: float) -> Later[ApiMessage]:
        """Handle a request in a version that this broker serves; see `Peers.ask`."""
        # Its records are regions of files, which only the transport sends and closes. A broker does
        # not fetch from itself.
        assert request.api_key != ApiKey.FETCH, "a broker cannot fetch from itself"
        row = self._rows[request.api_key]
        answer = spawn(self._handle(row, request, version))
        if answer.done:
            return answer
        name = row.name
        late = RequestTimedOut(f"this broker did not respond to {name} within {timeout_ms:g} ms")
        return within(answer, timeout_ms, self._broker.timers, lambda: late)

    async def _handle(self, row: Row, request: ApiMessage, version: int) -> ApiMessage:
        client_id = f"broker-{self._broker.config.node_id}"
        header = RequestHeader(request.api_key, version, 0, client_id)
        context = RequestContext(header, self._connection)
        try:
            response = row.handle(request, context, self._broker)
            if isinstance(response, Later):
                response = await response
        except Cancelled:
            raise
        except Exception as error:
            if not isinstance(error, KafkaError):
                self._broker.report_bug(f"{row.name} from this broker itself", error)
                error = KafkaError("unexpected error; see the broker log")
            response = row.refuse(request, context, error.bare())
        return _message(response)


def _message(response: Response | None) -> ApiMessage:
    if isinstance(response, SharedResponse):
        return response.make()
    # Only the special forms of Produce and Fetch, which are decoded from frames, are answered with
    # encoded responses.
    assert isinstance(response, ApiMessage), "the handler has encoded its response"
    return response
