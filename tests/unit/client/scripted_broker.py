"""A broker that serves one connection from a script, in its own thread.

Each step of the script is called with one request and returns the response: a message, raw bytes to
send unchanged, or None to send nothing. When the script ends, the connection is closed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from struct import Struct
from threading import Thread
from typing import Self

from plog.wire.api_keys import ApiKey
from plog.wire.frames import frame_response
from plog.wire.header import RequestHeader, decode_request_header
from plog.wire.messages import API_BY_KEY
from plog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from plog.wire.schema import ApiMessage

Step = Callable[[ApiMessage], ApiMessage | bytes | None]
_SIZE = Struct(">i")


def serve_versions(**highest_by_name: int) -> Step:
    """Return a step that serves ApiVersions, limited to the versions in `highest_by_name`."""
    served = []
    for key, api in API_BY_KEY.items():
        highest = highest_by_name.get(ApiKey(key).name, api.request.max_version)
        version = ApiVersion(api_key=key, min_version=0, max_version=highest)
        served.append(version)
    return lambda _: ApiVersionsResponse(api_keys=served)


class ScriptedBroker:
    """``with ScriptedBroker(steps) as broker``: listens on `broker.port` until the script ends."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)  # Without a client, the test fails instead of hanging.
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[tuple[RequestHeader, ApiMessage]] = []
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(60)
        with connection, connection.makefile("rb") as stream:
            for step in self._steps:
                (size,) = _SIZE.unpack(stream.read(_SIZE.size))
                frame = memoryview(stream.read(size))
                header, position = decode_request_header(frame)
                api = API_BY_KEY[header.api_key]
                request = api.request.decode(frame[position:], header.api_version)
                self.requests.append((header, request))
                answer = step(request)
                if isinstance(answer, ApiMessage):
                    parts = frame_response(
                        header.api_key, header.api_version, header.correlation_id, answer
                    )
                    answer = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
                if answer is None:
                    stream.read()  # The wait ends when the client gives up.
                else:
                    connection.sendall(answer)
