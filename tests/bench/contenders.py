"""What the bench compares, each in a process of its own: texts in, vectors out, one JSON line.

python -m tests.bench.contenders offline|sentence-transformers[-bf16] TEXTS.json
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def offline(texts: list[str]) -> dict[str, Any]:
    """The same tokenizer, batcher and engine as the service, without Kafka."""
    from streamer.process.run_texts import run_texts
    from streamer.settings import load_settings
    from streamer.stack.local import BUNDLED_MODELS

    settings = load_settings(models=BUNDLED_MODELS)
    run_texts("minilm", texts[:64], settings=settings)  # loads the model and its profile
    before = time.process_time()
    vectors, stats = run_texts("minilm", texts, settings=settings)
    cpu_s = time.process_time() - before
    return {"seconds": stats.wall_s, "cpu_s": cpu_s, "vectors": vectors}


def sentence_transformers(texts: list[str], *, bf16: bool) -> dict[str, Any]:
    """The library as documented; ``bf16`` is its tuned form on CPUs that have it."""
    import torch
    from sentence_transformers import SentenceTransformer

    from streamer.event.file_models import resolve_model
    from streamer.stack.local import BUNDLED_MODELS

    folder = resolve_model("minilm", path=BUNDLED_MODELS["minilm"]["path"]).folder
    model = SentenceTransformer(str(folder), device="cpu")
    if bf16:
        model = model.to(torch.bfloat16)
    model.encode(texts[:64])
    began, before = time.perf_counter(), time.process_time()
    vectors = model.encode(texts, batch_size=32, convert_to_tensor=True)
    rows = vectors.float().cpu().numpy()
    return {
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - before,
        "vectors": rows,
    }


def main() -> None:
    """Run one contender; vectors go to the file beside the texts."""
    name, path = sys.argv[1], Path(sys.argv[2])
    texts = json.loads(path.read_text())
    if name == "offline":
        found = offline(texts)
    else:
        found = sentence_transformers(texts, bf16=name.endswith("bf16"))
    np.save(path.with_name(f"{name}.npy"), found.pop("vectors"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
