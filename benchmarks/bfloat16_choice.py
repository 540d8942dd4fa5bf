"""Whether `dtype="bfloat16"` takes the arithmetic that encodes faster: the choice by one layer, against both ways.

The rounded encoder encodes sentences with products in bfloat16 and in float32, in turn; beside that the layer is
measured as `bert_flow_tf.encoder.arithmetic` does it, without its cache, once for every repeat. The same again in
processes that are kept to the instructions of other CPUs (ONEDNN_MAX_CPU_ISA), where there are more of them.

The figure is by how much what was chosen is slower than the other, in per cent of its time: of the worst choice made.
"""

import os
import statistics

from benchmarks import corpus
from benchmarks.options import Options
from benchmarks.timing import in_own_process, in_turn, paired_ratios, seconds_of, shown

SENTENCES = 2048
QUICK_SENTENCES = 64
# What oneDNN may use, by what is printed: all there is, units for bfloat16 but no tiles (AMX), and neither.
INSTRUCTIONS = {"all": "DEFAULT", "AVX-512 BF16": "AVX512_CORE_BF16", "AVX-512": "AVX512_CORE"}


def measure(options: Options) -> dict:
    """dict of times, choices and figures; see `run`."""
    found = {
        name: in_own_process("bfloat16_choice", compare, options, instructions)
        for name, instructions in INSTRUCTIONS.items()
    }
    for name, each in found.items():
        rates = {way: each["sentences"] / statistics.median(seconds) for way, seconds in each["seconds"].items()}
        chosen = ", ".join(sorted(set(each["chosen"])))
        print(
            f"  {name:14} float32 {rates['float32']:6.0f} sentences/s, bfloat16 {rates['bfloat16']:6.0f}; chosen: "
            f"{chosen}; bfloat16's time to float32's: {shown(each['ratios'])}, of a layer {each['layer_ratio']:.2f}"
        )
    return {
        "dtype": "bfloat16",
        "by_instructions": found,
        "figures": {
            "slower_percent": max(percent_slower(each["ratios"]["median"], each["chosen"]) for each in found.values())
        },
    }


def percent_slower(ratio: float, chosen: list[str]) -> float:
    """By how many per cent the worst choice is slower than the other; `ratio` is bfloat16's time to float32's."""
    return max(100 * ((ratio if name == "bfloat16" else 1 / ratio) - 1) for name in chosen)


def compare(options: Options, instructions: str) -> dict:
    """dict of the `seconds` of both ways, `ratios` of bfloat16's to float32's, and what was `chosen` each time."""
    # Before TensorFlow loads.
    os.environ["ONEDNN_MAX_CPU_ISA"] = instructions
    from benchmarks.encode import MAX_SEQ_LENGTH, our_model
    from bert_flow_tf.encoder.arithmetic import seconds_of_layer
    from bert_flow_tf.encoder.stream import SentenceBatcher

    model = our_model(options)
    everything = corpus.distinct_sentences(corpus.all_sentences(options), model.tokenizer, MAX_SEQ_LENGTH)
    sentences = corpus.evenly(everything, QUICK_SENTENCES if options.quick else SENTENCES)
    ways = {}
    for name in ("float32", "bfloat16"):
        encoder = model.encoder.rounded_to_bfloat16(name == "bfloat16")
        batcher = SentenceBatcher(
            encoder.embed, model.tokenizer, shape=(encoder.embedding_size,), max_seq_length=MAX_SEQ_LENGTH
        )
        ways[name] = lambda batcher=batcher: seconds_of(lambda: batcher.encode(sentences, show_progress_bar=False))
    in_turn(ways, 1)  # set-up is not timed
    layers = [seconds_of_layer(model.encoder.variables_by_name) for _ in range(options.repeats)]
    seconds = in_turn(ways, 2 * options.repeats)
    return {
        "sentences": len(sentences),
        "seconds": seconds,
        "ratios": paired_ratios(seconds["bfloat16"], seconds["float32"]),
        "layer_ratio": statistics.median(each.bfloat16 / each.float32 for each in layers),
        "chosen": ["bfloat16" if each.bfloat16_is_faster else "float32" for each in layers],
    }
