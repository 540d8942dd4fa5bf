"""`SentenceTransformer.encode` as its users call it, timed. Run by the peers' Python."""

import os
import time

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from benchmarks.peer_protocol import serve

_models, _sentences = {}, {}


def load(folder: str, max_seq_length: int, dtype: str) -> dict:
    """Makes the model of a Hugging Face folder, under the name of its number type."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    transformer = Transformer(
        folder, max_seq_length=max_seq_length, model_kwargs={"dtype": getattr(torch, dtype), "local_files_only": True}
    )
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    _models[dtype] = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    return {"threads": torch.get_num_threads(), "dtype": str(next(transformer.parameters()).dtype)}


def take(name: str, sentences: list[str]) -> None:
    """Keeps sentences under a name, so that sending them is not timed."""
    _sentences[name] = sentences


def encode(dtype: str, name: str, batch_size: int, out: str | None = None) -> dict:
    """Seconds of one `encode` of the sentences kept under `name`; the embeddings go to the file `out`, if given."""
    model = _models[dtype]
    started = time.perf_counter()
    embeddings = model.encode(_sentences[name], batch_size=batch_size, show_progress_bar=False)
    seconds = time.perf_counter() - started
    if out is not None:
        np.save(out, np.asarray(embeddings, np.float32))
    return {"seconds": seconds}


def padded_tokens(dtype: str, name: str, batch_size: int) -> dict:
    """Number of positions, padding included, that the encoder is given for the sentences kept under `name`."""
    model, counted = _models[dtype], []
    hook = model[0].register_forward_pre_hook(lambda module, inputs: counted.append(inputs[0]["input_ids"].numel()))
    model.encode(_sentences[name], batch_size=batch_size, show_progress_bar=False)
    hook.remove()
    return {"tokens": sum(counted)}


def product_rate(shapes: list[list[int]], seconds: float) -> dict:
    """Floating-point operations per second of float32 matrix products, for `seconds`.

    Args:
      shapes: list of (m, k, n), multiplied in turn.
      seconds: how long to measure.
    """
    pairs = [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in shapes]
    with torch.inference_mode():
        for a, b in pairs:
            torch.mm(a, b)
        done, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            for a, b in pairs:
                torch.mm(a, b)
            done += 1
    return {"rate": done * sum(2 * m * k * n for m, k, n in shapes) / elapsed}


if __name__ == "__main__":
    serve({"load": load, "take": take, "encode": encode, "padded_tokens": padded_tokens, "product_rate": product_rate})
