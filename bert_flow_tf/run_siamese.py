"""The original's command line, flag for flag: `python -m bert_flow_tf.run_siamese --task_name=STS-B …`."""

import dataclasses
import os
import re
import sys

from bert_flow_tf.arguments import exit_status, quiet_libraries

quiet_libraries(log_level="2")
if any(re.fullmatch(r"--?use_xla(=(true|t|1|yes|y))?", argument.lower()) for argument in sys.argv):
    # Clustering on CPUs is off unless asked for before TensorFlow loads; on GPUs the optimiser's setting is enough.
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit".strip()

from absl import app, flags, logging  # noqa: E402

from bert_flow_tf.errors import UserError  # noqa: E402
from bert_flow_tf.experiment import Settings  # noqa: E402

_HELP = {
    "task_name": "STS-B, SICK-R, STS-12-16, STS-12 to STS-16, MNLI, ALLNLI, QQP, MRPC-regression or QNLI-regression.",
    "data_dir": "Folder of the task's files.",
    "output_parent_dir": "Folder in which the run's directory is made.",
    "bert_config_file": "bert_config.json of the pre-trained BERT, with --vocab_file and --init_checkpoint.",
    "vocab_file": "Vocabulary that the BERT model was trained on.",
    "init_checkpoint": "TF1 checkpoint of BERT, or a checkpoint of a run of ours.",
    "do_lower_case": "Lower-case the text: true for uncased models, false for cased ones.",
    "max_seq_length": "Longest input in word pieces, [CLS] and [SEP] included; longer ones are cut.",
    "label_min": "Accepted and without effect, as in the original: the task knows its range.",
    "label_max": "Accepted and without effect, as in the original: the task knows its range.",
    "exp_name": "Name of the run's directory.",
    "exp_name_prefix": "Prefix of the run's directory; the settings spell the rest.",
    "log_every_step": "Steps between TensorBoard records.",
    "save_checkpoints_steps": "Steps between checkpoints; with --early_stopping one is saved every epoch.",
    "use_xla": "Compile with XLA.",
    "seed": "Seed of everything random.",
    "cached_dir": "Folder for cached embeddings; the run's directory if not given.",
    "do_train": "Train on the training split.",
    "train_batch_size": "Pairs a step, over all replicas.",
    "learning_rate": "Peak learning rate of BERT and the classifier.",
    "num_train_epochs": "Epochs, may be a fraction.",
    "warmup_proportion": "Share of the steps with a rising learning rate.",
    "early_stopping": "Evaluate every epoch and stop when the dev score no longer rises.",
    "start_delay_secs": "Accepted and without effect: evaluation comes after each epoch.",
    "throttle_secs": "Accepted and without effect: evaluation comes after each epoch.",
    "do_eval": "Evaluate on dev, to eval_results.txt.",
    "do_predict": "Write the cosines of the test split, to test_results.tsv.",
    "eval_batch_size": "Batch over which the estimator's mean loss is taken.",
    "predict_batch_size": "Accepted and without effect: batches go by length.",
    "predict_pool": "Write embeddings instead of cosines, to test_pooled.tsv.",
    "do_predict_on_dev": "Predict on dev instead of test.",
    "do_predict_on_full": "Predict on test, dev and train.",
    "eval_checkpoint_name": "Name of the checkpoint to predict with, if not the latest.",
    "auc": "Evaluate the area under the ROC curve as well, for tasks with two labels.",
    "sentence_embedding_type": "avg, cls, avg-last-N, avg-last-last-N (as the original computes them), or paper-….",
    "flow": "1: apply a flow to the embeddings.",
    "flow_loss": "1: learn the flow by its likelihood.",
    "flow_learning_rate": "Constant learning rate of the flow.",
    "flow_model_config": "Name of a shipped configuration, or a JSON file.",
    "num_examples": "-1: all labels; 0: none, BERT stays as it is; n: that many labelled examples.",
    "use_full_for_training": "1: train on train, dev and test sentences.",
    "dupe_factor": "Copies of each example, all but the first with a random token masked.",
    "l2_penalty": "Weight of the embeddings' norms in the loss, if positive.",
    "low_dim": "Average neighbouring channels down to this many, if positive.",
    "do_senteval": "Not available.",
    "senteval_tasks": "Not available.",
    "bert_hub": "Encoder: demo, base, large, a TF-Hub handle, or a folder of bert-flow convert.",
    "preprocess_hub": "Preprocess model of --bert_hub: a TF-Hub handle or folder; known for names and our own folders.",
    "flow_ddi": "Initialise the flow from the first batch (the original defines this and never runs it).",
    "cache_embeddings": "Compute a frozen encoder's embeddings once, without dropout. Default: true if it is frozen.",
    "pad_to_max_seq_length": "Pad every input to --max_seq_length, as the original does, not to the batch's longest.",
    "num_logical_cpus": "Replicas on as many virtual CPU devices; 0: all GPUs, or one CPU.",
    "overwrite": "Delete a run, or replace results, of the same name.",
}
_DEFINE = {
    "str": flags.DEFINE_string,
    "bool": flags.DEFINE_bool,
    "int": flags.DEFINE_integer,
    "float": flags.DEFINE_float,
}


