"""The text that marks ACLs and SCRAM users as stored but not enforced.

It appears in log lines, in ``/metrics``, and in responses to requests that change or describe them;
otherwise, an operator might believe that the broker is protected. A response contains it as the
error message of a successful result, which Kafka leaves empty: clients ignore it, and plog's tools
print it.
"""

from __future__ import annotations

from typing import Final

NOT_ENFORCED: Final = "stored, not enforced"
