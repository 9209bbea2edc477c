"""plog/cli/verifiable/verifiable_consumer.py: settings from options."""

from __future__ import annotations

import argparse

from plog.cli.verifiable.verifiable_consumer import configure, settings_of
from plog.client.settings import ConsumerSettings


def _settings(*words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    configure(parser)
    required = ["--bootstrap-server", "a:1", "--topic", "t", "--group-id", "g"]
    return settings_of(parser.parse_args([*required, *words]))


def test_options_become_settings() -> None:
    words = ("--session-timeout", "7000", "--group-instance-id", "i", "--enable-autocommit")
    settings = ConsumerSettings.from_options(_settings(*words, "--reset-policy", "none"))
    assert settings.group_id == "g"
    assert settings.group_instance_id == "i"
    assert settings.session_timeout_ms == 7000
    assert settings.enable_auto_commit is True
    assert _settings()["enable.auto.commit"] == "false"
    assert _settings()["auto.offset.reset"] == "earliest"
