"""One step of masked language modelling: `bert-flow pretrain`'s against a PyTorch loop.

Ours is the model, the batches and the `fit` of `bert_flow_tf.training.pretrain` in this process, with one more Keras
callback: it times the steps and lets the other processes take theirs between ours, A B, B A. Theirs (`torch_mlm`) is
transformers' `BertForMaskedLM` with PyTorch's AdamW, both as they are by default; and, beside that, with logits at the
predicted positions alone and AdamW's fused kernel, which is what a user who knows both would write. All start from the
same weights and see the same masked batches, 64 sentences a step, padded to the longest.

Compared first are losses and norms of gradients, of an encoder whose rates of dropout are 0, at weights that stay.
"""

import contextlib
import functools
import os
import pathlib
import statistics
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import corpus, nli_step, peers
from benchmarks.hugging_face_folder import hugging_face_folder
from benchmarks.nli_step import COMPARED_STEPS, QUICK_STEPS, STEPS_PER_BLOCK, WARM_UP
from benchmarks.options import Options
from benchmarks.timing import paired_ratios, shown
from bert_flow_tf.encoder import stream
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import UserError
from bert_flow_tf.model.masked_lm import MaskedLanguageModel
from bert_flow_tf.runs.pretraining import PretrainingSettings
from bert_flow_tf.training.masking import Masking, masked_batches
from bert_flow_tf.training.pretrain import compiled_model

# Name -> the arguments of the peer's `load` that it differs in.
THEIRS = {
    "pytorch": {"fused": False, "everywhere": True},
    "pytorch, predicted alone, fused AdamW": {"fused": True, "everywhere": False},
}
# Of ours -> its array in the recorded file.
_HEAD = {
    "transform/dense/kernel": "head_kernel",
    "transform/dense/bias": "head_bias",
    "transform/LayerNorm/gamma": "head_gamma",
    "transform/LayerNorm/beta": "head_beta",
    "output_bias/bias": "head_output_bias",
}


def measure(options: Options) -> dict:
    """dict of times, ratios and figures of one step; see `run`."""
    warm_up, block = (QUICK_STEPS, QUICK_STEPS) if options.quick else (WARM_UP, STEPS_PER_BLOCK)
    # Keras finds a callback slow that waits for the other side.
    tf.get_logger().setLevel("ERROR")
    steps = warm_up + 2 * options.repeats * block
    settings = PretrainingSettings(steps=steps, num_warmup_steps=steps // 10)
    with tempfile.TemporaryDirectory() as workspace:
        folder = pathlib.Path(workspace)
        weights = hugging_face_folder(options.bert_hub, folder / "weights")
        source = resolve_encoder(bert_hub=options.bert_hub)
        tokenizer = Tokenizer.from_source(source)
        sentences = corpus.distinct_sentences(corpus.all_sentences(options), tokenizer, settings.max_seq_length)
        pieces = stream.tokenize(tokenizer, sentences, settings.max_seq_length)
        masking = Masking(tokenizer, settings.masked_lm_prob, False, settings.max_seq_length, settings.seed)
        batches = masked_batches(pieces, masking, batch_size=settings.train_batch_size)
        still = compiled_model(
            resolve_encoder(bert_hub=nli_step.still_encoder(folder / "weights", folder / "still")), settings
        )
        record(still, batches, steps, folder / "recorded.npz")
        with _peer(folder, steps, options.threads, dropout=False, **THEIRS["pytorch"]) as worker:
            differences = nli_step.compare(
                losses_and_norms(still, batches), worker.ask("compare", steps=COMPARED_STEPS), "mlm_step"
            )
        with contextlib.ExitStack() as stack:
            workers = {
                name: stack.enter_context(_peer(folder, steps, options.threads, dropout=True, **arguments))
                for name, arguments in THEIRS.items()
            }
            take = {name: functools.partial(nli_step.take_steps, worker) for name, worker in workers.items()}
            turns = nli_step.InTurn(take, warm_up, block)
            model = compiled_model(source, settings)
            model.fit(batches, steps_per_epoch=steps, callbacks=[turns], verbose=0)
        tokens = [int(inputs["input_mask"].numpy().sum()) for inputs, _ in batches.skip(warm_up).take(steps - warm_up)]
    seconds = {way: each[warm_up:] for way, each in turns.seconds.items()}
    blocks = {way: [sum(each[i : i + block]) for i in range(0, len(each), block)] for way, each in seconds.items()}
    ratios = {name: paired_ratios(blocks[name], blocks["ours"]) for name in THEIRS}
    rates = {way: sum(tokens) / sum(each) for way, each in seconds.items()}
    for way, each in seconds.items():
        print(f"  {way:38} {statistics.median(each):8.3f} s per step, {rates[way]:8,.0f} tokens/s")
    for name, ratio in ratios.items():
        print(f"  to {name}: {shown(ratio)} x")
    return {
        "weights": weights,
        "sentences": len(sentences),
        "sentences_per_step": settings.train_batch_size,
        "tokens_per_step": statistics.fmean(tokens),
        "dtype": "float32",
        "largest_differences": differences,
        "seconds_of_steps": turns.seconds,
        "seconds_of_blocks": blocks,
        "ratios": ratios,
        "figures": {
            "to_pytorch": ratios["pytorch"]["median"],
            "to_pytorch_fused": ratios["pytorch, predicted alone, fused AdamW"]["median"],
            "tokens_per_second": rates["ours"],
            "seconds": statistics.median(seconds["ours"]),
        },
    }


def record(model: MaskedLanguageModel, batches: tf.data.Dataset, steps: int, path: pathlib.Path) -> None:
    """Writes the first batches, and the head's values, for the peers."""
    arrays = {}
    for name, variable in model.head_variables.items():
        arrays[next(key for ours, key in _HEAD.items() if name.endswith(ours))] = variable.numpy()
    for i, (inputs, labels) in enumerate(batches.take(steps)):
        found = {"ids": inputs["input_word_ids"], "mask": inputs["input_mask"], "labels": labels}
        arrays |= {f"{name}_{i}": value.numpy().astype(np.int64) for name, value in found.items()}
    np.savez(path, **arrays)


def losses_and_norms(model: MaskedLanguageModel, batches: tf.data.Dataset) -> dict[str, list[float]]:
    """dict of the `losses` of the first batches and the `norms` of their gradients, at weights that stay."""

    @tf.function(reduce_retracing=True)
    def step(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        loss, gradients = model.loss_and_gradients(inputs, labels)
        return loss, tf.linalg.global_norm(gradients)

    found = [step(inputs, labels) for inputs, labels in batches.take(COMPARED_STEPS)]
    return {name: [float(one[i]) for one in found] for i, name in enumerate(("losses", "norms"))}


@contextlib.contextmanager
def _peer(folder: pathlib.Path, steps: int, threads: int, **arguments: Any) -> Iterator[peers.Worker]:
    with peers.Worker("benchmarks.peer_mlm_step") as worker:
        loaded = worker.ask(
            "load",
            weights=os.fspath(folder / "weights"),
            recorded=os.fspath(folder / "recorded.npz"),
            learning_rate=PretrainingSettings.learning_rate,
            steps=steps,
            **arguments,
        )
        if loaded["threads"] != threads:
            raise UserError(f"PyTorch: found {loaded['threads']} threads, expected {threads}")
        yield worker
