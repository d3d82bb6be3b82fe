"""One frozen tree of settings; the only reader of environment and files.

Where a value comes from, strongest first: command-line flag, environment (``STREAMER_`` with ``__``
between the parts, e.g. ``STREAMER_KAFKA__BOOTSTRAP``), ``streamer.yaml`` in the working directory
(or the file that ``STREAMER_CONFIG`` names), the nearest ``build/stack/stack.json`` of a running
stack, the default. Every field says its unit in its name and how to choose it in its help; the
table in the README is generated from here. Parts get small slices, never this tree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)
from yaml import YAMLError  # type: ignore[import-untyped]

from streamer.errors import ConfigurationError

STACK_FILE = Path("build/stack/stack.json")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSettings(_Part):
    """How to reach the cluster and how its topics look."""

    bootstrap: str = Field("localhost:9092", description="Bootstrap servers, host:port,host:port.")
    prefix: str = Field("streamer.", description="Put before every topic name.")
    group_prefix: str = Field(
        "streamer-", description="Put before consumer groups and transactional ids."
    )
    properties: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Any client property, e.g. security.protocol, sasl.mechanism, ssl.ca.location.",
    )
    secret_files: dict[str, Path] = Field(
        default_factory=dict,
        description="Client properties read from files, e.g. sasl.password: /run/secrets/kafka.",
    )
    partitions: int = Field(12, ge=1, le=10_000, description="Partitions of each lane topic.")
    replication: int = Field(
        1, ge=1, le=32767, description="Replication factor; 3 on a real cluster."
    )
    min_insync_replicas: int = Field(1, ge=1, description="2 when replication is 3.")
    retention_ms: int = Field(
        7 * 86_400_000, ge=60_000,
        description="Retention of requests, work and results: at least the longest job deadline "
        "plus the longest outage to survive.",
    )  # fmt: skip
    session_timeout_ms: int = Field(6_000, ge=1_000, description="A dead member is replaced then.")
    max_poll_interval_ms: int = Field(60_000, ge=1_000, description="A silent member is evicted.")
    protocol: Literal["classic", "consumer"] = Field(
        "classic", description="Group protocol: classic cooperative-sticky, or KIP-848 consumer."
    )


class ModelSettings(_Part):
    """One model of the registry; the key in ``models`` is its slug, which stands in topic names."""

    path: str = Field(
        "", description="Folder with config.json, tokenizer.json and *.safetensors; or "
        "package:NAME[/FOLDER] for weights inside an installed Python package.",
    )  # fmt: skip
    engine: Literal["torch", "fake"] = Field("torch", description="fake: for tests, no weights.")
    task: Literal["embed", "classify", "score"] = Field("embed", description="What it answers.")
    revision: str = Field("", description="Shown in receipts; empty = hash of the model files.")
    max_length: int = Field(0, ge=0, description="Token limit of a text; 0 = the model's own.")
    pooling: Literal["", "mean", "cls"] = Field("", description="Empty = the model's own.")
    normalize: bool = Field(True, description="Unit-length embeddings unless a request says no.")
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto = the fastest here that agrees with fp32, measured at start."
    )
    fake_dimension: int = Field(2, ge=1, le=65_536, description="Values of a fake embedding.")
    fake_fixed_ms: float = Field(0.0, ge=0, description="Fake cost of a batch, fixed part.")
    fake_token_us: float = Field(0.0, ge=0, description="Fake cost of a padded token.")
    fake_faults: bool = Field(
        False, description="The fake model fails on the words fault-item, fault-batch and so on."
    )


class RouteSettings(_Part):
    """Validation, tokenizing, grouping."""

    window_items: int = Field(2_048, ge=1, description="Items of a (job, model) sorted together.")
    window_tokens: int = Field(131_072, ge=1, description="Tokens sorted together.")
    window_ms: int = Field(100, ge=0, description="Longest wait of a bulk item for its window.")
    group_items: int = Field(64, ge=1, le=1_024, description="Items of a work record.")
    group_tokens: int = Field(2_048, ge=1, description="Tokens of a work record.")
    group_bytes: int = Field(262_144, ge=1_024, description="Bytes of a work record.")
    result_bytes: int = Field(524_288, ge=1_024, description="Predicted answer bytes of a record.")
    max_text_chars: int = Field(
        200_000, ge=1, description="Characters of a text that are looked at before tokenizing."
    )
    max_record_bytes: int = Field(4_194_304, ge=1_024, description="A larger request is refused.")
    buffer_items: int = Field(16_384, ge=1, description="Items held before consuming stops.")


class WorkSettings(_Part):
    """Micro-batches and devices."""

    batch_items: int = Field(256, ge=1, description="Items of a micro-batch at most.")
    batch_tokens: int = Field(2_048, ge=1, description="Padded tokens of a micro-batch at most.")
    batch_bytes: int = Field(8_388_608, ge=1_024, description="Input bytes of a micro-batch.")
    fast_linger_ms: float = Field(0.0, ge=0, description="Wait of a fast item for company.")
    bulk_linger_ms: float = Field(50.0, ge=0, description="Wait of a bulk item for company.")
    buffer_ms: int = Field(
        2_000, ge=1, description="Device time held, predicted; then no consuming."
    )
    buffer_items: int = Field(8_192, ge=1, description="Items held; then no consuming.")
    bulk_chunk_ms: float = Field(
        40.0, gt=0, description="Longest bulk batch while fast traffic is present."
    )
    instances: int = Field(0, ge=0, description="One-thread engine instances; 0 = one a core.")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N.")
    commit_ms: int = Field(100, ge=0, description="Bulk results wait at most this for a commit.")
    result_bytes: int = Field(524_288, ge=1_024, description="Bytes of a result record at most.")


class AggregateSettings(_Part):
    """Reassembly."""

    commit_ms: int = Field(50, ge=0, description="Released rows wait at most this for a commit.")
    deadline_ms: int = Field(86_400_000, ge=1, description="Deadline of a job that names none.")
    deadline_max_ms: int = Field(7 * 86_400_000, ge=1, description="Longest deadline accepted.")
    grace_ms: int = Field(2_000, ge=0, description="Added to a job's deadline before it expires.")
    closed_keep_ms: int = Field(
        8 * 86_400_000, ge=1, description="How long a closed job is remembered: at least the "
        "retention of requests, work and dead letters.",
    )  # fmt: skip
    run_items: int = Field(256, ge=1, description="Items of an output run at most.")
    run_bytes: int = Field(524_288, ge=1_024, description="Bytes of an output run at most.")
    waiting_bytes: int = Field(
        1_073_741_824, ge=1, description="Waiting rows held in memory; then no consuming."
    )


class HttpSettings(_Part):
    """``/live /ready /metrics`` of each process."""

    host: str = Field("127.0.0.1", description="Where to listen; loopback by default.")
    port: int = Field(0, ge=0, le=65_535, description="0 = a free port, printed and in stack.json.")


class Settings(BaseSettings):
    """All settings of one process."""

    model_config = SettingsConfigDict(
        env_prefix="STREAMER_", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    kafka: KafkaSettings = KafkaSettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    route: RouteSettings = RouteSettings()
    work: WorkSettings = WorkSettings()
    aggregate: AggregateSettings = AggregateSettings()
    http: HttpSettings = HttpSettings()
    slot: int = Field(-1, ge=-1, description="Number of this process in its role; -1 = the ordinal "
                      "of a StatefulSet pod, else the first free lock file.")  # fmt: skip
    state_dir: Path = Field(Path("build/state"), description="Lock files and caches.")
    drain_ms: int = Field(20_000, ge=100, description="Time to finish work after SIGTERM.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    config: Path | None = Field(None, description="The YAML file, set by STREAMER_CONFIG.")

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        for slug, model in self.models.items():
            if model.engine == "torch" and not model.path:
                raise ValueError(f"models.{slug}.path is missing: name the folder of the model")
        if self.kafka.min_insync_replicas > self.kafka.replication:
            raise ValueError("kafka.min_insync_replicas is above kafka.replication")
        if self.aggregate.deadline_ms > self.aggregate.deadline_max_ms:
            raise ValueError("aggregate.deadline_ms is above aggregate.deadline_max_ms")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, YAML, running stack; in this order."""
        del dotenv_settings, file_secret_settings
        named = os.environ.get("STREAMER_CONFIG", "")
        yaml_file = Path(named or "streamer.yaml")
        if named and not yaml_file.is_file():
            raise ConfigurationError(f"STREAMER_CONFIG: there is no file {yaml_file}")
        yaml = YamlConfigSettingsSource(settings_cls, yaml_file=yaml_file)
        return init_settings, env_settings, yaml, _StackSource(settings_cls)


