"""The jars of Apache Kafka: resolved once by Maven into a cache, each checked against its pin.

The cache folder is shared by all checkouts of a user: it is filled in a private folder under a
file lock and renamed into place, so a reader sees all jars or none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import streamer
from streamer.errors import ConfigurationError

KAFKA_VERSION = "4.3.1"
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
MAVEN_TIMEOUT_S = 600

Say = Callable[[str], None]


def silent(_line: str) -> None:
    """A ``say`` that shows nothing."""


def cache_folder() -> Path:
    """Where everything about this Kafka version is cached: below ``$XDG_CACHE_HOME``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "streamer" / f"kafka-{KAFKA_VERSION}"


def recipe_folder() -> Path:
    """The folder of ``pom.xml`` and ``jars.sha256``: in the wheel, or in the source tree.

    Raises:
        ConfigurationError: neither place has it.
    """
    package = Path(streamer.__file__).parent
    for folder in (package / "_kafka", package.parent / "deploy" / "kafka"):
        if (folder / "pom.xml").is_file():
            return folder
    raise ConfigurationError("the Kafka recipe (pom.xml) is missing: install streamer again")


def read_pins(path: Path) -> dict[str, str]:
    """Jar name to SHA-256 in hex, from lines as ``sha256sum`` prints them."""
    pins = {}
    for line in path.read_text().splitlines():
        digest, _, name = line.strip().partition("  ")
        if name:
            pins[name] = digest
    return pins


def verify_jars(folder: Path, pins: Mapping[str, str]) -> None:
    """Compare every jar of a folder with its pin.

    Raises:
        ConfigurationError: a jar is missing, unknown or has other bytes; the message names it.
    """
    found = {path.name: path for path in folder.glob("*.jar")}
    wrong = sorted(found.keys() ^ pins.keys())
    for name in sorted(found.keys() & pins.keys()):
        if hashlib.sha256(found[name].read_bytes()).hexdigest() != pins[name]:
            wrong.append(name)
    if wrong:
        raise ConfigurationError(
            f"jars differ from deploy/kafka/jars.sha256: {', '.join(wrong[:5])}"
            f"{' …' if len(wrong) > 5 else ''}; remove {folder} and try again"
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the file lock of a cache folder; other processes wait, a dead holder frees it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars_folder(cache: Path) -> Path:
    """Where the jars of these pins are, or will be.

    The name carries the digest of the pins, so checkouts with other pins have other folders.
    """
    pins = (recipe_folder() / "jars.sha256").read_bytes()
    return cache / f"jars-{hashlib.sha256(pins).hexdigest()[:12]}"


def kafka_jars(cache: Path, say: Say = silent) -> Path:
    """The folder with all verified jars; resolves them with Maven the first time (54 MB).

    Raises:
        ConfigurationError: Maven is missing or fails, or a jar does not match its pin.
    """
    recipe = recipe_folder()
    folder = jars_folder(cache)
    if folder.is_dir():
        return folder
    with locked(cache):
        if folder.is_dir():
            return folder
        say("resolving Kafka with Maven (54 MB, once)")
        private = Path(tempfile.mkdtemp(prefix="jars-", dir=cache))
        try:
            _copy_dependencies(recipe / "pom.xml", private)
            verify_jars(private, read_pins(recipe / "jars.sha256"))
            private.chmod(0o755)
            private.rename(folder)
        finally:
            shutil.rmtree(private, ignore_errors=True)
    return folder


def _copy_dependencies(pom: Path, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigurationError(
            "Maven is missing: install it (apt-get install maven, brew install maven), or set "
            "STREAMER_KAFKA__BOOTSTRAP to a cluster of your own"
        )
    command = [
        maven, "-q", "-B", "-f", str(pom), COPY_GOAL,
        f"-DoutputDirectory={target}", "-DincludeScope=runtime",
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        tail = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise ConfigurationError(f"Maven could not resolve Kafka {KAFKA_VERSION}:\n  {tail}")
