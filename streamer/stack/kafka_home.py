"""What broker starts share: verified jars, a formatted log folder, a class-data archive.

All of it lies in the cache of the user and is made once, under the cache's lock, in a private
folder that is renamed into place.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from streamer.errors import ConfigurationError
from streamer.stack.kafka_jars import Say, cache_folder, kafka_jars, locked, silent
from streamer.stack.kafka_server import KafkaHome, KafkaServer, free_nodes, new_cluster_id
from streamer.stack.kafka_warm import warm_up

JAVA_VERSION_MIN = 17
TOOL_TIMEOUT_S = 120

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %m (%c{1})%n%throwable
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


def find_java() -> tuple[str, str]:
    """Path and version line of the Java that would run Kafka.

    Raises:
        ConfigurationError: there is none, or it is too old.
    """
    java = shutil.which("java")
    advice = f"install Java {JAVA_VERSION_MIN} or newer (apt-get install openjdk-17-jre-headless)"
    if java is None:
        raise ConfigurationError(f"Java is missing: {advice}")
    asked = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=30, check=False
    )
    line = (asked.stderr.splitlines() or [""])[0]
    number = line.partition('"')[2].partition('"')[0]
    major = number.split(".")[0].split("-")[0]
    if not major.isdigit() or int(major) < JAVA_VERSION_MIN:
        raise ConfigurationError(f"Java is too old ({line or 'no version'}): {advice}")
    return java, asked.stderr


def prepare_home(say: Say = silent, cache: Path | None = None) -> KafkaHome:
    """Jars, template and archive, made if they are missing (about 10 s after the download).

    Args:
        say: shown what takes time.
        cache: another cache folder than the user's.

    Raises:
        ConfigurationError: Java or Maven is missing, or a step failed; says which.
    """
    java, version = find_java()
    base = cache or cache_folder()
    jars = kafka_jars(base, say)
    # A class-data archive fits one JVM build and one class path; others get their own folder.
    key = hashlib.sha256(f"{java}\n{version}\n{jars}".encode()).hexdigest()[:12]
    ready = base / f"start-{key}"
    if not ready.is_dir():
        with locked(base):
            if not ready.is_dir():
                say("preparing Kafka's fast start (once)")
                _make(base, ready, java, jars)
    archive = ready / "classes.jsa"
    return KafkaHome(
        java=java,
        jars=jars,
        checkpoint=ready / "bootstrap.checkpoint",
        archive=archive if archive.is_file() else None,
        logging=ready / "log4j2.properties",
    )


def _make(base: Path, ready: Path, java: str, jars: Path) -> None:
    private = Path(tempfile.mkdtemp(prefix="start-", dir=base))
    try:
        logging = private / "log4j2.properties"
        logging.write_text(_LOGGING)
        checkpoint = private / "bootstrap.checkpoint"
        home = KafkaHome(java=java, jars=jars, checkpoint=checkpoint, archive=None, logging=logging)
        scratch = private / "scratch"
        _format_template(home, scratch)
        shutil.copyfile(scratch / "formatted" / "bootstrap.checkpoint", checkpoint)
        _train(home, scratch / "broker", private / "classes.jsa")
        shutil.rmtree(scratch)
        private.chmod(0o755)
        private.rename(ready)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _format_template(home: KafkaHome, scratch: Path) -> None:
    """Run Kafka's own format tool; only its checkpoint of feature levels is kept."""
    nodes = free_nodes(1)
    server = KafkaServer(scratch, home, nodes[0], nodes, new_cluster_id())
    scratch.mkdir(parents=True)
    config = scratch / "format.properties"
    lines = server.properties(scratch / "formatted").items()
    config.write_text("".join(f"{key}={value}\n" for key, value in lines))
    tool = ["kafka.tools.StorageTool", "format", "-t", server.cluster_id, "-c", str(config)]
    done = subprocess.run(
        [*home.command(), *tool], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        tail = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise ConfigurationError(f"Kafka's format tool failed:\n  {tail}")


def _train(home: KafkaHome, folder: Path, archive: Path) -> None:
    """Run a broker once and let the JVM write the classes it loaded at exit.

    A JVM without a base archive writes none; brokers then start in about three seconds.
    """
    nodes = free_nodes(1)
    dump = (f"-XX:ArchiveClassesAtExit={archive}",)
    server = KafkaServer(folder, home, nodes[0], nodes, new_cluster_id(), flags=dump)
    server.start()
    try:
        warm_up(server.bootstrap)
    finally:
        server.stop(timeout_s=TOOL_TIMEOUT_S)
