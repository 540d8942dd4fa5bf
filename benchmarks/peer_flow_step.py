"""Steps of the flow in PyTorch, timed. Run by the peers' Python."""

import time

import numpy as np
import torch

from benchmarks.peer_protocol import serve
from benchmarks.torch_flow import Flow, Tf1Adam, train_step

_state = {}


def load(values: str, embeddings: str, batches: list[list[int]], learning_rate: float, config: dict) -> None:
    """Makes the flow of these values (npz of variables by path), and keeps embeddings and the rows of the batches."""
    _state["u"] = torch.from_numpy(np.load(embeddings))
    _state["batches"] = [torch.tensor(rows) for rows in batches]
    flow = Flow(_state["u"].shape[1], **config)
    with np.load(values) as stored:
        flow.take({name: stored[name] for name in stored.files})
    _state["flow"] = flow
    _state["optimizer"] = Tf1Adam(flow.parameters(), learning_rate)


def train(steps: int, threads: int) -> dict:
    """Seconds of `steps` steps on `threads` threads, and the loss before each step."""
    torch.set_num_threads(threads)
    flow, optimizer, u = _state["flow"], _state["optimizer"], _state["u"]
    losses = []
    started = time.perf_counter()
    for rows in _state["batches"][:steps]:
        losses.append(train_step(flow, optimizer, u[rows]).item())
    return {"seconds": time.perf_counter() - started, "losses": losses}


def latents(rows: int, out: str) -> None:
    """Writes the latents of the first rows to the file `out`."""
    with torch.inference_mode():
        np.save(out, _state["flow"](_state["u"][:rows])[0].numpy())


if __name__ == "__main__":
    serve({"load": load, "train": train, "latents": latents})
