"""One run of the original's command line: its settings, the name they spell, and the directory that holds it."""

import dataclasses
import json
import math
import pathlib
import re
import shutil

from bert_flow_tf.atomic import make_directory, write_atomically
from bert_flow_tf.errors import UserError

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
EVALUATION_FILE = "eval_results.txt"
TRAIN_RESULTS_FILE = "train_results.json"

# What evaluation and prediction write, with a checkpoint's name before it or not, and what a cache and an interrupted
# write leave.
_RESULT = re.compile(
    r"\.?(model\.ckpt-\d+\.)?((test|dev|full)_(results|pooled)\.tsv|eval_results\.txt|embeddings-[0-9a-f]+\.npy)(\.\w+)?"
)

# Settings that say where a run reads, writes or reports, and change nothing that it learns.
_WITHOUT_EFFECT_ON_TRAINING = frozenset(
    {
        "bert_hub",
        "preprocess_hub",
        "bert_config_file",
        "vocab_file",
        "init_checkpoint",
        "data_dir",
        "output_parent_dir",
        "exp_name",
        "exp_name_prefix",
        "cached_dir",
        "log_every_step",
        "save_checkpoints_steps",
        "do_train",
        "do_eval",
        "do_predict",
        "eval_batch_size",
        "predict_batch_size",
        "predict_pool",
        "do_predict_on_dev",
        "do_predict_on_full",
        "eval_checkpoint_name",
        "auc",
        "start_delay_secs",
        "throttle_secs",
        "do_senteval",
        "senteval_tasks",
        "num_logical_cpus",
        "overwrite",
        "do_lower_case",
        # What the name stands for is compared instead.
        "flow_model_config",
    }
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Every flag of `run_siamese`, with the original's names and defaults; the last block is ours."""

    task_name: str
    data_dir: str
    output_parent_dir: str
    bert_config_file: str | None = None
    vocab_file: str | None = None
    init_checkpoint: str | None = None
    do_lower_case: bool = True
    max_seq_length: int = 128
    label_min: float = 0.0
    label_max: float = 5.0
    exp_name: str | None = None
    exp_name_prefix: str | None = None
    log_every_step: int = 10
    save_checkpoints_steps: int = 1000
    use_xla: bool = False
    seed: int = 1234
    cached_dir: str | None = None
    do_train: bool = False
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    early_stopping: bool = False
    start_delay_secs: int = 120
    throttle_secs: int = 600
    do_eval: bool = False
    do_predict: bool = False
    eval_batch_size: int = 8
    predict_batch_size: int = 8
    predict_pool: bool = False
    do_predict_on_dev: bool = False
    do_predict_on_full: bool = False
    eval_checkpoint_name: str | None = None
    auc: bool = False
    sentence_embedding_type: str = "avg"
    flow: int = 0
    flow_loss: int = 0
    flow_learning_rate: float = 1e-3
    flow_model_config: str = "config_l3_d3_w32"
    num_examples: int = -1
    use_full_for_training: int = 0
    dupe_factor: int = 1
    l2_penalty: float = -1.0
    low_dim: int = -1
    do_senteval: bool = False
    senteval_tasks: str = ""
    bert_hub: str | None = None
    preprocess_hub: str | None = None
    flow_ddi: bool = False
    cache_embeddings: bool | None = None
    pad_to_max_seq_length: bool = False
    num_logical_cpus: int = 0
    overwrite: bool = False

    @property
    def encoder_is_frozen(self):
        """Whether no gradient reaches the encoder: no label counts and no penalty applies."""
        return self.num_examples == 0 and self.l2_penalty <= 0

    @property
    def caches_embeddings(self):
        """Whether embeddings are computed once and kept; by default wherever the encoder is frozen."""
        return self.encoder_is_frozen if self.cache_embeddings is None else self.cache_embeddings

    @property
    def output_dir(self):
        """Path of the run's directory, named as the original names it.

        Raises:
          UserError: neither `exp_name` nor `exp_name_prefix` is given.
        """
        return pathlib.Path(self.output_parent_dir) / (self.exp_name or self._spelled_name())

    def _spelled_name(self):
        if not self.exp_name_prefix:
            raise UserError("--exp_name: found nothing, expected --exp_name or --exp_name_prefix")
        name = f"{self.exp_name_prefix}_t_{self.task_name}_ep_{self.num_train_epochs:.2f}_lr_{self.learning_rate:.2e}"
        if self.train_batch_size != 32:
            name += f"_bsz_{self.train_batch_size}"
        if self.sentence_embedding_type != "avg":
            name += f"_e_{self.sentence_embedding_type}"
        if self.flow > 0:
            name += f"_f_{self.flow}{self.flow_loss}"
            if self.flow_loss > 0:
                name += f"_{self.flow_learning_rate:.2e}"
            if self.use_full_for_training > 0:
                name += "_allsplits"
            if self.flow_model_config != "config_l3_d3_w32":
                name += f"_{pathlib.Path(self.flow_model_config).stem}"
            if self.flow_ddi:
                name += "_ddi"
        if self.num_examples > 0:
            name += f"_n_{self.num_examples}"
        if self.low_dim > -1:
            name += f"_ld_{self.low_dim}"
        if self.l2_penalty > 0:
            name += f"_l2_{self.l2_penalty:.2e}"
        return name

    def what_training_depends_on(self):
        """Dictionary of the settings that a trained model depends on."""
        settings = {
            name: value for name, value in dataclasses.asdict(self).items() if name not in _WITHOUT_EFFECT_ON_TRAINING
        }
        return settings | {"cache_embeddings": self.caches_embeddings}

    @property
    def prediction_path(self):
        """Path of the file that `do_predict` writes, named as the original names it."""
        split = "full" if self.do_predict_on_full else "dev" if self.do_predict_on_dev else "test"
        prefix = f"{self.eval_checkpoint_name}." if self.eval_checkpoint_name else ""
        return self.output_dir / f"{prefix}{split}_{'pooled' if self.predict_pool else 'results'}.tsv"

    def missing_outputs(self):
        """Paths of the result files that this command is to write and that are not there."""
        wanted = [self.output_dir / EVALUATION_FILE] if self.do_eval else []
        wanted += [self.prediction_path] if self.do_predict else []
        return [path for path in wanted if not path.exists()]

    def check(self):
        """Raises `UserError` for the first flag whose value makes no sense, before any work is done."""
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--{name}: found {value}, expected a finite number")
        for name, least in (
            ("max_seq_length", 3),
            ("train_batch_size", 1),
            ("eval_batch_size", 1),
            ("predict_batch_size", 1),
            ("log_every_step", 1),
            ("save_checkpoints_steps", 1),
            ("dupe_factor", 1),
            ("num_examples", -1),
            ("num_logical_cpus", 0),
            ("num_train_epochs", 0),
            ("learning_rate", 0),
            ("flow_learning_rate", 0),
            ("seed", 0),
        ):
            if not getattr(self, name) >= least:
                raise UserError(f"--{name}: found {getattr(self, name)}, expected at least {least}")
        if self.seed >= 2**32:
            raise UserError(f"--seed: found {self.seed}, expected less than 2^32")
        if not 0 <= self.warmup_proportion < 1:
            raise UserError(f"--warmup_proportion: found {self.warmup_proportion}, expected at least 0 and less than 1")
        for name in ("flow", "flow_loss", "use_full_for_training"):
            if getattr(self, name) not in (0, 1):
                raise UserError(f"--{name}: found {getattr(self, name)}, expected 0 or 1")
        if self.flow_loss and not self.flow:
            raise UserError("--flow_loss: found 1 with --flow=0, expected --flow=1 (there is no flow to learn)")
        if self.flow_ddi and not self.flow:
            raise UserError("--flow_ddi: found true with --flow=0, expected --flow=1 (there is no flow to initialise)")
        if self.caches_embeddings and not self.encoder_is_frozen:
            raise UserError(
                "--cache_embeddings: found true with an encoder in training, expected --num_examples=0 and no "
                "--l2_penalty"
            )
        if self.do_senteval:
            raise UserError("--do_senteval: found true, expected false (SentEval's tasks have no command here yet)")
        if not (self.do_train or self.do_eval or self.do_predict):
            raise UserError("--do_train, --do_eval, --do_predict: found none of them, expected at least one")


def write_result(path, text, overwrite):
    """Writes a result file; one that is there already with other contents stays, unless `overwrite`.

    Raises:
      UserError: the file exists, differs, and `overwrite` is false.
    """
    path = pathlib.Path(path)
    if path.exists() and not overwrite and path.read_text(encoding="utf-8") != text:
        raise UserError(f"{path}: found results of other settings, expected none (use --overwrite to replace them)")
    make_directory(path.parent)
    write_atomically(path, text)


def read_config(run_dir):
    """The `config.json` of a run's directory as a dictionary, or None where there is none.

    Raises:
      UserError: it is not JSON, or of another format version.
    """
    path = pathlib.Path(run_dir) / CONFIG_FILE
    if not path.exists():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: found text that is not JSON ({error}), expected a run's configuration") from error
    if not isinstance(config, dict) or config.get("format_version") != FORMAT_VERSION:
        found = config.get("format_version") if isinstance(config, dict) else type(config).__name__
        raise UserError(f"{path}: found format_version {found}, expected {FORMAT_VERSION}")
    missing = sorted({"flags", "encoder", "data", "encoder_trained"} - config.keys())
    if missing:
        raise UserError(f"{path}: found no {', '.join(missing)}, expected a run's configuration")
    return config


def differences(old, new):
    """Lines that name each setting in which two dictionaries of settings differ, with both values."""
    keys = sorted(old.keys() | new.keys())
    return [
        f"{key} is {old.get(key)!r} there and {new.get(key)!r} here" for key in keys if old.get(key) != new.get(key)
    ]


def open_run(run_dir, config, overwrite, missing_outputs=()):
    """Makes a run's directory ready for training, and says whether it holds an unfinished run of the same settings.

    A run is finished when it is trained and every result that its command asks for is written.

    Args:
      run_dir: path of the directory.
      config: contents of the `config.json` to be; `flags`, `encoder` fingerprint and `data` decide whether a run is the
        same.
      overwrite: delete a run that is there.
      missing_outputs: result files that the command is to write and that are not there.

    Returns:
      True where training goes on from the last checkpoint, False where it starts.

    Raises:
      UserError: the directory holds a finished run, a run with other settings, or something else, and `overwrite` is
        false; or it holds something that is no run at all.
    """
    run_dir = pathlib.Path(run_dir)
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(f"{run_dir}: found a file, expected a directory or nothing")
    old = read_config(run_dir)
    if old is None and overwrite and run_dir.exists() and all(map(_is_result, run_dir.iterdir())):
        shutil.rmtree(run_dir)
    if old is None and run_dir.exists() and any(run_dir.iterdir()):
        raise UserError(
            f"{run_dir}: found a directory that is not empty and holds no {CONFIG_FILE}, expected a new one"
        )
    if old is not None:
        if overwrite:
            shutil.rmtree(run_dir)
        else:
            differing = differences(_identity(old), _identity(config))
            if differing:
                raise UserError(
                    f"{run_dir}: found a run with other settings ({'; '.join(differing)}), expected the same ones "
                    "(use another --exp_name, or --overwrite to delete it)"
                )
            if (run_dir / TRAIN_RESULTS_FILE).exists() and not missing_outputs:
                raise UserError(
                    f"{run_dir}: found a finished run of these settings, expected none (use --overwrite to train again)"
                )
            return True
    make_directory(run_dir)
    write_atomically(run_dir / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    return False


def _is_result(path):
    """Whether a file is one that prediction or evaluation without training writes, or was about to."""
    return path.is_file() and _RESULT.fullmatch(path.name) is not None


def _identity(config):
    return config["flags"] | {
        "encoder": config["encoder"]["fingerprint"],
        "data": config["data"]["fingerprint"],
        "replicas": config.get("replicas"),
        "init_checkpoint": config.get("begins_with"),
        "flow_config": config.get("flow_config"),
    }
