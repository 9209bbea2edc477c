"""An exception in one callback does not keep the others from being called."""

from __future__ import annotations

import pytest

from plogd.notify_all import notify_all


def test_all_callbacks_are_called_when_some_raise() -> None:
    calls: list[str] = []
    notify_all([lambda: calls.append("a"), lambda: calls.append("b")])
    with pytest.raises(ZeroDivisionError):
        notify_all([lambda: 1 // 0, lambda: calls.append("c")])
    with pytest.raises(ExceptionGroup) as raised:
        notify_all([lambda: 1 // 0, lambda: {}[0], lambda: calls.append("d")])
    assert calls == ["a", "b", "c", "d"]
    assert [type(error) for error in raised.value.exceptions] == [ZeroDivisionError, KeyError]
