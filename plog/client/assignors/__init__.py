"""Partition assignors: a group leader uses them to divide partitions among members.

This package contains range, round-robin, sticky and cooperative sticky assignors with the same
results as Kafka's. `plog.client.group` joins groups and revokes partitions. Start with assignor.py,
which defines the interface, then read range_assignor.py.
"""

from plog.client.assignors.assignor import Assignment as Assignment
from plog.client.assignors.assignor import Assignor as Assignor
from plog.client.assignors.assignor import RebalanceProtocol as RebalanceProtocol
from plog.client.assignors.assignor import Subscription as Subscription
from plog.client.assignors.assignor import common_protocol as common_protocol
from plog.client.assignors.assignor_registry import assignors_from as assignors_from
from plog.client.assignors.range_assignor import RangeAssignor as RangeAssignor
from plog.client.assignors.round_robin_assignor import RoundRobinAssignor as RoundRobinAssignor
from plog.client.assignors.sticky_assignor import (
    CooperativeStickyAssignor as CooperativeStickyAssignor,
)
from plog.client.assignors.sticky_assignor import StickyAssignor as StickyAssignor
