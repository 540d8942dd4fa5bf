"""Masked language modelling in PyTorch: transformers' `BertForMaskedLM`, for the loop of `torch_nli`."""

from collections.abc import Mapping

import torch
from torch import nn
from transformers import BertForMaskedLM

IGNORED = -100
# Name of a head's array in a recorded file -> its parameter in transformers.
HEAD = {
    "head_kernel": "cls.predictions.transform.dense.weight",
    "head_bias": "cls.predictions.transform.dense.bias",
    "head_gamma": "cls.predictions.transform.LayerNorm.weight",
    "head_beta": "cls.predictions.transform.LayerNorm.bias",
    "head_output_bias": "cls.predictions.bias",
}


class MaskedLanguageModel(nn.Module):
    """The mean loss of a batch's predicted word pieces; the head is tied to the word embeddings.

    Args:
      folder: Hugging Face folder of the encoder.
      head: dict of `HEAD`'s names -> tensors, kernels [in, out].
      dropout: False sets the configuration's rates to 0.
      everywhere: logits at all positions, as `BertForMaskedLM` computes them; else at the predicted ones alone.
    """

    def __init__(
        self, folder: str, head: Mapping[str, torch.Tensor], *, dropout: bool = True, everywhere: bool = True
    ) -> None:
        super().__init__()
        rates = {} if dropout else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.mlm = BertForMaskedLM.from_pretrained(folder, **rates)
        parameters = dict(self.mlm.named_parameters())
        with torch.no_grad():
            for name, theirs in HEAD.items():
                parameters[theirs].copy_(head[name].T if name == "head_kernel" else head[name])
        self._everywhere = everywhere
        self.train()

    def loss(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of ids, masks and labels, int64 [n, t]; labels below 0 are of positions that are not predicted."""
        labels = labels.masked_fill(labels < 0, IGNORED)
        if self._everywhere:
            return self.mlm(input_ids=ids, attention_mask=mask, labels=labels).loss
        states = self.mlm.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        places = labels != IGNORED
        return nn.functional.cross_entropy(self.mlm.cls(states[places]), labels[places])
