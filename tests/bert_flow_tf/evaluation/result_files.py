"""Small results in the formats of the commands, to report on."""

import hashlib
import json

from bert_flow_tf.experiment import Settings
from bert_flow_tf.recipe_stages import Stage
from bert_flow_tf.recipe_stamps import FINISHED, Stamps
from glow.config import GlowConfig

DEMO, TUNED = "d" * 64, "e" * 64
FLOW = {"flow": 1, "flow_loss": 1, "num_examples": 0, "use_full_for_training": 1, "num_train_epochs": 1.0}
NLI = {
    "task_name": "ALLNLI",
    "num_examples": -1,
    "num_train_epochs": 1.0,
    "learning_rate": 2e-5,
    "train_batch_size": 16,
    "sentence_embedding_type": "avg",
}
VERSIONS = {"python": "3.11.1", "tensorflow": "2.19.1"}
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="90pt" height="60pt" '
    'viewBox="0 0 90 60"><defs><path id="m1" d="M 0 0 L 9 9"/></defs><use xlink:href="#m1" x="4"/></svg>'
)


def write_json(path, record):
    """The path, after writing the record there as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2), encoding="utf-8")
    return path


def encoder_record(handle="demo", fingerprint=DEMO):
    return {"bert_hub": handle, "preprocess_hub": None, "do_lower_case": True, "fingerprint": fingerprint}


def flow_config(name="config_l3_d3_w32"):
    return GlowConfig.from_name(name).to_dict()


def write_run(folder, *, handle="demo", fingerprint=DEMO, begins=None, bert_config=None, on_dev=True, **flags):
    """The folder of a run of `run_siamese`, after writing its configuration and what training leaves."""
    defaults = {"task_name": "STS-B", "sentence_embedding_type": "cls", "max_seq_length": 64, "seed": 1234, **flags}
    settings = Settings(data_dir="glue", output_parent_dir="runs", do_train=True, **defaults)
    has_flow = bool(settings.flow)
    config = {
        "format_version": 1,
        "encoder": encoder_record(handle or "/cache/encoders/0123", fingerprint),
        "encoder_flags": {
            "bert_hub": handle,
            "preprocess_hub": None,
            "bert_config_file": bert_config,
            "vocab_file": None,
            "init_checkpoint": begins,
            "do_lower_case": True,
        },
        "sentence_embedding_type": settings.sentence_embedding_type,
        "max_seq_length": settings.max_seq_length,
        "low_dim": settings.low_dim,
        "flow": has_flow,
        "flow_config": flow_config(settings.flow_model_config) if has_flow else None,
        "encoder_trained": not settings.encoder_is_frozen,
        "num_labels": None,
        "task_name": settings.task_name.lower(),
        "data": {"num_examples": 961_725 if settings.task_name == "ALLNLI" else 8628, "fingerprint": "a" * 64},
        "begins_with": None,
        "flags": settings.what_training_depends_on(),
    }
    write_json(folder / "config.json", config)
    if on_dev:
        stages = {"train": {"seconds": 12.5, "peak_memory_mib": 1000}}
        write_json(folder / "train_results.json", {"steps": 269, "stages": stages, "replicas": 1, "loss": 1.0})
        (folder / "eval_results.txt").write_text("eval_loss_flow = -0.68\neval_pearsonr = 0.837\nglobal_step = 269\n")
    return folder


def scored_task(title, spearman, pairs, *, split="test", metric="spearman"):
    """What `evaluate` says of one task; `spearman` is a dict of protocols, or one number for a task of one set."""
    combined = spearman if isinstance(spearman, dict) else {"all": spearman}
    return {
        "title": title,
        "metric": metric,
        "split": split,
        "source": f"data/{title}",
        "pairs": pairs,
        metric: combined,
        "subsets": {},
    }


STSB = {"stsb": scored_task("STS-B", 0.7884, 1379)}


def model_record(run=None, *, pooling="cls", handle="demo", fingerprint=DEMO, length=64, config=None):
    return {
        "run": run,
        "encoder": encoder_record(handle, fingerprint),
        "sentence_embedding_type": pooling,
        "max_seq_length": length,
        "low_dim": -1,
        "embedding_size": 384,
        "flow_config": config and flow_config(config),
    }


def evaluation(tasks=None, model=None, **changes):
    """What `bert-flow evaluate` writes."""
    return {
        "format_version": 1,
        "similarity": "cosine",
        "protocols": {"all": "all pairs together"},
        "tasks": tasks or STSB,
        "distinct_sentences": 2552,
        "model": model or model_record(),
        "versions": VERSIONS,
    } | changes


def run_record(checkpoint, *, seed=1234, **changes):
    return {
        "checkpoint": str(checkpoint),
        "task_name": "sts-b",
        "encoder_trained": False,
        "flow_model_config": "config_l3_d3_w32",
        "seed": seed,
        "flow_ddi": False,
        "flow_learning_rate": 1e-3,
        "num_train_epochs": 1.0,
        "train_batch_size": 32,
        "use_full_for_training": 1,
        "num_examples": 0,
        "flow_loss": 1,
        "dupe_factor": 1,
        "l2_penalty": -1.0,
        "learned_pairs": 8628,
        "flow_begun": False,
    } | changes


def calibration(model=None, *, task="sts-b", test_pairs=1379, fit_on="all", config="config_l3_d3_w32"):
    """What `bert-flow calibrate` writes: without calibration, SN with the paper's row, and a flow of two seeds."""
    model = model or model_record()
    return {
        "format_version": 1,
        "model": model,
        "encoder": {
            **model["encoder"],
            "run": None,
            "encoder_trained": False,
            "sentence_embedding_type": model["sentence_embedding_type"],
            "max_seq_length": model["max_seq_length"],
        },
        "data": {
            "task": task,
            "glue_dir": "glue",
            "pairs": {"train": 5749, "dev": 1500, "test": test_pairs},
            "sentences_sha256": "b" * 64,
        },
        "flow_model_config": config,
        "metric": "spearman",
        "fit_on": fit_on,
        "fit_rows": 17256,
        "width": 384,
        "constant_channels": [],
        "seeds": [1, 2],
        "rows": [
            {
                "method": "none",
                "spearman": 0.7308,
                "pearson": 0.7284,
                "seconds": 0.1,
                "paper": {"row": "BERT-base", "spearman_x100": 47.29},
            },
            {
                "method": "sn+natsv",
                "k": 6,
                "dev": 0.8,
                "spearman": 0.75,
                "pearson": 0.74,
                "dev_by_k": {"6": 0.8},
                "seconds": 0.1,
                "paper": {"row": "+ SN + NATSV (k=6)", "spearman_x100": 63.51},
            },
            {"method": "whitening", "spearman": 0.79, "pearson": 0.78, "seconds": 0.1, "paper": None},
            {
                "method": "flow",
                "spearman": 0.785,
                "pearson": 0.79,
                "std": 0.001414,
                "median": 0.785,
                "by_seed": [
                    {"seed": 1, "spearman": 0.784, "pearson": 0.79, "fit_seconds": 9.0},
                    {"seed": 2, "spearman": 0.786, "pearson": 0.79, "fit_seconds": 9.0},
                ],
                "seconds": 20.0,
                "paper": {"row": "BERT-base-flow (target)", "spearman_x100": 65.62},
            },
        ],
        "versions": VERSIONS,
    }


