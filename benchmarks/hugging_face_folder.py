"""An encoder's weights as the folder that Hugging Face's transformers load, so that the peers compute the same.

    python -m benchmarks.hugging_face_folder --bert_hub demo --out FOLDER

A program of its own, since the processes whose memory is measured must not be started by one that holds TensorFlow.
"""

import argparse
import os
import pathlib
import subprocess
import sys

from benchmarks.peers import ROOT
from bert_flow_tf.errors import ArgumentParser, UserError, exit_status


def write_hugging_face_folder(bert_hub: str, out: str | pathlib.Path) -> None:
    """Writes configuration, weights and tokenizer, see `convert.to_huggingface`, to the new folder `out`.

    Args:
      bert_hub: `demo`, or a folder of `bert-flow convert`, whose configuration says what Hugging Face's needs.
      out: path of the folder.

    Raises:
      UserError: the encoder cannot be found, or has no configuration.
    """
    import tensorflow as tf

    from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
    from bert_flow_tf.encoder.convert.encoder_folder import floating_variables
    from bert_flow_tf.encoder.convert.to_huggingface import write_hugging_face_bert, write_hugging_face_tokenizer
    from bert_flow_tf.encoder.convert.weights import tf1_arrays
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.encoder.tokenizer import vocabulary_asset

    source = resolve_encoder(bert_hub=bert_hub)
    configuration = source.encoder_dir.parent / "bert_config.json"
    if not configuration.is_file():
        raise UserError(f"--bert_hub={bert_hub}: found no {configuration}, expected demo or a folder of convert")
    config = read_tf1_config(configuration)
    weights = tf1_arrays(floating_variables(tf.saved_model.load(str(source.encoder_dir))), bert_hub)
    out = pathlib.Path(out)
    out.mkdir()
    write_hugging_face_bert(out, config, weights)
    vocab_file = vocabulary_asset(source.preprocess_dir)
    write_hugging_face_tokenizer(out, vocab_file, source.do_lower_case, config.max_position_embeddings)


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
