"""plog/wire/single_produce.py, compiled and interpreted: the same result for any bytes."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import codec_forms
from tests.helpers.codec_forms import outcome
from tests.unit.wire.test_single_produce import VERSIONS, frame, request

MODULE = "plog.wire.single_produce"
FIELDS = (
    "header",
    "acks",
    "timeout_ms",
    "topic",
    "topic_id",
    "partition",
    "place",
)
int64_edges = st.sampled_from([-(2**63) - 1, -(2**63), -1, 0, 2**63 - 1, 2**63])


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    return codec_forms.need("compiled", MODULE)


def decoded(module: ModuleType, data: bytes) -> tuple[object, ...]:
    """Return every field of the decoded request, or the outcome of a call that declines it."""
    single = module.decode_single_produce(memoryview(data))
    if single is None:
        return (None,)
    return (*(getattr(single, name) for name in FIELDS), bytes(single.records))


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(VERSIONS), st.data())
def test_both_forms_decode_damaged_requests_alike(
    compiled: ModuleType, version: int, data: st.DataObject
) -> None:
    damaged = bytearray(frame(request(), version))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    end = data.draw(st.integers(0, len(damaged)))
    interpreted = codec_forms.interpreted(MODULE)
    for whole in (bytes(damaged), bytes(damaged[:end]), bytes(damaged) + b"\xff" * 2000):
        assert decoded(compiled, whole) == decoded(interpreted, whole)


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_both_forms_decode_arbitrary_bytes_alike(
    compiled: ModuleType, version: int, rest: bytes
) -> None:
    data = b"\0\0" + version.to_bytes(2, "big") + rest
    assert decoded(compiled, data) == decoded(codec_forms.interpreted(MODULE), data)


@given(st.sampled_from(VERSIONS), int64_edges, int64_edges, int64_edges)
def test_both_forms_encode_responses_alike(
    compiled: ModuleType, version: int, base_offset: int, append_time: int, log_start: int
) -> None:
    responses = []
    for module in (compiled, codec_forms.interpreted(MODULE)):
        single = module.decode_single_produce(frame(request(), version))
        numbers = (base_offset, append_time, log_start)
        fits = all(-(2**63) <= number < 2**63 for number in numbers)
        kind, *rest = outcome(single.frame_response, *numbers)
        # The exception for a number that does not fit depends on the form.
        responses.append((kind, *rest) if fits else kind == "value")
    assert responses[0] == responses[1]
