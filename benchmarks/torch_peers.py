"""Do the same work in PyTorch and sentence-transformers, in the peers' Python.

    python -m benchmarks.torch_peers
    python -m benchmarks.torch_peers flow_run WEIGHTS STS-B predictions.tsv FLOW LEARNING_RATE SEED

The first answers requests (`load_encoder`, `warm_up`, `encode`; `load_nli`, `train`;
`mlm_gradients`). The second learns the flow for one epoch over all splits of STS-B and writes the
cosines of its test set. Neither imports bert_flow_tf.
"""

import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterable

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import AutoModel, AutoTokenizer, BertForMaskedLM

from benchmarks.processes import seconds_of, serve

PAIRS_PER_STEP, MAX_SEQ_LENGTH = 32, 64
# The keys are the names of the recorded file's arrays, the values those of transformers'
# parameters.
HEAD = {
    "head_kernel": "cls.predictions.transform.dense.weight",
    "head_bias": "cls.predictions.transform.dense.bias",
    "head_gamma": "cls.predictions.transform.LayerNorm.weight",
    "head_beta": "cls.predictions.transform.LayerNorm.bias",
    "head_output_bias": "cls.predictions.bias",
}
state: dict = {}


def load_encoder(weights: str, path: str) -> None:
    state["model"] = SentenceTransformer(weights, device="cpu")
    state["sentences"] = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def warm_up(out: str) -> None:
    """Encode some sentences to `out`, and choose the fastest batch size."""
    some = state["sentences"][:1024]
    np.save(out, _encode(some, 32))
    state["batch_size"] = min(
        (16, 32, 64), key=lambda size: seconds_of(lambda: _encode(some, size))
    )


def encode() -> dict:
    return {"seconds": seconds_of(lambda: _encode(state["sentences"], state["batch_size"]))}


def encode_few(n: int) -> dict:
    return {"seconds": seconds_of(lambda: _encode(state["sentences"][:n], 32))}


def _encode(sentences: list[str], batch_size: int) -> np.ndarray:
    return state["model"].encode(sentences, batch_size=batch_size, show_progress_bar=False)


