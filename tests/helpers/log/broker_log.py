"""Assertions about the log of a broker process."""

from __future__ import annotations

from plogd.testing.broker_process import BrokerProcess


def assert_one_line(broker: BrokerProcess, *words: str) -> None:
    """Assert that one line of the log has the first of `words`, and also the others.

    The broker is stopped first, because it may close a connection before it logs the reason.
    """
    if broker.is_running:
        broker.stop()
    found = [line for line in broker.log_text().splitlines() if words[0] in line]
    assert len(found) == 1, broker.log_text()
    assert [word for word in words if word not in found[0]] == []
