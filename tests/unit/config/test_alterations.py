"""Applying the operations of IncrementalAlterConfigs to a resource's settings."""

from __future__ import annotations

import pytest

from plog.enums import AlterOperation
from plog.errors import InvalidConfig, InvalidRequest
from plog.settings import settings_of
from plogd.config.alterations import Alteration, apply_alterations, check_alterations
from plogd.topic_config import TopicConfig

ROWS = settings_of(TopicConfig)
SET, DELETE, APPEND, SUBTRACT = (kind for kind in AlterOperation if kind.is_known)


def change(name: str, operation: int, value: str | None = None) -> Alteration:
    return Alteration(name=name, operation=operation, value=value)


def test_settings_that_are_not_named_are_unchanged() -> None:
    current = {"retention.ms": "5", "segment.ms": "6", "flush.ms": "7"}
    changes = [change("retention.ms", SET, "9"), change("segment.ms", DELETE, "ignored")]
    assert apply_alterations(current, changes, ROWS) == {"retention.ms": "9", "flush.ms": "7"}
    assert current["retention.ms"] == "5"


def test_deleting_a_setting_that_is_not_set_has_no_effect() -> None:
    assert apply_alterations({}, [change("no.such.name", DELETE)], ROWS) == {}


@pytest.mark.parametrize(
    ("current", "operation", "value", "expected"),
    [
        ("delete", APPEND, "compact", "delete,compact"),
        ("delete,compact", APPEND, "compact", "delete,compact"),
        ("", APPEND, "compact", "compact"),
        (None, APPEND, "compact,compact", "delete,compact"),
        ("delete", APPEND, " delete , compact", "delete,compact"),
        ("delete, compact", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "", "compact"),
        ("compact", APPEND, "", "compact,"),
        (None, SUBTRACT, "delete", ""),
    ],
)
def test_append_and_subtract_start_from_the_default_of_a_list(
    current: str | None, operation: int, value: str, expected: str
) -> None:
    texts = {} if current is None else {"cleanup.policy": current}
    assert apply_alterations(texts, [change("cleanup.policy", operation, value)], ROWS) == {
        "cleanup.policy": expected
    }


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such.name"])
def test_append_and_subtract_reject_settings_that_are_not_lists(name: str, operation: int) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} because its type is not LIST"):
        apply_alterations({}, [change(name, operation, "1")], ROWS)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ([change("a", SET, "1"), change("a", DELETE)], "duplicate config keys: a"),
        ([change("a", SET), change("b", APPEND)], "Null value not supported for : a, b"),
        ([change("a", 4, "1")], "cannot alter a: unknown operation 4"),
        ([change("a", -1, "1")], "cannot alter a: unknown operation -1"),
    ],
)
def test_invalid_alterations_are_rejected(changes: list[Alteration], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        check_alterations(changes)


def test_deletion_needs_no_value() -> None:
    check_alterations([change("a", DELETE), change("b", SET, "")])


def test_append_is_rejected_when_the_list_would_become_too_long_to_describe() -> None:
    name = "leader.replication.throttled.replicas"
    current = {name: "0:1," * 5_000 + "0:2"}
    fitting = apply_alterations(current, [change(name, APPEND, "1:1")], ROWS)
    assert fitting[name].endswith(",0:2,1:1")
    many = ",".join(f"{n}:9" for n in range(5_000))
    with pytest.raises(InvalidConfig, match="longer than 32767 bytes"):
        apply_alterations(current, [change(name, APPEND, many)], ROWS)
