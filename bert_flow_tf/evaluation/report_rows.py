"""Sources of a report to rows: one for each figure of a task, by split, metric and protocol."""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

from bert_flow_tf.evaluation.presets import PRESETS, summarize
from bert_flow_tf.evaluation.report_records import Record
from bert_flow_tf.evaluation.report_settings import (
    FLOW_TRAINING,
    NLI,
    OTHER,
    UNKNOWN,
    Encoder,
    Flow,
    encoder_name,
    encoder_of_run,
    encoder_of_stamp,
    flow_of_run,
    is_all_nli,
    is_random,
    model_of_results,
    seeds_of_run,
)
from bert_flow_tf.evaluation.report_sources import (
    Source,
    prediction_count,
    run_evaluation,
    scores_stamp,
    stamped_split,
)

# The recipe's settings of a flow, which a reproduction's rows are learned with but for what their preset changes.
_PRESET_FLAGS = {**FLOW_TRAINING, "l2_penalty": -1.0}
_RECIPE_LENGTH, _RECIPE_FLOW = 64, "config_l3_d3_w32"
METRICS = ("spearman", "auc")
# Scores of the recipe are rounded to six decimals.
_SAME = 1e-4


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure of one encoder, with a flow or without.

    Attributes:
      source: label of where it comes from.
      name: of the row in its source; the source's label where that has one model only.
      folder: where the source lies; a baseline there goes before others.
      encoder: see `Encoder`.
      pooling: `sentence_embedding_type`.
      max_seq_length, low_dim: of the run; `low_dim` is None where channels are not averaged.
      flow: None without one.
      seeds: of what is random; empty where nothing is.
      task: as the paper prints it; the dataset's name of TensorFlow Datasets.
      split, metric: of the task; "spearman" or "auc".
      protocol: "wmean", "mean" or "all" for a task of several sets; None for one set.
      pairs: number of them; None where it is not recorded.
      values_x100: the figure times 100, of every seed.
      subsets: for the paper's protocol of a task of several sets, each set's name and its figure times 100, the mean
        over seeds; else empty.
    """

    source: str
    name: str
    folder: pathlib.Path
    encoder: Encoder
    pooling: str
    max_seq_length: int
    low_dim: int | None
    flow: Flow | None
    seeds: Sequence[int]
    task: str
    split: str
    metric: str
    protocol: str | None
    pairs: int | None
    values_x100: Sequence[float]
    subsets: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def summary(self) -> dict:
        """Mean, deviation (None of one), median, number and values over seeds, all times 100."""
        figures = summarize(self.values_x100)
        return {
            "mean_x100": figures["mean"],
            "std_x100": figures["std"],
            "median_x100": figures["median"],
            "n": len(self.values_x100),
            "values_x100": figures["values"],
        }


def score_rows(sources: Iterable[Source]) -> list[Row]:
    """The rows of all runs, predictions, reproductions and evaluations, in the sources' order.

    Raises:
      UserError: a value in a file is missing or of another kind.
    """
    make = {
        "run": _run_rows,
        "predictions": _prediction_rows,
        "reproduction": _reproduction_rows,
        "evaluation": lambda source: _evaluation_rows(source, source.record, source.path.parent),
    }
    rows = [row for source in sources if source.kind in make for row in make[source.kind](source)]
    return _with_known_encoders(rows)


def _run_rows(source):
    config, folder = source.record, source.path
    evaluation = run_evaluation(folder)
    rows = [] if evaluation is None else _evaluation_rows(source, evaluation, folder)
    stamp = scores_stamp(folder)
    if stamp is None:
        return rows
    encoder, flow = encoder_of_run(config, folder), flow_of_run(config)
    scored = _stamp_row(
        source,
        stamp,
        encoder=encoder,
        flow=flow,
        pooling=config.text("sentence_embedding_type"),
        max_seq_length=config.whole("max_seq_length"),
        low_dim=_low_dim(config),
        seeds=seeds_of_run(config) if is_random(encoder, flow) else [],
    )
    if any(_is_same(row, scored) for row in rows):
        return rows
    return [scored, *rows]


def _is_same(row, scored):
    where = (row.task, row.split, row.metric, row.protocol)
    return where == (scored.task, scored.split, scored.metric, scored.protocol) and (
        abs(row.values_x100[0] - scored.values_x100[0]) < _SAME
    )


def _prediction_rows(source):
    stamp = source.record
    settings = stamp.part("settings")
    encoder = encoder_of_stamp(stamp, source.path)
    row = _stamp_row(
        source,
        stamp,
        encoder=encoder,
        flow=None,
        pooling=settings.text("sentence_embedding_type"),
        max_seq_length=settings.digits("max_seq_length"),
        low_dim=None,
        seeds=[settings.digits("seed")] if encoder.fine_tuning in (NLI, UNKNOWN) else [],
    )
    return [row]


def _stamp_row(source, stamp, **fields):
    split, metric = stamped_split(stamp), "auc" if "auc" in stamp else "spearman"
    # A stage's title begins with the task it scores.
    return Row(
        source=source.label,
        name=source.label,
        folder=source.path.absolute().parent,
        task=task_title(stamp.text("title").split(",")[0]),
        split=split,
        metric=metric,
        protocol=None,
        pairs=prediction_count(source.path, split),
        values_x100=[stamp.score(metric)],
        **fields,
    )


def _evaluation_rows(source, record, folder):
    model = record.part("model")
    encoder, flow, seeds = model_of_results(model, source.path if source.kind == "run" else None)
    rows = []
    for name, task in record.parts("tasks").items():
        metric = task.choice("metric", METRICS)
        figures = task.part(metric)
        for protocol in figures.values:
            rows.append(
                Row(
                    source=source.label,
                    name=source.label,
                    folder=folder.absolute().parent,
                    encoder=encoder,
                    pooling=model.text("sentence_embedding_type"),
                    max_seq_length=model.whole("max_seq_length"),
                    low_dim=_low_dim(model),
                    flow=flow,
                    seeds=seeds,
                    task=name if name.startswith("tfds:") else task_title(task.text("title")),
                    split=task.text("split"),
                    metric=metric,
                    protocol=protocol if len(figures.values) > 1 else None,
                    pairs=task.whole("pairs"),
                    values_x100=[figures.score(protocol)],
                    subsets=_subset_scores(task, metric) if protocol == "wmean" else {},
                )
            )
    return rows


def _reproduction_rows(source):
    return [row for _, _, row in reproduction_rows(source)]


def reproduction_rows(source: Source) -> list[tuple[str, str, Row]]:
    """(task's key, row's name, `Row`) of all that `reproduce` wrote: for a task of several sets, a `Row` a protocol.

    Args:
      source: of kind "reproduction".

    Raises:
      UserError: a value in the record is missing or of another kind.
    """
    record = source.record
    encoder = _reproduction_encoder(record, source.path)
    seeds = [int(seed) for seed in record.numbers("seeds")]
    found = []
    for key, task in record.parts("tasks").items():
        metric, protocol = task.choice("metric", METRICS), task.text("protocol", optional=True)
        for name, row in task.parts("rows").items():
            if name not in PRESETS:
                raise record.error(f"tasks.{key}.rows.{name}", "an unknown row", f"one of {', '.join(PRESETS)}")
            flow = _preset_flow(PRESETS[name], row, task.text("title"))
            figures = {protocol: row.part(metric)}
            if "protocols" in row:
                figures = row.part("protocols").parts(metric)
            for one, summary in figures.items():
                values = summary.scores("values")
                # Where nothing is trained, no seed plays a part.
                drawn = seeds if is_random(encoder, flow) else []
                if drawn and len(drawn) != len(values):
                    raise row.error(f"{metric}.values", f"{len(values)} values", f"one for each of {len(seeds)} seeds")
                made = Row(
                    source=source.label,
                    name=f"{source.label}, {name}",
                    folder=source.path.absolute(),
                    encoder=encoder,
                    pooling=PRESETS[name].pooling,
                    max_seq_length=_RECIPE_LENGTH,
                    low_dim=None,
                    flow=flow,
                    seeds=drawn,
                    task=task_title(task.text("title")),
                    split=task.text("split"),
                    metric=metric,
                    protocol=one if protocol is not None else None,
                    pairs=task.whole("pairs"),
                    values_x100=values,
                    subsets=_subset_means(row, metric) if one == "wmean" else {},
                )
                found.append((key, name, made))
    return found


def _subset_scores(task, metric):
    return {name: subset.score(metric) for name, subset in task.parts("subsets").items()}


def _subset_means(row, metric):
    return {name: subset.part(metric).score("mean") for name, subset in row.parts("subsets").items()}


def _preset_flow(preset, row, title):
    if preset.flow is None:
        return None
    flags = _PRESET_FLAGS | {key: float(value) for key, value in preset.flow.items()}
    runs = [run.part("run", optional=True) for run in row.listed("runs")]
    pairs = {None if run is None else run.whole("learned_pairs", optional=True) for run in runs}
    learned_on = "ALLNLI" if preset.on_nli else title
    return Flow(_RECIPE_FLOW, learned_on, flags, pairs=pairs.pop() if len(pairs) == 1 else None)


def _reproduction_encoder(record, folder):
    flags = record.part("encoder_flags")
    hub, bert_config = (flags.text(name, optional=True) for name in ("bert_hub", "bert_config_file"))
    handle = hub or (str(pathlib.Path(bert_config).parent) if bert_config else record.text("encoder"))
    name = encoder_name(handle, flags.text("preprocess_hub", optional=True))
    if record.flag("with_nli"):
        # Every seed has an encoder of its own.
        fine_tuning = NLI if is_all_nli(record.whole("nli_pairs", optional=True)) else OTHER
        return Encoder(name, handle, None, fine_tuning, f"reproduction in {folder.resolve()}")
    for task in record.parts("tasks").values():
        for row in task.parts("rows").values():
            model = row.part("model", optional=True)
            if model is not None:
                fingerprint = model.part("encoder").text("fingerprint")
                return Encoder(name, handle, fingerprint, None, fingerprint)
    return Encoder(name, handle, None, None, name or f"reproduction in {folder.resolve()}")


def task_title(name: str) -> str:
    """A task's name as the paper prints it, from any way to spell it: STS-B, SICK-R, STS-12, QNLI, …"""
    title = name.upper().removesuffix("-REGRESSION")
    return {"STSB": "STS-B", "SICKR": "SICK-R"}.get(title, title)


def _low_dim(record: Record) -> int | None:
    low_dim = record.whole("low_dim", optional=True)
    return low_dim if low_dim is not None and low_dim > 0 else None


def _with_known_encoders(rows):
    """The rows, with what one source knows of an encoder given to the others that use the same weights."""
    fingerprint_of, plain_of, known = {}, {}, {}
    for row in rows:
        encoder = row.encoder
        if encoder.fingerprint is None:
            continue
        fingerprint_of[encoder.weights] = encoder.fingerprint
        if encoder.name is not None:
            known.setdefault(encoder.fingerprint, encoder)
            if encoder.fine_tuning is None:
                plain_of.setdefault(encoder.name, set()).add(encoder.fingerprint)
    for name, fingerprints in plain_of.items():
        if len(fingerprints) == 1:
            fingerprint_of.setdefault(name, *fingerprints)

    def told(encoder):
        fingerprint = encoder.fingerprint or fingerprint_of.get(encoder.weights)
        if fingerprint is None:
            return encoder
        best = known.get(fingerprint, encoder) if encoder.name is None else encoder
        return dataclasses.replace(best, fingerprint=fingerprint, weights=fingerprint)

    return [dataclasses.replace(row, encoder=told(row.encoder)) for row in rows]
