"""One Kafka broker of our own: a KRaft node on free ports that starts in about a second.

A start copies a formatted log folder instead of running the format tool, and uses a class-data
archive made once (``kafka_home``). The folder keeps its data: a killed broker starts again on
the same ports with what it had.
"""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamer.errors import BrokerUnreachable
from streamer.stack.child_process import end, free_ports, kill_group, spawn, wait_until

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaHome:
    """What every broker start of this user shares; made by ``kafka_home.prepare_home``."""

    java: str
    jars: Path
    checkpoint: Path
    archive: Path | None
    logging: Path

    def command(self, *flags: str, heap_mb: int = 512) -> list[str]:
        """The JVM command line up to the main class.

        The compiler's first tier and the serial collector halve the start; a development broker
        never earns the second tier back.
        """
        jars = ":".join(str(path) for path in sorted(self.jars.glob("*.jar")))
        shared = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive else []
        return [
            self.java, f"-Xmx{heap_mb}m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xshare:auto",
            *shared, *flags, f"-Dlog4j2.configurationFile={self.logging}", "-cp", jars,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class KafkaNode:
    """Place of one node of a cluster: its id and the ports of its two listeners."""

    node_id: int
    port: int
    controller_port: int


def free_nodes(count: int) -> tuple[KafkaNode, ...]:
    """Nodes 1 to ``count`` on ports that are free just now."""
    ports = free_ports(2 * count)
    return tuple(KafkaNode(i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(count))


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form, so that clients notice another cluster's broker."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(slots=True)
class KafkaServer:
    """One broker process.

    Args:
        folder: keeps its data, configuration and log.
        home: jars, archive and template.
        node: which node of ``cluster`` it is.
        cluster: all nodes; one for a single-node cluster.
        cluster_id: the same for all nodes of a cluster.
        extra: further broker properties; they win.
    """

    folder: Path
    home: KafkaHome
    node: KafkaNode
    cluster: tuple[KafkaNode, ...]
    cluster_id: str
    extra: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    _child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers of the cluster."""
        return ",".join(f"{HOST}:{node.port}" for node in self.cluster)

    @property
    def log(self) -> Path:
        """What the broker says."""
        return self.folder / "kafka.log"

    @property
    def pid(self) -> int:
        """Process id; 0 before the first start."""
        return self._child.pid if self._child else 0

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting; data of an earlier run is kept.

        Call it from a thread that lives as long as the broker shall.
        """
        folder = self.folder.resolve()
        data = folder / "data"
        if not (data / "meta.properties").is_file():
            self._format(data)
        config = folder / "server.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in self.properties(data).items()))
        command = [*self.home.command(*self.flags), "kafka.Kafka", str(config)]
        self._child = spawn(command, log=self.log, cwd=folder)
        return self._child

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the broker listens.

        Raises:
            BrokerUnreachable: the process ended or the time is over; names the log.
        """
        wait_until(lambda: self._listens() or not self.alive(), timeout_s)
        if not self.alive():
            raise BrokerUnreachable(f"Kafka ended while starting; see {self.log}")
        if not self._listens():
            raise BrokerUnreachable(f"Kafka did not listen in {timeout_s:g} s; see {self.log}")

    def start(self, timeout_s: float = 60.0) -> None:
        """Launch and wait until it listens."""
        self.launch()
        self.wait_ready(timeout_s)

    def stop(self, timeout_s: float = 15.0) -> bool:
        """End cleanly; SIGKILL after ``timeout_s``. True if it was clean."""
        return end(self._child, timeout_s) if self._child else True

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._child:
            kill_group(self._child.pid)
            self._child.wait()

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self.node.port), timeout=0.2).close()
        except OSError:
            return False
        return True

    def _format(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.home.checkpoint, data / "bootstrap.checkpoint")
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={self.cluster_id}\nnode.id={self.node.node_id}\n"
            f"directory.id={new_cluster_id()}\n"
        )

    def properties(self, data: Path) -> dict[str, str]:
        """The broker configuration, ``data`` being its log folder."""
        copies = str(min(3, len(self.cluster)))
        in_sync = str(max(1, min(2, len(self.cluster) - 1)))
        voters = ",".join(f"{n.node_id}@{HOST}:{n.controller_port}" for n in self.cluster)
        node = self.node
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{node.port},"
            f"CONTROLLER://{HOST}:{node.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(data),
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            **_internal_topics(copies, in_sync),
            **_OWN_BROKER,
            **self.extra,
        }


def _internal_topics(copies: str, in_sync: str) -> dict[str, str]:
    """Few partitions each: creating 50 of them would take a second of the first transaction."""
    return {
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


_OWN_BROKER = {
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # The consumer protocol takes its timeouts from the broker: as short as the classic session.
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1500",
    # A killed broker cannot register again before its old session is over.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    # A transaction of a dead process is aborted at most this long after its own timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.max.timeout.ms": "60000",
    # Longer than the default retention of requests, so offsets never vanish before records.
    "offsets.retention.minutes": str(21 * 24 * 60),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.index.size.max.bytes": str(1 << 20),
    "log.segment.bytes": str(256 << 20),
}


def single_server(folder: Path, home: KafkaHome) -> KafkaServer:
    """A single-node cluster on free ports."""
    nodes = free_nodes(1)
    return KafkaServer(folder, home, nodes[0], nodes, new_cluster_id())
