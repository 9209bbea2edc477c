"""plog/wire/lazy_array.py: arrays whose elements are created during encoding."""

from __future__ import annotations

from plog.wire.lazy_array import lazy_array
from plog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse


def test_elements_are_created_one_by_one() -> None:
    made: list[str] = []

    def make(name: str) -> DeletableGroupResult:
        made.append(name)
        return DeletableGroupResult(group_id=name)

    names = [f"g{number}" for number in range(300)]
    response = DeleteGroupsResponse(results=lazy_array(names, make))
    assert made == []
    encoding = response.encode_in_slices(2, 128)
    next(encoding)
    # The element that did not fit in the slice is created, but not encoded.
    assert made == names[:129]
    eager = DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name) for name in names])
    assert response.encode(2) == eager.encode(2)


def test_elements_and_slices_are_accessible() -> None:
    array = lazy_array([1, 2, 3], str)
    assert (len(array), array[1], array[1:], list(array)) == (3, "2", ["2", "3"], ["1", "2", "3"])
