"""Calibrations, analyses and trainings among a report's sources: their figures, the paper's beside them."""

import re

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.paper import paper_tables
from bert_flow_tf.evaluation.report_records import read_record
from bert_flow_tf.evaluation.report_rows import METRICS, task_title
from bert_flow_tf.evaluation.report_settings import (
    UNKNOWN,
    encoder_of_run,
    flow_of_run,
    model_of_results,
)
from bert_flow_tf.evaluation.report_sources import Source
from bert_flow_tf.experiment import EVALUATION_FILE, TRAIN_RESULTS_FILE

# File of each analysis' plot, beside its results.
FIGURES = {"lexical": "lexical.svg", "words": "words.svg", "isotropy": "spectrum.svg"}
_ISOTROPY_MEASURES = (
    "constant_channels",
    "mean_cosine",
    "mean_share",
    "top_share",
    "centred_top_share",
    "participation_ratio",
    "effective_rank",
    "partition_ratio",
)
# The gold scores' correlation with edit distance is a fact of the data: no encoder takes part in it.
_WITHOUT_ENCODER = ("Gold similarity", "edit distance")


def calibration(source: Source) -> dict:
    """The rows of `bert-flow calibrate`, scores times 100, with Table 5's beside them.

    Returns:
      dict of `source`, `encoder`, `task`, `split`, `pairs`, `metric`, `fit_on`, `seeds`, `flow_config`, `width`,
      `constant_channels` (a number), and `rows`: dicts of `method`, `k`, `dev_x100`, `mean_x100`, `std_x100`,
      `median_x100`, `n`, `seeds`, `values_x100` and `paper`.

    Raises:
      UserError: a value is missing or of another kind.
    """
    record = source.record
    metric, data = record.choice("metric", METRICS), record.part("data")
    return {
        "source": source.label,
        "encoder": _calibrated_encoder(record),
        "task": task_title(data.text("task")),
        "split": "test",
        "pairs": data.part("pairs").whole("test"),
        "metric": metric,
        "fit_on": record.text("fit_on"),
        "flow_config": record.text("flow_model_config"),
        "width": record.whole("width"),
        "constant_channels": len(record.numbers("constant_channels", or_none=True)),
        "rows": [_calibration_row(row, metric) for row in record.listed("rows")],
    }


def _calibrated_encoder(record):
    if record.part("model", optional=True) is not None:
        return _analysed_encoder(record)
    unknown = dict.fromkeys(("name", "fingerprint", "pooling", "max_seq_length"))
    return unknown | {"handle": record.part("encoder").text("embeddings"), "fine_tuning": UNKNOWN}


def _calibration_row(row, metric):
    by_seed = row.listed("by_seed") if "by_seed" in row else []
    mean = row.score(metric)
    values = [one.score(metric) for one in by_seed] or [mean]
    paper = row.part("paper", optional=True)
    return {
        "method": row.text("method"),
        "k": row.whole("k", optional=True),
        "dev_x100": row.score("dev", optional=True),
        "mean_x100": mean,
        "std_x100": row.score("std", optional=True),
        "median_x100": row.score("median") if by_seed else mean,
        "n": len(values),
        "seeds": [one.whole("seed") for one in by_seed],
        "values_x100": values,
        "paper": paper and {"row": paper.text("row"), "mean_x100": paper.number("spearman_x100")},
    }


def lexical(source: Source) -> dict:
    """The correlations of `bert-flow analyze lexical`, with Table 6's beside them on the dev set of STS-B.

    Returns:
      dict of `source`, `encoder`, `task`, `split`, `pairs`, `rows`, and `close` with `max_distance`, `pairs`, `rows`
      and `undefined`. A row is a dict of `name` and, for "edit distance" and "gold", `value_x100`, `paper_x100` and
      `difference_x100`; a correlation among the close pairs may be None.

    Raises:
      UserError: a value is missing or of another kind.
    """
    record = source.record
    task, split = task_title(record.text("task")), record.text("split")
    paper = paper_tables()["table6_lexical"]["rows"] if (task, split) == ("STS-B", "dev") else {}
    close = record.part("close")
    return {
        "source": source.label,
        "encoder": _analysed_encoder(record),
        "has_flow": record.flag("flow"),
        "task": task,
        "split": split,
        "pairs": record.whole("pairs"),
        "rows": [_lexical_row(name, row, paper) for name, row in record.parts("rows").items()],
        "close": {
            "max_distance": close.whole("max_distance"),
            "pairs": close.whole("pairs"),
            "rows": [_lexical_row(name, row, {}) for name, row in close.parts("rows").items()],
            "undefined": close.texts("undefined"),
        },
    }


def _lexical_row(name, row, paper):
    cells = {}
    for column in ("edit distance", "gold"):
        value, theirs = row.number(column, optional=True), paper.get(name, {}).get(column)
        comparable = (name, column) == _WITHOUT_ENCODER and value is not None and theirs is not None
        cells[column] = {
            "value_x100": value,
            "paper_x100": theirs,
            "difference_x100": value - theirs if comparable else None,
        }
    return {"name": name, **cells}


