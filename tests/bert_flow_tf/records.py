"""Records of models and runs for tests."""

from bert_flow_tf.common.records import (
    CalibrationRecord,
    EncoderFiles,
    EncoderRecord,
    MadeBy,
    ModelRecord,
    Training,
)
from bert_flow_tf.training.run_records import RunConfig
from glow.config import GlowConfig

DEMO = "a" * 64
MADE_BY = MadeBy(command="run_siamese", libraries={"bert-flow-tf": "0.1.0", "tensorflow": "2.19.1"})
# A flow learned as the paper does has these settings.
FLOW_SETTINGS = {
    "num_examples": 0,
    "num_train_epochs": 1.0,
    "train_batch_size": 32,
    "flow_learning_rate": 1e-3,
    "use_full_for_training": 1,
    "dupe_factor": 1,
    "flow_loss": 1,
    "flow_ddi": False,
    "l2_penalty": -1.0,
}


def encoder(name="demo", *, fine_tuning=None, **changes):
    """An encoder that was published under a name, or fine-tuned."""
    fields = {
        "name": name,
        "handle": name or "/my/encoder",
        "fingerprint": None if fine_tuning else DEMO,
        "weights": f"{name} {fine_tuning}" if fine_tuning else DEMO,
        "fine_tuning": fine_tuning,
    }
    return EncoderRecord(**(fields | changes))


def flow(
    config="config_l3_d3_w32", *, task="sts-b", pairs=8628, seed=1234, began_with=None, **settings
):
    """Return a flow learned as the paper's, with changed settings."""
    config = GlowConfig.load(config) if isinstance(config, str) else config
    learned = FLOW_SETTINGS | settings
    training = Training(task=task, pairs=pairs, settings=learned, seed=seed, began_with=began_with)
    return CalibrationRecord(config=config, training=training)


def model(**changes):
    """Return the demo encoder's avg-last-2, cut to 64 word pieces."""
    return ModelRecord(
        **({"encoder": encoder(), "pooling": "avg-last-2", "max_seq_length": 64} | changes)
    )


def run_config(source=None, **changes):
    """Return the `config.json` of a run on an encoder."""
    files = {"bert_hub": "demo", "preprocess_hub": None, "fingerprint": DEMO}
    fields = {
        "made_by": MADE_BY,
        "model": model(),
        "encoder": EncoderFiles(**files) if source is None else source.files,
        "encoder_flags": {},
        "encoder_trained": False,
        "data": "b",
        "flags": {"seed": 1, "learning_rate": 0.1},
    }
    return RunConfig(**(fields | changes))
