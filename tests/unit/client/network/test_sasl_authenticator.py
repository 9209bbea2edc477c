"""Authentication on a connection to scripted brokers."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from plog import scram
from plog.client.errors import AuthenticationFailed
from plog.client.network.sasl_authenticator import Session, authenticate
from plog.client.settings import ClientSettings
from plog.errors import ErrorCode, KafkaError, UnsupportedVersion
from plog.scram import ScramMechanism
from plog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from plog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

T = TypeVar("T")
Server = Callable[[bytes], SaslAuthenticateResponse]


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


class FakeConnection:
    """A connection to a broker that responds as `server` does."""

    address = "broker:9093"

    def __init__(
        self,
        server: Server | None = None,
        *,
        handshake: SaslHandshakeResponse | None = None,
        versions: Mapping[type, int] | None = None,
    ) -> None:
        self._server = server
        self._handshake = handshake or SaslHandshakeResponse()
        self._versions = {SaslHandshakeRequest: 1, SaslAuthenticateRequest: 2, **(versions or {})}
        self.asked: list[object] = []

    def version_of(self, request: type) -> int:
        version = self._versions[request]
        if version < 0:
            raise UnsupportedVersion("not served")
        return version

    async def ask(self, request: object, response: type) -> object:
        self.asked.append(request)
        if isinstance(request, SaslHandshakeRequest):
            return self._handshake
        assert isinstance(request, SaslAuthenticateRequest)
        assert self._server is not None
        return self._server(bytes(request.auth_bytes))


class FakeNetwork:
    """A clock that stands at 100 s, without randomness."""

    def __init__(self) -> None:
        self.jobs = 0

    def now_s(self) -> float:
        return 100.0

    def random(self) -> float:
        return 0.5

    async def job(self, work: Callable[[], Any]) -> Any:
        self.jobs += 1
        return work()


def _log_in(
    connection: FakeConnection, *, network: FakeNetwork | None = None, **keywords: object
) -> Session:
    options: dict[str, object] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "secret",
    }
    if keywords.get("sasl_mechanism") == "OAUTHBEARER":
        del options["sasl_username"], options["sasl_password"]
    settings = ClientSettings.from_options(bootstrap_servers="x", **{**options, **keywords})
    fake_connection: Any = connection
    fake_network: Any = network or FakeNetwork()
    return _run(authenticate(fake_connection, settings, fake_network, host="broker"))


def _accept(lifetime_ms: int = 0) -> Server:
    return lambda _: SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)


def _scram_server(password: bytes) -> Server:
    """Return a broker that knows the password, for one authentication."""
    steps: list[str] = []
    sha_256 = ScramMechanism.SCRAM_SHA_256

    def answer(data: bytes) -> SaslAuthenticateResponse:
        text = data.decode()
        if not steps:
            first = text.removeprefix("n,,")
            nonce = first.partition("r=")[2] + "+more"
            steps.extend((first, f"r={nonce},s={b64encode(b'salt').decode()},i=4096"))
            return SaslAuthenticateResponse(auth_bytes=steps[1].encode())
        without_proof, _, proof = text.partition(",p=")
        exchange = ",".join((*steps, without_proof)).encode()
        salted = scram.salted_password(sha_256, password, salt=b"salt", iterations=4096)
        if b64decode(proof) != scram.client_proof(sha_256, salted, exchange):
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="wrong credentials"
            )
        signature = b64encode(scram.server_signature(sha_256, salted, exchange))
        return SaslAuthenticateResponse(auth_bytes=b"v=" + signature, session_lifetime_ms=60_000)

    return answer


def test_plain_takes_one_step() -> None:
    connection = FakeConnection(_accept())
    assert _log_in(connection) == Session(renew_at_s=None)
    handshake, step = connection.asked
    assert handshake == SaslHandshakeRequest(mechanism="PLAIN")
    assert step == SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")


def test_scram_takes_two_steps_and_returns_a_session() -> None:
    connection = FakeConnection(_scram_server(b"secret"))
    # Nine tenths of the broker's limit of one minute, from the start of authentication.
    assert _log_in(connection, sasl_mechanism="SCRAM-SHA-256") == Session(renew_at_s=154.0)
    assert len(connection.asked) == 3


def test_wrong_password_raises_authentication_failed() -> None:
    connection = FakeConnection(_scram_server(b"other"))
    with pytest.raises(
        AuthenticationFailed,
        match=r"^cannot authenticate to broker:9093 with SCRAM-SHA-256: wrong cred",
    ):
        _log_in(connection, sasl_mechanism="SCRAM-SHA-256")


def test_unlimited_session_is_not_renewed() -> None:
    assert _log_in(FakeConnection(_accept(lifetime_ms=-1))).renew_at_s is None
    assert _log_in(FakeConnection(_accept(lifetime_ms=10_000))).renew_at_s == 109.0


def test_unsupported_mechanism_error_lists_the_enabled_ones() -> None:
    handshake = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-512", "GSSAPI"]
    )
    with pytest.raises(AuthenticationFailed, match="it offers: SCRAM-SHA-512, GSSAPI"):
        _log_in(FakeConnection(handshake=handshake))


@pytest.mark.parametrize(
    "connection",
    [
        FakeConnection(versions={SaslHandshakeRequest: -1}),
        FakeConnection(handshake=SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)),
    ],
)
@pytest.mark.parametrize(("protocol", "other"), [("SASL_SSL", "SSL"), ("SASL_PLAINTEXT", "PLAIN")])
def test_listener_without_sasl_is_named_in_the_error(
    connection: FakeConnection, protocol: str, other: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=f"set security.protocol to {other}"):
        _log_in(connection, security_protocol=protocol)


def test_broker_without_sasl_authenticate_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match=r"older than Kafka 1\.0"):
        _log_in(FakeConnection(versions={SaslHandshakeRequest: 0}))


def test_other_errors_are_raised_unchanged() -> None:
    response = SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    with pytest.raises(KafkaError, match="ILLEGAL_SASL_STATE"):
        _log_in(FakeConnection(lambda _: response))
    refused = SaslHandshakeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(KafkaError, match="rejected SaslHandshake"):
        _log_in(FakeConnection(handshake=refused))


def test_endless_authentication_is_abandoned() -> None:
    connection = FakeConnection(lambda _: SaslAuthenticateResponse(auth_bytes=b"more"))
    with pytest.raises(AuthenticationFailed, match="broker:9093 with OAUTHBEARER: the broker rej"):
        _log_in(connection, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=lambda: "t")
    assert len(connection.asked) == 3


def _token_of(connection: FakeConnection) -> bytes:
    request = connection.asked[1]
    assert isinstance(request, SaslAuthenticateRequest)
    return bytes(request.auth_bytes)


def test_token_comes_from_a_function_or_coroutine_function() -> None:
    async def later() -> str:
        return "second"

    sources: list[Callable[[], str | Awaitable[str]]] = [lambda: "first\n", later]
    for source, token in zip(sources, (b"first", b"second"), strict=True):
        connection = FakeConnection(_accept())
        _log_in(connection, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=source)
        assert _token_of(connection) == b"n,,\x01auth=Bearer %b\x01\x01" % token


def test_token_file_is_read_at_each_authentication(tmp_path: Path) -> None:
    path = tmp_path / "my token"
    for token in ("one", "two"):
        path.write_text(f"{token}\n")
        connection = FakeConnection(_accept())
        url = path.as_uri()
        assert "%20" in url
        _log_in(connection, sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=url)
        assert token.encode() in _token_of(connection)


def test_reading_a_token_does_not_block_other_tasks(tmp_path: Path) -> None:
    network, path = FakeNetwork(), tmp_path / "token"
    path.write_text("t")
    given: dict[str, object] = {"sasl_oauthbearer_token": lambda: "t"}
    for options, jobs in ((given, 0), ({"sasl_oauthbearer_token_endpoint_url": path.as_uri()}, 1)):
        _log_in(FakeConnection(_accept()), network=network, sasl_mechanism="OAUTHBEARER", **options)
        assert network.jobs == jobs


def test_missing_token_is_an_error(tmp_path: Path) -> None:
    def fail() -> str:
        raise ValueError("no network")

    for source, problem in (
        (fail, "raised ValueError: no network"),
        (lambda: None, "returned NoneType"),
    ):
        with pytest.raises(AuthenticationFailed, match=problem):
            _log_in(FakeConnection(), sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=source)
    with pytest.raises(AuthenticationFailed, match=r"cannot read .*: No such file"):
        _log_in(
            FakeConnection(),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=(tmp_path / "none").as_uri(),
        )
