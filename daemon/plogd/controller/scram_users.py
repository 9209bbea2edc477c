"""Set, remove and describe users' SCRAM credentials in the metadata store.

Each user in a request has a separate result, and may occur only once. The broker does not support
SASL yet (docs/security.md), so each change logs a warning. Errors and log lines do not contain
secrets.

Requests take effect sequentially. Source: Kafka 4.0 ScramControlManager, ScramImage; KIP-554.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plog.errors import DuplicateResource, KafkaError, ResourceNotFound
from plogd.concurrency import OneAtATime
from plogd.controller.batched_writes import Update, write_in_batches
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.store import MetadataStore
from plogd.ports import Later, Report, silence, spawn
from plogd.security.scram import ScramCredential, check_user, credential_of, mechanism_of
from plogd.security.unenforced_rules import NOT_ENFORCED

Credentials = Mapping[int, ScramCredential]
"""A user's credentials, by mechanism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A credential to remove."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsertion:
    """A credential to set; `repr` omits its secrets."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class ScramUsers:
    """All SCRAM credentials in the cluster; each broker has one instance."""

    def __init__(
        self, store: MetadataStore, fair_queue: FairQueue, report: Report = silence
    ) -> None:
        self._store = store
        self._queue = fair_queue
        self._report = report
        # Otherwise, requests of this broker that change the same users would conflict.
        self._operations = OneAtATime()

    def describe(self, users: Sequence[str]) -> Later[dict[str, Credentials | KafkaError]]:
        """Return the credentials of `users`, or of all users, sorted by name, if it is empty."""
        return spawn(self._describe(users))

    async def _describe(self, users: Sequence[str]) -> dict[str, Credentials | KafkaError]:
        slices = Slices(self._queue)
        known: dict[str, dict[int, ScramCredential]] = {}
        async for key, (credential, _) in slices.over(self._store.load(("scram",)).items()):
            known.setdefault(str(key[1]), {})[int(key[2])] = credential
        times: dict[str, int] = {}
        # As in Kafka, an empty list means all users.
        async for user in slices.over(users or sorted(known)):
            times[user] = times.get(user, 0) + 1
        described: dict[str, Credentials | KafkaError] = {}
        async for user, count in slices.over(times.items()):
            if count > 1:
                described[user] = DuplicateResource(f"the request lists {user!r} more than once")
            elif user not in known:
                described[user] = ResourceNotFound(f"{user!r} has no SCRAM credential")
            else:
                described[user] = dict(sorted(known[user].items()))
        return described

    def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> Later[dict[str, KafkaError | None]]:
        """Change credentials; return an error or None for each user."""
        return self._operations.run_unless_cancelled(lambda: self._alter(deletions, upsertions))

    async def _alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, KafkaError | None]:
        slices = Slices(self._queue)
        wanted: list[Deletion | Upsertion] = [*deletions, *upsertions]
        times: dict[str, int] = {}
        # Counted first: a user that occurs more than once is not changed at all.
        async for one in slices.over(wanted):
            times[one.user] = times.get(one.user, 0) + 1
        updates: list[Update] = []
        users: list[str] = []
        results: dict[str, KafkaError | None] = {}
        async for one in slices.over(wanted):
            try:
                if times[one.user] > 1:
                    raise DuplicateResource("the request changes this user more than once")
                updates.append(_update(one))
            except KafkaError as error:
                # Drop the traceback: thousands of tracebacks would use a lot of memory.
                results[one.user] = error.bare()
            else:
                users.append(one.user)
                results[one.user] = None
        errors = await write_in_batches(self._store, updates, "users", self._queue)
        async for user, outcome in slices.over(zip(users, errors, strict=True)):
            results[user] = outcome
        changed = errors.count(None)
        if changed:
            self._report(
                "changed {count} SCRAM credentials ("
                + NOT_ENFORCED
                + "): clients can connect without a password",
                count=changed,
                level="warn",
            )
        return results

    @property
    def count(self) -> int:
        """Number of users with credentials."""
        return len({key[1] for key in self._store.load(("scram",))})


def _update(one: Deletion | Upsertion) -> Update:
    check_user(one.user)
    mechanism = mechanism_of(one.mechanism)
    new: ScramCredential | None = None
    if isinstance(one, Upsertion):
        new = credential_of(
            mechanism,
            salt=one.salt,
            salted_password=one.salted_password,
            iterations=one.iterations,
        )

    def new_value(old: ScramCredential | None) -> ScramCredential | None:
        if new is None and old is None:
            # As in Kafka, so that a misspelled user name does not look like a success.
            raise ResourceNotFound(f"{one.user!r} has no {mechanism.name} credential")
        return new

    return Update(key=("scram", one.user, int(mechanism)), new_value=new_value)
