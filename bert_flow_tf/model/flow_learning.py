"""A flow learned on sentences: the encoder's embeddings of them, and `glow.FlowCalibrator` on these."""

import warnings
from collections.abc import Iterable
from typing import Any

from bert_flow_tf.encoder import stream
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.sentence_files import sentence_list
from bert_flow_tf.runs.record import Training
from glow.calibrator import FlowCalibrator
from glow.config import GlowConfig
from glow.flow import Glow

# The original's flow on the STS Benchmark takes 269.
_FEW_STEPS = 100


def learn_flow(
    bert_flow: Any, sentences: Iterable[str], config: GlowConfig, *, batch_size: int, **options: Any
) -> tuple[Glow, Training]:
    """The flow that is learned on the sentences, and the `Training` that says on what and how.

    A sentence counts as often as it occurs. `options` are further arguments of `FlowCalibrator`; `bert_flow`, an
    `api.BertFlow`, stays as it is. Warns if learning takes fewer than `_FEW_STEPS` steps.

    Raises:
      UserError: an element is not a string, there are too few for a step, an argument does not fit, or a loss is not
        finite.
    """
    sentences = sentence_list(sentences)
    if len(sentences) < batch_size:
        raise UserError(
            f"fit: found {len(sentences)} sentences, expected at least the {batch_size} of one step (see batch_size)"
        )
    calibrator = FlowCalibrator(config, batch_size=batch_size, **options)
    pieces = stream.tokenize(bert_flow.tokenizer, sentences, bert_flow.max_seq_length)
    u = stream.embed(bert_flow.pooled, bert_flow.tokenizer, pieces, bert_flow.max_seq_length)
    try:
        calibrator.fit(u)
    except ValueError as error:
        raise UserError(f"fit: {error}") from error
    if calibrator.n_steps_ < _FEW_STEPS:
        warnings.warn(
            f"fit: {calibrator.n_steps_} steps on {len(sentences)} sentences; after fewer than {_FEW_STEPS} a flow may "
            "be worse than none: use more sentences, or more epochs",
            stacklevel=3,
        )
    settings = {"sentences": len(sentences), "steps": calibrator.n_steps_, "dtype": bert_flow.dtype}
    settings |= {name: getattr(calibrator, name) for name in ("epochs", "batch_size", "learning_rate")}
    return calibrator.flow_, Training(settings=settings, seed=calibrator.seed)
