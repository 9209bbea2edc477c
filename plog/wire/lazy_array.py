"""Arrays whose elements are created while a response is encoded.

A response with thousands of elements would otherwise exist twice, as bytes and as objects, which
take ten times the memory. With a lazy array, the encoder creates an element, writes it and drops
it. If the response is encoded in slices, its elements are also created in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast, overload

T = TypeVar("T")
U = TypeVar("U")


class _LazyArray(Sequence[T], Generic[T, U]):
    """A sequence of ``make(source)`` for each of `sources`; every access creates new elements."""

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

    `make` must not raise, and `sources` must not change before the response is encoded.

    >>> len(lazy_array([1, 2], str)), *lazy_array([1, 2], str)
    (2, '1', '2')
    """
    # Array fields are declared as lists, but the encoder only needs a length and an iterator.
    return cast("list[T]", _LazyArray(sources, make))
