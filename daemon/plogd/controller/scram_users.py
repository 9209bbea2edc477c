"""Users with SCRAM credentials: setting, removing and describing them, with the store as the truth.

Each user has its own outcome, and may be named once in a request. There is no SASL yet
(docs/security.md), so each change logs a warning. Secrets stay between the request and the store:
no error and no log line has one.

Requests take effect one after the other. Source: Kafka 4.0 ScramControlManager, ScramImage;
KIP-554.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plog.errors import DuplicateResource, KafkaError, PolicyViolation, ResourceNotFound
from plogd.controller.waiting import OneAtATime
from plogd.metadata.store import ABSENT, Change, Key, MetadataStore, Written
from plogd.ports import Later, Report, silence
from plogd.security.enforcement import NOT_ENFORCED
from plogd.security.scram import ScramCredential, check_user, credential_of, mechanism_of

Credentials = Mapping[int, ScramCredential]
"""Of one user, by mechanism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A credential to remove."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsertion:
    """A credential to set; its secrets are in no text form."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class ScramUsers:
    """See the module's text."""

    def __init__(self, store: MetadataStore, report: Report = silence) -> None:
        self._store = store
        self._report = report
        self._operations = OneAtATime()

    def describe(self, users: Sequence[str]) -> dict[str, Credentials | KafkaError]:
        """What each user has; no names mean all users."""
        known: dict[str, dict[int, ScramCredential]] = {}
        for key, (credential, _) in sorted(self._store.load(("scram",)).items()):
            known.setdefault(str(key[1]), {})[int(key[2])] = credential
        described: dict[str, Credentials | KafkaError] = {}
        for user, times in Counter(users or list(known)).items():
            if times > 1:
                described[user] = DuplicateResource(f"the request names {user!r} more than once")
            else:
                described[user] = known.get(user) or ResourceNotFound(
                    f"{user!r} has no SCRAM credential"
                )
        return described

    def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> Later[dict[str, KafkaError | None]]:
        """Change credentials; by user, why it was not done, or None."""
        return self._operations.run(lambda: self._alter(deletions, upsertions))

    async def _alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> dict[str, KafkaError | None]:
        wanted: list[Deletion | Upsertion] = [*deletions, *upsertions]
        times = Counter(one.user for one in wanted)
        changes: list[Change] = []
        results: dict[str, KafkaError | None] = {}
        for one in wanted:
            try:
                if times[one.user] > 1:
                    raise DuplicateResource("a user can be changed once in a request")
                changes.append(self._change(one))
            except KafkaError as error:
                results[one.user] = error
            else:
                results[one.user] = None
        if changes:
            await self._write(changes)
            self._report(
                "changed {count} SCRAM credentials: SCRAM users are "
                + NOT_ENFORCED
                + ", clients connect without a password",
                count=len(changes),
                level="warn",
            )
        return results

    @property
    def count(self) -> int:
        """How many users have credentials."""
        return len({key[1] for key in self._store.load(("scram",))})

    def _change(self, one: Deletion | Upsertion) -> Change:
        check_user(one.user)
        mechanism = mechanism_of(one.mechanism)
        key: Key = ("scram", one.user, int(mechanism))
        value, version = self._store.load(key).get(key, (None, ABSENT))
        if isinstance(one, Upsertion):
            value = credential_of(
                mechanism,
                salt=one.salt,
                salted_password=one.salted_password,
                iterations=one.iterations,
            )
        elif value is None:
            raise ResourceNotFound(f"{one.user!r} has no {mechanism.name} credential")
        else:
            value = None
        return Change(key=key, value=value, expected=version)

    async def _write(self, changes: Sequence[Change]) -> None:
        limit = self._store.max_atomic_changes
        if len(changes) > limit:
            raise PolicyViolation(f"one request may change {limit} users, not {len(changes)}")
        outcomes = await self._store.write_atomic(changes)
        assert all(isinstance(x, Written) for x in outcomes), "only this object writes users"
