"""Which response may continue while those in progress exceed the memory limit."""

from __future__ import annotations

from plogd.apis.encoding_memory import WorkMemory


def test_only_the_oldest_continues_while_memory_is_full() -> None:
    memory = WorkMemory(lambda: 100)
    oldest, newer = memory.begin(), memory.begin()
    newer.resize(100)
    assert newer.may_continue()
    oldest.resize(1)
    assert oldest.may_continue()
    assert not newer.may_continue()
    waiting = newer.wait()
    assert oldest.may_continue()
    actual = [waiting.done]
    oldest.release()
    assert [*actual, waiting.done] == [False, True]
    assert newer.may_continue()
    newer.release()
    assert memory.used_bytes == 0


def test_oldest_is_woken_before_one_that_has_waited_longer() -> None:
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


def test_continuing_share_wakes_the_next() -> None:
    memory = WorkMemory(lambda: 100)
    first, second, third = (memory.begin() for _ in range(3))
    first.resize(101)
    waiting = [second.wait(), third.wait()]
    first.release()
    assert [one.done for one in waiting] == [True, False]
    assert second.may_continue()
    assert waiting[1].done


def test_cancelled_waiter_is_removed() -> None:
    memory = WorkMemory(lambda: 100)
    first, second, third = (memory.begin() for _ in range(3))
    first.resize(101)
    given_up, waiting = second.wait(), third.wait()
    given_up.then(lambda _: None, lambda error: second.release())
    given_up.cancel()
    first.release()
    assert waiting.done
