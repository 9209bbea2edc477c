"""The responses to requests that failed as a whole."""

from __future__ import annotations

from plog.errors import UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.header import RequestHeader
from plog.wire.messages.fetch import FetchResponse
from plog.wire.schema import ApiMessage, field, int16
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.request_context import RequestContext
from tests.helpers.sim.sim_broker import connection


class Texted(ApiMessage, api_key=ApiKey.FETCH, versions="0"):
    """A response with an error message."""

    error_code: int16 = field()
    error_message: str | None = field()


CONTEXT = RequestContext(RequestHeader(1, 0, 7, None), connection())


def test_error_code_is_set_at_top_level() -> None:
    response = refuse_at_top_level(FetchResponse)(None, CONTEXT, UnsupportedVersion("never"))
    assert isinstance(response, FetchResponse)
    assert response.error_code == UnsupportedVersion.code


def test_error_message_is_set_when_the_response_has_one() -> None:
    response = refuse_at_top_level(Texted)(None, CONTEXT, UnsupportedVersion("never"))
    assert response == Texted(error_code=UnsupportedVersion.code, error_message="never")
