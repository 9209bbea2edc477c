"""``plog-broker`` and ``python -m plogd``: the broker in the foreground, without twistd.

Exits with 0 after a clean stop (SIGTERM, SIGINT), 1 when the broker could not start or had to stop,
2 when its command line or settings are wrong.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from twisted.internet import epollreactor
from twisted.logger import globalLogBeginner
from twisted.python import usage

from plogd.tap import Options


def main(argv: Sequence[str] | None = None) -> int:
    """Run a broker until it is told to stop; the exit code."""
    # Collecting what imports leave takes a fifth of a start; service.py begins it when it serves.
    gc.disable()
    options = Options()
    options.synopsis = f"Usage: plog-broker {options.synopsis}"
    try:
        arguments = list(sys.argv[1:] if argv is None else argv)
        options.parseOptions(arguments)  # type: ignore[no-untyped-call]
    except usage.UsageError as error:
        print(f"plog-broker: {error}", file=sys.stderr)
        return 2
    assert options.loaded is not None
    assert options.observer is not None
    globalLogBeginner.beginLoggingTo([options.observer], redirectStandardIO=False)
    epollreactor.install()
    from twisted.internet import reactor

    from plogd.service import BrokerService

    service = BrokerService(options.loaded, reactor, load=options.load, observer=options.observer)
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return service.exit_code


if __name__ == "__main__":
    sys.exit(main())
