"""The root logger: changes of its level, and requests that are rejected."""

from __future__ import annotations

import pytest

from plog.enums import AlterOperation
from plog.errors import InvalidConfig, InvalidRequest, KafkaError
from plogd.config.alterations import Alteration
from plogd.config.loggers import alter_loggers, describe_loggers

SET, DELETE, APPEND, SUBTRACT = (kind for kind in AlterOperation if kind.is_known)


class FakeLogs:
    level = "info"

    def set_level(self, level: str) -> None:
        self.level = level


def alter(
    logs: FakeLogs | None, *changes: tuple[str, int, str], validate_only: bool = False
) -> None:
    alterations = [Alteration(name=n, operation=o, value=v) for n, o, v in changes]
    alter_loggers(logs, alterations, validate_only=validate_only)


@pytest.mark.parametrize(
    ("name", "level"), [("DEBUG", "debug"), ("WARN", "warn"), ("FATAL", "critical")]
)
def test_levels_have_log4js_names(name: str, level: str) -> None:
    logs = FakeLogs()
    alter(logs, ("root", SET, name))
    assert logs.level == level
    [entry] = describe_loggers(logs)
    assert (entry.name, entry.value, entry.read_only) == ("root", name, False)


def test_validate_only_changes_nothing() -> None:
    logs = FakeLogs()
    alter(logs, ("root", SET, "DEBUG"), validate_only=True)
    assert logs.level == "info"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("root", SET, "debug"), InvalidConfig),
        (("root", SET, "TRACE"), InvalidConfig),
        (("kafka.server", SET, "DEBUG"), InvalidConfig),
        (("root", DELETE, ""), InvalidRequest),
        (("root", APPEND, "DEBUG"), InvalidRequest),
        (("root", SUBTRACT, "DEBUG"), InvalidRequest),
    ],
)
def test_invalid_alteration_is_rejected_and_changes_nothing(
    change: tuple[str, int, str], error: type[KafkaError]
) -> None:
    logs = FakeLogs()
    with pytest.raises(error):
        alter(logs, ("root", SET, "DEBUG"), change)
    assert logs.level == "info"


def test_broker_has_no_logger_when_twistd_writes_the_log() -> None:
    assert describe_loggers(None) == []
    with pytest.raises(InvalidConfig, match="twistd"):
        alter(None, ("root", SET, "DEBUG"))
