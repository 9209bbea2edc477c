"""Several others are told, whatever one of them does."""

from __future__ import annotations

import pytest

from plogd.log.call_each import call_each


def test_each_is_called_whatever_one_of_them_raises() -> None:
    calls: list[str] = []
    call_each([lambda: calls.append("a"), lambda: calls.append("b")])
    with pytest.raises(ZeroDivisionError):
        call_each([lambda: 1 // 0, lambda: calls.append("c")])
    with pytest.raises(ExceptionGroup) as raised:
        call_each([lambda: 1 // 0, lambda: {}[0], lambda: calls.append("d")])
    assert calls == ["a", "b", "c", "d"]
    assert [type(error) for error in raised.value.exceptions] == [ZeroDivisionError, KeyError]
