"""Siamese training on NLI in PyTorch: transformers' BERT, the original's classifier, AdamW; without this project.

A plain loop as a user of PyTorch writes it: dropout at the rates of the model's configuration, gradients clipped to
norm 1, weight decay .01 except on biases and norms, warm-up and linear decay of the rate.
"""

import os

import torch
from torch import nn
from transformers import AutoModel

CLASSES = 3
DECAY = 0.01
WARMUP = 0.1


def use_all_threads() -> int:
    """Number of PyTorch's threads, after setting it to that of the CPUs that this process may use."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return torch.get_num_threads()


class Siamese(nn.Module):
    """Logits [n, 3] of n pairs: [a, b, |a - b|] Wᵀ of their sentences' mean last states.

    Args:
      folder: Hugging Face folder of the encoder.
      dropout: False sets the configuration's rates to 0.
    """

    def __init__(self, folder: str, *, dropout: bool = True) -> None:
        super().__init__()
        rates = {} if dropout else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.bert = AutoModel.from_pretrained(folder, add_pooling_layer=False, **rates)
        self.classifier = nn.Linear(3 * self.bert.config.hidden_size, CLASSES, bias=False)
        nn.init.trunc_normal_(self.classifier.weight, std=0.02)
        self.train()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Logits of token ids and masks, int64 [2n, t], the two sentences of a pair next to each other."""
        states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        a, b = ((states * weights).sum(1) / weights.sum(1)).unflatten(0, (-1, 2)).unbind(1)
        return self.classifier(torch.cat([a, b, (a - b).abs()], dim=-1))

    def loss(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean loss of a batch."""
        return nn.functional.cross_entropy(self(ids, mask), labels)


class Training:
    """AdamW over all parameters of a model with a `loss`, for `steps` steps with the peak `learning_rate`.

    `fused` takes PyTorch's AdamW that is one kernel for all parameters, which `torch.optim.AdamW` does not by itself.
    """

    def __init__(self, model: nn.Module, learning_rate: float, steps: int, *, fused: bool = False) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        groups = {DECAY: [], 0.0: []}
        for name, parameter in model.named_parameters():
            groups[0.0 if name.endswith("bias") or "LayerNorm" in name else DECAY].append(parameter)
        self.optimizer = torch.optim.AdamW(
            [{"params": each, "weight_decay": decay} for decay, each in groups.items()],
            lr=learning_rate,
            fused=fused or None,
        )
        warmup = max(1, int(steps * WARMUP))
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: (step + 1) / warmup if step + 1 < warmup else 1.0 - (step + 1) / steps
        )

    def step(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> float:
        """The batch's mean loss before a step; its gradients are left, clipped."""
        self.optimizer.zero_grad()
        loss = self.model.loss(ids, mask, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()
