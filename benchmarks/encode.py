"""`encode` against `SentenceTransformer.encode`: the same weights, sentences and threads, in float32 and in bfloat16.

All sentences of STS-B are encoded, here with default arguments, there with the batch size that a trial finds best. A
repeated sentence is computed once here and every time there, which is part of the comparison; so the distinct sentences
alone are measured as well.
"""

import pathlib
import statistics
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import corpus, peers
from benchmarks.hugging_face_folder import hugging_face_folder
from benchmarks.options import Options
from benchmarks.timing import in_turn, paired_ratios, seconds_of, shown
from bert_flow_tf.errors import UserError

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow

MAX_SEQ_LENGTH = 64
BATCH_SIZES = (8, 16, 32, 64, 128)
TRIAL_SENTENCES = 1024
COMPARED_SENTENCES = 256
# Largest difference between an embedding here and there, of values up to about 1.
LARGEST_DIFFERENCE = 1e-4


def measure(options: Options) -> dict:
    """dict of times, ratios and figures of `encode` in float32; see `run`."""
    with peers.Worker("benchmarks.peer_encode") as worker, tempfile.TemporaryDirectory() as folder:
        load(worker, options, folder, "float32")
        model = our_model(options)
        sentences = take_sentences(worker, options, model)
        difference = compare(worker, options, model, sentences["all"], "float32", folder)
        if difference > LARGEST_DIFFERENCE:
            raise UserError(
                f"encode: found embeddings that differ from sentence-transformers' by {difference:.1e}, expected at "
                f"most {LARGEST_DIFFERENCE:.0e}"
            )
        batch_size, trial = best_batch_size(worker, options, sentences["all"], "float32")
        warm_up(model, sentences["all"])
        times, ratios = {}, {}
        for name, chosen in sentences.items():
            ways = {
                "ours": lambda chosen=chosen: encode(model, chosen),
                "sentence-transformers": lambda name=name: theirs(worker, name, "float32", batch_size),
            }
            times[name] = in_turn(ways, options.repeats)
            ratios[name] = paired_ratios(times[name]["sentence-transformers"], times[name]["ours"])
    print_rows(sentences, times)
    print(f"  all, to sentence-transformers (it computes recurring sentences again): {shown(ratios['all'])} x")
    print(f"  distinct sentences, each computed once on both sides: {shown(ratios['distinct'])} x")
    return {
        **described(options, sentences, "float32"),
        "largest_difference": difference,
        "their_batch_size": batch_size,
        "their_seconds_by_batch_size": trial,
        "seconds": times,
        "ratios": ratios,
        "figures": {
            "to_sentence_transformers": ratios["all"]["median"],
            "to_sentence_transformers_distinct": ratios["distinct"]["median"],
        },
    }


def our_model(options: Options, **arguments: Any) -> "BertFlow":
    """`BertFlow` that averages the last layer, as the peers' model does, without a flow."""
    from bert_flow_tf.api import BertFlow

    return BertFlow.from_hub(options.bert_hub, pooling="avg", max_seq_length=MAX_SEQ_LENGTH, **arguments)


def load(worker: peers.Worker, options: Options, folder: str, *dtypes: str) -> None:
    """Makes the worker's models of these number types, from a folder written into `folder`."""
    weights = hugging_face_folder(options.bert_hub, pathlib.Path(folder) / "weights")
    for dtype in dtypes:
        loaded = worker.ask("load", folder=weights, max_seq_length=MAX_SEQ_LENGTH, dtype=dtype)
        if loaded != {"threads": options.threads, "dtype": f"torch.{dtype}"}:
            raise UserError(f"sentence-transformers: found {loaded}, expected {options.threads} threads and {dtype}")


def take_sentences(worker: peers.Worker, options: Options, model: "BertFlow") -> dict[str, list[str]]:
    """dict of `all` and the `distinct` sentences, which the worker keeps as well."""
    everything = corpus.all_sentences(options)
    sentences = {
        "all": everything,
        "distinct": corpus.distinct_sentences(everything, model.tokenizer, MAX_SEQ_LENGTH),
    }
    for name, chosen in sentences.items():
        worker.ask("take", name=name, sentences=chosen)
    return sentences


def compare(
    worker: peers.Worker, options: Options, model: "BertFlow", sentences: list[str], dtype: str, folder: str
) -> float:
    """The largest difference between our embeddings and theirs, of some of the sentences."""
    chosen = corpus.evenly(sentences, COMPARED_SENTENCES)
    worker.ask("take", name="compared", sentences=chosen)
    path = pathlib.Path(folder) / f"compared-{dtype}.npy"
    worker.ask("encode", dtype=dtype, name="compared", batch_size=32, out=str(path))
    difference = float(np.abs(np.load(path) - model.encode(chosen, show_progress_bar=False)).max())
    print(f"  {dtype}: largest difference from sentence-transformers on {len(chosen)} sentences {difference:.1e}")
    return difference


def best_batch_size(
    worker: peers.Worker, options: Options, sentences: list[str], dtype: str
) -> tuple[int, dict[int, float]]:
    """Their fastest batch size on some of the sentences, and dict of batch size to the seconds that each takes."""
    worker.ask("take", name="trial", sentences=corpus.evenly(sentences, 64 if options.quick else TRIAL_SENTENCES))
    # The first call sets things up.
    theirs(worker, "trial", dtype, 32)
    ways = {size: lambda size=size: theirs(worker, "trial", dtype, size) for size in BATCH_SIZES}
    trial = {size: statistics.median(seconds) for size, seconds in in_turn(ways, 2).items()}
    best = min(trial, key=trial.get)
    print(f"  {dtype}: sentence-transformers is fastest with batch_size={best} of {', '.join(map(str, BATCH_SIZES))}")
    return best, trial


def warm_up(model: "BertFlow", sentences: list[str]) -> None:
    """Encodes some of the sentences, so that what is set up once is not timed."""
    model.encode(corpus.evenly(sentences, TRIAL_SENTENCES), show_progress_bar=False)


def encode(model: "BertFlow", sentences: list[str]) -> float:
    """Seconds of our `encode` with default arguments."""
    return seconds_of(lambda: model.encode(sentences, show_progress_bar=False))


def theirs(worker: peers.Worker, name: str, dtype: str, batch_size: int) -> float:
    """Seconds of their `encode` of the sentences that the worker keeps as `name`."""
    return worker.ask("encode", dtype=dtype, name=name, batch_size=batch_size)["seconds"]


def described(options: Options, sentences: dict[str, list[str]], dtype: str) -> dict:
    """What a result says of the work: its sentences and number type."""
    return {"sentences": len(sentences["all"]), "distinct_sentences": len(sentences["distinct"]), "dtype": dtype}


def print_rows(sentences: dict[str, list[str]], times: dict[str, dict[str, list[float]]]) -> None:
    """Prints a line for each way and list of sentences: median seconds, and sentences a second."""
    for name, ways in times.items():
        for way, seconds in ways.items():
            median = statistics.median(seconds)
            rate = len(sentences[name]) / median
            print(f"  {len(sentences[name]):6d} {name:9} {way:32} {median:8.2f} s {rate:8.0f} sentences/s")
