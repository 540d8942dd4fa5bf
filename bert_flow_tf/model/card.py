"""The README.md that lies in every saved model: what it is, what it learned on, and how it is used."""

import re
from typing import Any

from bert_flow_tf.files.markup import markdown_text
from bert_flow_tf.runs.record import Training

# What the Hugging Face Hub sorts models by.
_METADATA = """---
library_name: bert-flow-tf
pipeline_tag: sentence-similarity
tags:
- sentence-similarity
- feature-extraction
- bert-flow
---
"""


def model_card(name: str, config: Any, repo_id: str | None = None) -> str:
    """Text of the model card, Markdown, of a `saved_model.SavedModelConfig`; with a `repo_id` for the hub."""
    flow, encoder = config.model.flow, config.model.encoder
    learned = {name: one for name, one in (("encoder", encoder.fine_tuning), ("flow", flow and flow.training)) if one}
    parts = [
        f"# {markdown_text(name)}\n",
        "Sentence embeddings of a BERT encoder"
        + (", calibrated by a normalizing flow" if flow else ", without a flow")
        + " (BERT-flow, Li et al., EMNLP 2020, <https://arxiv.org/abs/2011.05864>).\n",
        _table(
            {
                "encoder": markdown_text(encoder.handle) + (", fine-tuned" if encoder.fine_tuning else ""),
                "encoder's fingerprint": _code(encoder.fingerprint),
                "lower-cases": "yes" if config.do_lower_case else "no",
                "pooling": _code(config.model.pooling),
                "word pieces a sentence is cut to": config.model.max_seq_length,
                "width of an embedding": config.embedding_size,
                "flow": "{n_levels} levels of {depth} steps, {coupling} couplings of width {coupling_width}".format(
                    **flow.config.to_dict()
                )
                if flow
                else "none",
                "written by": f"bert_flow_tf {config.made_by.version}",
            }
        ),
        "## What it learned on\n",
        *(f"The {part}:\n\n{_table(_training(one))}" for part, one in learned.items()),
        *([] if learned else ["Nothing: the encoder is used as it is.\n"]),
        "## Use\n",
        "```python\n"
        "from bert_flow_tf import BertFlow\n\n"
        f'model = BertFlow.from_pretrained("{repo_id or "this folder"}")\n'
        "embeddings = model.encode(sentences)\n"
        "cosines = model.similarity(embeddings, embeddings)\n"
        "```\n",
        "## Limits\n",
        "A flow fits the sentences that it was learned on: for another domain or language, learn another one (`fit` "
        "takes no labels). Embeddings of different models, or of one before and after `fit`, must not be compared. "
        "Whatever the encoder's texts were biased in, its embeddings are. Its licence is that of its authors.\n",
    ]
    return ("" if repo_id is None else _METADATA) + "\n".join(parts)


def _training(training: Training) -> dict[str, Any]:
    """Rows about a training: what it learned on, its settings and seed; nothing for what is not recorded."""
    rows = {"task": training.task, "pairs": training.pairs, **training.settings, "seed": training.seed}
    known = {markdown_text(name): markdown_text(str(value)) for name, value in rows.items() if value is not None}
    return known or {"its training": "is not recorded"}


def _code(text: Any) -> str:
    """A name in the typeface of code, where it has only characters of one."""
    return f"`{text}`" if re.fullmatch(r"[\w.-]+", str(text)) else markdown_text(str(text))


def _table(rows: dict[str, Any]) -> str:
    """A table of Markdown."""
    lines = ["| what | value |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {key} | {value} |" for key, value in rows.items())]) + "\n"
