"""Save and load models.

A saved model has the encoder folder `encoder`, which transformers opens, and files:
`bert_flow.json` has the configuration, `calibration.json` the maps' kinds and recipes,
`calibration.npz` their arrays, and `README.md` the model card; `losses.json` has the losses, if a
`fit` took steps.
"""

import os
import pathlib
from typing import TYPE_CHECKING, Any

import msgspec

from bert_flow_tf.common.atomic import FolderKind, new_output
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.common.losses import LOSSES_FILE, write_losses
from bert_flow_tf.common.reading import is_export, reading
from bert_flow_tf.common.records import EncoderFiles, ModelRecord, Result, Training, made_by
from bert_flow_tf.encoder.handles import downloaded_model, is_model_name
from bert_flow_tf.model.build import own_code, with_present_code

# Importing these modules would load TensorFlow, which takes seconds.
if TYPE_CHECKING:
    from bert_flow_tf.model.embedder import Embedder

ENCODER = "encoder"
MODEL_FILE = "bert_flow.json"
CARD_FILE = "README.md"
MAPS_FILES = ("calibration.json", "calibration.npz")
BERT_FLOW_FOLDER = FolderKind(
    "a saved model",
    MODEL_FILE,
    (ENCODER, *MAPS_FILES, MODEL_FILE, CARD_FILE, LOSSES_FILE),
)
_TAGS = ["sentence-similarity", "feature-extraction", "bert-flow"]


class SavedModelConfig(Result, frozen=True, kw_only=True, tag="saved model"):
    """The file `bert_flow.json`.

    The prompts stand in the encoder's folder, too, which other libraries open by itself. These
    here are read, because an encoder that is a SavedModel has no place for them.
    """

    model: ModelRecord
    prompts: dict[str, str]
    default_prompt_name: str | None = None
    similarity_fn_name: str


def is_saved_model(path: str | os.PathLike) -> bool:
    return (pathlib.Path(path) / MODEL_FILE).is_file()


def model_folder(path: str | os.PathLike) -> pathlib.Path:
    """Return a model's or run's folder; download a name from Hugging Face."""
    name = os.fspath(path)
    folder = pathlib.Path(path)
    if not os.path.lexists(name) and is_model_name(name):
        folder = downloaded_model(
            name,
            tuple(pattern for part in BERT_FLOW_FOLDER.names for pattern in (part, f"{part}/*")),
        )
    if folder.is_dir() and not is_saved_model(folder):
        # Most models are no run, whose records are others.
        from bert_flow_tf.common.json_files import CONFIG_FILE, is_run

        if is_run(folder):
            return folder
        if is_export(folder):
            raise UserError(
                f"{name}: found an export, which only encodes; expected a saved model or a run"
            )
        expected = "expected a saved model or a run (an encoder's argument is bert_hub)"
        raise UserError(f"{name}: found neither {MODEL_FILE} nor a run's {CONFIG_FILE}, {expected}")
    return folder


def save(
    bert_flow: "Embedder", path: str | os.PathLike, *, overwrite: bool = False
) -> pathlib.Path:
    """Write a model's folder, or nothing after an error; return its path."""
    from glow.saved import write_maps

    maps = bert_flow.maps
    with new_output(path, BERT_FLOW_FOLDER, overwrite=overwrite) as folder:
        if maps:
            try:
                write_maps(folder, maps)
            except ValueError as error:
                raise UserError(f"save: {error}") from error
        (folder / ENCODER).mkdir()
        fingerprint = _write_encoder(bert_flow, folder / ENCODER)
        write_losses(folder, bert_flow.recorded_losses)
        config = SavedModelConfig(
            made_by=made_by("save"),
            model=portable_record(bert_flow, fingerprint),
            prompts=bert_flow.prompts,
            default_prompt_name=bert_flow.default_prompt_name,
            similarity_fn_name=bert_flow.similarity_fn_name,
        )
        write_json(folder / MODEL_FILE, config)
        name = pathlib.Path(os.path.abspath(path)).name
        (folder / CARD_FILE).write_text(_model_card(bert_flow, name, config), encoding="utf-8")
    return pathlib.Path(path)


def _write_encoder(bert_flow: "Embedder", folder: pathlib.Path) -> str:
    """Write an encoder folder; return the encoder's fingerprint."""
    # Importing these loads TensorFlow, which takes seconds.
    from bert_flow_tf.encoder.convert.encoder_folder import write_encoder
    from bert_flow_tf.encoder.weights import Pretrained

    source = bert_flow.source
    trained = bert_flow.encoder.trained
    if not isinstance(source.pretrained, Pretrained) and not trained:
        source.pretrained.write(folder)
        return source.fingerprint
    bert = bert_flow.encoder.network.read_pretrained(
        source.record.with_origin(
            "saved model",
            normalize=source.record.normalize
            and source.record.pooling == bert_flow.sentence_embedding_type,
            prompts=bert_flow.prompts,
            default_prompt_name=bert_flow.default_prompt_name,
            similarity_fn_name=bert_flow.similarity_fn_name,
            pooling=bert_flow.sentence_embedding_type,
            max_seq_length=bert_flow.max_seq_length,
            started_from=source.fingerprint if trained else source.record.started_from,
            training=None if trained else source.record.training,
        )
    )
    write_encoder(folder, bert)
    return bert.fingerprint


