"""Functions with a bound argument."""

from __future__ import annotations

from plogd.log.disk.bound_call import bind


def test_argument_is_the_one_at_the_time_of_binding() -> None:
    calls = []
    for number in range(3):
        calls.append(bind(str, number))
    assert [call() for call in calls] == ["0", "1", "2"]


def test_function_is_not_called_before() -> None:
    called: list[int] = []
    call = bind(called.append, 1)
    assert called == []
    call()
    call()
    assert called == [1, 1]
