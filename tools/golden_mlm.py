"""Write `tests/golden/data/mlm_step.npz`: a training step of transformers' `BertForMaskedLM`.

    python -m tools.golden_mlm

The BERT is the golden data's, without dropout; head and batch are random. PyTorch and transformers
run in the environment that benchmarks/peers.py installs.
"""

import pathlib
import tempfile

import numpy as np

from benchmarks.peers import peer, write_weights
from benchmarks.processes import ROOT
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1

DATA = ROOT / "tests" / "golden" / "data"
_SENTENCES, _LENGTH, _PREDICTED = 4, 12, 0.3


def main() -> None:
    rng = np.random.default_rng(17)
    with tempfile.TemporaryDirectory() as workspace:
        folder = pathlib.Path(workspace)
        encoder = write_encoder_folder(
            folder / "encoder", read_tf1(DATA / "bert_tiny" / "bert_model.ckpt")
        )
        weights = write_weights(str(encoder), folder / "weights")
        pieces = len((DATA / "bert_tiny" / "vocab.txt").read_text().splitlines())
        lengths = rng.integers(4, _LENGTH + 1, _SENTENCES)
        mask = (np.arange(_LENGTH) < lengths[:, np.newaxis]).astype(np.int64)
        predicted = mask.astype(bool) & (rng.random(mask.shape) < _PREDICTED)
        width = 32
        arrays = {
            "head_kernel": rng.normal(0, 0.2, [width, width]),
            "head_bias": rng.normal(0, 0.2, [width]),
            "head_gamma": rng.normal(1, 0.2, [width]),
            "head_beta": rng.normal(0, 0.2, [width]),
            "head_output_bias": rng.normal(0, 0.2, [pieces]),
        }
        arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
        arrays |= {
            "ids_0": rng.integers(0, pieces, mask.shape) * mask,
            "mask_0": mask,
            "labels_0": np.where(predicted, rng.integers(0, pieces, mask.shape), -1),
        }
        np.savez(folder / "recorded.npz", **arrays)
        with peer().worker("benchmarks.torch_peers") as ask:
            paths = {"weights": str(weights), "recorded": str(folder / "recorded.npz")}
            loss = ask("mlm_gradients", **paths, out=str(folder / "gradients.npz"))["loss"]
        with np.load(folder / "gradients.npz") as gradients:
            found = {f"gradient {name}": gradients[name] for name in gradients.files}
        np.savez_compressed(DATA / "mlm_step.npz", **arrays, **found, loss=np.float32(loss))


if __name__ == "__main__":
    main()
