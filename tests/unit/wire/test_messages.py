"""plog/wire/messages: the table of APIs."""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.messages import API_BY_KEY, APIS
from plog.wire.messages.sasl_authenticate import SaslAuthenticateRequest


def test_request_and_response_have_same_key_and_versions() -> None:
    for api in APIS:
        request, response = api.request, api.response
        assert request.__name__.replace("Request", "Response") == response.__name__
        assert request.api_key == response.api_key
        assert request.min_version == response.min_version
        assert request.max_version == response.max_version
        assert request.flexible_from == response.flexible_from


def test_messages_are_named_after_api_key() -> None:
    for key, api in API_BY_KEY.items():
        name = api.request.__name__.removesuffix("Request")
        assert ApiKey(key).name.replace("_", "") == name.upper()


def test_api_keys_are_contiguous() -> None:
    assert [int(key) for key in ApiKey] == list(range(93))


def test_repr_does_not_contain_a_password() -> None:
    """A repr of a request may be logged."""
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    assert "secret" not in repr(request)