class Siamese(nn.Module):
    """Logits `[a, b, |a - b|] Wᵀ` of mean last states."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.bert = AutoModel.from_pretrained(folder, add_pooling_layer=False)
        self.classifier = nn.Linear(3 * self.bert.config.hidden_size, 3, bias=False)
        self.train()

    def forward(self, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
        states, mask = self.bert(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(-1)
        a, b = ((states * mask).sum(1) / mask.sum(1)).unflatten(0, (-1, 2)).unbind(1)
        return self.classifier(torch.cat([a, b, (a - b).abs()], dim=-1))


def load_nli(weights: str, pairs: str, seed: int = 1234) -> None:
    """Load a model, make its AdamW, and shuffle the pairs."""
    torch.manual_seed(seed)
    model = Siamese(weights)
    groups: dict[float, list] = {0.01: [], 0.0: []}
    for name, parameter in model.named_parameters():
        groups[0.0 if name.endswith("bias") or "LayerNorm" in name else 0.01].append(parameter)
    parameters = [{"params": each, "weight_decay": decay} for decay, each in groups.items()]
    rows = json.loads(pathlib.Path(pairs).read_text(encoding="utf-8"))
    state["nli"] = (
        model,
        torch.optim.AdamW(parameters, lr=2e-5),
        AutoTokenizer.from_pretrained(weights),
    )
    state["rows"], state["next"] = [rows[i] for i in torch.randperm(len(rows)).tolist()], 0


def train(steps: int, rows_per_step: int = 16) -> dict:
    """Return the seconds of some steps on the next pairs."""
    model, optimizer, tokenizer = state["nli"]
    started = time.perf_counter()
    for _ in range(steps):
        rows = [
            state["rows"][(state["next"] + i) % len(state["rows"])] for i in range(rows_per_step)
        ]
        state["next"] += rows_per_step
        options = {
            "padding": True,
            "truncation": True,
            "max_length": MAX_SEQ_LENGTH,
            "return_tensors": "pt",
        }
        tokens = tokenizer([sentence for a, b, _ in rows for sentence in (a, b)], **options)
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            model(tokens), torch.tensor([int(label) for _, _, label in rows])
        ).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return {"seconds": time.perf_counter() - started}


def mlm_gradients(weights: str, recorded: str, out: str) -> dict:
    """Return a batch's loss without dropout; write the gradients to `out`.

    Labels below 0 mark positions that are not predicted.
    """
    with np.load(recorded) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForMaskedLM.from_pretrained(weights, **rates).train()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, theirs in HEAD.items():
            parameters[theirs].copy_(arrays[name].T if name == "head_kernel" else arrays[name])
    labels = arrays["labels_0"].masked_fill(arrays["labels_0"] < 0, -100)
    loss = model(input_ids=arrays["ids_0"], attention_mask=arrays["mask_0"], labels=labels).loss
    loss.backward()
    np.savez(out, **{name: p.grad.numpy() for name, p in parameters.items() if p.grad is not None})
    return {"loss": loss.item()}


class ActNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        bound = math.sqrt(6.0 / (size + 1))
        self.b = nn.Parameter(torch.empty(size).uniform_(-bound, bound))
        self.logs = nn.Parameter(torch.empty(size).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_scale = 3.0 * self.logs
        return (x + self.b) * torch.exp(log_scale), log_scale.sum()


class Step(nn.Module):
    """Actnorm, reversal and additive coupling, and the log-determinant."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        in_size, out_size = size // 2, size - size // 2
        self.actnorm, self.first_norm, self.second_norm = (
            ActNorm(size),
            ActNorm(width),
            ActNorm(width),
        )
        self.first = nn.Parameter(torch.randn(in_size, width) * 0.05)
        self.second = nn.Parameter(torch.randn(width, width) * 0.05)
        self.last = nn.Parameter(torch.zeros(width, out_size))
        self.b = nn.Parameter(torch.zeros(out_size))
        self.logs = nn.Parameter(torch.zeros(out_size))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, log_det = self.actnorm(x)
        x1, x2 = x.flip(-1).tensor_split([x.shape[-1] // 2], dim=-1)
        h = torch.relu(self.first_norm(x1 @ self.first)[0])
        h = torch.relu(self.second_norm(h @ self.second)[0])
        return torch.cat(
            [x1, x2 + (h @ self.last + self.b) * torch.exp(3.0 * self.logs)], dim=-1
        ), log_det


class Flow(nn.Module):
    """The model of `glow.flow.Glow`: latents and bits per dimension."""

    def __init__(self, size: int, *, levels: int, depth: int, width: int) -> None:
        super().__init__()
        self.size = size
        sizes = [size // 2**level for level in range(levels)]
        self.levels = nn.ModuleList(
            nn.ModuleList(Step(one, width) for _ in range(depth)) for one in sizes
        )

    def forward(self, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, left, log_det = u, [], 0.0
        for i, steps in enumerate(self.levels):
            if i:
                x, done = x.tensor_split([x.shape[-1] // 2], dim=-1)
                left.append(done)
            for step in steps:
                x, step_log_det = step(x)
                log_det = log_det + step_log_det
        z = torch.cat([*left, x], dim=-1)
        log_prob = -0.5 * (z.square().sum(-1) + self.size * math.log(2.0 * math.pi)) + log_det
        return z, log_prob / (-self.size * math.log(2.0))


class Tf1Adam:
    """TF1 BERT's optimiser, with gradients clipped to global norm 1."""

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.parameters, self.learning_rate = list(parameters), learning_rate
        self.m = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.v = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        gradients = [parameter.grad for parameter in self.parameters]
        torch._foreach_lerp_(self.m, gradients, 0.1)
        torch._foreach_mul_(self.v, 0.999)
        torch._foreach_addcmul_(self.v, gradients, gradients, 0.001)
        divisors = torch._foreach_sqrt(self.v)
        torch._foreach_add_(divisors, 1e-6)
        torch._foreach_mul_(self.parameters, 1.0 - self.learning_rate * 0.01)
        torch._foreach_addcdiv_(self.parameters, self.m, divisors, -self.learning_rate)
        for parameter in self.parameters:
            parameter.grad = None


class Embedder:
    """The original's `avg-last-2`: the mean of the first and last layer."""

    def __init__(self, folder: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    @torch.no_grad()
    def __call__(self, pairs: list[tuple[str, str]]) -> torch.Tensor:
        """Return embeddings [2n, D]; a pair's rows are neighbours."""
        sentences = [sentence for pair in pairs for sentence in pair]
        options = {
            "padding": True,
            "truncation": True,
            "max_length": MAX_SEQ_LENGTH,
            "return_tensors": "pt",
        }
        tokens = self.tokenizer(sentences, **options)
        states = self.model(**tokens, output_hidden_states=True).hidden_states
        mask = tokens["attention_mask"].unsqueeze(-1).to(states[1].dtype)
        return ((states[1] + states[-1]) * mask).sum(1) / (2.0 * mask.sum(1))


def flow_run(
    weights: str, data_dir: str, out: str, config: str, learning_rate: str, seed: str
) -> None:
    """Learn the flow with dropout; write the test set's cosines."""
    torch.manual_seed(int(seed))
    splits = {}
    for split in ("train", "dev", "test"):
        lines = pathlib.Path(data_dir, f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
        splits[split] = [tuple(line.split("\t")[7:9]) for line in lines]
    pairs = [pair for split in splits.values() for pair in split]
    embed = Embedder(weights)
    flow = Flow(embed.model.config.hidden_size, **json.loads(config))
    optimizer = Tf1Adam(flow.parameters(), float(learning_rate))
    embed.model.train()
    order = torch.randperm(len(pairs)).tolist()
    for start in range(0, len(pairs) - PAIRS_PER_STEP + 1, PAIRS_PER_STEP):
        u = embed([pairs[row] for row in order[start : start + PAIRS_PER_STEP]])
        (2.0 * flow(u)[1].mean()).backward()
        optimizer.step()
    embed.model.eval()
    with torch.no_grad(), open(out, "w", encoding="utf-8") as file:
        for start in range(0, len(splits["test"]), PAIRS_PER_STEP):
            z = flow(embed(splits["test"][start : start + PAIRS_PER_STEP]))[0].unflatten(0, (-1, 2))
            file.writelines(
                f"{cosine}\n" for cosine in torch.cosine_similarity(z[:, 0], z[:, 1]).tolist()
            )


if __name__ == "__main__":
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if sys.argv[1:2] == ["flow_run"]:
        flow_run(*sys.argv[2:])
    else:
        served = (load_encoder, warm_up, encode, encode_few, load_nli, train, mlm_gradients)
        serve({function.__name__: function for function in served})
