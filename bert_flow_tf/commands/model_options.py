"""The options that name a model, the model they name, and what results say of it."""

import dataclasses
import functools
import pathlib

import click

from bert_flow_tf.errors import UserError

# Of a run's flags, those in which runs of one encoder and pooling differ.
_TELLING_FLAGS = (
    "seed",
    "flow_ddi",
    "flow_learning_rate",
    "num_train_epochs",
    "train_batch_size",
    "use_full_for_training",
    "num_examples",
    "flow_loss",
    "dupe_factor",
    "l2_penalty",
)


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The model that a command was told of; see `model_options` for what has been checked.

    Attributes:
      model: a run, a checkpoint's prefix or a saved model's folder; None where there is `bert_hub`, or another source
        of embeddings.
      bert_hub, preprocess_hub: as `encoder.resolve_encoder` takes them.
      sentence_embedding_type, max_seq_length: of `bert_hub`; None for the defaults.
      embeds_sentences: whether the command does; if not, an encoder may have as few positions as it likes.
    """

    model: str | None
    bert_hub: str | None
    preprocess_hub: str | None
    sentence_embedding_type: str | None = None
    max_seq_length: int | None = None
    embeds_sentences: bool = True

    @property
    def run_dir(self):
        """pathlib.Path of the folder of the run; None where the model is an encoder as it is."""
        if self.model is None:
            return None
        path = pathlib.Path(self.model)
        return path if path.is_dir() else path.parent

    def load(self):
        """The `BertFlow`, and the dict that `provenance` gives of it.

        Raises:
          UserError: the run is not finished, or its encoder, or `bert_hub`, cannot be reached or does not fit.
        """
        # TensorFlow takes seconds to load: not for --help, nor for a mistake in the flags.
        from bert_flow_tf.api import BertFlow

        if self.model:
            loaded = BertFlow.load(self.model)
        else:
            loaded = BertFlow.from_hub(
                self.bert_hub,
                preprocess_hub=self.preprocess_hub,
                sentence_embedding_type=self.sentence_embedding_type or "avg",
                max_seq_length=self.max_seq_length or (64 if self.embeds_sentences else 3),
            )
        return loaded, provenance(loaded, self.model)


def model_options(*, pooling=True, or_instead=None):
    """Decorator that gives a command the options of a model, and to its function one `model`, a `ModelOptions`.

    Before the function is called, it is checked that one model is named, that options of `--bert_hub` come with it, and
    that `--model` is a folder or a checkpoint. What takes TensorFlow to see, `ModelOptions.load` checks.

    Args:
      pooling: whether the command embeds sentences, and so takes `--sentence_embedding_type` and `--max_seq_length`.
      or_instead: name of an option of the command that may stand in the place of a model.
    """
    options = [
        click.option("--model", metavar="RUN", help="Finished run, one of its checkpoints, or a saved model."),
        click.option("--bert_hub", metavar="HANDLE|DIR", help="An encoder as it is, instead: demo, base, large, …"),
        click.option(
            "--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub, where it does not tell."
        ),
    ]
    if pooling:
        options += [
            click.option(
                "--sentence_embedding_type", metavar="NAME", help="Pooling of --bert_hub: avg, cls, …  [default: avg]"
            ),
            click.option("--max_seq_length", type=click.IntRange(3), metavar="N", help="Of --bert_hub.  [default: 64]"),
        ]
    fields = [field.name for field in dataclasses.fields(ModelOptions) if field.name != "embeds_sentences"]

    def decorate(function):
        @functools.wraps(function)
        def command(**values):
            told = {name: values.pop(name) for name in fields if name in values}
            _check(told, {or_instead: values[or_instead]} if or_instead else {})
            return function(model=ModelOptions(**told, embeds_sentences=pooling), **values)

        return with_options(options)(command)

    return decorate


def with_options(options):
    """Decorator that adds the options, as `click.option` makes them, in the order of their list."""

    def decorate(command):
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _check(told, others):
    named = {"model": told["model"], "bert_hub": told["bert_hub"], **others}
    sources = {f"--{name}": value for name, value in named.items()}
    given = [flag for flag, value in sources.items() if value]
    if len(given) != 1:
        raise UserError(
            f"{click.get_current_context().command_path}: found {' and '.join(given) or 'no model'}, expected one of "
            f"{', '.join(sources)}"
        )
    for name in told.keys() - {"model", "bert_hub"}:
        if told[name] is not None and given != ["--bert_hub"]:
            raise UserError(f"--{name}: found {given[0]}, expected --bert_hub, which it belongs to")
    model = told["model"]
    if model and not pathlib.Path(model).is_dir() and not pathlib.Path(f"{model}.index").is_file():
        raise UserError(f"--model={model}: neither a folder nor a checkpoint's prefix, expected a finished run")


def provenance(loaded, run=None):
    """dict of what a model is, the same in the results of every command.

    It holds `run` (None for an encoder as it is and for a saved model: see `run_record`), `encoder` (handle,
    fingerprint, …), `sentence_embedding_type`, `max_seq_length`, `low_dim`, `embedding_size` and `flow_config` (None
    without a flow).

    Args:
      loaded: `BertFlow`.
      run: the run, the checkpoint's prefix, or the saved model's folder that it was loaded from.
    """
    from bert_flow_tf.convert.from_run import run_checkpoint
    from bert_flow_tf.saved_model import is_saved_model

    return {
        "run": run_record(run_checkpoint(run)) if run and not is_saved_model(run) else None,
        "encoder": loaded.source.to_dict(),
        "sentence_embedding_type": loaded.sentence_embedding_type,
        "max_seq_length": loaded.max_seq_length,
        "low_dim": loaded.low_dim,
        "embedding_size": loaded.embedding_size,
        "flow_config": None if loaded.flow is None else loaded.flow.config.to_dict(),
    }


def run_record(checkpoint):
    """dict of how a run was trained: its checkpoint, task, flow configuration, seed and the flags that tell.

    `flow_model_config` is the name of a shipped configuration, None for one of the user's own and without a flow. A
    flag that the run's `config.json` does not hold is None.

    Args:
      checkpoint: pathlib.Path of its prefix.
    """
    from bert_flow_tf.evaluation.report_settings import flow_of_run
    from bert_flow_tf.evaluation.report_sources import run_config
    from bert_flow_tf.experiment import read_config

    config, record = read_config(checkpoint.parent), run_config(checkpoint.parent)
    flow = record and flow_of_run(record)
    return {
        "checkpoint": str(checkpoint),
        "task_name": config["task_name"],
        "encoder_trained": config["encoder_trained"],
        "flow_begun": flow is not None and flow.begun,
        "learned_pairs": (config.get("data") or {}).get("num_examples"),
        "flow_model_config": _shipped_name(config.get("flow_config")),
        **{flag: config["flags"].get(flag) for flag in _TELLING_FLAGS},
    }


def _shipped_name(flow_config):
    from glow.config import GlowConfig

    if flow_config is None:
        return None
    return next((name for name in GlowConfig.names() if GlowConfig.from_name(name).to_dict() == flow_config), None)


def pooled_embeddings(loaded, sentences, *, distinct=False):
    """Embeddings, float32 [n, D], before the flow: what the encoder and its pooling make of the sentences.

    Args:
      loaded: `BertFlow`.
      sentences: list of strings; one that recurs is computed once.
      distinct: give sentences of the same word pieces one row, in no order.
    """
    from bert_flow_tf import embedding, input_pipeline

    pieces = input_pipeline.tokenize(loaded.tokenizer, sentences, loaded.max_seq_length)
    if distinct:
        pieces, _ = embedding.distinct(pieces)
    return embedding.embed(loaded.encoder, loaded.tokenizer, pieces, loaded.max_seq_length)
