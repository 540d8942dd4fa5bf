"""Make `tests/golden/data/transformers`: small random BERTs and their outputs.

Run this in a new environment, from the repository's root. It writes the libraries' versions to
versions.json.

    pip install torch transformers sentence-transformers
    python -m tools.golden_transformers
"""

import inspect
import json
import pathlib
import shutil
import unicodedata

import numpy as np
import sentence_transformers
import torch
import transformers
from sentence_transformers.sentence_transformer import modules

DATA = pathlib.Path(__file__).parents[1] / "tests" / "golden" / "data"
OUT = DATA / "transformers"
TEXTS = [
    case["text"] for case in json.loads((DATA / "tokenization_uncased.json").read_text())["cases"]
]
LENGTH = 24
SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": LENGTH,
    # With smaller weights, differences between families would be lost in rounding.
    "initializer_range": 0.3,
}
DISTILBERT_SHAPE = {
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": LENGTH,
    "initializer_range": 0.3,
}


def vocabulary(is_cased):
    """Return pieces for the letters and every second word of the texts."""
    texts = (
        TEXTS
        if is_cased
        else [
            "".join(
                c
                for c in unicodedata.normalize("NFD", text.lower())
                if unicodedata.category(c) != "Mn"
            )
            for text in TEXTS
        ]
    )
    letters = sorted({c for text in texts for c in text if not c.isspace() and c.isprintable()})
    letters = [letter for letter in letters if letter < "\u4e00" or len(letters) < 400]
    whole = sorted(
        {word for text in texts for word in text.split() if word.isalnum() and 1 < len(word) < 12}
    )[::2]
    return [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{c}" for c in letters),
        *whole,
    ]


def families():
    """Return configuration, class, casing and options of `save_pretrained` by name."""
    bert = transformers.BertConfig
    model = transformers.BertModel
    uncased, cased = len(vocabulary(False)), len(vocabulary(True))
    return {
        "bert": (bert(vocab_size=uncased, hidden_act="gelu", **SHAPE), model, False, {}),
        "bert_cased_gelu_new": (
            bert(vocab_size=cased, hidden_act="gelu_new", **SHAPE),
            model,
            True,
            {},
        ),
        "bert_masked_lm_sharded": (
            bert(vocab_size=uncased, hidden_act="gelu_pytorch_tanh", **SHAPE),
            transformers.BertForMaskedLM,
            False,
            {"max_shard_size": "20KB"},
        ),
        # Like many models, this one has more rows than word pieces.
        "bert_bfloat16_relu": (
            bert(vocab_size=uncased + 7, hidden_act="relu", **SHAPE),
            model,
            False,
            {},
        ),
        "bert_float16": (bert(vocab_size=uncased, **SHAPE), model, False, {}),
        "distilbert": (
            transformers.DistilBertConfig(vocab_size=uncased, **DISTILBERT_SHAPE),
            transformers.DistilBertModel,
            False,
            {},
        ),
    }


def make(name, config, kind, is_cased, options):
    folder = OUT / name
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    model = kind(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            # Biases of 0 and norm weights of 1 would hide mistakes.
            parameter.data += 0.2 * torch.randn_like(parameter)
    dtype = (
        torch.bfloat16
        if "bfloat16" in name
        else torch.float16
        if "float16" in name
        else torch.float32
    )
    model.to(dtype).save_pretrained(folder, **options)
    vocab = folder / "vocab.txt"
    vocab.write_text("".join(f"{piece}\n" for piece in vocabulary(is_cased)), encoding="utf-8")
    tokenizer = transformers.BertTokenizerFast(vocab=str(vocab), do_lower_case=not is_cased)
    tokenizer.save_pretrained(folder)
    if name != "bert":
        # Newer versions of transformers save only tokenizer.json.
        vocab.unlink()
    else:
        (folder / "tokenizer.json").unlink(missing_ok=True)
    inputs = tokenizer(
        TEXTS, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
    )
    if kind is transformers.DistilBertModel:
        inputs.pop("token_type_ids", None)
    with torch.no_grad():
        outputs = model.to(torch.float32)(**inputs, output_hidden_states=True)
    states = torch.stack(outputs.hidden_states[1:])
    mask = inputs["attention_mask"][:, :, None].to(torch.float32)
    values = {
        "input_ids": inputs["input_ids"].numpy().astype(np.int32),
        "mean": ((states * mask).sum(2) / mask.sum(1)).numpy(),
        "first": states[:, :, 0].numpy(),
    }
    if getattr(outputs, "pooler_output", None) is not None:
        values["pooled"] = outputs.pooler_output.numpy()
    np.savez_compressed(OUT / f"{name}.npz", **values)


def make_sentence_transformer():
    """Write a sentence-transformers folder with mean pooling and norm 1."""
    folder = OUT / "sentence_transformer"
    transformer = modules.Transformer(str(OUT / "bert"), max_seq_length=12)
    pooling = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    model = sentence_transformers.SentenceTransformer(
        modules=[transformer, pooling, modules.Normalize()], device="cpu"
    )
    model.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    values = {"embeddings": model.encode(TEXTS)}
    values["prompted"] = model.encode(TEXTS, prompt="the ")
    values["truncated"] = model.encode(TEXTS, truncate_dim=5, normalize_embeddings=True)
    for precision in ("int8", "uint8", "binary", "ubinary"):
        values[precision] = model.encode(TEXTS, precision=precision)
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        model.similarity_fn_name = name
        # Vary the norms, because norms of 1 would hide differences between the functions.
        vectors = (
            values["embeddings"] * np.linspace(0.5, 2, len(TEXTS), dtype=np.float32)[:, np.newaxis]
        )
        values[f"{name}_all"] = model.similarity(vectors[:20], vectors[20:30]).numpy()
        values[f"{name}_pairs"] = model.similarity_pairwise(vectors[:20], vectors[20:40]).numpy()
    np.savez_compressed(OUT / "sentence_transformer.npz", **values)
    kind = sentence_transformers.SentenceTransformer
    names = [
        name
        for name in dir(kind)
        if not name.startswith("_") and name not in dir(torch.nn.Sequential)
    ]
    functions = {name: getattr(kind, name) for name in names if callable(getattr(kind, name))}
    signatures = {
        name: [*inspect.signature(function).parameters]
        for name, function in sorted(functions.items())
    }
    properties = sorted(name for name in names if isinstance(getattr(kind, name), property))
    (OUT / "signatures.json").write_text(
        json.dumps(signatures | {"properties": properties}, indent=1) + "\n"
    )


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    for name, family in families().items():
        make(name, *family)
    make_sentence_transformer()
    versions = {
        module.__name__: module.__version__
        for module in (torch, transformers, sentence_transformers)
    }
    (OUT / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
