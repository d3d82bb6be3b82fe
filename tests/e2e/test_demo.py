"""The demonstration itself, smaller: real Kafka, real weights, the commands a user would run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


def test_the_demo_ends_with_a_good_audit_and_leaves_nothing_running(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamer.demo", "--items", "300", "--questions", "40"],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.rstrip().endswith("stopped")
    assert "audit: ok" in done.stdout
    report = json.loads((tmp_path / "build/demo/report.json").read_text())
    assert report["items"] == report["succeeded"] == 300
    assert report["lost"] == report["duplicated"] == report["misordered"] == report["errored"] == 0
    assert report["audit"] == "ok"
    assert not (tmp_path / "build/stack/stack.json").exists()
