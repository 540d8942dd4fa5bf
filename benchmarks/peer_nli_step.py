"""Steps of siamese training on NLI in PyTorch, timed. Run by the peers' Python."""

import time

import numpy as np
import torch

from benchmarks.peer_protocol import serve
from benchmarks.torch_nli import Siamese, Training, use_all_threads

state = {}


def load(weights: str, recorded: str, learning_rate: float, steps: int, dropout: bool, fused: bool) -> dict:
    """Makes the model of a Hugging Face folder, with the classifier and the batches of the file `recorded`."""
    threads = use_all_threads()
    arrays = read_batches(recorded)
    model = Siamese(weights, dropout=dropout)
    with torch.no_grad():
        model.classifier.weight.copy_(arrays["classifier"])
    state["training"] = Training(model, learning_rate, steps, fused=fused)
    return {"threads": threads}


def read_batches(recorded: str) -> dict[str, torch.Tensor]:
    """Tensors by name of the file `recorded`, whose batches `train` then takes."""
    with np.load(recorded) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    batches = range(sum(name.startswith("labels_") for name in arrays))
    state["batches"] = [tuple(arrays[f"{name}_{i}"] for name in ("ids", "mask", "labels")) for i in batches]
    return arrays


def train(first: int, steps: int) -> dict:
    """Seconds of each of `steps` steps, from the batch `first` on."""
    seconds = []
    for batch in state["batches"][first : first + steps]:
        started = time.perf_counter()
        state["training"].step(*batch)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


def compare(steps: int) -> dict:
    """Losses of the first batches, and the norms of their gradients, with weights that stay as they are.

    A word's every occurrence counts on its own in the norm, as in TensorFlow's, which keeps them apart.
    """
    training, looked_up = state["training"], []
    words = training.model.bert.embeddings.word_embeddings
    words.register_forward_hook(lambda module, inputs, output: output.retain_grad() or looked_up.append(output))
    losses, norms = [], []
    for ids, mask, labels in state["batches"][:steps]:
        training.optimizer.zero_grad()
        loss = training.model.loss(ids, mask, labels)
        loss.backward()
        squares = [p.grad.square().sum() for p in training.parameters if p is not words.weight]
        norms.append((sum(squares) + looked_up.pop().grad.square().sum()).sqrt().item())
        losses.append(loss.item())
    return {"losses": losses, "norms": norms}


if __name__ == "__main__":
    serve({"load": load, "train": train, "compare": compare})