def define_flags(flag_values=flags.FLAGS):
    """Defines a flag for every field of `Settings`."""
    for field in dataclasses.fields(Settings):
        annotation = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        default = None if field.default is dataclasses.MISSING else field.default
        _DEFINE[annotation.split(" ")[0]](field.name, default, _HELP[field.name], flag_values=flag_values)


def settings_from_flags(flag_values=flags.FLAGS):
    """`Settings` of the parsed flags.

    Raises:
      UserError: a flag without which nothing can be done is missing, or a value makes no sense.
    """
    values = {field.name: getattr(flag_values, field.name) for field in dataclasses.fields(Settings)}
    for name in ("task_name", "data_dir", "output_parent_dir"):
        if not values[name]:
            raise UserError(f"--{name}: found nothing, expected a value ({_HELP[name]})")
    settings = Settings(**values)
    settings.check()
    return settings


def run(settings):
    """Trains, evaluates and predicts, as the settings say.

    Raises:
      UserError: any mistake in flags, files or their contents.
    """
    from bert_flow_tf import scoring, training
    from bert_flow_tf.devices import configure_devices
    from bert_flow_tf.encoder import resolve_encoder
    from bert_flow_tf.run_model import encoder_flags, flow_config
    from bert_flow_tf.tasks import get_task

    task = get_task(settings.task_name)
    output_dir = settings.output_dir
    scoring.check_results(settings, task)
    if settings.flow:
        flow_config(settings.flow_model_config)
    strategy = configure_devices(settings)
    scorer = None
    if settings.do_train and settings.num_train_epochs > 1e-6:
        source = resolve_encoder(**encoder_flags(settings))
        cache_dir = (settings.cached_dir or output_dir) if settings.caches_embeddings else None

        def evaluate(model):
            return scoring.Scorer(model, source, settings, cache_dir).evaluate(task)

        model, step = training.train(settings, task, source, strategy, evaluate)
        scorer = scoring.Scorer(model, source, settings, cache_dir)
    if settings.do_eval or settings.do_predict:
        if scorer is None:
            scorer, step = scoring.load_scorer(settings, task, strategy)
        if settings.do_eval:
            scoring.write_evaluation(settings, task, scorer, step)
        if settings.do_predict and settings.eval_checkpoint_name:
            scorer, _ = scoring.load_scorer(settings, task, strategy, settings.eval_checkpoint_name)
        if settings.do_predict:
            scoring.write_predictions(settings, task, scorer)
    logging.info("*** output_dir ***")
    logging.info("%s", output_dir)


def main(argv, flag_values=flags.FLAGS):
    """Runs with the parsed flags; a `UserError` becomes one line on stderr and status 2."""
    logging.set_verbosity(logging.INFO)

    def run_with_flags():
        if len(argv) > 1:
            raise UserError(f"found the argument {argv[1]}, expected flags only (--name=value)")
        run(settings_from_flags(flag_values))

    return exit_status(run_with_flags)


def _parse(argv):
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=_parse)
