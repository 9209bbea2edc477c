"""What a broker process has logged."""

from __future__ import annotations

from plogd.testing.broker_process import BrokerProcess


def assert_one_line(broker: BrokerProcess, *words: str) -> None:
    """The log has exactly one line with the first of `words`, and it has the others too.

    The broker is stopped first: it may close a connection before it tells why.
    """
    if broker.is_running:
        broker.stop()
    found = [line for line in broker.log_text().splitlines() if words[0] in line]
    assert len(found) == 1, broker.log_text()
    assert [word for word in words if word not in found[0]] == []
