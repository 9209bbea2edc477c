"""A broker for the tests of an application: a thin front to `plogd.testing`, imported on use.

With pytest nothing needs to be imported at all: the fixtures `plog_broker` and
`plog_broker_factory` are there once plog is installed (plogd/testing/plugin.py). Elsewhere::

    with plog.testing.broker(directory) as broker:
        client = connect(broker.bootstrap_servers)

The client library works without the broker's package; only this module needs it, when called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plogd.testing.broker_process import BrokerProcess


def broker(directory: Path, settings: Mapping[str, str] | None = None) -> BrokerProcess:
    """A broker below `directory`, not started yet; ``with`` starts it and stops it."""
    from plogd.testing.broker_process import BrokerProcess

    return BrokerProcess(directory, settings)