class _StackSource(PydanticBaseSettingsSource):
    """Bootstrap, prefix and models of the nearest running stack, found upward from here."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        stack = find_stack()
        if stack is None:
            return {}
        kafka = {key: stack[key] for key in ("bootstrap", "prefix") if key in stack}
        found: dict[str, Any] = {"kafka": kafka}
        if stack.get("models"):
            found["models"] = stack["models"]
        return found


def find_stack(start: Path | None = None) -> Mapping[str, Any] | None:
    """The content of the nearest ``build/stack/stack.json`` at or above ``start``."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        path = folder / STACK_FILE
        if path.is_file():
            try:
                stack: Mapping[str, Any] = json.loads(path.read_bytes())
            except (OSError, json.JSONDecodeError):
                return None
            return stack
    return None


def load_settings(**flags: Any) -> Settings:
    """Read all sources.

    Args:
        flags: nested values that win over everything, e.g. ``kafka={"bootstrap": "h:1"}``.

    Raises:
        ConfigurationError: a value is missing, unknown or out of bounds; the message names it
            (and never repeats a value, which may be secret).
    """
    _refuse_unknown(os.environ)
    try:
        return Settings(**flags)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" near line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigurationError(
            f"{os.environ.get('STREAMER_CONFIG') or 'streamer.yaml'} is not valid YAML{place}"
        ) from None
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(part) for part in issue['loc']) or 'settings'}: {issue['msg']}"
            for issue in error.errors()
        ]
        raise ConfigurationError("settings are not valid:\n  " + "\n  ".join(lines)) from None


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    """A misspelt group of settings would otherwise pass unnoticed."""
    for name in environment:
        group, nested, _ = name.removeprefix("STREAMER_").partition("__")
        if name.startswith("STREAMER_") and nested and group.lower() not in Settings.model_fields:
            raise ConfigurationError(f"there is no setting {name}: see `streamer config`")


def client_properties(kafka: KafkaSettings) -> dict[str, str | int | float | bool]:
    """The client properties of a cluster, secrets read from their files."""
    properties = {"bootstrap.servers": kafka.bootstrap, **kafka.properties}
    for name, path in kafka.secret_files.items():
        try:
            properties[name] = path.read_text().rstrip("\n")
        except OSError as error:
            raise ConfigurationError(
                f"kafka.secret_files.{name}: cannot read {path}: {error.strerror}"
            ) from None
    return properties
