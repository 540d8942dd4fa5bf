"""A saved model's folder: encoder, vocabulary, flow, and digests that tell whether it is what was written.

It is an encoder folder of `bert-flow convert` (`encoder/`, `preprocess/`, `vocab.txt`) with `flow.npz`, an array for
each of the flow's variables by its path; `bert_flow.json`, the configuration; and a model card, `README.md`.
"""

import json
import pathlib
import shutil
import zipfile

import numpy as np

import bert_flow_tf
from bert_flow_tf.atomic import new_folder
from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.convert.encoder_folder import write_json
from bert_flow_tf.convert.from_run import export_encoder
from bert_flow_tf.encoder_source import resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model_card import model_card
from bert_flow_tf.tokenizer import vocabulary_asset

FORMAT_VERSION = 1
CONFIG_FILE = "bert_flow.json"
FLOW_FILE = "flow.npz"
CARD_FILE = "README.md"
_ENCODER_RECORDS = ("bert_config.json", "source.json")
# Key of the configuration -> types of its value.
_EXPECTED = {
    "encoder": dict,
    "sentence_embedding_type": str,
    "max_seq_length": int,
    "low_dim": int,
    "embedding_size": int,
    "flow_config": (dict, type(None)),
    "learned_on": (dict, type(None)),
    "files": dict,
}


def is_saved_model(path):
    """Whether a folder is one that `save` wrote, by its configuration's name."""
    return (pathlib.Path(path) / CONFIG_FILE).is_file()


def save(bert_flow, path, *, overwrite=False):
    """pathlib.Path of the folder written, whole or not at all; nothing outside it is needed to load it.

    Args:
      bert_flow: `api.BertFlow`.
      path: the folder to make.
      overwrite: whether a saved model there may be replaced.

    Raises:
      UserError: something is there that may not be replaced, or the place cannot be written to.
    """
    path = pathlib.Path(path).absolute()
    check_place(path, overwrite=overwrite)
    with new_folder(path, replace=overwrite) as folder:
        source = _write_encoder(bert_flow, folder)
        flow = bert_flow.flow
        if flow is not None:
            np.savez(folder / FLOW_FILE, **{name: v.numpy() for name, v in flow.variables_by_path.items()})
        config = {
            "format_version": FORMAT_VERSION,
            "bert_flow_tf": bert_flow_tf.__version__,
            "encoder": {
                "name": _encoder_name(bert_flow),
                "fingerprint": source.fingerprint,
                "do_lower_case": source.do_lower_case,
            },
            "sentence_embedding_type": bert_flow.sentence_embedding_type,
            "max_seq_length": bert_flow.max_seq_length,
            "low_dim": bert_flow.low_dim,
            "embedding_size": bert_flow.embedding_size,
            "flow_config": None if flow is None else flow.config.to_dict(),
            "learned_on": bert_flow.learned_on,
        }
        # The card is its reader's to edit: no digest.
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        config["files"] = {file.relative_to(folder).as_posix(): file_digest(file) for file in files}
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        (folder / CARD_FILE).write_text(model_card(path.name, config), encoding="utf-8")
    return path


def check_place(path, *, overwrite):
    """Raises `UserError` unless the folder is new, or `overwrite` and a saved model and nothing else."""
    path = pathlib.Path(path)
    if not path.exists():
        return
    if not overwrite:
        raise UserError(f"{path}: exists, expected a new folder, or overwrite to replace a saved model")
    if not is_saved_model(path):
        raise UserError(f"{path}: found no {CONFIG_FILE}, expected a saved model to replace")
    ours = {"encoder", "preprocess", "vocab.txt", *_ENCODER_RECORDS, FLOW_FILE, CONFIG_FILE, CARD_FILE}
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in ours)
    if others:
        raise UserError(f"{path}: holds {others[0]} beside a saved model, expected nothing else to replace")


