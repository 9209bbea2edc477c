"""Every target on its seeds, on its corpus, and on inputs that hypothesis derives from the seeds.

Fast, and not guided by coverage; `make fuzz` searches further. An input that fails there is written
to corpus/<target>/, and from then on is tested here.
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
    return (*target.seeds(), *(path.read_bytes() for path in target.corpus_files()))


# hostile_counts counts the steps of thousands of requests, for minutes; on a busy machine, that
# exceeds the general limit.
@pytest.mark.timeout(3600)
@every_target
def test_seeds_and_corpus_pass(name: str) -> None:
    for seed in _seeds(name):
        TARGETS[name].check(seed)


@st.composite
def _mutations(draw: st.DrawFn, name: str) -> bytes:
    """Return a seed with parts changed, removed, inserted or repeated."""
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
                # Extreme lengths and counts, in the widths that the formats use.
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
    def check(data: bytes) -> None:
        TARGETS[name].check(data)

    check()


@every_target
def test_mutated_seeds_pass(name: str) -> None:
    _try(name, 1)


@pytest.mark.long
@every_target
def test_many_mutated_seeds_pass(name: str) -> None:
    _try(name, _LONG_TIMES)


def test_corpus_belongs_to_targets_and_is_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < _CORPUS_MAX_BYTES
