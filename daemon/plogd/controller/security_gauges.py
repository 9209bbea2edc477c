"""Gauges for security rules that the broker stores but does not enforce.

Operators can set alerts on these gauges; docs/security.md describes which rules are enforced.
"""

from __future__ import annotations

from plogd.controller.acls import Acls
from plogd.controller.scram_users import ScramUsers
from plogd.metrics import Registry


def register_security_gauges(metrics: Registry, acls: Acls, scram_users: ScramUsers) -> None:
    """Register the gauges; they are evaluated at each scrape."""
    metrics.gauge(
        "plog_acls_stored_not_enforced",
        "Number of stored ACLs; the broker does not enforce them yet.",
        lambda: acls.count,
    )
    metrics.gauge(
        "plog_scram_users_stored_not_enforced",
        "Number of users with stored SCRAM credentials; the broker does not support SASL yet.",
        lambda: scram_users.count,
    )