def _write_encoder(bert_flow, folder):
    """`EncoderSource` of the encoder that it writes into the folder.

    Raises:
      UserError: the encoder's files are gone, or others than when it was loaded.
    """
    source = bert_flow.source
    if bert_flow.encoder_trained:
        values = {name: variable.numpy() for name, variable in bert_flow.encoder.variables_by_name.items()}
        export_encoder(source, values, folder)
        return resolve_encoder(bert_hub=str(folder))
    folder.mkdir()
    try:
        shutil.copytree(source.encoder_dir, folder / "encoder")
        shutil.copytree(source.preprocess_dir, folder / "preprocess")
        shutil.copyfile(vocabulary_asset(source.preprocess_dir), folder / "vocab.txt")
    except OSError as error:
        raise UserError(f"{source.bert_hub}: its files cannot be copied ({error}), expected the encoder") from error
    # They say how the encoder was made, and its fingerprint depends on them.
    for name in _ENCODER_RECORDS:
        if (source.encoder_dir.parent / name).is_file():
            shutil.copyfile(source.encoder_dir.parent / name, folder / name)
    record = folder / "source.json"
    if record.is_file():
        # Of a preprocess model from elsewhere, the encoder's own record says nothing.
        told = json.loads(record.read_text(encoding="utf-8")) | {"do_lower_case": source.do_lower_case}
        write_json(record, told)
    written = resolve_encoder(bert_hub=str(folder))
    if (written.fingerprint, written.do_lower_case) != (source.fingerprint, source.do_lower_case):
        raise UserError(f"{source.bert_hub}: found other files than when it was loaded, expected the same encoder")
    return written


def check_encoder(config, source, path):
    """Raises `UserError` if the encoder of a folder is not the one that its configuration names."""
    recorded = {name: config["encoder"].get(name) for name in ("fingerprint", "do_lower_case")}
    if recorded != {"fingerprint": source.fingerprint, "do_lower_case": source.do_lower_case}:
        raise UserError(
            f"{path}: found an encoder with fingerprint {source.fingerprint}, expected {recorded['fingerprint']}"
        )


def _encoder_name(bert_flow):
    # A folder's own name, not where it lies: that is nobody else's business.
    name = bert_flow.source.bert_hub
    name = pathlib.Path(name).name if pathlib.Path(name).is_absolute() else name
    return f"{name}, fine-tuned" if bert_flow.encoder_trained else name


def read(path):
    """The configuration of a saved model, dict, and the flow's arrays by path (None without a flow), both checked.

    Raises:
      UserError: the configuration cannot be read or is of another version, or a file is missing or altered; the line
        names it.
    """
    path = pathlib.Path(path)
    config = _read_config(path / CONFIG_FILE)
    for name, digest in config["files"].items():
        if not (path / name).is_file():
            raise UserError(f"{path / name}: missing, expected every file of the saved model")
        found = file_digest(path / name)
        if found != digest:
            raise UserError(f"{path / name}: found SHA-256 {found}, expected {digest}: the file was altered")
    if config["flow_config"] is None:
        return config, None
    try:
        with np.load(path / FLOW_FILE, allow_pickle=False) as arrays:
            return config, dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path / FLOW_FILE}: cannot be read ({error}), expected the flow's arrays") from error


def _read_config(path):
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}), expected a saved model's configuration") from error
    version = config.get("format_version") if isinstance(config, dict) else None
    if version != FORMAT_VERSION:
        raise UserError(f"{path}: found format_version {version}, expected {FORMAT_VERSION}")
    missing = sorted(_EXPECTED.keys() - config.keys())
    if missing:
        raise UserError(f"{path}: found no {', '.join(missing)}, expected a saved model's configuration")
    for name, types in _EXPECTED.items():
        if not isinstance(config[name], types) or isinstance(config[name], bool):
            raise UserError(f"{path}: {name}: found {config[name]!r}, expected a saved model's configuration")
    return config


def assign_flow(flow, arrays, path):
    """Gives the flow's variables the arrays of `read`; `path` is how an error calls them.

    Raises:
      UserError: an array is missing, left over, of another shape or not finite.
    """
    variables = flow.variables_by_path
    for name in sorted(variables.keys() ^ arrays.keys()):
        raise UserError(f"{path}: variable {name} is {'left over' if name in arrays else 'missing'} for the flow")
    for name, variable in variables.items():
        value = arrays[name]
        if value.shape != tuple(variable.shape) or not np.isfinite(value).all():
            raise UserError(
                f"{path}: variable {name}: found shape {list(value.shape)}, or values that are not finite, expected "
                f"finite ones of shape {list(variable.shape)}"
            )
        variable.assign(value)
