"""Create, delete and describe ACLs in the metadata store.

Creating an ACL that already exists succeeds. If the metadata log fails during a request, some of
its changes may have taken effect. ACLs are not enforced yet (docs/security.md), so each change logs
a warning.

Requests take effect sequentially. Source: Kafka 4.0 AclControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from operator import itemgetter
from typing import Final

from plog.errors import KafkaError, PolicyViolation
from plogd.concurrency import OneAtATime
from plogd.controller.batched_writes import Update, check_count, write_in_batches
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.store import Key, MetadataStore
from plogd.ports import Later, Report, silence, spawn
from plogd.security.acl import Acl, AclFilter, acl_key
from plogd.security.unenforced_rules import NOT_ENFORCED

_MAX_COMPARISONS: Final = 5_000_000
"""Maximum number of comparisons between filters and ACLs in a request: a few seconds in slices."""


class Acls:
    """All ACLs in the cluster; each broker has one instance."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        fair_queue: FairQueue,
        report: Report = silence,
    ) -> None:
        self._store = store
        self._queue = fair_queue
        self._report = report
        # Sequential, because an operation waits between slices: if another one could run in the
        # meantime, both might create the same ACL.
        self._operations = OneAtATime()

    def describe(self, acl_filter: AclFilter) -> Later[list[Acl]]:
        """Return the matching ACLs, sorted by resource. Raises InvalidRequest."""
        acl_filter.validate()
        # Reads do not wait for changes: `_all` returns a snapshot of durable values.
        return spawn(self._describe(acl_filter))

    async def _describe(self, acl_filter: AclFilter) -> list[Acl]:
        slices = Slices(self._queue)
        matching = await self._matching(acl_filter, self._all(), slices)
        return await _sorted([acl for _, acl in matching], slices)

    async def _matching(
        self, acl_filter: AclFilter, existing: Mapping[Key, tuple[Acl, int]], slices: Slices
    ) -> list[tuple[Key, Acl]]:
        return [
            (key, acl)
            async for key, (acl, _) in slices.over(existing.items())
            if acl_filter.matches(acl)
        ]

    def create(self, acls: Sequence[Acl]) -> Later[list[KafkaError | None]]:
        """Create ACLs; return an error or None for each. Fails if the whole request is rejected."""
        return self._operations.run_unless_cancelled(lambda: self._create(acls))

    async def _create(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        slices = Slices(self._queue)
        existing = self._all()
        # A set, because comparing each new ACL with every stored one would take quadratic time.
        known = {acl async for acl, _ in slices.over(existing.values())}
        updates: list[Update] = []
        results: list[KafkaError | None] = []
        async for acl in slices.over(acls):
            error = _validation_error(acl)
            results.append(error)
            # Creating an ACL that already exists succeeds, as in Kafka, but has no effect.
            if error is None and acl not in known:
                known.add(acl)  # The request may repeat it.
                updates.append(Update(key=acl_key(acl), new_value=_constant(acl)))
        await write_in_batches(self._store, updates, "ACLs", self._queue)
        self._warn("created", len(updates))
        return results

    def delete(self, filters: Sequence[AclFilter]) -> Later[list[list[Acl] | KafkaError]]:
        """Delete the ACLs that match any filter; return each filter's matches or error.

        Fails with PolicyViolation if one request has too many filters or matches.
        """
        return self._operations.run_unless_cancelled(lambda: self._delete(filters))

    async def _delete(self, filters: Sequence[AclFilter]) -> list[list[Acl] | KafkaError]:
        slices = Slices(self._queue)
        # Repeated filters are compared only once, which also keeps them out of the limit below.
        unique = {acl_filter: None async for acl_filter in slices.over(filters)}
        existing = self._all()
        if len(unique) * len(existing) > _MAX_COMPARISONS:
            raise PolicyViolation(
                f"cannot compare {len(unique)} filters with {len(existing)} ACLs in one request;"
                " send fewer filters at a time"
            )
        # By key, because several filters can match the same ACL.
        to_delete: dict[Key, None] = {}
        results: dict[AclFilter, list[Acl] | KafkaError] = {}
        matched = 0
        async for acl_filter in slices.over(unique):
            try:
                acl_filter.validate()
            except KafkaError as error:
                # Drop the traceback: in a request with many errors, each one would keep kilobytes.
                results[acl_filter] = error.bare()
                continue
            matching = await self._matching(acl_filter, existing, slices)
            # An ACL counts once for each filter that it matches: with many filters that match all
            # ACLs, the response would use gigabytes.
            matched += len(matching)
            check_count(matched, "ACLs")
            to_delete.update((key, None) for key, _ in matching)
            results[acl_filter] = await _sorted([acl for _, acl in matching], slices)
        removals = [Update(key=key, new_value=_constant(None)) for key in to_delete]
        await write_in_batches(self._store, removals, "ACLs", self._queue)
        self._warn("deleted", len(to_delete))
        answers: list[list[Acl] | KafkaError] = []
        async for acl_filter in slices.over(filters):
            answers.append(result := results[acl_filter])
            if isinstance(result, list):  # A repeated filter finds nothing more to delete.
                results[acl_filter] = []
        return answers

    @property
    def count(self) -> int:
        """Number of stored ACLs."""
        return len(self._all())

    def _warn(self, done: str, count: int) -> None:
        if count:
            self._report(
                "{done} {count} ACLs (" + NOT_ENFORCED + "): any client can perform any operation",
                done=done,
                count=count,
                level="warn",
            )

    def _all(self) -> dict[Key, tuple[Acl, int]]:
        return self._store.load(("acl",))


def _constant(value: Acl | None) -> Callable[[object], Acl | None]:
    """Return a function that always returns `value`: an ACL does not depend on what was stored."""
    return lambda _: value


async def _sorted(acls: list[Acl], slices: Slices) -> list[Acl]:
    # Comparing tuples is much faster than comparing ACLs.
    keyed = [(astuple(acl), acl) async for acl in slices.over(acls)]
    keyed.sort(key=itemgetter(0))
    return [acl for _, acl in keyed]


def _validation_error(acl: Acl) -> KafkaError | None:
    try:
        acl.validate()
    except KafkaError as error:
        return error.bare()
    return None
