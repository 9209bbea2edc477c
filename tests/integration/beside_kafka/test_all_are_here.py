"""Every API served has a test beside Apache Kafka, with its lowest and its highest version."""

from __future__ import annotations

from plogd.apis.table import HANDLERS
from tests.integration.beside_kafka import (
    test_admin,
    test_configs,
    test_records,
    test_security,
    test_topics,
)
from tests.integration.beside_kafka.versions import COVERED

PARTS = (test_admin, test_configs, test_records, test_security, test_topics)
# Handled elsewhere than in a table row's tests here, with the reason.
LEFT_OUT: dict[int, str] = {10: "there are no coordinators yet"}


def test_every_api_is_held_to_kafka() -> None:
    missing = {row.name for row in HANDLERS if row.api_key not in COVERED | set(LEFT_OUT)}
    assert not missing
