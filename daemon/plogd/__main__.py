"""``plog-broker`` and ``python -m plogd``: the broker in the foreground, without twistd.

Exits with 0 after a clean stop (SIGTERM, SIGINT), 1 when the broker could not start or had to stop,
2 when its command line or settings are wrong.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet import epollreactor
from twisted.logger import globalLogBeginner
from twisted.python import usage

from plogd.tap import Options

if TYPE_CHECKING:
    from plogd.service import BrokerService


def main(argv: Sequence[str] | None = None) -> int:
    """Run a broker until it is told to stop; the exit code."""
    return run(sys.argv[1:] if argv is None else argv, _install_reactor, _make_service)


def run(
    argv: Sequence[str],
    install_reactor: Callable[[], Any],
    make_service: Callable[[Options, Any], BrokerService],
) -> int:
    """As `main`, on the reactor that is installed; it is Any as in service.py."""
    # Collecting what imports leave takes a fifth of a start; process.py begins it when it serves.
    gc.disable()
    options = Options()
    options.synopsis = f"Usage: plog-broker {options.synopsis}"
    try:
        options.parseOptions(list(argv))  # type: ignore[no-untyped-call]
    except usage.UsageError as error:
        print(f"plog-broker: {error}", file=sys.stderr)
        return 2
    assert options.observer is not None
    globalLogBeginner.beginLoggingTo([options.observer], redirectStandardIO=False)
    reactor = install_reactor()
    service = make_service(options, reactor)
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return service.exit_code


def _install_reactor() -> Any:
    epollreactor.install()
    from twisted.internet import reactor

    return reactor


def _make_service(options: Options, reactor: Any) -> BrokerService:
    from plogd.service import BrokerService

    assert options.loaded is not None
    return BrokerService(options.loaded, reactor, load=options.load, observer=options.observer)


if __name__ == "__main__":
    sys.exit(main())
