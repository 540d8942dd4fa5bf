"""`encode` in bfloat16 against `SentenceTransformer.encode` in float32 and in bfloat16, and what it costs in Spearman.

On a CPU without units for bfloat16 there is no time to gain by it, and the result says so: ours multiplies the rounded
matrices in float32 there, PyTorch converts in software.
"""

import os
import tempfile
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.encode import (
    best_batch_size,
    compare,
    described,
    encode,
    load,
    our_model,
    print_rows,
    take_sentences,
    theirs,
    warm_up,
)
from benchmarks.machine import machine
from benchmarks.options import Options
from benchmarks.timing import in_turn, paired_ratios, shown

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow

THEIRS = {"float32": "sentence-transformers", "bfloat16": "sentence-transformers, bfloat16"}


def measure(options: Options) -> dict:
    """dict of times, ratios and figures of `encode` in bfloat16; see `run`."""
    with peers.Worker("benchmarks.peer_encode") as worker, tempfile.TemporaryDirectory() as folder:
        load(worker, options, folder, *THEIRS)
        model = our_model(options, dtype="bfloat16")
        sentences = take_sentences(worker, options, model)
        difference = compare(worker, options, model, sentences["all"], "bfloat16", folder)
        batch_sizes, trials = {}, {}
        for dtype in THEIRS:
            batch_sizes[dtype], trials[dtype] = best_batch_size(worker, options, sentences["all"], dtype)
        warm_up(model, sentences["all"])
        times, ratios = {}, {}
        for name, chosen in sentences.items():
            ways = {"ours, bfloat16": lambda chosen=chosen: encode(model, chosen)} | {
                way: lambda name=name, dtype=dtype: theirs(worker, name, dtype, batch_sizes[dtype])
                for dtype, way in THEIRS.items()
            }
            times[name] = in_turn(ways, options.repeats)
            ratios[name] = {
                dtype: paired_ratios(times[name][way], times[name]["ours, bfloat16"]) for dtype, way in THEIRS.items()
            }
    spearman = {"bfloat16": _spearman(options, model), "float32": _spearman(options, our_model(options))}
    units = machine()["bfloat16_units"]
    print(f"  this CPU's units for bfloat16: {', '.join(units) or 'none, so no time is gained'}")
    print_rows(sentences, times)
    for name, by_dtype in ratios.items():
        for dtype, ratio in by_dtype.items():
            print(f"  {name}, to sentence-transformers in {dtype}: {shown(ratio)} x")
    print(f"  Spearman on STS-B's test set: {spearman['bfloat16']:.4f}, in float32 {spearman['float32']:.4f}")
    return {
        **described(options, sentences, "bfloat16"),
        "largest_difference": difference,
        "their_batch_sizes": batch_sizes,
        "their_seconds_by_batch_size": trials,
        "seconds": times,
        "ratios": ratios,
        "spearman": spearman,
        "figures": {
            "to_float32": ratios["all"]["float32"]["median"],
            "to_bfloat16": ratios["all"]["bfloat16"]["median"],
            "to_float32_distinct": ratios["distinct"]["float32"]["median"],
            "to_bfloat16_distinct": ratios["distinct"]["bfloat16"]["median"],
            "spearman_loss": spearman["float32"] - spearman["bfloat16"],
        },
    }


def _spearman(options: Options, model: "BertFlow") -> float:
    """Spearman of the cosines of the pairs of STS-B's test set with their gold scores."""
    from bert_flow_tf.data.tasks import read_split
    from bert_flow_tf.evaluation.predicted import score_predictions
    from bert_flow_tf.model.siamese import cosine_similarity

    examples = read_split("STS-B", os.path.join(options.glue_dir, "STS-B"), "test")
    a, b = (model.encode(s, show_progress_bar=False) for s in (examples.sentences_a, examples.sentences_b))
    return score_predictions(cosine_similarity(a, b).numpy(), "STS-B", options.glue_dir, "test").spearman
