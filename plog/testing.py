"""A broker for the tests of an application: a thin front to `plogd.testing`, imported on use.

With pytest nothing needs to be imported at all: the fixtures are there once plog is installed
(docs/testing.md). Elsewhere::

    with plog.testing.broker(directory) as broker:
        client = connect(broker.bootstrap_servers)

The client library works without the broker's package; only this module needs it, when called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from plogd.testing.running_broker import RunningBroker


def broker(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    kind: Literal["thread", "process"] = "thread",
) -> RunningBroker:
    """A broker below `directory`, not started yet; ``with`` starts it and stops it.

    It runs in a thread of this process, or in a process of its own.
    """
    if kind == "process":
        from plogd.testing.broker_process import BrokerProcess

        return BrokerProcess(directory, settings, controls=True)
    from plogd.testing.broker_thread import BrokerThread

    return BrokerThread(directory, settings)
