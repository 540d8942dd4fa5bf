"""The flow run as a PyTorch loop: transformers' BERT, frozen, and the flow of `torch_flow`. Run by the peers' Python.

    python -m benchmarks.peer_flow_run --weights FOLDER --data_dir STS-B --out predictions.tsv

One epoch over all splits of STS-B, then the cosines of its test set. Written to be fast without a cache: each batch
padded to its longest sentence only, no gradient in BERT, both sentences of a pair in one batch. Dropout is off, or with
`--dropout 1` on while the flow learns. Prints one JSON object: steps, seconds of each stage.
"""

import argparse
import json
import os
import pathlib
import time

import torch
from transformers import AutoModel, AutoTokenizer

from benchmarks.torch_flow import Flow, Tf1Adam, train_step

PAIRS_PER_STEP = 32


def read_pairs(path: str) -> list[tuple[str, str]]:
    """list of the pairs of sentences of a file in GLUE's layout for STS-B."""
    rows = [line.split("\t") for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()[1:]]
    return [(row[7], row[8].rstrip("\n")) for row in rows]


class Embedder:
    """The original's `avg-last-2` of pairs: the mean over the words of the first and of the last layer, averaged."""

    def __init__(self, folder: str, max_seq_length: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.max_seq_length = max_seq_length

    @torch.no_grad()
    def __call__(self, pairs: list[tuple[str, str]]) -> torch.Tensor:
        """Embeddings [2n, D] of n pairs, the two of a pair next to each other."""
        sentences = [sentence for pair in pairs for sentence in pair]
        tokens = self.tokenizer(
            sentences, padding=True, truncation=True, max_length=self.max_seq_length, return_tensors="pt"
        )
        states = self.model(**tokens, output_hidden_states=True).hidden_states
        mask = tokens["attention_mask"].unsqueeze(-1).to(states[1].dtype)
        return ((states[1] + states[-1]) * mask).sum(1) / (2.0 * mask.sum(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--max_seq_length", type=int, required=True)
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--flow", type=json.loads, required=True, help="levels, depth and width as JSON")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--dropout", type=int, default=0)
    arguments = parser.parse_args()
    ended, since = {}, time.perf_counter()

    def end(stage: str) -> None:
        nonlocal since
        ended[stage], since = time.perf_counter() - since, time.perf_counter()

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(arguments.seed)
    splits = {split: read_pairs(os.path.join(arguments.data_dir, f"{split}.tsv")) for split in ("train", "dev", "test")}
    pairs = [pair for split in splits.values() for pair in split]
    embed = Embedder(arguments.weights, arguments.max_seq_length)
    flow = Flow(embed.model.config.hidden_size, **arguments.flow)
    optimizer = Tf1Adam(flow.parameters(), arguments.learning_rate)
    end("load")
    embed.model.train(bool(arguments.dropout))
    order = torch.randperm(len(pairs)).tolist()
    steps = len(pairs) // PAIRS_PER_STEP
    for step in range(steps):
        rows = order[step * PAIRS_PER_STEP : (step + 1) * PAIRS_PER_STEP]
        train_step(flow, optimizer, embed([pairs[row] for row in rows]))
    end("train")
    embed.model.eval()
    with torch.no_grad(), open(arguments.out, "w", encoding="utf-8") as out:
        for start in range(0, len(splits["test"]), PAIRS_PER_STEP):
            z = flow(embed(splits["test"][start : start + PAIRS_PER_STEP]))[0].unflatten(0, (-1, 2))
            cosines = torch.cosine_similarity(z[:, 0], z[:, 1])
            out.writelines(f"{cosine}\n" for cosine in cosines.tolist())
    end("score")
    print(json.dumps({"steps": steps, "stages": ended, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
