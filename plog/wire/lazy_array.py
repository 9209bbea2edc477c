"""Arrays of a response whose elements are created while the response is encoded.

A response with thousands of elements would otherwise exist twice, as objects and as bytes, and the
objects take ten times the memory. The encoder creates one element, writes it and drops it; if the
response is encoded in slices, its elements are created in slices, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast, overload

T = TypeVar("T")
U = TypeVar("U")


class _LazyArray(Sequence[T], Generic[T, U]):
    """A sequence with ``make(source)`` for each of `sources`, computed at each access."""

    __slots__ = ("_make", "_sources")

    def __init__(self, sources: Sequence[U], make: Callable[[U], T]) -> None:
        self._sources = sources
        self._make = make

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[T]:
        # Not stored: each element is garbage as soon as the encoder has written it.
        return map(self._make, self._sources)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._make(source) for source in self._sources[index]]
        return self._make(self._sources[index])


def lazy_array(sources: Sequence[U], make: Callable[[U], T]) -> list[T]:
    """Return a value for an array field, with the element ``make(source)`` for each of `sources`.

    `make` must not raise, and `sources` must not change before the response is encoded. The value
    is typed as the list that the field declares; the encoder only needs length and iteration.

    >>> len(lazy_array([1, 2], str)), *lazy_array([1, 2], str)
    (2, '1', '2')
    """
    return cast("list[T]", _LazyArray(sources, make))
