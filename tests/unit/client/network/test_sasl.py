"""SASL mechanisms: the RFCs' examples, and invalid responses of brokers."""

from __future__ import annotations

from base64 import b64encode

import pytest

from plog import scram
from plog.client.errors import AuthenticationFailed
from plog.client.network.sasl import (
    Credentials,
    OauthBearer,
    Plain,
    Scram,
    credentials_of,
    mechanism_of,
)
from plog.client.settings import ClientSettings
from plog.scram import ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def _scram(user: str = "user", password: str = "pencil", **options: str) -> Scram:
    credentials = Credentials(user=user, password=password, options=options)
    return Scram(SHA_256, credentials, nonce=NONCE)


def test_plain_sends_everything_in_one_step() -> None:
    mechanism = Plain(Credentials(user="älice", password="sécret"))
    assert mechanism.first() == "\0älice\0sécret".encode()
    mechanism.next(b"")
    with pytest.raises(AuthenticationFailed, match="unexpected challenge"):
        mechanism.next(b"x")


def test_plain_refuses_a_nul() -> None:
    with pytest.raises(AuthenticationFailed, match="NUL"):
        Plain(Credentials(user="a", password="b\0c"))


def test_scram_follows_the_example_of_rfc_7677() -> None:
    mechanism = _scram()
    assert mechanism.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mechanism.next(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert mechanism.next(SERVER_FINAL) is None
    with pytest.raises(AuthenticationFailed, match="after authentication was complete"):
        mechanism.next(SERVER_FINAL)


def test_scram_sha_512_proof_is_accepted_by_a_broker() -> None:
    sha_512 = ScramMechanism.SCRAM_SHA_512
    mechanism = Scram(sha_512, Credentials(user="u", password="p"), nonce="abc")
    first = mechanism.first().removeprefix(b"n,,")
    server_first = b"r=abcdef,s=%b,i=8192" % b64encode(b"salt")
    final = mechanism.next(server_first)
    assert final is not None
    salted = scram.salted_password(sha_512, b"p", salt=b"salt", iterations=8192)
    exchange = b"%b,%b,c=biws,r=abcdef" % (first, server_first)
    proof = b64encode(scram.client_proof(sha_512, salted, exchange))
    assert final == b"c=biws,r=abcdef,p=" + proof
    signature = b64encode(scram.server_signature(sha_512, salted, exchange))
    assert mechanism.next(b"v=" + signature) is None


def test_names_are_escaped_and_nonces_differ() -> None:
    assert _scram(user="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"
    credentials = Credentials(user="u", password="p")
    assert Scram(SHA_256, credentials).first() != Scram(SHA_256, credentials).first()


def test_scram_announces_a_delegation_token() -> None:
    assert _scram(tokenauth="true").first().endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("server_first", "problem"),
    [
        (b"", "malformed"),
        (b"\xff", "not valid UTF-8"),
        (b"e=other-error", "malformed"),
        (SERVER_FIRST.replace(b"r=rO", b"r=xx"), "nonce does not start with"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=c2FsdA==,i=4096", "nonce does not start with"),
        (b"m=ext," + SERVER_FIRST, "malformed"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "requires 4095 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=999999999"), "requires 999999999 SCRAM iterations"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0", b"s=W22ZaJ"), "malformed"),
    ],
)
def test_scram_sends_no_proof_after_a_malformed_challenge(
    server_first: bytes, problem: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=problem):
        _scram().next(server_first)


@pytest.mark.parametrize(
    ("server_final", "problem"),
    [
        (b"e=invalid-proof", "rejected the authentication: invalid-proof"),
        (b"v=AAAA", "did not prove that it knows the user"),
        (b"v=!", "malformed"),
        (b"", "malformed"),
    ],
)
def test_scram_verifies_the_broker(server_final: bytes, problem: str) -> None:
    mechanism = _scram()
    mechanism.next(SERVER_FIRST)
    with pytest.raises(AuthenticationFailed, match=problem):
        mechanism.next(server_final)


def test_oauthbearer_sends_the_token_with_its_extensions() -> None:
    mechanism = OauthBearer("a.b-c==", {"extension_cluster": "lkc-1", "other": "x"})
    assert mechanism.first() == b"n,,\x01auth=Bearer a.b-c==\x01cluster=lkc-1\x01\x01"
    assert mechanism.next(b"") is None
    assert OauthBearer("t").first() == b"n,,\x01auth=Bearer t\x01\x01"


def test_refused_token_error_contains_the_reason() -> None:
    mechanism = OauthBearer("t")
    assert mechanism.next(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        mechanism.next(b"x")


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "a,b"])
def test_invalid_token_is_not_sent(token: str) -> None:
    with pytest.raises(AuthenticationFailed, match="not a valid bearer token"):
        OauthBearer(token)


@pytest.mark.parametrize("name", ["extension_auth", "extension_", "extension_a-b"])
def test_invalid_extension_is_not_sent(name: str) -> None:
    with pytest.raises(AuthenticationFailed, match="is not a valid token extension"):
        OauthBearer("t", {name: "x"})


def test_credentials_come_from_jaas_or_separate_settings() -> None:
    line = 'a.ScramLoginModule required username="u" password="p" tokenauth="true";'
    jaas = credentials_of(ClientSettings(sasl_jaas_config=line))
    assert (jaas.user, jaas.password, jaas.options) == ("u", "p", {"tokenauth": "true"})
    plain = credentials_of(ClientSettings(sasl_username="u", sasl_password="p"))
    assert (plain.user, plain.password, plain.options) == ("u", "p", {})
    assert "'p'" not in repr(jaas) + repr(plain)


def test_mechanism_is_selected_by_the_setting() -> None:
    def made(name: str) -> object:
        return mechanism_of(ClientSettings(sasl_mechanism=name, sasl_username="u"), "token")

    assert isinstance(made("PLAIN"), Plain)
    assert isinstance(made("SCRAM-SHA-512"), Scram)
    assert isinstance(made("OAUTHBEARER"), OauthBearer)
    with pytest.raises(AuthenticationFailed, match="GSSAPI is not supported"):
        made("GSSAPI")
