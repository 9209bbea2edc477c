"""The base class of all admin operation families: it checks arguments and enforces time limits.

Every public coroutine method of an `AdminBase` subclass is an operation. A call checks the
arguments (argument_checks.py) and times out after ``default.api.timeout.ms``.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from plog.client.admin.argument_checks import checked
from plog.client.admin.values import BrokerDescription
from plog.client.errors import BrokerNotAvailable
from plog.client.network.bounded_cluster import BoundedCluster

if TYPE_CHECKING:
    from plog.client.network.cluster import Cluster
    from plog.wire.schema import ApiMessage


def is_operation(name: str, method: object) -> bool:
    """Return whether a method of a family is an operation: public and a coroutine function."""
    # A decorated coroutine function may look like a plain function.
    inner = inspect.unwrap(method) if callable(method) else method
    return not name.startswith("_") and inspect.iscoroutinefunction(inner)


def _operation(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method` with argument checks and a time limit for the whole call."""

    @functools.wraps(method)
    def call(self: AdminBase, /, *arguments: Any, **options: Any) -> Any:
        # This is a plain function, so that the checks run when the operation is called. If they ran
        # when it is awaited, the traceback might not show the caller's line.
        bound = checked(method, *arguments, **options)
        # Each call uses its own copy, because concurrent calls have different deadlines.
        return method(self._for_call(), *bound.args[1:], **bound.kwargs)

    return call


class AdminBase:
    """A family of operations on a cluster. Use it only in the thread of the cluster's network."""

    _cluster: BoundedCluster
    """The cluster with the current call's deadline; set only on the copy made for a call."""

    def __init__(self, cluster: Cluster) -> None:
        self._shared = cluster

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # `setattr` changes the dictionary, so iterate over a copy.
        for name, method in tuple(vars(cls).items()):
            if is_operation(name, method):
                setattr(cls, name, _operation(method))

    def _for_call(self) -> Self:
        """Return a copy for one call; a nested operation shares the outer operation's deadline."""
        # If an operation calls another, this object is already the outer operation's copy.
        if "_cluster" in vars(self):
            return self
        bounded = copy.copy(self)
        bounded._cluster = BoundedCluster(self._shared, self._shared.deadline())
        return bounded

    @property
    def _request_timeout_ms(self) -> int:
        """The time in ms within which a broker must complete a request."""
        return self._cluster.settings.request_timeout_ms

    async def _version_at_controller(self, request: type[ApiMessage]) -> int:
        """Return the version at which the controller will receive this request."""
        metadata = self._cluster.metadata
        # In KRaft, brokers report a random broker as the controller. By now, that broker may have
        # left the cluster.
        if metadata.controller_id not in metadata.brokers:
            metadata = await self._cluster.refresh(())
        node_id = metadata.controller_id
        if node_id not in metadata.brokers:
            # Any broker forwards the request to the controller, so that broker's version applies.
            node_id = await self._some_broker()
        return (await self._cluster.connection(node_id)).version_of(request)

    async def _some_broker(self) -> int:
        """Return a live broker's id or, with bootstrap.controllers, the active controller's."""
        brokers = (await self._cluster.refresh(())).brokers
        if not brokers:
            raise BrokerNotAvailable("no broker in the cluster is available; retry later")
        controller = self._cluster.metadata.controller_id
        # Only the active controller is certain to have the latest metadata.
        if self._cluster.settings.uses_controllers and controller in brokers:
            return controller
        return min(brokers)

    async def _broker(self, node_id: int) -> BrokerDescription:
        """Return a broker's description, without an address if the broker has left the cluster."""
        known = self._cluster.metadata.brokers.get(node_id)
        if known is None:
            known = (await self._cluster.refresh(())).brokers.get(node_id)
        # The broker may have left the cluster since it served the request.
        if known is None:
            return BrokerDescription(id=node_id, host="", port=-1)
        return BrokerDescription(id=node_id, host=known.host, port=known.port, rack=known.rack)
