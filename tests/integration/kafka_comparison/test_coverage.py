"""Every served API is compared with Apache Kafka in its lowest and its highest version."""

from __future__ import annotations

from plogd.apis.api_table import HANDLERS
from tests.integration.kafka_comparison import (
    test_admin,
    test_configs,
    test_groups,
    test_records,
    test_security,
    test_topics,
)
from tests.integration.kafka_comparison.versions import COVERED

PARTS = (test_admin, test_configs, test_groups, test_records, test_security, test_topics)


def test_every_api_is_compared_with_kafka() -> None:
    missing = {row.name for row in HANDLERS if row.api_key not in COVERED}
    assert not missing