def push_to_hub(bert_flow: "Embedder", repo_id: str, **options: Any) -> str:
    """Upload `save`'s folder to the Hugging Face Hub; return the commit's URL.

    `options` are passed to `huggingface_hub.ModelHubMixin.push_to_hub`: `private`, `token`,
    `commit_message`, …
    """
    # Importing huggingface_hub takes half a second.
    from huggingface_hub import ModelHubMixin

    class Upload(ModelHubMixin):
        def _save_pretrained(self, save_directory: pathlib.Path) -> None:
            save(bert_flow, save_directory, overwrite=True)

    with reading(repo_id, "a model's name on the Hugging Face Hub"):
        address = Upload().push_to_hub(repo_id, **options)
    downloaded_model.cache_clear()
    return address


def _model_card(bert_flow: "Embedder", name: str, config: SavedModelConfig) -> str:
    from huggingface_hub import ModelCard, ModelCardData

    model = config.model
    flow = model.flow
    trainings = {}
    for part, training in (
        ("encoder", model.encoder.fine_tuning),
        ("flow", flow.training if flow else None),
    ):
        if training is not None:
            rows = {
                "task": training.task,
                "pairs": training.pairs,
                **training.settings,
                "seed": training.seed,
            }
            trainings[part] = {
                setting: value for setting, value in rows.items() if value is not None
            }
    data = ModelCardData(
        library_name="bert-flow-tf", pipeline_tag="sentence-similarity", tags=_TAGS
    )
    template = str(pathlib.Path(__file__).with_name("card.md"))
    card = ModelCard.from_template(
        data,
        template_path=template,
        trainings=trainings,
        name=name,
        config=config,
        model=model,
        flow=flow and flow.config,
        embedding_size=bert_flow.embedding_size,
        do_lower_case=bert_flow.source.record.do_lower_case,
    )
    return card.content


def portable_record(bert_flow: "Embedder", fingerprint: str) -> ModelRecord:
    """Return the model's record, with names instead of paths."""
    record = bert_flow.record
    encoder = record.encoder
    handle = pathlib.Path(encoder.handle).name if os.path.isabs(encoder.handle) else encoder.handle
    # If weights were changed in Python, their training is unknown.
    fine_tuning = encoder.fine_tuning or (Training() if bert_flow.encoder.trained else None)
    encoder = msgspec.structs.replace(
        encoder, handle=handle, fingerprint=fingerprint, fine_tuning=fine_tuning
    )
    checkpoint = record.checkpoint and pathlib.Path(record.checkpoint).name
    return msgspec.structs.replace(
        record,
        encoder=encoder,
        checkpoint=checkpoint,
        code=own_code(record.pooling, record.flow.config if record.flow else None),
    )


def load(path: str | os.PathLike, dtype: str) -> dict[str, Any]:
    """Return the `Embedder.state` of `save`'s folder."""
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.encoder.text_encoder import TextEncoder
    from glow.saved import read_maps

    path = pathlib.Path(path)
    config = read_json(
        path / MODEL_FILE, SavedModelConfig, expected="a saved model's configuration"
    )
    model = with_present_code(config.model, path)
    # Use an absolute path, because a relative one may equal a name such as `demo`.
    folder = str(path.resolve() / ENCODER)
    fingerprint = str(model.encoder.fingerprint)
    recorded = EncoderFiles(bert_hub=folder, preprocess_hub=None, fingerprint=fingerprint)
    encoder = TextEncoder.build(
        resolve_encoder(bert_hub=folder, recorded=recorded),
        model.pooling,
        max_seq_length=model.max_seq_length,
        dtype=dtype,
    )
    from bert_flow_tf.calibration.history import saved_history

    maps = []
    if model.flow is not None:
        with reading(path, "a saved model"):
            maps = read_maps(path)
    return {
        "encoder": encoder,
        "maps": maps,
        "origin": model.encoder,
        "learned": model.flow,
        "checkpoint": model.checkpoint,
        "low_dim": model.low_dim,
        "truncate_dim": model.truncate_dim,
        "prompts": config.prompts,
        "default_prompt_name": config.default_prompt_name,
        "similarity_fn_name": config.similarity_fn_name,
        "history": saved_history(path, model.flow.verdict if model.flow else None),
    }
