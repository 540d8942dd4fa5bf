"""The NLI run as a PyTorch loop. Run by the peers' Python.

    python -m benchmarks.peer_nli_run --weights FOLDER --pairs pairs.jsonl --out trained.pt

Pairs are shuffled, cut into batches, each padded to its longest sentence; what is needed to resume is saved at the end.
Prints one JSON object: seconds of each stage, threads.
"""

import argparse
import json
import pathlib
import time

import torch
from transformers import AutoTokenizer

from benchmarks.torch_nli import Siamese, Training, use_all_threads


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True)
    parser.add_argument("--pairs", required=True, help="JSON lines of two sentences and a class")
    parser.add_argument("--out", required=True)
    parser.add_argument("--max_seq_length", type=int, required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    ended, since = {}, time.perf_counter()

    def end(stage: str) -> None:
        nonlocal since
        ended[stage], since = time.perf_counter() - since, time.perf_counter()

    threads = use_all_threads()
    torch.manual_seed(arguments.seed)
    lines = pathlib.Path(arguments.pairs).read_text(encoding="utf-8").splitlines()
    pairs = [json.loads(line) for line in lines]
    tokenizer = AutoTokenizer.from_pretrained(arguments.weights)
    training = Training(Siamese(arguments.weights), arguments.learning_rate, arguments.steps)
    end("load")
    order = torch.randperm(len(pairs)).tolist()
    for step in range(arguments.steps):
        batch = [pairs[row] for row in order[step * arguments.batch_size : (step + 1) * arguments.batch_size]]
        tokens = tokenizer(
            [sentence for a, b, _ in batch for sentence in (a, b)],
            padding=True,
            truncation=True,
            max_length=arguments.max_seq_length,
            return_tensors="pt",
        )
        training.step(tokens["input_ids"], tokens["attention_mask"], torch.tensor([label for _, _, label in batch]))
    end("train")
    torch.save({"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}, arguments.out)
    end("save")
    print(json.dumps({"steps": arguments.steps, "stages": ended, "threads": threads}))


if __name__ == "__main__":
    main()