def words(source: Source) -> dict:
    """The statistics of `bert-flow analyze words`, with Table 1's beside them.

    Returns:
      dict of `source`, `encoder`, `pieces`, `ranked_words`, `frequencies`, `bins` (dicts of `first`, `stop`, `words`)
      and `rows`: dicts of `measure`, `values` and `paper`, a number for each bin; None where a bin is empty.

    Raises:
      UserError: a value is missing or of another kind, or the bins are not the paper's.
    """
    record, paper = source.record, paper_tables()["table1_word_embeddings"]
    bins = record.listed("bins")
    if len(bins) != len(paper["rank_bins"]):
        raise record.error("bins", f"{len(bins)} of them", f"the paper's {len(paper['rank_bins'])}")
    rows = [
        {
            "measure": "mean ℓ2 norm",
            "values": [one.number("mean_l2_norm", optional=True) for one in bins],
            "paper": paper["mean_l2_norm"],
        }
    ]
    for key, title in (("mean_knn_l2_distance", "NN ℓ2 distance"), ("mean_knn_dot_product", "NN dot product")):
        for k in bins[0].part(key).values:
            rows.append(
                {
                    "measure": f"mean {k}-{title}",
                    "values": [one.part(key).number(k, optional=True) for one in bins],
                    "paper": paper[key].get(k, [None] * len(bins)),
                }
            )
    return {
        "source": source.label,
        "encoder": model_of_results(record.part("model"))[0].to_dict(),
        "pieces": record.whole("pieces"),
        "ranked_words": record.whole("ranked_words"),
        "frequencies": record.text("frequencies"),
        "bins": [{key: one.whole(key) for key in ("first", "stop", "words")} for one in bins],
        "rows": rows,
    }


def isotropy(source: Source) -> dict:
    """The measures of `bert-flow analyze isotropy`; the paper has no figures of them.

    Returns:
      dict of `source`, `encoder`, `task`, `split`, `sentences`, `measures` (from a name, the standard normal's last, to
      a dict of measures) and `bits_per_dim`.

    Raises:
      UserError: a value is missing or of another kind.
    """
    record = source.record
    measures = record.parts("measures") | {"standard normal": record.part("reference")}
    bits = record.part("bits_per_dim")
    return {
        "source": source.label,
        "encoder": _analysed_encoder(record),
        "has_flow": record.flag("flow"),
        "task": task_title(record.text("task")),
        "split": record.text("split"),
        "sentences": record.whole("sentences"),
        "measures": {name: {key: one.number(key) for key in _ISOTROPY_MEASURES} for name, one in measures.items()},
        "bits_per_dim": {name: bits.number(name) for name in bits.values},
    }


def _analysed_encoder(record):
    model = record.part("model")
    encoder, _, _ = model_of_results(model)
    return encoder.to_dict() | {
        "pooling": model.text("sentence_embedding_type"),
        "max_seq_length": model.whole("max_seq_length"),
    }


def training(source: Source) -> dict:
    """What a run reported of its training and its own evaluation on dev.

    Returns:
      dict of `source`, `encoder`, `pooling`, `flow`, `learned_on`, `seed`, `pairs` (trained on), `steps`, `seconds`
      (training alone), and `on_dev`: from a name of `eval_results.txt` to a number. None where it is not recorded.

    Raises:
      UserError: a value is missing or of another kind.
    """
    config, folder = source.record, source.path
    results, seconds = None, None
    if (folder / TRAIN_RESULTS_FILE).is_file():
        results = read_record(folder / TRAIN_RESULTS_FILE)
        stages = results.part("stages", optional=True)
        stage = stages and stages.part("train", optional=True)
        seconds = stage and stage.number("seconds")
    flow = flow_of_run(config)
    data = config.part("data", optional=True)
    return {
        "source": source.label,
        "encoder": encoder_of_run(config, folder).to_dict(),
        "encoder_trained": config.flag("encoder_trained"),
        "pooling": config.text("sentence_embedding_type"),
        "flow": None if flow is None else flow.to_dict(),
        "learned_on": config.part("flags").text("task_name", optional=True),
        "seed": config.part("flags").whole("seed", optional=True),
        "pairs": data and data.whole("num_examples", optional=True),
        "data_fingerprint": data and data.text("fingerprint", optional=True),
        "steps": results and results.whole("steps"),
        "seconds": seconds,
        "on_dev": _evaluation_lines(folder / EVALUATION_FILE),
    }


def _evaluation_lines(path):
    if not path.is_file():
        return {}
    figures = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        # Without labels on dev a correlation is written as nan: nothing to show.
        if re.fullmatch(r"eval_\w+ = nan", line):
            continue
        match = re.fullmatch(r"(\w+) = (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", line)
        if match is None:
            raise UserError(f"{path}, line {number}: found {line!r}, expected a name, = and a finite number")
        figures[match[1]] = float(match[2])
    return figures
