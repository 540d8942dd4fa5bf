"""A saved model's folder: an encoder folder of `bert-flow convert` with the flow, a configuration and a model card.

`flow.npz` has an array for each of the flow's variables by its path, `bert_flow.json` the configuration.
"""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from bert_flow_tf.encoder.convert.folders import ENCODER_PARTS
from bert_flow_tf.encoder.handles import EncoderSource, downloaded_model, is_model_name
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind, new_output
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.reading import reading
from bert_flow_tf.runs import record
from bert_flow_tf.runs.record import EncoderFiles, Model, Result, Training, is_run, made_by

# TensorFlow takes seconds to load, and a type needs none of it.
if TYPE_CHECKING:
    import tensorflow as tf

    from bert_flow_tf.encoder.layer import SentenceEncoder
    from bert_flow_tf.encoder.tokenizer import Tokenizer
    from bert_flow_tf.model.siamese import SiameseBertFlow
    from glow.flow import Glow

MODEL_FILE, FLOW_FILE, CARD_FILE = "bert_flow.json", "flow.npz", "README.md"
SAVED_MODEL = FolderKind("a saved model", MODEL_FILE, (*ENCODER_PARTS, FLOW_FILE, MODEL_FILE, CARD_FILE))
_TAGS = ["sentence-similarity", "feature-extraction", "bert-flow"]


class EmbeddingModel(Protocol):
    """A tokenizer, an encoder and, if there is one, a flow: `api.BertFlow` without its ways to load and to learn."""

    record: Model  # Pooling, length, and what encoder and flow learned on.
    source: EncoderSource
    encoder: "SentenceEncoder"  # In float32.
    pooled: "SentenceEncoder"  # The encoder that `embed_tokens` calls, in the model's `dtype`.
    encoder_trained: bool  # True if the encoder has other weights than `source`.
    tokenizer: "Tokenizer"
    flow: "Glow | None"
    low_dim: int
    embedding_size: int
    max_seq_length: int  # Word pieces that a sentence is cut to, [CLS] and [SEP] included.
    sentence_embedding_type: str
    similarity_fn_name: str  # Name of the function that `similarity` computes, such as "cosine".
    prompts: dict[str, str]  # Texts by name that `encode` puts before sentences.

    @property
    def fingerprint(self) -> str:
        """Digest of everything that embeddings depend on."""

    def tokenize(self, sentences: Sequence[str]) -> dict[str, "tf.Tensor"]:
        """Inputs of `embed_tokens`."""

    def encode_parts(self, *arguments: Any) -> Iterator[tuple[list[str], np.ndarray]]:
        """Lists of sentences with their embeddings; see `api.BertFlow.encode_parts`."""

    def embed_tokens(self, tokens: dict[str, "tf.Tensor"]) -> "tf.Tensor":
        """Embeddings [n, embedding_size] of a dict of int32 [n, t], as `Tokenizer.pack` gives it."""


class SavedModelConfig(Result, frozen=True, kw_only=True, tag="saved model"):
    """The configuration of a saved model: `model` is all that its embeddings depend on."""

    model: Model
    do_lower_case: bool
    embedding_size: int
    prompts: dict[str, str]
    similarity_fn_name: str


def is_saved_model(path: str | os.PathLike) -> bool:
    """True if a folder has the configuration that `save` writes."""
    return (pathlib.Path(path) / MODEL_FILE).is_file()


def model_folder(path: str | os.PathLike) -> pathlib.Path:
    """Return the path of a saved model or a run; download the model if it is a name on the Hugging Face Hub.

    Raises:
      UserError: the hub has no such model, or the folder holds neither.
    """
    name, folder = os.fspath(path), pathlib.Path(path)
    if not os.path.lexists(name) and is_model_name(name):
        folder = downloaded_model(name, tuple(pattern for part in SAVED_MODEL.names for pattern in (part, f"{part}/*")))
    if folder.is_dir() and not is_saved_model(folder) and not is_run(folder):
        expected = "expected a folder of save() or a run's (encoders are for bert_hub)"
        raise UserError(f"{name}: holds neither {MODEL_FILE} nor a run's {record.CONFIG_FILE}, {expected}")
    return folder


