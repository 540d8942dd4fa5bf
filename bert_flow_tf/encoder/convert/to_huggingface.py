"""From a BERT's weights to a Hugging Face folder: configuration, safetensors and tokenizer."""

import os
import pathlib
import shutil
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy

from bert_flow_tf.encoder.convert.bert_config import HUGGING_FACE_ACTIVATIONS, LAYER_NORM_EPS, BertConfig
from bert_flow_tf.encoder.convert.folders import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCAB_FILE, WEIGHTS_FILE
from bert_flow_tf.encoder.convert.weights import hugging_face_name
from bert_flow_tf.encoder.tokenizer import MAX_WORD_CHARS, SPECIAL, read_vocabulary
from bert_flow_tf.files.json_files import write_json

_ACTIVATIONS = {ours: theirs for theirs, ours in HUGGING_FACE_ACTIVATIONS.items()}


def write_hugging_face_bert(
    folder: pathlib.Path, config: BertConfig, weights: dict[str, np.ndarray], **fields: Any
) -> None:
    """Write `config.json`, with these further fields, and `model.safetensors` of weights by TF1 name and shape."""
    kind = {"architectures": ["BertModel"], "model_type": "bert", "layer_norm_eps": LAYER_NORM_EPS}
    shape = msgspec.structs.asdict(config) | {"hidden_act": _ACTIVATIONS[config.hidden_act]}
    write_json(folder / "config.json", kind | shape | fields)
    # Hugging Face's kernels are [out, in].
    tensors = {
        hugging_face_name(name): np.ascontiguousarray(value.T if name.endswith("/kernel") else value)
        for name, value in weights.items()
    }
    write_tensors(folder / WEIGHTS_FILE, tensors)


def write_tensors(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """Write a safetensors file as PyTorch's libraries expect it."""
    safetensors.numpy.save_file(tensors, str(path), metadata={"format": "pt"})


def write_hugging_face_tokenizer(
    folder: pathlib.Path, vocab_file: str | os.PathLike, do_lower_case: bool, max_seq_length: int
) -> None:
    """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json` of a vocabulary into the folder."""
    shutil.copyfile(vocab_file, folder / VOCAB_FILE)
    ids = {piece: i for i, piece in enumerate(read_vocabulary(vocab_file))}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    cls, sep = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ("[CLS]", "[SEP]"))
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    packing = {
        "type": "TemplateProcessing",
        "single": [cls, first, sep],
        "pair": [cls, first, sep, second, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")},
    }
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    word_piece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[token], "content": token, **plain} for token in SPECIAL],
        "normalizer": normalizer | {"lowercase": do_lower_case},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": packing,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": word_piece | {"max_input_chars_per_word": MAX_WORD_CHARS, "vocab": ids},
    }
    write_json(folder / TOKENIZER_FILE, tokenizer)
    # This class takes tokenizer.json as it is; BertTokenizer has its own limit of a word's length.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": do_lower_case, "strip_accents": None}
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "cls", "sep", "mask", "unk")}
    settings |= {"tokenize_chinese_chars": True, "model_max_length": max_seq_length}
    write_json(folder / TOKENIZER_CONFIG_FILE, settings | names)
