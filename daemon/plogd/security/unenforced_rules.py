"""The text that marks ACLs and SCRAM users as stored but not enforced.

Log lines, ``/metrics`` and the responses that change or describe them contain it, because an
operator might believe that the broker is protected. A response has the text as the error message of
a successful result, which Kafka leaves empty: clients ignore it, and plog's tools print it.
"""

from __future__ import annotations

from typing import Final

NOT_ENFORCED: Final = "stored, not enforced"
