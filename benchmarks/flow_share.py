"""The flow's share of `encode`: its time with a flow against its time without, on the same sentences in turn.

Many short calls: the difference is small compared with how much one call's time differs from the next one's.
"""

import statistics
import warnings

from benchmarks import corpus
from benchmarks.encode import MAX_SEQ_LENGTH, encode, our_model, warm_up
from benchmarks.options import Options
from benchmarks.timing import in_turn

SENTENCES_PER_CALL = 512
CALLS_PER_REPEAT = 8


def measure(options: Options) -> dict:
    """dict of times and figures of `encode` with a flow and without; see `run`."""
    without, with_flow = our_model(options), our_model(options)
    everything = corpus.all_sentences(options)
    sentences = corpus.distinct_sentences(everything, without.tokenizer, MAX_SEQ_LENGTH)
    with warnings.catch_warnings():
        # Too few sentences to learn from, which does not change how long the flow takes.
        warnings.simplefilter("ignore")
        with_flow.fit(everything[:64], batch_size=32, show_progress_bar=False)
    chosen = corpus.evenly(sentences, SENTENCES_PER_CALL)
    models = {"with flow": with_flow, "without": without}
    for model in models.values():
        warm_up(model, sentences)
    ways = {name: lambda model=model: encode(model, chosen) for name, model in models.items()}
    seconds = in_turn(ways, 2 if options.quick else CALLS_PER_REPEAT * options.repeats)
    pairs = zip(seconds["with flow"], seconds["without"], strict=True)
    shares = [100 * (a - b) / a for a, b in pairs]
    for name, each in seconds.items():
        print(f"  {name:10} {1e3 * statistics.median(each) / len(chosen):8.3f} ms per sentence")
    quarters = statistics.quantiles(shares, n=4)
    print(f"  flow: {statistics.median(shares):.2f} % (quartiles {quarters[0]:.2f} to {quarters[2]:.2f})")
    return {
        "sentences": len(chosen),
        "distinct_sentences": len(chosen),
        "dtype": "float32",
        "seconds": seconds,
        "percent": shares,
        "figures": {"percent": statistics.median(shares)},
    }
