"""Read an encoder from a checkpoint of TF1 or of a run."""

from bert_flow_tf.common.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, VOCAB_FILE
from bert_flow_tf.encoder.tokenizer import is_uncased, read_vocabulary
from bert_flow_tf.encoder.weights import (
    Pretrained,
    SourceRecord,
    check_weights,
    read_bert_config,
    variable_shapes,
)

# A run's tf.train.Checkpoint stores `SentenceEncoder.variables_by_name` under its keyword
# `encoder`.
_PREFIX, _SUFFIX = "encoder/", "/.ATTRIBUTES/VARIABLE_VALUE"


def read_tf1(
    checkpoint: AnyPath,
    config_file: AnyPath | None = None,
    vocab_file: AnyPath | None = None,
    do_lower_case: bool | None = None,
) -> Pretrained:
    """Read a TF1 BERT checkpoint; raise `UserError` if files do not match.

    Args:
      checkpoint: folder with `bert_config.json`, `vocab.txt` and `bert_model.ckpt.*`, or the
        checkpoint's prefix.
      config_file, vocab_file: paths of these two files, if they are in another folder.
      do_lower_case: True if the vocabulary is uncased; None to detect it, see
        `tokenizer.is_uncased`.
    """
    prefix = checkpoint_prefix(checkpoint)
    config = read_bert_config(config_file or prefix.parent / BERT_CONFIG_FILE, gelu="gelu_tanh")
    vocab = read_vocabulary(vocab_file or prefix.parent / VOCAB_FILE)
    do_lower_case = is_uncased(do_lower_case, vocab, prefix.absolute().parent.name)
    stored = Checkpoint(prefix)
    shapes = variable_shapes(config)
    # As the original does, ignore other variables, such as heads and an optimiser's moments.
    weights = stored.read(name for name in shapes if name in stored.shapes)
    check_weights(weights, shapes, prefix, "this configuration")
    return Pretrained(
        config, vocab, weights, SourceRecord(kind="TF1 checkpoint", do_lower_case=do_lower_case)
    )


def read_run(prefix: AnyPath, start: Pretrained) -> Pretrained:
    """Read the BERT that a run trained from `start`."""
    checkpoint = Checkpoint(prefix)
    # tf.train.Checkpoint writes ".S" for the "/" of a name.
    keys = {
        name: f"{_PREFIX}{name.replace('/', '.S')}{_SUFFIX}"
        for name in variable_shapes(start.config)
    }
    weights = checkpoint.read(key for key in keys.values() if key in checkpoint.shapes)
    weights = {name: weights[key] for name, key in keys.items() if key in weights}
    check_weights(
        weights, variable_shapes(start.config), prefix, "the encoder that the run started from"
    )
    record = start.record.with_origin("run", started_from=start.fingerprint)
    return Pretrained(start.config, start.vocab, weights, record)
