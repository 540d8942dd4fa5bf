"""Encodes the lines of a file as a stream, after a warm-up on another's: seconds as one JSON object on stdout.

python -m benchmarks.growth_process BERT_HUB WARM_UP_FILE FILE
"""

import json
import sys
import time

from bert_flow_tf import BertFlow


def encode_file(model: BertFlow, path: str) -> int:
    """Number of sentences of the file that `encode_parts` gives embeddings for; nothing of them is kept."""
    with open(path, encoding="utf-8") as lines:
        sentences = (line.rstrip("\n") for line in lines)
        return sum(len(embeddings) for _, embeddings in model.encode_parts(sentences, show_progress_bar=False))


def main(bert_hub: str, warm_up_file: str, file: str) -> None:
    model = BertFlow.from_hub(bert_hub)
    encode_file(model, warm_up_file)
    started = time.perf_counter()
    n = encode_file(model, file)
    print(json.dumps({"sentences": n, "encode_seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main(*sys.argv[1:])
