"""Save and load models.

A saved model has the encoder folder `encoder`, which transformers opens, and files:
`flow.npz` has the flow's variables by path, `bert_flow.json` the configuration, `README.md` the
model card; `losses.json`, if a `fit` took steps, the losses.
"""

import os
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bert_flow_tf.common.atomic import FolderKind, new_output
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.common.losses import LOSSES_FILE, write_losses
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.records import EncoderFiles, ModelRecord, Result, Training, made_by
from bert_flow_tf.encoder.handles import downloaded_model, is_model_name
from bert_flow_tf.runtime.description import is_export
from bert_flow_tf.training.run_records import CONFIG_FILE, is_run

# Importing these modules would load TensorFlow, which takes seconds.
if TYPE_CHECKING:
    from bert_flow_tf.encoder.layer import SentenceEncoder
    from bert_flow_tf.encoder.source import EncoderSource
    from bert_flow_tf.model.embedder import Embedder
    from glow.calibration import Calibration

ENCODER = "encoder"
MODEL_FILE = "bert_flow.json"
FLOW_FILE = "flow.npz"
CARD_FILE = "README.md"
# Earlier versions of `bert-flow evaluate` wrote into a saved model.
_EVALUATION_FILE = "evaluation.json"
BERT_FLOW_FOLDER = FolderKind(
    "a saved model",
    MODEL_FILE,
    (ENCODER, FLOW_FILE, MODEL_FILE, CARD_FILE, LOSSES_FILE, _EVALUATION_FILE),
)
_TAGS = ["sentence-similarity", "feature-extraction", "bert-flow"]


class SavedModelConfig(Result, frozen=True, kw_only=True, tag="saved model"):
    """The file `bert_flow.json`.

    The prompts stand in the encoder's folder, too, which other libraries open by itself. These
    here are read, because an encoder that is a SavedModel has no place for them.
    """

    model: ModelRecord
    do_lower_case: bool
    embedding_size: int
    prompts: dict[str, str]
    default_prompt_name: str | None = None
    similarity_fn_name: str


class LoadedParts(NamedTuple):
    """The parts of a saved model."""

    encoder: "SentenceEncoder"
    calibration: "Calibration | None"
    source: "EncoderSource"
    config: SavedModelConfig


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
    if folder.is_dir() and not is_saved_model(folder) and not is_run(folder):
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
    from glow.saved import check_savable, write_variables

    if bert_flow.flow is not None:
        try:
            check_savable(bert_flow.flow)
        except ValueError as error:
            raise UserError(f"save: {error}") from error
    with new_output(path, BERT_FLOW_FOLDER, overwrite=overwrite) as folder:
        (folder / ENCODER).mkdir()
        fingerprint = _write_encoder(bert_flow, folder / ENCODER)
        if bert_flow.flow is not None:
            write_variables(folder / FLOW_FILE, bert_flow.flow)
            write_losses(folder, bert_flow.recorded_losses)
        config = SavedModelConfig(
            made_by=made_by("save"),
            model=_record(bert_flow, fingerprint),
            do_lower_case=bert_flow.source.record.do_lower_case,
            embedding_size=bert_flow.embedding_size,
            prompts=bert_flow.prompts,
            default_prompt_name=bert_flow.default_prompt_name,
            similarity_fn_name=bert_flow.similarity_fn_name,
        )
        write_json(folder / MODEL_FILE, config)
        card = _model_card(pathlib.Path(os.path.abspath(path)).name, config)
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
    return pathlib.Path(path)


def _write_encoder(bert_flow: "Embedder", folder: pathlib.Path) -> str:
    """Write an encoder folder; return the encoder's fingerprint."""
    # Importing these loads TensorFlow, which takes seconds.
    from bert_flow_tf.encoder.convert.encoder_folder import write_encoder
    from bert_flow_tf.encoder.saved_model_encoder import Program

    source = bert_flow.source
    trained = bert_flow.encoder_trained
    if isinstance(source.pretrained, Program) and not trained:
        source.pretrained.write(folder)
        return source.fingerprint
    bert = bert_flow.encoder.read_pretrained(
        source.record.with_origin(
            "saved model",
            normalize=bert_flow.encoder_normalizes,
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


def _model_card(name: str, config: SavedModelConfig) -> str:
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
    )
    return card.content


def _record(bert_flow: "Embedder", fingerprint: str) -> ModelRecord:
    """Return the model's record, with names instead of paths."""
    # Importing it loads TensorFlow, which takes seconds.
    from bert_flow_tf.model.build import own_code
    from bert_flow_tf.model.embedder import current_record

    encoder = bert_flow.record.encoder
    checkpoint = bert_flow.record.checkpoint
    handle = pathlib.Path(encoder.handle).name if os.path.isabs(encoder.handle) else encoder.handle
    # If weights were changed in Python, their training is unknown.
    fine_tuning = encoder.fine_tuning or (Training() if bert_flow.encoder_trained else None)
    encoder = msgspec.structs.replace(
        encoder, handle=handle, fingerprint=fingerprint, fine_tuning=fine_tuning
    )
    name = checkpoint and pathlib.Path(checkpoint).name
    flow = bert_flow.record.flow
    if flow is not None and bert_flow.flow is not None:
        flow = current_record(flow, bert_flow.flow)
    return msgspec.structs.replace(
        bert_flow.record,
        encoder=encoder,
        checkpoint=name,
        flow=flow,
        code=own_code(bert_flow.record.pooling, flow),
    )


def load(path: str | os.PathLike) -> LoadedParts:
    """Return the parts of `save`'s folder."""
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.model.build import build_calibration, build_encoder, with_present_code
    from glow.saved import read_variables

    path = pathlib.Path(path)
    config = read_json(
        path / MODEL_FILE, SavedModelConfig, expected="a saved model's configuration"
    )
    model = with_present_code(config.model, path)
    config = msgspec.structs.replace(config, model=model)
    # Use an absolute path, because a relative one may equal a name such as `demo`.
    folder = str(path.resolve() / ENCODER)
    fingerprint = str(config.model.encoder.fingerprint)
    recorded = EncoderFiles(bert_hub=folder, preprocess_hub=None, fingerprint=fingerprint)
    source = resolve_encoder(bert_hub=folder, recorded=recorded)
    encoder = build_encoder(source, config.model)
    calibration = build_calibration(config.model, encoder.embedding_size)
    if calibration is not None:
        with reading(path / FLOW_FILE, "the flow's arrays"):
            read_variables(path / FLOW_FILE, calibration)
    return LoadedParts(encoder, calibration, source, config)
