"""Time `encode` of STS-B's sentences beside `SentenceTransformer.encode` of the same weights.

Both use float32, this project its default arguments, sentence-transformers the fastest of three
batch sizes. Only this project encodes repeated sentences once; that is part of the comparison.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable

import numpy as np

from benchmarks import peers
from benchmarks.processes import seconds_of, serve
from benchmarks.run import Options

# Values of embeddings, up to about 1, may differ by this much.
LARGEST_DIFFERENCE = 1e-4


def functions(options: Options, stack: contextlib.ExitStack) -> dict[str, Callable[[], dict]]:
    sentences = [
        s
        for split in ("train", "dev", "test")
        for pair in options.pairs("STS-B", split)
        for s in pair[:2]
    ]
    path = options.folder / "sentences.json"
    path.write_text(json.dumps(sentences))
    asks = {
        name: stack.enter_context(side.worker("benchmarks.encode", options.bert_hub, path))
        for name, side in options.ours.items()
    }
    if options.with_peers:
        weights = peers.write_weights(options.bert_hub, options.folder / "weights")
        asks["sentence-transformers"] = stack.enter_context(
            peers.peer().worker("benchmarks.torch_peers")
        )
        asks["sentence-transformers"]("load_encoder", weights=str(weights), path=str(path))
    found = []
    for name, ask in asks.items():
        ask("warm_up", out=str(options.folder / f"{name}.npy"))
        found.append(np.load(options.folder / f"{name}.npy"))
    if not all(np.abs(one - found[0]).max() <= LARGEST_DIFFERENCE for one in found):
        raise RuntimeError(
            f"encode: found embeddings that differ by more than {LARGEST_DIFFERENCE}"
        )
    print(f"  {len(sentences)} sentences, {len(set(sentences))} different ones")
    return {name: lambda ask=ask: ask("encode") for name, ask in asks.items()}


def main(bert_hub: str, path: str) -> None:
    """Answer requests to encode the sentences in the file."""
    from bert_flow_tf import BertFlow

    with open(path, encoding="utf-8") as file:
        sentences = json.load(file)
    model = BertFlow.from_hub(bert_hub, pooling="avg", max_seq_length=64)
    os.environ["TQDM_DISABLE"] = "1"
    serve(
        {
            "warm_up": lambda out: np.save(
                out, model.encode(sentences[:1024], show_progress_bar=False)
            ),
            "encode": lambda: {
                "seconds": seconds_of(lambda: model.encode(sentences, show_progress_bar=False))
            },
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
