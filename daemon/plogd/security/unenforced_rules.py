"""The text that marks ACLs and SCRAM users as stored but not enforced.

It appears in log lines, in ``/metrics``, and in responses to requests that change or describe these
rules; otherwise, an operator could believe that the broker is protected.
"""

from __future__ import annotations

from typing import Final

# A response contains the text as the error message of a successful result, which Kafka leaves
# empty. Clients ignore it there, and plog's tools print it.
NOT_ENFORCED: Final = "stored, not enforced"
