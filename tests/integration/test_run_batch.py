"""Files and texts through route, batcher and the fake engine in this process, without Kafka."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from streamer.__main__ import build
from streamer.errors import ConfigurationError, ItemRejected
from streamer.infer.fake_engine import fake_vector
from streamer.process.run_texts import run_texts
from streamer.route.fake_tokenizer import fake_ids
from streamer.settings import load_settings

MODELS = {
    "m": {"engine": "fake", "fake_dimension": 3},
    # Fault words are told by 16 bits, so that random texts would meet them by chance.
    "frail": {"engine": "fake", "fake_dimension": 3, "fake_faults": True},
    "classes": {"engine": "fake", "fake_dimension": 2, "task": "classify"},
}


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMER_MODELS", orjson.dumps(MODELS).decode())


def expected(text: str) -> np.ndarray:
    return fake_vector(np.array(fake_ids(text)), 3)


def write_lines(path: Path, lines: list[object]) -> Path:
    raw = [line if isinstance(line, bytes) else orjson.dumps(line) for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(build(["run-batch"]), ["run-batch", *arguments])
    return found.exit_code, found.stderr


def read(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def random_texts(count: int) -> list[str]:
    rng = random.Random(5)
    return [" ".join(f"w{rng.randrange(900)}" for _ in range(rng.randrange(1, 90)))
            for _ in range(count)]  # fmt: skip


def test_s2_every_line_is_answered_by_its_own_vector_at_its_own_place(tmp_path: Path) -> None:
    texts = random_texts(2_500)
    lines = [{"custom_id": f"c{at}", "input": text} for at, text in enumerate(texts)]

    code, shown = run(str(write_lines(tmp_path / "in", lines)), "--model", "m", "--out", "out")

    assert code == 0, shown
    answers = read(tmp_path / "out")
    assert [answer["custom_id"] for answer in answers] == [f"c{at}" for at in range(len(texts))]
    for answer, text in zip(answers, texts, strict=True):
        assert np.float32(answer["output"]["embedding"]).tobytes() == expected(text).tobytes()  # type: ignore[index]


def test_a_broken_line_is_answered_at_its_place_and_its_neighbours_are_unharmed(
    tmp_path: Path,
) -> None:
    bad: list[tuple[object, str]] = [
        ({"custom_id": "empty", "input": ""}, "empty_input"),
        ({"custom_id": "long", "input": "word " * 600}, "input_too_long"),
        ({"custom_id": "model", "input": "x", "model": "other"}, "unknown_model"),
        ({"custom_id": "type", "input": 7}, "invalid_type"),
        (b'{"custom_id": "nan", "input": "x", "params": {"dimensions": NaN}}', "non_finite_number"),
        (b'{"custom_id": "cut', "invalid_json"),
        ({"custom_id": "nothing"}, "missing_field"),
        ({"custom_id": "device", "input": "this has fault-batch in it"}, "model_error"),
        ({"custom_id": "nan-row", "input": "this has fault-nan in it"}, "non_finite_output"),
    ]
    lines: list[object] = []
    for at, (line, _) in enumerate(bad):
        lines += [{"custom_id": f"good{at}", "input": f"good text {at}"}, line]

    code, _ = run(str(write_lines(tmp_path / "in", lines)), "--model", "frail", "--out", "out")

    assert code == 6
    answers = read(tmp_path / "out")
    assert len(answers) == len(lines)
    for at, (_, wanted) in enumerate(bad):
        good, failed = answers[2 * at], answers[2 * at + 1]
        vector = np.float32(good["output"]["embedding"])  # type: ignore[index]
        assert vector.tobytes() == expected(f"good text {at}").tobytes()
        assert failed["status"] == "errored"
        assert failed["error"]["code"] == wanted  # type: ignore[index]
        assert failed["output"] is None


def test_openai_lines_lists_and_encodings_are_understood(tmp_path: Path) -> None:
    lines = [
        {"custom_id": "a", "method": "POST", "url": "/v1/embeddings",
         "body": {"model": "m", "input": ["one", "two three"]}},
        {"custom_id": "b", "input": "one", "params": {"encoding_format": "f16"}},
    ]  # fmt: skip

    code, shown = run(str(write_lines(tmp_path / "in", lines)), "--model", "m", "--out", "out")

    assert code == 0, shown
    several, encoded = read(tmp_path / "out")
    vectors = np.float32(several["output"]["embedding"])  # type: ignore[index]
    assert vectors.tobytes() == expected("one").tobytes() + expected("two three").tobytes()
    assert encoded["output"]["encoding_format"] == "f16"  # type: ignore[index]


def test_classes_come_with_their_names(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in", [{"custom_id": "a", "input": "some text"}])

    code, shown = run(str(path), "--model", "classes", "--out", "out")

    assert code == 0, shown
    (answer,) = read(tmp_path / "out")
    labels = answer["output"]["labels"]  # type: ignore[index]
    assert [entry["label"] for entry in labels] == ["label_0", "label_1"]


def test_a_name_used_twice_is_refused_before_anything_runs(tmp_path: Path) -> None:
    lines = [{"custom_id": "a", "input": "x"}, {"custom_id": "a", "input": "y"}]

    code, shown = run(str(write_lines(tmp_path / "in", lines)), "--model", "m", "--out", "out")

    assert code == 2
    assert "lines 1, 2" in shown
    assert not (tmp_path / "out").exists()


def test_an_unknown_model_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in", [{"custom_id": "a", "input": "x"}])

    found = CliRunner().invoke(build(["run-batch"]), ["run-batch", str(path), "--model", "mm"])

    assert isinstance(found.exception, ConfigurationError)
    assert "classes, frail, m" in str(found.exception)


def test_run_texts_keeps_the_order_and_counts_what_it_did() -> None:
    texts = random_texts(300)

    rows, stats = run_texts("m", texts, settings=load_settings())

    assert all(
        row.tobytes() == expected(text).tobytes() for row, text in zip(rows, texts, strict=True)
    )
    assert stats.items == stats.succeeded == 300
    assert stats.tokens == sum(len(text.split()) for text in texts)
    assert 0 <= stats.padding_overhead < 0.3


def test_run_texts_names_the_reason_when_a_text_has_no_answer() -> None:
    with pytest.raises(ItemRejected, match="model_error"):
        run_texts("frail", ["fine", "fault-batch"], settings=load_settings())


def test_the_fake_engine_needs_no_torch() -> None:
    import subprocess

    script = (
        "import sys; from streamer.process.run_texts import run_texts\n"
        "rows, _ = run_texts('m', ['a b', 'c'])\n"
        "assert rows.shape == (2, 3)\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], env=environment(root), timeout=60)

    assert done.returncode == 0


def environment(root: Path) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(root)}
