"""Open and completed transactions, and the last stable offset, against a naive model."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from plogd.log.unstable_transactions import UnstableTransactions


@dataclass(slots=True)
class Naive:
    """All transactions ever begun; a marker offset of None means that one is ongoing."""

    markers: dict[int, int | None] = field(default_factory=dict)

    @property
    def ongoing(self) -> list[int]:
        return [first for first, marker in self.markers.items() if marker is None]

    def cut(self, end_offset: int) -> None:
        self.markers = {
            first: None if marker is None or marker >= end_offset else marker
            for first, marker in self.markers.items()
            if first < end_offset
        }

    def stable_offset(self, high_watermark: int) -> int:
        undecided = [
            first
            for first, marker in self.markers.items()
            if marker is None or marker >= high_watermark
        ]
        return min([*undecided, high_watermark])


def _both(*transactions: tuple[int, int | None]) -> UnstableTransactions:
    """Return transactions that began at the first offset and ended at the second."""
    result = UnstableTransactions()
    events = [(first, "begin", first) for first, _ in transactions]
    events += [(end, "complete", first) for first, end in transactions if end is not None]
    for offset, name, first in sorted(events):
        if name == "begin":
            result.begin(first)
        else:
            result.complete(first, offset)
    return result


def test_log_without_transactions_is_stable_up_to_the_high_watermark() -> None:
    assert [UnstableTransactions().stable_offset(at) for at in (0, 7)] == [0, 7]


def test_first_ongoing_transaction_limits_the_stable_offset() -> None:
    transactions = _both((3, None), (5, None))
    assert transactions.stable_offset(2) == 2
    assert transactions.stable_offset(9) == 3


def test_transaction_is_unstable_until_the_high_watermark_has_passed_its_marker() -> None:
    transactions = _both((3, 6))
    assert [transactions.stable_offset(at) for at in (2, 4, 6, 7, 8)] == [2, 3, 3, 7, 8]


def test_completed_transactions_may_end_in_another_order_than_they_began() -> None:
    transactions = _both((1, 9), (2, 4), (5, 6))
    assert [transactions.stable_offset(at) for at in (3, 5, 7, 9, 10)] == [1, 1, 1, 1, 10]


def test_later_transaction_stays_unstable_after_an_earlier_one_became_stable() -> None:
    transactions = _both((1, 3), (2, 9), (5, None))
    assert [transactions.stable_offset(at) for at in (3, 4, 9, 10)] == [1, 2, 2, 5]


def test_stable_offset_after_a_marker_is_the_first_other_ongoing_transaction() -> None:
    transactions = _both((3, None), (5, None), (7, None))
    assert transactions.stable_offset_after(3, marker_offset=9) == 5
    assert transactions.stable_offset_after(5, marker_offset=9) == 3
    assert _both((3, None)).stable_offset_after(3, marker_offset=9) == 10


def test_truncation_keeps_the_transactions_that_were_completed_below_it() -> None:
    transactions = _both((1, 9), (2, 12), (5, 20))
    transactions.replace([2, 5], end_offset=12)
    assert transactions.stable_offset(7) == 1
    assert transactions.stable_offset(10) == 2


def test_replacement_forgets_all_earlier_transactions() -> None:
    transactions = _both((1, 9), (2, None))
    transactions.replace([8, 6])
    assert transactions.stable_offset(9) == 6
    assert transactions.stable_offset_after(6, marker_offset=9) == 8
    transactions.replace([])
    assert transactions.stable_offset(9) == 9


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "complete", "read", "read", "replace"]), st.integers(0, 9)),
    max_size=120,
)


@given(steps=STEPS)
def test_any_history_equals_the_naive_model(steps: list[tuple[str, int]]) -> None:
    transactions, model = UnstableTransactions(), Naive()
    end_offset = high_watermark = 0
    for name, number in steps:
        ongoing = model.ongoing
        if name == "begin":
            transactions.begin(end_offset)
            model.markers[end_offset] = None
            end_offset += 1 + number % 3
        elif name == "complete" and ongoing:
            first = ongoing[number % len(ongoing)]
            others = [other for other in ongoing if other != first]
            expected = min(others, default=end_offset + 1)
            assert transactions.stable_offset_after(first, end_offset) == expected
            transactions.complete(first, end_offset)
            model.markers[first] = end_offset
            end_offset += 1
        elif name == "read":
            high_watermark = min(high_watermark + number, end_offset)
            found = transactions.stable_offset(high_watermark)
            assert found == model.stable_offset(high_watermark)
        elif name == "replace":  # As after a truncation.
            end_offset = max(end_offset - number, 0)
            high_watermark = min(high_watermark, end_offset)
            model.cut(end_offset)
            transactions.replace(reversed(model.ongoing), end_offset)
    assert transactions.stable_offset(end_offset) == model.stable_offset(end_offset)


def test_no_completed_transaction_is_kept_once_it_is_stable() -> None:
    """Otherwise, the memory of a busy partition would grow forever."""
    transactions = UnstableTransactions()
    transactions.begin(0)  # One transaction stays open all the time.
    for first in range(1, 2000, 2):
        transactions.begin(first)
        transactions.complete(first, first + 1)
        assert transactions.stable_offset(first + 2) == 0
    assert not transactions._completed
    assert not transactions._first_completed
