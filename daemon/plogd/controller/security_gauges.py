"""Gauges that say how many security rules are stored although the broker does not enforce them.

An operator can alert on them: docs/security.md says what is enforced.
"""

from __future__ import annotations

from plogd.controller.acls import Acls
from plogd.controller.scram_users import ScramUsers
from plogd.metrics import Registry


def register_security_gauges(metrics: Registry, acls: Acls, scram_users: ScramUsers) -> None:
    """Register the gauges; each is computed when it is read."""
    metrics.gauge(
        "plog_acls_stored_not_enforced",
        "ACLs that are stored; the broker enforces none yet.",
        lambda: acls.count,
    )
    metrics.gauge(
        "plog_scram_users_stored_not_enforced",
        "Users with SCRAM credentials that are stored; there is no SASL yet.",
        lambda: scram_users.count,
    )
