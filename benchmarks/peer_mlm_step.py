"""Steps of masked language modelling in PyTorch, timed. Run by the peers' Python."""

import numpy as np
import torch

from benchmarks.peer_nli_step import read_batches, state, train
from benchmarks.peer_protocol import serve
from benchmarks.torch_mlm import HEAD, MaskedLanguageModel
from benchmarks.torch_nli import Training, use_all_threads


def load(
    weights: str, recorded: str, learning_rate: float, steps: int, dropout: bool, fused: bool, everywhere: bool
) -> dict:
    """Makes the model of a Hugging Face folder, with the head and the batches of the file `recorded`."""
    threads = use_all_threads()
    arrays = read_batches(recorded)
    model = MaskedLanguageModel(weights, arrays, dropout=dropout, everywhere=everywhere)
    state["training"] = Training(model, learning_rate, steps, fused=fused)
    return {"threads": threads}


def compare(steps: int) -> dict:
    """Losses of the first batches, and the norms of their gradients, with weights that stay as they are."""
    training, losses, norms = state["training"], [], []
    for batch in state["batches"][:steps]:
        loss = _backward(training, batch)
        norms.append(sum(p.grad.square().sum() for p in training.parameters if p.grad is not None).sqrt().item())
        losses.append(loss)
    return {"losses": losses, "norms": norms}


def gradients(out: str) -> dict:
    """The first batch's loss; its gradients go to the file `out`, by transformers' names."""
    training = state["training"]
    loss = _backward(training, state["batches"][0])
    named = training.model.mlm.named_parameters()
    np.savez(out, **{name: p.grad.numpy() for name, p in named if p.grad is not None})
    return {"loss": loss, "head": HEAD}


def _backward(training: Training, batch: tuple[torch.Tensor, ...]) -> float:
    training.optimizer.zero_grad()
    loss = training.model.loss(*batch)
    loss.backward()
    return loss.item()


if __name__ == "__main__":
    serve({"load": load, "train": train, "compare": compare, "gradients": gradients})
