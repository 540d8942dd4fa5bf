"""Small results of every kind, by default of the demo encoder."""

import numpy as np

from bert_flow_tf.calibration.comparison import Comparison, Row
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.tasks.protocols import TaskScores
from bert_flow_tf.tasks.scores import IsotropyResults, ScoredRun, Scores
from bert_flow_tf.training.run_records import StageCost, TrainingResults
from bert_flow_tf.vectors.isotropy import measure_isotropy
from tests.bert_flow_tf import records
from tests.bert_flow_tf.histories import history
from tests.bert_flow_tf.records import MADE_BY

CLS = records.model(pooling="cls")
CLS_FLOW = records.model(pooling="cls", flow=records.flow())


def write(path, result):
    """Write a result and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result)
    return path


def task_scores(title="STS-B", score=0.7308, pairs=1379, split="test", pearson=None, **more):
    """Return a task's scores; `score` is a number or a dict."""
    of_task = {
        "title": title,
        "metric": "spearman",
        "split": split,
        "source": f"glue/{title}",
        "pairs": pairs,
        "data": f"digest of {title}",
    }
    by_protocol = score if isinstance(score, dict) else {"all": score}
    by_metric = {"spearman": by_protocol} | ({"pearson": pearson} if pearson else {})
    return TaskScores(**of_task, by_metric=by_metric, **more)


def scores(model=CLS, *, name="demo", without_flow=None, settings=None, **tasks):
    run = ScoredRun(
        name=name,
        model=model,
        settings=settings or {},
        tasks=tasks or {"stsb": task_scores()},
        without_flow=without_flow,
    )
    return Scores(made_by=MADE_BY, runs=[run])


def scores_of_run(run):
    """Return the record of one run of others."""
    return Scores(made_by=MADE_BY, runs=[run])


def write_run(folder, model=CLS_FLOW, **tasks):
    """Write a finished run with both evaluations; return its folder."""
    cost = StageCost(seconds=12.5, peak_memory_mib=900)
    trained = TrainingResults(made_by=MADE_BY, model=model, steps=269, stages={"train": cost})
    write(folder / "train_results.json", trained)
    if tasks:
        write(folder / "evaluation.json", scores(model, name=f"{folder}/model.ckpt-269", **tasks))
    return folder


def write_all(folder):
    """Write results of every kind; return the folder."""
    sts12 = task_scores("STS-12", {"wmean": 0.7, "mean": 0.69, "all": 0.72}, 3108)
    write_run(folder / "run", sts12=sts12, stsb=task_scores(score=0.784632))
    write(folder / "demo.json", scores(sts12=sts12, stsb=task_scores(score=0.73)))
    write(folder / "calibration.json", comparison())
    write(folder / "isotropy.json", isotropies())
    write(folder / "seeds" / "reproduction.json", reproduction({"flow": [0.79, 0.8, 0.84]}))
    return folder


def reproduction(rows):
    """Return a reproduction of rows with these scores."""

    def run(name, seed, score):
        model = records.model(flow=records.flow(seed=seed) if name.startswith("flow") else None)
        tasks = {"stsb": task_scores(score=score)}
        return ScoredRun(name=name, seed=seed, model=model, settings={"nli": False}, tasks=tasks)

    runs = [
        run(name, i, value)
        for name, values in rows.items()
        for i, value in enumerate(values, start=1)
    ]
    return Scores(made_by=MADE_BY, runs=runs)


def comparison(model=CLS, *, task="sts-b", pairs=1379):
    histories = {
        "none": history(
            spearman=(0.7308, 0.7308), witness=(0.9, 0.9), mean_cosine=0.3, threshold=0.7
        ),
        "sn": history(spearman=(0.7308, 0.75), interval=(0.01, 0.03), witness=(0.9, 0.91)),
        "flow": history(spearman=(0.7308, 0.7845), interval=(0.04, 0.06), auc=0.8, f1=(0.7, 0.55)),
    }
    rows = [Row(method=method, history=one) for method, one in histories.items()]
    data = {"sentences": 100, "pairs": pairs, "task": task, "flow_model_config": "config_l3_d3_w32"}
    return Comparison(
        made_by=MADE_BY, model=model, encoder="demo, cls", **data, rows=rows, recommended="flow"
    )


def isotropies():
    cone, reference = (
        measure_isotropy(np.random.default_rng(seed).normal(size=(40, 6)) + mean)
        for seed, mean in ((1, 3), (0, 0))
    )
    data = {
        "task": "sts-b",
        "split": "dev",
        "sentences": 40,
        "bits_per_dim": {"diagonal Gaussian": -1.25},
    }
    measured = {"measures": {"without flow": cone}, "reference": reference}
    return IsotropyResults(made_by=MADE_BY, model=records.model(), **data, **measured)
