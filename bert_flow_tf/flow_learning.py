"""A flow learned on sentences: the encoder's embeddings of them, and `glow.FlowCalibrator` on these."""

import warnings

from bert_flow_tf import embedding, input_pipeline
from bert_flow_tf.errors import UserError
from bert_flow_tf.sentence_stream import sentence_list
from glow.calibrator import FlowCalibrator

# The original's flow on the STS Benchmark takes 269.
FEW_STEPS = 100


def learn_flow(bert_flow, sentences, config, *, batch_size, **options):
    """The `glow.flow.Glow` that is learned on the sentences, and a dict that says on what and how, for a model card.

    Args:
      bert_flow: `api.BertFlow`, whose encoder and tokenizer are used; it stays as it is.
      sentences: iterable of strings; each counts as often as it occurs.
      config: `GlowConfig`.
      batch_size: sentences a step.
      **options: further arguments of `FlowCalibrator`.

    With fewer than `FEW_STEPS` steps there is a warning.

    Raises:
      UserError: an element is no string, there are too few for a step, an argument does not fit, or a loss is not
        finite.
    """
    sentences = sentence_list(sentences)
    if len(sentences) < batch_size:
        raise UserError(
            f"fit: found {len(sentences)} sentences, expected at least the {batch_size} of one step (batch_size)"
        )
    calibrator = FlowCalibrator(config, batch_size=batch_size, **options)
    pieces = input_pipeline.tokenize(bert_flow.tokenizer, sentences, bert_flow.max_seq_length)
    u = embedding.embed(bert_flow.pooled, bert_flow.tokenizer, pieces, bert_flow.max_seq_length)
    try:
        calibrator.fit(u)
    except ValueError as error:
        raise UserError(f"fit: {error}") from error
    if calibrator.n_steps_ < FEW_STEPS:
        warnings.warn(
            f"fit: {calibrator.n_steps_} steps on {len(sentences)} sentences; a flow of fewer than {FEW_STEPS} is "
            "hardly more than what it began as, and may be worse than none: take more sentences, or more epochs",
            stacklevel=3,
        )
    learned_on = {"sentences": len(sentences), "steps": calibrator.n_steps_, "dtype": bert_flow.dtype}
    names = ("epochs", "batch_size", "learning_rate", "seed")
    return calibrator.flow_, learned_on | {name: getattr(calibrator, name) for name in names}
