"""Every target on its seeds, on what once broke it, and on what hypothesis makes of them.

Quick, and without coverage to guide it; `make fuzz` looks for more. What fails there leaves a file
in corpus/<target>/, and from then on is tried here each time.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS

every_target = pytest.mark.parametrize("name", TARGETS)
_EXAMPLES = 200
_LONG_TIMES = 25
_CORPUS_MAX_BYTES = 300_000


@cache
def _seeds(name: str) -> tuple[bytes, ...]:
    target = TARGETS[name]
    return (*target.seeds(), *(path.read_bytes() for path in target.kept()))


@every_target
def test_the_seeds_and_all_that_was_kept_hold(name: str) -> None:
    for seed in _seeds(name):
        TARGETS[name].check(seed)


@st.composite
def _mutations(draw: st.DrawFn, name: str) -> bytes:
    """A seed with some of it changed, cut out, put in or repeated."""
    data = bytearray(draw(st.sampled_from(_seeds(name))))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        match draw(st.integers(0, 3)):
            case 0:
                data[start:end] = draw(st.binary(max_size=8))
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end] * draw(st.integers(1, 50))
            case _:
                # Lengths and counts at their ends, in the widths the formats have.
                number = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0x7FFF, 0xFFFF, 0x7FFFFFFF]))
                data[start:end] = number.to_bytes(4, "big")[-draw(st.sampled_from([1, 2, 4])) :]
    return bytes(data)


def _try(name: str, times: int) -> None:
    examples = TARGETS[name].examples

    @settings(
        max_examples=times * (examples or _EXAMPLES),
        derandomize=examples is not None,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.one_of(_mutations(name), st.binary(max_size=200)))
    def hold(data: bytes) -> None:
        TARGETS[name].check(data)

    hold()


@every_target
def test_what_is_made_of_the_seeds_holds(name: str) -> None:
    _try(name, 1)


@pytest.mark.long
@every_target
def test_a_lot_of_what_is_made_of_the_seeds_holds(name: str) -> None:
    _try(name, _LONG_TIMES)


def test_what_is_kept_belongs_to_a_target_and_stays_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < _CORPUS_MAX_BYTES
