"""Settings of single listeners: loading, use, description and reload."""

from __future__ import annotations

import pytest

from plogd.config import BrokerConfig, ConfigError, Listener, load_config, reloadable
from plogd.config.config_loader import without_tls

TWO = (
    "listeners=INSIDE://:1,OUT.SIDE://:2",
    "listener.security.protocol.map=INSIDE:SSL,OUT.SIDE:SSL",
    "ssl.keystore.location=/all.pem",
)
OWN = "listener.name.out.side.ssl.keystore.location"


def load(*more: str) -> BrokerConfig:
    return load_config([], [*TWO, *more]).config


def listeners(config: BrokerConfig) -> tuple[Listener, Listener]:
    inside, outside = config.tls_listeners()
    return inside, outside


def test_listener_value_overrides_the_common_value() -> None:
    config = load(f"{OWN}=/own.pem", "listener.name.out.side.ssl.client.auth=none")
    inside, outside = listeners(config)
    assert config.tls_of(inside).ssl_keystore_location == "/all.pem"
    assert config.tls_of(outside).ssl_keystore_location == "/own.pem"
    assert config.name_for(inside, "ssl.keystore.location") == "ssl.keystore.location"
    assert config.name_for(outside, "ssl.keystore.location") == OWN


def test_invalid_listener_value_is_reported() -> None:
    with pytest.raises(ConfigError) as error:
        load("listener.name.inside.ssl.client.auth=maybe")
    [problem] = error.value.problems
    assert problem.startswith("-o listener.name.inside.ssl.client.auth=maybe: not one of")


def test_inconsistent_listener_values_are_reported_with_the_prefixed_name() -> None:
    with pytest.raises(ConfigError) as error:
        load("listener.name.out.side.ssl.keystore.type=PKCS12")
    [problem] = error.value.problems
    assert problem.startswith("-o listener.name.out.side.ssl.keystore.type=PKCS12: only PEM")
    assert "openssl pkcs12" in problem


def test_problem_of_a_common_value_is_reported_once() -> None:
    with pytest.raises(ConfigError) as error:
        load("ssl.keystore.key=secret")
    [problem] = error.value.problems
    assert problem == (
        "-o ssl.keystore.key=(hidden): cannot be set together with ssl.keystore.location;"
        " remove one"
    )


def test_loader_warns_about_a_setting_for_a_missing_listener() -> None:
    loaded = load_config([], [*TWO, "listener.name.elsewhere.ssl.client.auth=none"])
    assert loaded.warnings == (
        "-o listener.name.elsewhere.ssl.client.auth has no effect: no listener has that name",
    )


def test_secret_of_a_listener_is_not_described() -> None:
    config = load("listener.name.inside.ssl.key.password=geheim")
    [entry] = [e for e in config.describe() if e.name.startswith("listener.name.")]
    assert (entry.name, entry.value) == ("listener.name.inside.ssl.key.password", None)
    assert entry.sensitive
    assert "geheim" not in repr(config.describe())


def test_reload_applies_certificates_and_lists_settings_that_need_a_restart() -> None:
    auth = "listener.name.inside.ssl.client.auth"
    trust = "ssl.truststore.location=/ca.pem"
    old = load(f"{OWN}=/own.pem", trust, f"{auth}=required")
    new = load(f"{OWN}=/new.pem", trust, f"{auth}=requested", "ssl.key.password=x")
    reload = reloadable(old, new)
    assert reload.applied == ("ssl.key.password", OWN)
    assert reload.needs_restart == (auth,)
    assert reload.config.listener_overrides == {OWN: "/new.pem", auth: "required"}
    assert without_tls(reload, old).config == old
    assert without_tls(reload, old).applied == ()


def test_reload_adds_and_removes_listener_values() -> None:
    plain, own = load(), load(f"{OWN}=/own.pem")
    assert reloadable(plain, own).config.listener_overrides == {OWN: "/own.pem"}
    assert reloadable(own, plain).config.listener_overrides == {}
    assert reloadable(own, own).applied == ()
