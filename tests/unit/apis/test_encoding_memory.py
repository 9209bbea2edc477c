"""Who may go on while the responses in progress have too many bytes."""

from __future__ import annotations

from plogd.apis.encoding_memory import WorkMemory


def test_only_the_oldest_goes_on_while_memory_is_full() -> None:
    memory = WorkMemory(lambda: 100)
    oldest, newer = memory.begin(), memory.begin()
    newer.resize(100)
    assert newer.may_go_on()
    oldest.resize(1)
    assert oldest.may_go_on()
    assert not newer.may_go_on()
    waiting = newer.wait()
    assert oldest.may_go_on()
    told = [waiting.done]
    oldest.release()
    assert [*told, waiting.done] == [False, True]
    assert newer.may_go_on()
    newer.release()
    assert memory.used_bytes == 0


def test_the_oldest_is_told_though_another_has_waited_longer() -> None:
    memory = WorkMemory(lambda: 100)
    first, second, third = (memory.begin() for _ in range(3))
    second.resize(80)
    third.resize(80)
    longest, later = third.wait(), second.wait()
    first.release()
    assert later.done
    assert not longest.done
    second.release()
    assert longest.done


def test_one_that_goes_on_tells_the_next_in_line() -> None:
    memory = WorkMemory(lambda: 100)
    first, second, third = (memory.begin() for _ in range(3))
    first.resize(101)
    waiting = [second.wait(), third.wait()]
    first.release()
    assert [one.done for one in waiting] == [True, False]
    assert second.may_go_on()
    assert waiting[1].done


def test_one_that_gives_up_is_not_waited_for() -> None:
    memory = WorkMemory(lambda: 100)
    first, second, third = (memory.begin() for _ in range(3))
    first.resize(101)
    given_up, waiting = second.wait(), third.wait()
    given_up.then(lambda _: None, lambda error: second.release())
    given_up.cancel()
    first.release()
    assert waiting.done