def save(bert_flow: EmbeddingModel, path: str | os.PathLike, *, overwrite: bool = False) -> pathlib.Path:
    """Write the folder of a model, whole or not at all, and return its path; nothing else is needed to load it.

    Raises:
      UserError: something exists that may not be replaced, or the folder cannot be written.
    """
    # TensorFlow takes seconds to load, and a command that only looks for a saved model does not need it.
    from bert_flow_tf.encoder.convert.encoder_folder import write_with_weights
    from bert_flow_tf.encoder.source import resolve_encoder

    loaded, variables = bert_flow.source, bert_flow.encoder.variables_by_name
    values = {name: variable.numpy() for name, variable in variables.items()} if bert_flow.encoder_trained else None
    with new_output(path, SAVED_MODEL, overwrite=overwrite) as folder:
        write_with_weights(folder, loaded, values, {"kind": "exported"})
        source = resolve_encoder(bert_hub=str(folder))
        if values is None and source.fingerprint != loaded.fingerprint:
            raise UserError(f"{loaded.bert_hub}: found other files than when it was loaded, expected the same encoder")
        if bert_flow.flow is not None:
            np.savez(folder / FLOW_FILE, **{name: v.numpy() for name, v in bert_flow.flow.variables_by_path.items()})
        made: Any = {"made_by": made_by("save"), "model": _record(bert_flow, source)}
        own = {name: getattr(bert_flow, name) for name in ("embedding_size", "prompts", "similarity_fn_name")}
        config = SavedModelConfig(**made, do_lower_case=source.do_lower_case, **own)
        write_json(folder / MODEL_FILE, config)
        card = _model_card(pathlib.Path(os.path.abspath(path)).name, config)
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
    return pathlib.Path(path)


def push_to_hub(bert_flow: EmbeddingModel, repo_id: str, **options: Any) -> str:
    """Upload what `save` writes to the Hugging Face Hub and return the address of the commit.

    `options` are those of `huggingface_hub.ModelHubMixin.push_to_hub`: `private`, `token`, `commit_message`, …

    Raises:
      UserError: the hub cannot be reached or refuses.
    """
    # It takes half a second to import.
    from huggingface_hub import ModelHubMixin

    class Upload(ModelHubMixin):
        def _save_pretrained(self, save_directory: pathlib.Path) -> None:
            save(bert_flow, save_directory, overwrite=True)

    with reading(repo_id, "a model's name on the Hugging Face Hub"):
        address = Upload().push_to_hub(repo_id, **options)
    downloaded_model.cache_clear()
    return address


def _model_card(name: str, config: SavedModelConfig) -> str:
    """Return the model card, Markdown with the Hugging Face Hub's metadata, of a saved model."""
    from huggingface_hub import ModelCard, ModelCardData

    model, flow, trainings = config.model, config.model.flow, {}
    for part, training in (("encoder", model.encoder.fine_tuning), ("flow", flow.training if flow else None)):
        if training is not None:
            rows = {"task": training.task, "pairs": training.pairs, **training.settings, "seed": training.seed}
            trainings[part] = {setting: value for setting, value in rows.items() if value is not None}
    values: Any = {"name": name, "config": config, "model": model, "flow": flow.config if flow else None}
    data = ModelCardData(library_name="bert-flow-tf", pipeline_tag="sentence-similarity", tags=_TAGS)
    template = str(pathlib.Path(__file__).with_name("card.md"))
    return ModelCard.from_template(data, template_path=template, trainings=trainings, **values).content


def _record(bert_flow: EmbeddingModel, source: EncoderSource) -> Model:
    """Return the model's record with the written encoder, and only the last part of paths, which are private."""

    encoder, checkpoint = bert_flow.record.encoder, bert_flow.record.checkpoint
    handle = pathlib.Path(encoder.handle).name if os.path.isabs(encoder.handle) else encoder.handle
    # Nothing is known of the training of weights that were changed in Python.
    fine_tuning = encoder.fine_tuning or (Training() if bert_flow.encoder_trained else None)
    values: Any = {"handle": handle, "fingerprint": source.fingerprint, "fine_tuning": fine_tuning}
    encoder = msgspec.structs.replace(encoder, **values)
    name = checkpoint and pathlib.Path(checkpoint).name
    return msgspec.structs.replace(bert_flow.record, encoder=encoder, checkpoint=name)


def load(path: str | os.PathLike) -> tuple["SiameseBertFlow", EncoderSource, SavedModelConfig]:
    """Return the model of a folder that `save` wrote, its encoder and its configuration.

    Raises:
      UserError: a file is missing, damaged, of another format version, or does not fit the configuration.
    """
    from bert_flow_tf.encoder.convert.weights import check_arrays
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.model.build import build_model

    path = pathlib.Path(path)
    config = read_json(path / MODEL_FILE, SavedModelConfig, expected="a saved model's configuration")
    # Absolute, since a folder may be called `demo` or `base`.
    folder, fingerprint = str(path.resolve()), str(config.model.encoder.fingerprint)
    recorded = EncoderFiles(bert_hub=folder, preprocess_hub=None, fingerprint=fingerprint)
    source = resolve_encoder(bert_hub=folder, recorded=recorded)
    model = build_model(source, config.model)
    if model.flow is not None:
        with reading(path / FLOW_FILE, "the flow's arrays"):
            arrays = dict(np.load(path / FLOW_FILE))
        variables = model.flow.variables_by_path
        check_arrays(arrays, {name: v.shape for name, v in variables.items()}, path / FLOW_FILE, "the flow")
        for name, variable in variables.items():
            variable.assign(arrays[name])
    return model, source, config
