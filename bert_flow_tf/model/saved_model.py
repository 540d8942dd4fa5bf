"""A saved model's folder: encoder, vocabulary, flow, and digests that tell whether it is what was written.

It is an encoder folder of `bert-flow convert` (`encoder/`, `preprocess/`, `vocab.txt`) with `flow.npz`, an array for
each of the flow's variables by its path; `bert_flow.json`, the configuration; and a model card, `README.md`.
"""

import os
import pathlib
import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bert_flow_tf.encoder.convert.folders import ENCODER_PARTS, SOURCE_FILE, is_hugging_face
from bert_flow_tf.encoder.handles import EncoderSource
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind, new_output
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.hugging_face import downloaded_model, is_model_name
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json, write_json
from bert_flow_tf.files.reading import read_arrays
from bert_flow_tf.files.remote import refuse_address
from bert_flow_tf.model.card import model_card
from bert_flow_tf.model.embedding_model import EmbeddingModel
from bert_flow_tf.runs import record
from bert_flow_tf.runs.record import EncoderFiles, MadeBy, Model, Training, made_by

if TYPE_CHECKING:
    from bert_flow_tf.model.siamese import SiameseBertFlow

CONFIG_FILE = "bert_flow.json"
FLOW_FILE = "flow.npz"
CARD_FILE = "README.md"
SAVED_MODEL = FolderKind("a saved model", CONFIG_FILE, (*ENCODER_PARTS, FLOW_FILE, CONFIG_FILE, CARD_FILE))


class SavedModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a saved model.

    `model` is all that its embeddings depend on; `files` are digests by the path within the folder; the others are
    attributes of `api.BertFlow`.
    """

    format_version: int = FORMAT_VERSION
    made_by: MadeBy
    model: Model
    do_lower_case: bool
    embedding_size: int
    files: dict[str, str]
    prompts: dict[str, str] = {}
    similarity_fn_name: str = "cosine"


def is_saved_model(path: str | os.PathLike) -> bool:
    """Whether a folder is one that `save` wrote, by its configuration's name."""
    return (pathlib.Path(path) / CONFIG_FILE).is_file()


def model_folder(path: str | os.PathLike) -> pathlib.Path:
    """The path; of a model of the Hugging Face Hub, where no such file is, the folder that it is downloaded into.

    Raises:
      UserError: the hub has no such model, or one that `push_to_hub` did not write.
    """
    name = os.fspath(path)
    if os.path.lexists(name) or not is_model_name(name):
        return pathlib.Path(path)
    patterns = tuple(pattern for part in SAVED_MODEL.names for pattern in (part, f"{part}/*"))
    folder = downloaded_model(name, patterns)
    if not is_saved_model(folder):
        raise UserError(f"{name}: holds no {CONFIG_FILE}, expected a model of push_to_hub (from_hub takes encoders)")
    return folder


def check_model_folder(path: str | os.PathLike) -> None:
    """Raises `UserError` for a folder that holds neither the configuration of a saved model nor that of a run."""
    path = pathlib.Path(path)
    is_run = (path / record.CONFIG_FILE).is_file() and not is_hugging_face(path)
    if path.is_dir() and not is_run and not (path / CONFIG_FILE).is_file():
        raise UserError(
            f"{path}: holds neither {CONFIG_FILE} nor a run's {record.CONFIG_FILE}, expected a folder of save() or a "
            "run's (encoders are for `bert_hub`, exports for a server)",
            arguments=["bert_hub"],
        )


def save(
    bert_flow: EmbeddingModel, path: str | os.PathLike, *, overwrite: bool = False, repo_id: str | None = None
) -> pathlib.Path:
    """Path of the folder of an `api.BertFlow`, whole or not at all; nothing outside it is needed to load it.

    With a `repo_id`, its model card is one for the Hugging Face Hub.

    Raises:
      UserError: something is there that may not be replaced, or the place cannot be written to.
    """
    refuse_address(path, str(path))
    path = pathlib.Path(path).absolute()
    with new_output(path, SAVED_MODEL, overwrite=overwrite) as folder:
        source = _write_encoder(bert_flow, folder)
        flow = bert_flow.flow
        if flow is not None:
            np.savez(folder / FLOW_FILE, **{name: v.numpy() for name, v in flow.variables_by_path.items()})
        # No digest of the card, which anyone may edit.
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        config = SavedModelConfig(
            made_by=made_by("save"),
            model=_record(bert_flow, source),
            do_lower_case=source.do_lower_case,
            embedding_size=bert_flow.embedding_size,
            files={file.relative_to(folder).as_posix(): file_digest(file) for file in files},
            prompts=bert_flow.prompts,
            similarity_fn_name=bert_flow.similarity_fn_name,
        )
        write_json(folder / CONFIG_FILE, config)
        (folder / CARD_FILE).write_text(model_card(path.name, config, repo_id), encoding="utf-8")
    return path


