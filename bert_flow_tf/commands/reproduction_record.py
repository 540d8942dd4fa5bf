"""What `reproduce` writes of its results."""

import pathlib

from bert_flow_tf.commands.model_options import run_record
from bert_flow_tf.commands.results import versions

FORMAT_VERSION = 1


def reproduction_record(recipe, nli, tasks, seeds, done):
    """dict of all results, ready for JSON, each beside the paper's and the original's where these are of the same.

    Args:
      recipe: the `Recipe` of any seed.
      nli: whether the encoder was fine-tuned on NLI first.
      tasks: the `SimilarityTask`s.
      seeds: all of them.
      done: for each task's name, and in it for each preset's, a list of (seed, `PresetStages`) that were run.

    Raises:
      UserError: predictions that are missing, or do not fit their task.
    """
    from bert_flow_tf.evaluation.predicted import score_predictions_of
    from bert_flow_tf.evaluation.protocols import headline
    from bert_flow_tf.evaluation.report_comparisons import compared_reproduction

    of_task = {}
    for task in tasks:
        rows = {}
        for name, runs in done[task.name].items():
            results = [score_predictions_of(task, made.scored.prediction_path) for _, made in runs]
            rows[name] = {**_scores(results), **_provenance(runs)}
        of_task[task.name] = {
            "title": task.title,
            "metric": task.metric,
            "protocol": headline(results[0])[0] if len(task.subsets) > 1 else None,
            "split": task.split,
            "source": task.source,
            "pairs": results[0]["pairs"],
            "rows": rows,
        }
    record = {
        "format_version": FORMAT_VERSION,
        "encoder": recipe.encoder_name,
        "encoder_flags": dict(recipe.encoder_flags),
        "with_nli": nli,
        "nli_pairs": _nli_pairs(recipe) if nli else None,
        "seeds": seeds,
        "tasks": of_task,
        "versions": versions(),
    }
    for (task_name, name), figures in compared_reproduction(record, recipe.output_dir).items():
        of_task[task_name]["rows"][name] |= figures
    return record


def _scores(results):
    """Figures over the seeds: of the protocol that stands for the task, of every protocol, and of every sub-set.

    Args:
      results: of every seed, as `protocols.score_task` gives them.
    """
    from bert_flow_tf.evaluation.presets import summarize
    from bert_flow_tf.evaluation.protocols import METRICS, headline

    first = results[0]
    protocol, metrics = headline(first)[0], list(METRICS[first["metric"]])
    figures = {metric: summarize([result[metric][protocol] for result in results]) for metric in metrics}
    if len(first["subsets"]) > 1:
        figures["protocols"] = {
            metric: {one: summarize([result[metric][one] for result in results]) for one in first[metric]}
            for metric in metrics
        }
        figures["subsets"] = {
            name: {
                "pairs": subset["pairs"],
                **{metric: summarize([result["subsets"][name][metric] for result in results]) for metric in metrics},
            }
            for name, subset in first["subsets"].items()
        }
    return figures


def _provenance(runs):
    """Settings of the first seed's stage, the model in short, and what each seed's run is.

    Args:
      runs: (seed, `PresetStages`) of every seed.
    """
    from bert_flow_tf.experiment import read_config
    from bert_flow_tf.recipe import latest_checkpoint

    records, model = [], None
    for seed, made in runs:
        record = {"seed": seed, "directory": str(made.scored.run_dir), "run": None}
        # Where nothing is trained there are scores, but no run.
        if made.learned is not None:
            record["run"] = run_record(pathlib.Path(latest_checkpoint(made.learned.run_dir)))
            if model is None:
                config = read_config(made.learned.run_dir)
                names = ("encoder", "sentence_embedding_type", "max_seq_length", "low_dim", "flow_config")
                model = {name: config[name] for name in names}
        records.append(record)
    return {"settings": dict(runs[0][1].scored.settings), "model": model, "runs": records}


def _nli_pairs(recipe):
    """Number of pairs that the encoder was fine-tuned on."""
    from bert_flow_tf.experiment import read_config

    return read_config(recipe.output_dir / recipe.nli_name)["data"]["num_examples"]
