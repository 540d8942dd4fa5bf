"""The README.md that lies in every saved model: what it is, what it learned on, and how it is used."""


def model_card(name, config):
    """Text of the model card, Markdown, of a saved model's configuration (see `saved_model`).

    Args:
      name: what to call the model.
      config: dict as in its `bert_flow.json`.
    """
    flow, learned = config["flow_config"], config["learned_on"]
    parts = [
        f"# {name}\n",
        "Sentence embeddings of a BERT encoder"
        + (", calibrated by a normalizing flow" if flow else ", without a flow")
        + " (BERT-flow, Li et al., EMNLP 2020, <https://arxiv.org/abs/2011.05864>).\n",
        _table(
            {
                "encoder": config["encoder"]["name"],
                "encoder's fingerprint": f"`{config['encoder']['fingerprint']}`",
                "lower-cases": "yes" if config["encoder"]["do_lower_case"] else "no",
                "pooling": f"`{config['sentence_embedding_type']}`",
                "word pieces a sentence is cut to": config["max_seq_length"],
                "width of an embedding": config["embedding_size"],
                "flow": _flow(flow) if flow else "none",
                "written by": f"bert_flow_tf {config['bert_flow_tf']}",
            }
        ),
        "## What it learned on\n",
        _table(learned) if learned else "Nothing: the encoder is used as it is.\n",
        "## Use\n",
        "```python\n"
        "from bert_flow_tf import BertFlow\n\n"
        'model = BertFlow.from_pretrained("this folder")\n'
        "embeddings = model.encode(sentences)\n"
        "cosines = model.similarity(embeddings, embeddings)\n"
        "```\n",
        "## Limits\n",
        "A flow fits the sentences that it was learned on: for another domain or language, learn another one (`fit` "
        "takes no labels). Embeddings of different models, or of one before and after `fit`, must not be compared. "
        "Whatever the encoder's texts were biased in, its embeddings are. Its licence is that of its authors.\n",
    ]
    return "\n".join(parts)


def _flow(flow):
    return (
        f"{flow['n_levels']} levels of {flow['depth']} steps, {flow['coupling']} couplings of width "
        f"{flow['coupling_width']}"
    )


def _table(rows):
    lines = ["| what | value |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {key} | {value} |" for key, value in rows.items())]) + "\n"