def write_analysis(folder, analysis, results, figure, svg=SVG):
    """The folder of an analysis, after writing its results and its plot."""
    model = results.pop("model", None) or model_record(pooling="avg")
    record = {
        "analysis": analysis,
        "format_version": 1,
        "encoder": model["encoder"],
        "sentence_embedding_type": model["sentence_embedding_type"],
        "max_seq_length": 64,
        "flow": False,
        "model": model,
        **results,
        "versions": VERSIONS,
    }
    write_json(folder / "results.json", record)
    (folder / figure).write_text(svg, encoding="utf-8")
    return folder


def write_lexical(folder, *, task="sts-b", split="dev", svg=SVG):
    rows = {
        "Gold similarity": {"edit distance": -24.55, "gold": 100.0},
        "BERT-induced similarity": {"edit distance": -30.0, "gold": 80.0},
    }
    close_rows = {"Gold similarity": {"edit distance": 3.0, "gold": 100.0}}
    close = {"max_distance": 4, "pairs": 130, "rows": close_rows, "undefined": []}
    results = {"task": task, "split": split, "metric": "Spearman x100", "pairs": 1500, "rows": rows, "close": close}
    return write_analysis(folder, "lexical", results, "lexical.svg", svg)


def write_words(folder):
    neighbours = {"3": 0.7, "5": 0.75, "7": 0.8}
    bins = [
        {
            "first": first,
            "stop": stop,
            "words": stop - first,
            "mean_l2_norm": 0.9,
            "mean_knn_l2_distance": neighbours,
            "mean_knn_dot_product": neighbours,
        }
        for first, stop in ((1, 100), (100, 500), (500, 5000), (5000, 10000))
    ]
    results = {"pieces": 30522, "ranked_words": 21000, "frequencies": "wordfreq, English", "bins": bins}
    return write_analysis(folder, "words", results, "words.svg")


def write_stamp(runs, name, title, spearman, auc=None, split="test", **settings):
    """Writes what the recipe keeps of a scored stage, and the predictions of as many pairs as STS-B's test set has."""
    common = {"max_seq_length": "64", "seed": "1234", "sentence_embedding_type": "cls", "data": "c" * 64}
    stage = Stage(name, title, "bert_flow_tf.run_siamese", (), common | settings, runs / name)
    stamps = Stamps(runs / "recipe")
    stamps.folder.mkdir(parents=True, exist_ok=True)
    scores = {} if spearman is None else {"pearson": 0.5, "spearman": spearman, "split": split}
    if auc is not None:
        scores["auc"] = auc
    stamps.write(stage, FINISHED, seconds=1.0, **scores)
    folder = runs / name.removesuffix("_scores")
    folder.mkdir(exist_ok=True)
    if spearman is not None:
        (folder / "test_results.tsv").write_text("0.5\n" * 1379)
    return folder


def settings_digest(settings):
    """As the recipe digests the settings of its NLI stage."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
