"""The flow and its optimiser in PyTorch, as one would write them there. Run by the peers' Python.

The same model as `glow.flow.Glow` with additive couplings and reversals, and the same steps as
`glow.trainer`: levels of {actnorm, reversal, coupling}, half of the channels leaving after each.
"""

import math
from collections.abc import Iterable

import torch
from torch import nn


class ActNorm(nn.Module):
    """`(x + b) * exp(3 * logs)`, and its log-determinant."""

    def __init__(self, size: int) -> None:
        super().__init__()
        bound = math.sqrt(6.0 / (size + 1))
        self.b = nn.Parameter(torch.empty(size).uniform_(-bound, bound))
        self.logs = nn.Parameter(torch.empty(size).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_scale = 3.0 * self.logs
        return (x + self.b) * torch.exp(log_scale), log_scale.sum()


class Network(nn.Module):
    """The coupling's three 1x1 convolutions, two with an actnorm and a relu, the last with a bias and a scale."""

    def __init__(self, in_size: int, width: int, out_size: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(in_size, width) * 0.05)
        self.first_norm = ActNorm(width)
        self.second = nn.Parameter(torch.randn(width, width) * 0.05)
        self.second_norm = ActNorm(width)
        self.last = nn.Parameter(torch.zeros(width, out_size))
        self.b = nn.Parameter(torch.zeros(out_size))
        self.logs = nn.Parameter(torch.zeros(out_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first_norm(x @ self.first)[0])
        h = torch.relu(self.second_norm(h @ self.second)[0])
        return (h @ self.last + self.b) * torch.exp(3.0 * self.logs)


class Step(nn.Module):
    """Actnorm, reversal and additive coupling, and the log-determinant."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.actnorm = ActNorm(size)
        self.network = Network(size // 2, width, size - size // 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, log_det = self.actnorm(x)
        x = x.flip(-1)
        half = x.shape[-1] // 2
        x1, x2 = x[:, :half], x[:, half:]
        return torch.cat([x1, x2 + self.network(x1)], dim=-1), log_det


class Flow(nn.Module):
    """From embeddings u [n, size] to latents z [n, size] and bits per dimension [n]."""

    def __init__(self, size: int, *, levels: int, depth: int, width: int) -> None:
        super().__init__()
        self.size = size
        self.levels = nn.ModuleList(
            nn.ModuleList(Step(size // 2**level, width) for _ in range(depth)) for level in range(levels)
        )

    def forward(self, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, left, log_det = u, [], 0.0
        for i, steps in enumerate(self.levels):
            if i:
                half = x.shape[-1] // 2
                x, done = x[:, :half], x[:, half:]
                left.append(done)
            for step in steps:
                x, step_log_det = step(x)
                log_det = log_det + step_log_det
        z = torch.cat([*left, x], dim=-1)
        log_prob = -0.5 * (z.square().sum(-1) + self.size * math.log(2.0 * math.pi)) + log_det
        return z, log_prob / (-self.size * math.log(2.0))

    def take(self, values: dict) -> None:
        """Takes the values of dict of the TF1 path of a variable -> array, as `Glow.variables_by_path` names them."""
        parameters = dict(self.named_parameters())
        with torch.no_grad():
            for path, value in values.items():
                parameters.pop(_name(path)).copy_(torch.from_numpy(value))
        if parameters:
            raise ValueError(f"found no values for {', '.join(parameters)}")


def _name(path: str) -> str:
    """The parameter here that TF1 calls `revnet_0/revnet_step_0/...`."""
    level, step, *rest = path.split("/")
    names = {
        "actnorm/actnorm_center/b": "actnorm.b",
        "actnorm/actnorm_scale/logs": "actnorm.logs",
        "additive/nn/conv_block/1_1/W": "network.first",
        "additive/nn/conv_block/1_1/actnorm/actnorm_center/b": "network.first_norm.b",
        "additive/nn/conv_block/1_1/actnorm/actnorm_scale/logs": "network.first_norm.logs",
        "additive/nn/conv_block/1_2/W": "network.second",
        "additive/nn/conv_block/1_2/actnorm/actnorm_center/b": "network.second_norm.b",
        "additive/nn/conv_block/1_2/actnorm/actnorm_scale/logs": "network.second_norm.logs",
        "additive/nn/zeros/W": "network.last",
        "additive/nn/zeros/b": "network.b",
        "additive/nn/zeros/logs": "network.logs",
    }
    prefix = f"levels.{level.removeprefix('revnet_')}.{step.removeprefix('revnet_step_')}"
    return f"{prefix}.{names['/'.join(rest)]}"


class Tf1Adam:
    """TF1 BERT's optimiser: no bias correction, epsilon outside the root, weight decay beside the moments.

    Gradients are clipped to global norm 1 before. Each operation is one call for all parameters.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
    ) -> None:
        self.parameters = list(parameters)
        self.m = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.v = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.learning_rate, self.decay = learning_rate, decay
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    @torch.no_grad()
    def step(self) -> None:
        """Moves the parameters by their gradients, and forgets these."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        gradients = [parameter.grad for parameter in self.parameters]
        torch._foreach_lerp_(self.m, gradients, 1.0 - self.beta_1)
        torch._foreach_mul_(self.v, self.beta_2)
        torch._foreach_addcmul_(self.v, gradients, gradients, 1.0 - self.beta_2)
        divisors = torch._foreach_sqrt(self.v)
        torch._foreach_add_(divisors, self.epsilon)
        torch._foreach_mul_(self.parameters, 1.0 - self.learning_rate * self.decay)
        torch._foreach_addcdiv_(self.parameters, self.m, divisors, -self.learning_rate)
        for parameter in self.parameters:
            parameter.grad = None


def train_step(flow: Flow, optimizer: Tf1Adam, u: torch.Tensor) -> torch.Tensor:
    """The mean bits per dimension of `u` [2n, size], pairs of sentences, before a step on their losses' sum."""
    bits_per_dim = flow(u)[1].mean()
    (2.0 * bits_per_dim).backward()
    optimizer.step()
    return bits_per_dim.detach()
