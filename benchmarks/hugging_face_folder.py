"""An encoder's weights as the folder that Hugging Face's transformers load, so that the peers compute the same.

    python -m benchmarks.hugging_face_folder --bert_hub demo --out FOLDER

A program of its own, since the processes whose memory is measured must not be started by one that holds TensorFlow.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

from benchmarks.peers import ROOT
from bert_flow_tf.errors import ArgumentParser, UserError, exit_status

_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh", "gelu_erf": "gelu", "relu": "relu"}


def write_hugging_face_folder(bert_hub: str, out: str | pathlib.Path) -> None:
    """Writes `config.json`, `vocab.txt`, `tokenizer_config.json` and `model.safetensors` to the new folder `out`.

    Args:
      bert_hub: `demo`, or a folder of `bert-flow convert`, whose configuration says what Hugging Face's needs.
      out: path of the folder.

    Raises:
      UserError: the encoder cannot be found, or has no configuration.
    """
    import msgspec
    import numpy as np
    import tensorflow as tf
    from safetensors.numpy import save_file

    from bert_flow_tf.encoder.convert.bert_config import BertConfig
    from bert_flow_tf.encoder.convert.from_huggingface import hugging_face_name
    from bert_flow_tf.encoder.convert.weights import keras_names, to_tf1_shape
    from bert_flow_tf.encoder.source import resolve_encoder

    source = resolve_encoder(bert_hub=bert_hub)
    configuration = source.encoder_dir.parent / "bert_config.json"
    if not configuration.is_file():
        raise UserError(f"--bert_hub={bert_hub}: found no {configuration}, expected demo or a folder of convert")
    config = BertConfig(**json.loads(configuration.read_text()))
    if config.hidden_act not in _ACTIVATIONS:
        raise UserError(f"{configuration}: found hidden_act {config.hidden_act}, expected one of {list(_ACTIVATIONS)}")
    variables = {
        variable.name.removesuffix(":0"): variable.numpy()
        for variable in tf.saved_model.load(str(source.encoder_dir)).variables
    }
    weights = {}
    for tf1_name, keras_name in keras_names(config.num_hidden_layers).items():
        value = to_tf1_shape(tf1_name, variables[keras_name])
        weights[hugging_face_name(tf1_name)] = np.ascontiguousarray(value.T if tf1_name.endswith("/kernel") else value)
    out = pathlib.Path(out)
    out.mkdir()
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
    shutil.copyfile(source.encoder_dir.parent / "vocab.txt", out / "vocab.txt")
    fields = msgspec.structs.asdict(config) | {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": _ACTIVATIONS[config.hidden_act],
        "layer_norm_eps": 1e-12,
    }
    (out / "config.json").write_text(json.dumps(fields, indent=2))
    tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": source.do_lower_case}
    (out / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2))


def hugging_face_folder(bert_hub: str, out: str | pathlib.Path) -> str:
    """`out`, after a process of its own has written it.

    Raises:
      UserError: as `write_hugging_face_folder`.
    """
    command = [sys.executable, "-m", "benchmarks.hugging_face_folder", f"--bert_hub={bert_hub}", f"--out={out}"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise UserError(outcome.stderr.strip().splitlines()[-1].removeprefix("error: "))
    return str(out)


def _run() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bert_hub", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    write_hugging_face_folder(arguments.bert_hub, arguments.out)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.exit(exit_status(_run))
