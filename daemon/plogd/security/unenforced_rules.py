"""What the broker says of rules that it stores and does not enforce yet: ACLs and SCRAM users.

Log lines, ``/metrics`` and the responses that change or describe such rules say so, because an
operator might believe that the broker is protected. A response has the text as the message of a
result without an error, which Kafka leaves empty: clients ignore it, and plog's tools print it.
"""

from __future__ import annotations

from typing import Final

NOT_ENFORCED: Final = "stored, not enforced"