def _write_encoder(bert_flow: EmbeddingModel, folder: pathlib.Path) -> EncoderSource:
    """The encoder that it writes into the folder, from files that must be those of when it was loaded."""
    # TensorFlow takes seconds to load, and a command that only looks for a saved model does not need it.
    from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_record
    from bert_flow_tf.encoder.convert.from_run import copy_beside_encoder, write_with_weights
    from bert_flow_tf.encoder.source import resolve_encoder

    source = bert_flow.source
    if bert_flow.encoder_trained:
        values = {name: variable.numpy() for name, variable in bert_flow.encoder.variables_by_name.items()}
        write_with_weights(folder, source, values, {"kind": "exported"})
        return resolve_encoder(bert_hub=str(folder))
    try:
        shutil.copytree(source.encoder_dir, folder / "encoder", copy_function=shutil.copyfile)
        copy_beside_encoder(source, folder)
    except OSError as error:
        raise UserError(f"{source.bert_hub}: its files cannot be copied ({error}), expected the encoder") from error
    # The fingerprint depends on how the encoder was made.
    record = source.encoder_dir.parent / SOURCE_FILE
    made = read_json(record, dict[str, Any], expected="an encoder folder's record") if record.is_file() else {}
    # The encoder's own record knows nothing of a preprocess model from elsewhere, which need not be run to ask it.
    write_encoder_record(folder, made | {"do_lower_case": source.do_lower_case})
    written = resolve_encoder(bert_hub=str(folder))
    if (written.fingerprint, written.do_lower_case) != (source.fingerprint, source.do_lower_case):
        raise UserError(f"{source.bert_hub}: found other files than when it was loaded, expected the same encoder")
    return written


def _record(bert_flow: EmbeddingModel, source: EncoderSource) -> Model:
    """The model's record with the encoder that was written, and its handle without the folders above it."""
    encoder = bert_flow.record.encoder
    # Only a folder's name, since where it lies is private.
    own = {
        name: pathlib.Path(handle).name if handle and pathlib.Path(handle).is_absolute() else handle
        for name, handle in (("handle", encoder.handle), ("preprocess_handle", encoder.preprocess_handle))
    }
    # Weights that were changed in Python were trained in a way of which nothing is known.
    fine_tuning = encoder.fine_tuning or (Training() if bert_flow.encoder_trained else None)
    encoder = msgspec.structs.replace(encoder, fingerprint=source.fingerprint, fine_tuning=fine_tuning, **own)
    checkpoint = bert_flow.record.checkpoint
    name = checkpoint and pathlib.Path(checkpoint).name
    return msgspec.structs.replace(bert_flow.record, encoder=encoder, checkpoint=name)


def load(path: str | os.PathLike) -> tuple["SiameseBertFlow", EncoderSource, SavedModelConfig]:
    """The model of a folder that `save` wrote, its encoder and its configuration.

    Raises:
      UserError: the configuration cannot be read or is of another version, or a file is missing, altered or does not
        fit it; the line names it.
    """
    from bert_flow_tf.encoder.convert.weights import check_arrays
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.model.build import build_model

    path = pathlib.Path(path)
    config = read_json(path / CONFIG_FILE, SavedModelConfig, expected="a saved model's configuration")
    if config.model.flow is not None and FLOW_FILE not in config.files:
        raise UserError(f"{path / CONFIG_FILE}: files: found no {FLOW_FILE}, expected it, as there is a flow")
    for name, digest in config.files.items():
        if not (path / name).is_file():
            raise UserError(f"{path / name}: missing, expected every file of the saved model")
        found = file_digest(path / name)
        if found != digest:
            raise UserError(f"{path / name}: found SHA-256 {found}, expected {digest}: the file was altered")
    # Absolute, since a folder may be called `demo` or `base`.
    handle, fingerprint = str(path.resolve()), str(config.model.encoder.fingerprint)
    recorded = EncoderFiles(
        bert_hub=handle, preprocess_hub=None, do_lower_case=config.do_lower_case, fingerprint=fingerprint
    )
    source = resolve_encoder(bert_hub=handle, recorded=recorded)
    model = build_model(source, config.model)
    if model.flow is not None:
        arrays = read_arrays(path / FLOW_FILE, "the flow's arrays")
        variables = model.flow.variables_by_path
        check_arrays(arrays, variables, path / FLOW_FILE, "the flow")
        for name, variable in variables.items():
            variable.assign(arrays[name])
    return model, source, config
