"""The name of this machine, which other brokers use for listeners without a host.

As in Kafka, it is the canonical name that the resolver returns (InetAddress.getCanonicalHostName).
"""

from __future__ import annotations

import socket

from plogd.net.detached_jobs import DetachedJobs


async def find_host_name(jobs: DetachedJobs, timeout_s: float) -> str:
    """Return the canonical name of this machine; its own name if the resolver does not answer."""
    try:
        return await jobs.run("looking up this host", socket.getfqdn, timeout_s)
    except OSError:
        return socket.gethostname()
