"""A BERT checkpoint small enough for every documented command."""

import json
import re
import shutil

import numpy as np
import tensorflow as tf

LAYERS, POSITIONS = 2, 64


def write_small_bert(tiny, folder, layers=LAYERS, pieces=None):
    """Write the golden BERT with fewer layers and 64 positions.

    Args:
      tiny: folder of the golden data's BERT.
      folder: the folder to make.
      layers: at most 3.
      pieces: list of word pieces in place of its own; their embeddings are random.
    """
    folder.mkdir(parents=True)
    shutil.copy(tiny / "vocab.txt", folder)
    config = json.loads((tiny / "bert_config.json").read_text())
    changes = {"max_position_embeddings": POSITIONS, "num_hidden_layers": layers}
    if pieces is not None:
        changes["vocab_size"] = len(pieces)
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (folder / "bert_config.json").write_text(json.dumps(config | changes))
    reader = tf.train.load_checkpoint(str(tiny / "bert_model.ckpt"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = []
        for name in reader.get_variable_to_shape_map():
            layer = re.match(r"bert/encoder/layer_(\d+)/", name)
            if layer and int(layer[1]) >= layers:
                continue
            value = reader.get_tensor(name)
            if name.endswith("position_embeddings"):
                value = np.resize(value, [POSITIONS, value.shape[1]])
            if name.endswith("word_embeddings") and pieces is not None:
                rows = np.random.default_rng(0).normal(
                    0, value.std(), [len(pieces), value.shape[1]]
                )
                value = rows.astype(np.float32)
            variables.append(tf.compat.v1.get_variable(name, initializer=value))
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(
            session, str(folder / "bert_model.ckpt"), write_meta_graph=False, write_state=False
        )
