"""The usual check of plog/records/produced_batch.py against the steps of the validator.

Both must accept the same batches, and a log uses the usual check only for them.
"""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.errors import KafkaError
from plog.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT
from plog.records.produced_batch import check_produced_batch
from plogd.log import log as log_module
from plogd.log.batch_validator import AppendOrigin, BatchRules, ValidatedBatch, validate_batch
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import T0, client_batch
from tests.helpers.log.log_site import LogSite
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
    by_steps = validated(data, rules)
    header = check_produced_batch(data, rules.max_bytes, T0 + rules.max_ahead_ms)
    if header is not None:
        assert ValidatedBatch.unchanged(data, header) == by_steps
    is_transactional = bool(fields["attributes"] & TRANSACTIONAL_BIT)
    # A limit of 2**63 - 1 is lowered for this check, so it declines a few timestamps.
    is_late = fields["max_timestamp"] - T0 > 2**62
    if not is_transactional and not is_late:
        assert (header is not None) == isinstance(by_steps, ValidatedBatch)


@pytest.mark.parametrize(
    ("config", "origin"),
    [
        # The usual check knows no rule about keys, codecs or the age of timestamps.
        (TopicConfig(cleanup_policy=("compact",)), AppendOrigin.CLIENT),
        (TopicConfig(compression_type="uncompressed"), AppendOrigin.CLIENT),
        (TopicConfig(message_timestamp_before_max_ms=10**15), AppendOrigin.CLIENT),
        (TopicConfig(message_timestamp_type="LogAppendTime"), AppendOrigin.CLIENT),
        (TopicConfig(), AppendOrigin.COORDINATOR),
        (TopicConfig(), AppendOrigin.REPLICATION),
    ],
)
def test_log_validates_other_batches_by_steps(config: TopicConfig, origin: AppendOrigin) -> None:
    log = LogSite().start().create("t-0", config)
    with mock.patch.object(log_module, "check_produced_batch") as usual:
        log.append_as_leader(client_batch(), leader_epoch=0, now_ms=T0, origin=origin)
    assert not usual.called
    assert log.log_end_offset == 1


def test_log_appends_plain_batch_without_the_steps() -> None:
    log = LogSite().start().create("t-0", TopicConfig())
    with mock.patch.object(log_module, "validate_batch") as steps:
        info = log.append_as_leader(client_batch(), leader_epoch=0, now_ms=T0)
    assert not steps.called
    assert (info.first_offset, log.log_end_offset) == (0, info.last_offset + 1)
