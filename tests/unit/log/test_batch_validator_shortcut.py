"""The usual check of plog/records/produced_batch.py against the steps of the validator.

Both must accept the same batches, and the validator must return the same result for them.
"""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.errors import KafkaError
from plog.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT
from plogd.log import batch_validator
from plogd.log.batch_validator import AppendOrigin, BatchRules, ValidatedBatch, validate_batch
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import T0
from tests.unit.records.test_produced_batch import (
    INT16_EDGES,
    INT32_EDGES,
    INT64_EDGES,
    NOW_MS,
    batch,
)

RULES = (
    BatchRules.of(TopicConfig()),
    BatchRules.of(TopicConfig(message_timestamp_after_max_ms=0)),
    BatchRules.of(TopicConfig(message_timestamp_after_max_ms=2**63 - 1)),
    BatchRules.of(TopicConfig(max_message_bytes=HEADER_SIZE + 20)),
)


def validated(data: memoryview, rules: BatchRules) -> ValidatedBatch | type[Exception]:
    """Return the validated batch, or the type of the error."""
    try:
        return validate_batch(data, rules=rules, now_ms=T0, origin=AppendOrigin.CLIENT)
    except KafkaError as error:
        return type(error)


@settings(max_examples=1000)
@given(
    rules=st.sampled_from(RULES),
    base_offset=st.sampled_from(INT64_EDGES) | st.just(0),
    attributes=st.sampled_from(INT16_EDGES) | st.just(0),
    last_offset_delta=st.sampled_from(INT32_EDGES) | st.just(3),
    max_timestamp=st.sampled_from((*INT64_EDGES, NOW_MS, T0, T0 + 1, 2**63 - 1)),
    producer_id=st.sampled_from(INT64_EDGES),
    producer_epoch=st.sampled_from(INT16_EDGES),
    base_sequence=st.sampled_from(INT32_EDGES),
    records_count=st.sampled_from(INT32_EDGES) | st.just(4),
    payload=st.binary(max_size=40),
)
def test_usual_check_accepts_what_the_steps_accept(
    rules: BatchRules, payload: bytes, **fields: int
) -> None:
    data = batch(payload, **fields)
    with mock.patch.object(batch_validator, "check_produced_batch", return_value=None):
        by_steps = validated(data, rules)
    assert validated(data, rules) == by_steps
    usual = batch_validator.check_produced_batch(data, rules.max_bytes, T0 + rules.max_ahead_ms)
    is_transactional = bool(fields["attributes"] & TRANSACTIONAL_BIT)
    # A limit of 2**63 - 1 is lowered for this check, so it declines a few timestamps.
    is_late = fields["max_timestamp"] - T0 > 2**62
    if not is_transactional and not is_late:
        assert (usual is not None) == isinstance(by_steps, ValidatedBatch)
    elif usual is not None:
        assert isinstance(by_steps, ValidatedBatch)


def test_batch_that_a_rule_of_the_topic_concerns_takes_the_steps() -> None:
    """The usual check knows no rule about keys, codecs or the age of timestamps."""
    config = TopicConfig(cleanup_policy=("compact",))
    with mock.patch.object(batch_validator, "check_produced_batch") as usual:
        validated(batch(), BatchRules.of(config))
    assert not usual.called


@pytest.mark.parametrize("origin", [one for one in AppendOrigin if one is not AppendOrigin.CLIENT])
def test_batch_of_the_broker_takes_the_steps(origin: AppendOrigin) -> None:
    with mock.patch.object(batch_validator, "check_produced_batch") as usual:
        validate_batch(batch(), rules=RULES[0], now_ms=T0, origin=origin)
    assert not usual.called
