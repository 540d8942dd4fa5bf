"""Show how often a threshold without labels holds on other sentences.

    python -m benchmarks.thresholds --encoders demo ENCODER --glue_dir GLUE

chooses a threshold on 1,000 sentences of a text, by `vectors.thresholds.threshold`, and prints
the share of random pairs of 1,000 other sentences above it, over ten draws, without a calibration
and with a flow.
"""

import argparse
import sys

import numpy as np

from bert_flow_tf import BertFlow
from bert_flow_tf.common.errors import exit_status
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.tasks.tasks import get_task, read_split
from bert_flow_tf.vectors.thresholds import threshold

SHARES, DRAWS, ROWS = (1e-3, 1e-2), 10, 1000


def sentences_of(task: str, folder: str) -> list[str]:
    parts = [
        read_split(get_task(task), f"{folder}/{task}", split) for split in ("train", "dev", "test")
    ]
    return sorted({sentence for part in parts for sentence in part.sentences_a + part.sentences_b})


def shares_above(u: np.ndarray, share: float) -> list[float]:
    """Return the share above the threshold of other rows, for each draw."""
    found = []
    for seed in range(DRAWS):
        order = np.random.default_rng(seed).permutation(len(u))
        chosen, other = u[order[:ROWS]], u[order[ROWS : 2 * ROWS]]
        unit = other / np.linalg.norm(other, axis=1, keepdims=True)
        cosines = (unit @ unit.T)[np.triu_indices(len(unit), 1)]
        found.append(float(np.mean(cosines > threshold(chosen, share).cosine)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoders", nargs="+", required=True, help="as --bert_hub")
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B and SICK-R")
    args = parser.parse_args()
    texts = {task: sentences_of(task, args.glue_dir) for task in ("STS-B", "SICK-R")}
    texts["templates"] = sentences_of("STS-B", str(sample_glue_dir()))
    print(f"{'encoder':24}{'text':12}{'':14}" + "".join(f"{share:>26g}" for share in SHARES))
    for encoder in args.encoders:
        model = BertFlow.from_hub(encoder, max_seq_length=64)
        for text, sentences in texts.items():
            pooled = model.encode_pooled(sentences)
            model.fit(sentences[:: max(1, len(sentences) // 2000)], show_progress_bar=False)
            for name, u in (("without flow", pooled), ("with flow", model.after_flow(pooled))):
                cells = (np.array(shares_above(u, share)) for share in SHARES)
                words = "".join(
                    f"{one.mean():>12.2e} ({one.min():.1e} to {one.max():.1e})" for one in cells
                )
                print(f"{encoder[-22:]:24}{text:12}{name:14}{words}", flush=True)


if __name__ == "__main__":
    sys.exit(exit_status(main))
