"""One run of the bench: its brokers, which start when a load first needs them, and its loads.

All files are below one folder, which is removed at the end. All processes end with the session,
even if a load fails.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from plog.compiled import INTERPRETED
from tests.bench.cluster_peers import KafkaCluster, PlogCluster, pids_of
from tests.bench.load import Load, Step
from tests.bench.load import StepFailed as StepFailed  # A public re-export.
from tests.bench.message_brokers import ActiveMq, RabbitMq
from tests.bench.peers import KERNEL_BUFFERS, NO_SYNC, Disk, Kafka, Missing, Peer, Plog
from tests.bench.results import Results
from tests.bench.rounds import Figures, Round, counts

_STEP_TIMEOUT_S = 900
_TRIES_MORE = 4
"""How many noisy rounds are discarded before noisy rounds count, too."""
_QUICK_DIVISOR = 25
_WARMING = (
    "--mode rawproduce --batch 1 --n 100000",
    "--mode rawproduce --batch 50 --n 2000000",
    "--mode rawproduce --batch 1000 --size 1000 --n 2000000",
    "--mode produce --n 1000000",
)
# Raw loads use one connection, which reaches only the partitions of one broker.
_CLUSTER_WARMING = ("--mode produce --acks all --replication 3 --partitions 6 --n 1000000",)
_SYNC_ROUNDS = re.compile(r"^plog_log_sync_rounds_total (\S+)$", re.MULTILINE)
_PRODUCES = re.compile(
    r'^kafka_network_requestmetrics_requests_total\{request="Produce",.*\} (\S+)$', re.MULTILINE
)


class Session:
    """The brokers of a run by their names in loads.py."""

    def __init__(self, folder: Path, results: Results, *, quick: bool, rounds: int | None) -> None:
        self.folder = folder
        self.quick = quick
        self.results = results
        self._fixed_rounds = 1 if quick else rounds
        self._peers: dict[str, Peer] = {}
        self._missing: dict[str, str] = {}
        self._makers: dict[str, Callable[[Path], Peer]] = {
            "plog": lambda path: Plog(path, NO_SYNC),
            "plog-default": Plog,
            "plog-interpreted": lambda path: Plog(path, NO_SYNC, environment={INTERPRETED: "1"}),
            "kafka": Kafka,
            "kafka-autotuned": lambda path: Kafka(path, KERNEL_BUFFERS),
            "rabbitmq": RabbitMq,
            "activemq": ActiveMq,
            "plog-cluster": lambda path: PlogCluster(path, NO_SYNC),
            "plog-cluster-default": PlogCluster,
            "kafka-cluster": KafkaCluster,
            "disk": Disk,
        }

    def add(self, name: str, make: Callable[[Path], Peer]) -> None:
        """Add a broker that loads can name; `make` receives its directory."""
        self._makers[name] = make

    def peer(self, name: str) -> Peer:
        """Return the broker with that name, started and warmed up. Raises Missing."""
        if name in self._missing:
            raise Missing(self._missing[name])
        if name not in self._peers:
            try:
                self._peers[name] = self.start_new(name, self.folder / name)
            except Missing as error:
                self._missing[name] = str(error)
                self.results.missing(name, str(error))
                raise
            self.results.version(name, self._peers[name].version)
            self._warm(name)
        return self._peers[name]

    def start_new(self, name: str, directory: Path) -> Peer:
        """Start another broker of that kind, which the caller stops. Raises Missing."""
        peer = self._makers[name](directory)
        try:
            peer.start()
        except BaseException:
            peer.stop()
            raise
        return peer

    def _warm(self, name: str) -> None:
        """Warm up a broker; a JVM is slow until its code is compiled."""
        peer = self._peers[name]
        if peer.protocol == "kafka" and peer.pid:
            is_cluster = isinstance(peer, PlogCluster | KafkaCluster)
            for number, command in enumerate(_CLUSTER_WARMING if is_cluster else _WARMING):
                self.run(peer, command, f"warming-{number}", delete=True)

    def close(self) -> None:
        """Stop all brokers."""
        while self._peers:
            _, peer = self._peers.popitem()
            peer.stop()

    def measure(self, load: Load) -> list[Round]:
        """Run rounds until as many as the load requires are not noisy, within bounds.

        Returns the rounds that count.
        """
        fixed = self._fixed_rounds
        wanted = fixed or load.rounds
        tries = fixed or wanted + _TRIES_MORE
        kept: list[Round] = []
        rounds = load.run(self) if load.run else self._rounds(load)
        with closing(rounds):
            for number, round_ in enumerate(rounds, 1):
                keep = counts(round_, load.judged)
                if keep:
                    kept.append(round_)
                self.results.round(load.name, number, round_, kept=keep)
                if len(kept) >= wanted or number >= tries:
                    break
        return kept

    def _rounds(self, load: Load) -> Generator[Round]:
        """Yield rounds endlessly."""
        names = self._present(load)
        prepared = f"{load.name}-prepared"
        if load.prepare:
            for name in names:
                self.run(self.peer(name), load.prepare, prepared)
        try:
            number = 0
            while True:
                number += 1
                topic = prepared if load.prepare else f"{load.name}-{number}"
                # Rotate the order, so that no broker always runs first.
                turn = names if number % 2 else names[::-1]
                yield {name: self._run_steps(load, name, topic) for name in turn}
        finally:
            if load.prepare:
                for name in names:
                    self.run(self.peer(name), "--mode delete", prepared)

    def _present(self, load: Load) -> list[str]:
        present = []
        for name in load.peers:
            try:
                self.peer(name)
            except Missing:
                continue
            present.append(name)
        return present

    def _run_steps(self, load: Load, name: str, topic: str) -> Figures:
        peer = self.peer(name)
        steps = load.steps or (Step("", load.command),)
        steps = tuple(step for step in steps if not step.only or name in step.only)
        together: dict[str, Any] = {}
        for step in steps:
            command = load.extra[name] if name == "disk" else step.command
            if name != "disk":
                command = f"{command} {load.extra.get(name, '')}"
            last_of_its_topic = not load.prepare and step is steps[-1]
            figures = self.run(peer, command, topic, delete=last_of_its_topic)
            self.results.say(load.name, name, step.name, figures)
            head = f"{step.name}." if step.name else ""
            together |= {head + key: value for key, value in figures.items()}
        return together

    def run(self, peer: Peer, command: str, topic: str, *, delete: bool = False) -> dict[str, Any]:
        """Run a command of clientbench on a broker; return its figures. Raises StepFailed."""
        words = command.format(folder=self.folder, data=peer.directory).split()
        if self.quick:
            words = shorter(words)
        pids = ",".join(map(str, pids_of(peer)))
        target = ["--bootstrap", peer.bootstrap, "--broker-pid", pids, "--topic", topic]
        whole = [sys.executable, "-m", "tests.bench.clientbench", *words, *target]
        whole += ["--protocol", peer.protocol]
        if delete and peer.protocol == "kafka" and peer.pid:
            whole.append("--delete")
        before = _sync_counts(peer)
        done = subprocess.run(whole, capture_output=True, text=True, timeout=_STEP_TIMEOUT_S)
        if done.returncode:
            raise StepFailed(f"{' '.join(words)}: {done.stderr.strip()[-500:]}")
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return figures | _acks_per_sync(before, _sync_counts(peer))


def shorter(words: list[str]) -> list[str]:
    """Return the command with smaller numbers, for --quick.

    >>> shorter("--n 50000 --batch 50 --seconds 8 --partitions 1000 --warmup 10".split())
    ['--n', '2000', '--batch', '50', '--seconds', '1', '--partitions', '100', '--warmup', '0']
    """
    words = list(words)
    for position, word in enumerate(words[:-1], 1):
        if word in ("--n", "--warmup", "--file-bytes"):
            words[position] = str(int(words[position]) // _QUICK_DIVISOR)
        elif word == "--seconds":
            words[position] = str(min(float(words[position]), 1)).removesuffix(".0")
        elif word in ("--partitions", "--connections"):
            words[position] = str(min(int(words[position]), 100))
    return words


def _sync_counts(peer: Peer) -> Mapping[str, float]:
    """Return plog's counts of syncs and produce requests; empty for other brokers."""
    if not peer.metrics_url:
        return {}
    with urllib.request.urlopen(peer.metrics_url, timeout=10) as response:
        text = response.read().decode()
    syncs = _SYNC_ROUNDS.search(text)
    return {
        "syncs": float(syncs[1]) if syncs else 0.0,
        "produces": sum(float(count) for count in _PRODUCES.findall(text)),
    }


def _acks_per_sync(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    if not after or after["syncs"] == before["syncs"]:
        return {}
    produces = after["produces"] - before["produces"]
    return {"acks_per_sync": round(produces / (after["syncs"] - before["syncs"]), 2)}
