"""Who of a group reads which partition: what its leader decides, whatever client each member is.

assignor.py says what an assignor is and how members tell each other; the others are Kafka's four,
with Kafka's results: range_assignor.py, round_robin_assignor.py, and sticky_assignor.py (eager and cooperative).
"""

from plog.client.assignors.assignor import Assignment as Assignment
from plog.client.assignors.assignor import Assignor as Assignor
from plog.client.assignors.assignor import RebalanceProtocol as RebalanceProtocol
from plog.client.assignors.assignor import Subscription as Subscription
from plog.client.assignors.assignor import common_protocol as common_protocol
from plog.client.assignors.assignor_registry import assignors_from as assignors_from
from plog.client.assignors.range_assignor import RangeAssignor as RangeAssignor
from plog.client.assignors.round_robin_assignor import RoundRobinAssignor as RoundRobinAssignor
from plog.client.assignors.sticky_assignor import CooperativeStickyAssignor as CooperativeStickyAssignor
from plog.client.assignors.sticky_assignor import StickyAssignor as StickyAssignor
