"""All TLS listeners together: all problems are reported, and plain listeners do not load TLS."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from plogd.config import BrokerConfig, ConfigError, load_config
from plogd.net.tls.tls_reload import prepare_tls
from tests.helpers.certificates import DAY, Authority

CA = Authority()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def two_listeners(*more: str) -> BrokerConfig:
    names = "listener.security.protocol.map=A:SSL,B:SSL,C:PLAINTEXT"
    return load_config([], ["listeners=A://:1,B://:2,C://:3", names, *more]).config


def test_each_tls_listener_gets_a_context_and_warnings_are_not_repeated(tmp_path: Path) -> None:
    soon = CA.server(ends_in=DAY).keystore(tmp_path / "soon.pem")
    own = CA.server().keystore(tmp_path / "own.pem")
    prepared = prepare_tls(two_listeners(f"ssl.keystore.location={soon}"), now_ms())
    assert set(prepared.contexts) == {"A", "B"}
    assert len(prepared.warnings) == 1
    both = two_listeners(
        f"listener.name.a.ssl.keystore.location={own}",
        f"listener.name.b.ssl.keystore.location={own}",
    )
    assert prepare_tls(both, now_ms()).warnings == ()


def test_every_problem_is_reported_with_the_name_of_its_setting(tmp_path: Path) -> None:
    own = CA.server().keystore(tmp_path / "own.pem")
    config = two_listeners(
        "ssl.keystore.location=/nowhere/all.pem",
        f"listener.name.b.ssl.keystore.location={own}",
        "listener.name.b.ssl.cipher.suites=TLS_NULL",
    )
    with pytest.raises(ConfigError) as error:
        prepare_tls(config, now_ms())
    first, second = error.value.problems
    assert first.startswith("cannot read ssl.keystore.location=/nowhere/all.pem")
    assert second.startswith("listener.name.b.ssl.cipher.suites: TLS_NULL is not supported")


def test_incompatible_versions_and_suites_are_rejected(tmp_path: Path) -> None:
    own = CA.server().keystore(tmp_path / "own.pem")
    config = two_listeners(
        f"ssl.keystore.location={own}",
        "ssl.enabled.protocols=TLSv1.3",
        "ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    )
    with pytest.raises(ConfigError, match="none of the suites belongs to a TLS version"):
        prepare_tls(config, now_ms())


def test_tls_modules_are_not_imported_without_tls_listeners() -> None:
    program = "import sys, plogd.service; print([m for m in sys.modules if '.net.tls.tls_' in m])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]", done.stderr
