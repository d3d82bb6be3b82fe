"""What commands say when something is in the way: one line, an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from streamer.__main__ import build
from streamer.cli.interrupts import kept_interrupts
from streamer.cli.submit import first_trouble
from streamer.cli.up import check_models
from streamer.errors import ConfigurationError
from streamer.settings import load_settings
from streamer.stack.local import BUNDLED_MODELS, FAKE_MODELS


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def ctrl_c_becomes(error: Exception) -> None:
    try:
        ctrl_c()
    except KeyboardInterrupt:
        raise error from None


def test_an_error_that_a_client_makes_of_ctrl_c_is_ctrl_c_again() -> None:
    with pytest.raises(KeyboardInterrupt), kept_interrupts():
        ctrl_c_becomes(SystemError("returned NULL without setting an exception"))


def test_errors_without_ctrl_c_stay_what_they_are() -> None:
    with pytest.raises(SystemError), kept_interrupts():
        raise SystemError("a real one")


def test_an_exit_code_chosen_after_ctrl_c_is_kept() -> None:
    with pytest.raises(typer.Exit), kept_interrupts():
        ctrl_c_becomes(typer.Exit(130))


def test_the_handler_before_is_put_back_and_an_ignored_signal_stays_ignored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with kept_interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with kept_interrupts():
            ctrl_c()
    finally:
        signal.signal(signal.SIGINT, before)


def test_broken_yaml_names_the_file_and_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kafka: [\n")
    monkeypatch.setenv("STREAMER_CONFIG", str(path))
    with pytest.raises(ConfigurationError, match=r"mine\.yaml is not valid YAML near line 2"):
        load_settings()


def test_a_configuration_file_that_is_named_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMER_CONFIG", str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigurationError, match=r"there is no file .*none\.yaml"):
        load_settings()


def test_a_misspelt_group_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_WRK__BATCH_ITEMS", "4")
    with pytest.raises(ConfigurationError, match="STREAMER_WRK__BATCH_ITEMS"):
        load_settings()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "some-job", "--lane", "x"], "'x' is no lane: bulk or fast"),
        (["audit"], "name a job, or say --range"),
        (["audit", "a-job", "--range"], "not both"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(build(arguments), arguments)

    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


def test_run_batch_asks_for_its_output_file_before_it_loads_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-file").write_text("")
    (tmp_path / "in.jsonl").write_text('{"custom_id":"a","input":"x"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_MODELS__FAKE__ENGINE", "fake")
    arguments = ["run-batch", "in.jsonl", "--model", "fake", "--out", "a-file/out.jsonl"]
    done = CliRunner().invoke(build(arguments), arguments)

    assert done.exit_code == 2
    assert "--out: a-file:" in done.output


def test_a_model_without_files_stops_up_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"models\.bad\.path: there is no folder"):
        check_models({"bad": {"path": str(tmp_path / "none"), "engine": "torch"}})
    check_models({**BUNDLED_MODELS, **FAKE_MODELS})


def test_the_version_is_shown() -> None:
    done = CliRunner().invoke(build(["--version"]), ["--version"])

    assert done.exit_code == 0
    assert done.output.startswith("streamer ")


def test_the_first_error_of_a_job_is_told_in_words() -> None:
    good = b'{"custom_id":"a","status":"succeeded","error":null}'
    error = {"code": "unknown_model", "message": "there is no model 'x'; served here: fake"}
    bad = json.dumps({"custom_id": "b", "status": "errored", "error": error}).encode()

    late = {"code": "expired", "message": "submit it again"}
    nameless = json.dumps({"custom_id": "", "index": 7, "status": "expired", "error": late})

    assert first_trouble([good]) == ""
    assert first_trouble([nameless.encode()]) == "first error: row 7: expired: submit it again"
    assert first_trouble([good, bad, bad]) == (
        "first error: b: unknown_model: there is no model 'x'; served here: fake"
    )
