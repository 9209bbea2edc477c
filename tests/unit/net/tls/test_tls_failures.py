"""Explanations of failed handshakes; the reasons are those of OpenSSL 3 and 4."""

from __future__ import annotations

import pytest

from plogd.net.tls.tls_failures import explain_handshake_failure


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("tlsv1 alert unknown ca", "ssl.ca.location"),
        ("ssl/tls alert unknown ca", "ssl_cafile"),
        ("sslv3 alert certificate unknown", "advertised.listeners"),
        ("sslv3 alert bad certificate", "advertised.listeners"),
        ("sslv3 alert certificate expired", "SIGHUP"),
        ("tlsv1 alert protocol version", "ssl.enabled.protocols"),
        ("sslv3 alert handshake failure", "ssl.cipher.suites"),
        ("tlsv1 alert user cancelled", "'user cancelled'"),
        ("peer did not return a certificate", "ssl.certificate.location"),
        ("unsupported protocol", "ssl.enabled.protocols"),
        ("no shared cipher", "ssl.cipher.suites"),
        ("bad extension", "'bad extension'"),
    ],
)
def test_explanation_names_the_remedy(reason: str, remedy: str) -> None:
    assert remedy in explain_handshake_failure(reason, verify_error=0, owner="").text


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (10, "has expired: renew it"),
        (9, "check the clocks"),
        (18, "add the certificate of that CA to ssl.truststore.location"),
        (20, "add the certificate of that CA to ssl.truststore.location"),
        (26, "clientAuth"),
        (23, "error 23"),
    ],
)
def test_problem_of_a_client_certificate_is_explained(error: int, remedy: str) -> None:
    reason = "certificate verify failed"
    failure = explain_handshake_failure(reason, verify_error=error, owner="CN=x")
    assert failure.text.startswith("the client certificate of CN=x ")
    assert remedy in failure.text


def test_kind_does_not_depend_on_text_from_the_client() -> None:
    """The rate limit uses the kind as its key; names from certificates would defeat it."""
    kinds = {
        explain_handshake_failure("x", verify_error=10, owner=name).kind for name in ("a", "b")
    }
    assert len(kinds) == 1
