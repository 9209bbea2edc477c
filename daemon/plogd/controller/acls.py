"""ACLs: creating, deleting and describing them, with the store as the truth.

Creating an ACL that exists already succeeds. A request takes effect as a whole, except for its
invalid ACLs. These rules are not enforced yet (docs/security.md), so each change logs a warning.

Requests take effect one after the other. Source: Kafka 4.0 AclControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plog.errors import KafkaError, PolicyViolation
from plog.types import ZERO_UUID, uuid_to_text
from plogd.controller.waiting import OneAtATime, next_turn
from plogd.metadata.store import ABSENT, Change, Key, MetadataStore, Written
from plogd.ports import Later, Random, Report, Timers, silence
from plogd.security.acl import Acl, AclFilter
from plogd.security.enforcement import NOT_ENFORCED

_COMPARED_AT_ONCE: Final = 20_000
"""ACLs with filters, before others have the thread."""


class Acls:
    """See the module's text."""

    def __init__(
        self, store: MetadataStore, *, timers: Timers, random: Random, report: Report = silence
    ) -> None:
        self._store = store
        self._timers = timers
        self._random = random
        self._report = report
        self._operations = OneAtATime()

    def describe(self, acl_filter: AclFilter) -> list[Acl]:
        """What matches, by resource. Raises InvalidRequest."""
        acl_filter.validate()
        return sorted(acl for acl, _ in self._all().values() if acl_filter.matches(acl))

    def create(self, acls: Sequence[Acl]) -> Later[list[KafkaError | None]]:
        """Create ACLs; why each was not, or None. Fails with what concerns all of them."""
        return self._operations.run(lambda: self._create(acls))

    async def _create(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        existing = self._all()
        known = {acl for acl, _ in existing.values()}
        keys = set(existing)
        changes: list[Change] = []
        results: list[KafkaError | None] = []
        for acl in acls:
            problem = _problem(acl)
            results.append(problem)
            if problem is None and acl not in known:
                known.add(acl)
                key = self._new_key(keys)
                keys.add(key)
                changes.append(Change(key=key, value=acl, expected=ABSENT))
        await self._write(changes)
        self._warn("created", len(changes))
        return results

    def delete(self, filters: Sequence[AclFilter]) -> Later[list[list[Acl] | KafkaError]]:
        """Delete what matches some filter; for each filter what it matched, or what is wrong.

        Fails with PolicyViolation if that is too much for one request.
        """
        return self._operations.run(lambda: self._delete(filters))

    async def _delete(self, filters: Sequence[AclFilter]) -> list[list[Acl] | KafkaError]:
        existing = self._all()
        doomed: dict[Key, int] = {}
        results: list[list[Acl] | KafkaError] = []
        compared = matched = 0
        for acl_filter in filters:
            compared += len(existing)
            if compared > _COMPARED_AT_ONCE:
                compared = 0
                await next_turn(self._timers)
            try:
                acl_filter.validate()
            except KafkaError as error:
                results.append(error)
                continue
            matching = [(x, *existing[x]) for x in existing if acl_filter.matches(existing[x][0])]
            # Filters may match the same ACLs: told again for each, they would be gigabytes.
            matched += len(matching)
            self._check_count(matched)
            doomed.update((key, version) for key, _, version in matching)
            results.append(sorted(acl for _, acl, _ in matching))
        await self._write([Change(key=x, value=None, expected=doomed[x]) for x in doomed])
        self._warn("deleted", len(doomed))
        return results

    @property
    def count(self) -> int:
        """How many ACLs are stored."""
        return len(self._all())

    def _warn(self, done: str, count: int) -> None:
        if count:
            self._report(
                "{done} {count} ACLs: ACLs are " + NOT_ENFORCED + ", any client may do anything",
                done=done,
                count=count,
                level="warn",
            )

    def _all(self) -> dict[Key, tuple[Acl, int]]:
        return self._store.load(("acl",))

    def _new_key(self, taken: set[Key]) -> Key:
        while True:
            acl_id = self._random.random_bytes(16)
            key: Key = ("acl", uuid_to_text(acl_id))
            if acl_id != ZERO_UUID and key not in taken:
                return key

    def _check_count(self, count: int) -> None:
        limit = self._store.max_atomic_changes
        if count > limit:
            raise PolicyViolation(f"one request may change {limit} ACLs, not {count}")

    async def _write(self, changes: Sequence[Change]) -> None:
        self._check_count(len(changes))
        if changes:
            outcomes = await self._store.write_atomic(changes)
            assert all(isinstance(x, Written) for x in outcomes), "only this object writes ACLs"


def _problem(acl: Acl) -> KafkaError | None:
    try:
        acl.validate()
    except KafkaError as error:
        return error
    return None
