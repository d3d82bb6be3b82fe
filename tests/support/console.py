"""Kafka's own console tools, run as a user without any SDK would run them."""

from __future__ import annotations

import subprocess

from streamer.stack.kafka_home import prepare_home

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def produce(bootstrap: str, topic: str, lines: list[str]) -> None:
    """Pipe lines into the console producer."""
    command = [
        *prepare_home().command(heap_mb=128), PRODUCER,
        "--bootstrap-server", bootstrap, "--topic", topic,
    ]  # fmt: skip
    subprocess.run(
        command, input="\n".join(lines) + "\n", text=True, check=True, timeout=120,
        capture_output=True,
    )  # fmt: skip


def consume(bootstrap: str, topic: str, count: int, timeout_ms: int = 60_000) -> list[str]:
    """The first ``count`` lines that the console consumer prints with read_committed."""
    command = [
        *prepare_home().command(heap_mb=128), CONSUMER,
        "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning",
        "--isolation-level", "read_committed", "--max-messages", str(count),
        "--timeout-ms", str(timeout_ms),
    ]  # fmt: skip
    done = subprocess.run(command, text=True, check=True, timeout=180, capture_output=True)
    return done.stdout.splitlines()
