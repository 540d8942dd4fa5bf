"""What each source of a report was made with: encoder, data, protocol, seeds and versions, as far as it is recorded."""

from bert_flow_tf.evaluation.report_records import Record
from bert_flow_tf.evaluation.report_rows import Row
from bert_flow_tf.evaluation.report_settings import encoder_of_run, flow_of_run, seeds_of_run
from bert_flow_tf.evaluation.report_sources import (
    Source,
    prediction_count,
    run_evaluation,
    scores_stamp,
    stamped_split,
)

KINDS = {
    "run": "run of run_siamese",
    "predictions": "encoder as it is, scored by the recipe",
    "reproduction": "bert-flow reproduce",
    "evaluation": "bert-flow evaluate",
    "calibration": "bert-flow calibrate",
    "lexical": "bert-flow analyze lexical",
    "words": "bert-flow analyze words",
    "isotropy": "bert-flow analyze isotropy",
}
_PROTOCOL = "cosine; all pairs of the test split"
_PROTOCOLS = "cosine; wmean, mean and all where a task is several sets"


def provenance(source: Source, rows: list[Row], analysed: dict | None) -> dict:
    """A dict, ready for JSON, of where a source's figures come from.

    It holds `source`, `kind`, `path`, `encoder`, `pooling` (a list), `max_seq_length`, `flow`, `seeds`, `protocol`,
    `data` (a list of dicts of `task`, `split`, `pairs`, `path` and `digest`) and `versions`; None, or nothing in a
    list, where it is not recorded.

    Args:
      source: of the report.
      rows: its rows, if it has any.
      analysed: what `report_analyses` makes of it, if it does.

    Raises:
      UserError: a value in a file is missing or of another kind.
    """
    encoder = rows[0].encoder.to_dict() if rows else analysed and analysed["encoder"]
    flow = next((row.flow for row in rows if row.flow is not None), None)
    told = {
        "source": source.label,
        "kind": source.kind,
        "path": str(source.path),
        "encoder": encoder and {key: encoder[key] for key in ("name", "handle", "fingerprint", "fine_tuning")},
        "pooling": list(dict.fromkeys(row.pooling for row in rows)) or _listed(encoder, "pooling"),
        "max_seq_length": rows[0].max_seq_length if rows else (encoder or {}).get("max_seq_length"),
        "flow": flow and flow.to_dict(),
        "seeds": sorted({seed for row in rows for seed in row.seeds}),
        "protocol": _PROTOCOL,
        "data": [],
        "versions": {},
    }
    return told | _BY_KIND[source.kind](source)


def _listed(values, key):
    return [values[key]] if values and values.get(key) else []


def _of_run(source):
    config, evaluation = source.record, run_evaluation(source.path)
    learned, flow = config.part("data", optional=True), flow_of_run(config)
    data = []
    if learned is not None and learned.values.get("num_examples") is not None:
        whole = config.part("flags").values.get("use_full_for_training") == 1
        data.append(
            _data(
                config.part("flags").text("task_name"),
                "train, dev and test, to learn from" if whole else "train, to learn from",
                pairs=learned.whole("num_examples"),
                digest=learned.text("fingerprint"),
            )
        )
    stamp = scores_stamp(source.path)
    told = {"protocol": stamp and _PROTOCOL} if evaluation is None else _of_evaluation(evaluation)
    if stamp is not None:
        data.append(_stamped(stamp, source))
    return told | {
        "encoder": {
            key: value
            for key, value in encoder_of_run(config, source.path).to_dict().items()
            if key in ("name", "handle", "fingerprint", "fine_tuning")
        },
        "pooling": [config.text("sentence_embedding_type")],
        "max_seq_length": config.whole("max_seq_length"),
        "flow": flow and flow.to_dict(),
        "seeds": seeds_of_run(config),
        "data": [*data, *told.get("data", [])],
    }


def _of_predictions(source):
    return {"data": [_stamped(source.record, source)]}


def _stamped(stamp, source):
    return _data(
        stamp.text("title").split(",")[0],
        stamped_split(stamp),
        pairs=prediction_count(source.path, stamped_split(stamp)),
        digest=stamp.part("settings").text("data", optional=True),
    )


def _of_reproduction(source):
    record = source.record
    data = []
    for task in record.parts("tasks").values():
        settings = [row.part("settings", optional=True) for row in task.parts("rows").values()]
        digests = {one.text("data", optional=True) for one in settings if one is not None} - {None}
        digest = digests.pop() if len(digests) == 1 else None
        pairs, path = task.whole("pairs"), task.text("source")
        data.append(_data(task.text("title"), task.text("split"), pairs=pairs, path=path, digest=digest))
    return {
        "seeds": [int(seed) for seed in record.numbers("seeds")],
        "protocol": _PROTOCOLS,
        "data": data,
        "versions": _versions(record),
    }


def _of_evaluation(record: Record):
    return {
        "protocol": _PROTOCOLS,
        "data": [
            _data(name, task.text("split"), pairs=task.whole("pairs"), path=task.text("source"))
            for name, task in record.parts("tasks").items()
        ],
        "versions": _versions(record),
    }


def _of_calibration(source):
    record = source.record
    data = record.part("data")
    splits = [
        _data(data.text("task"), split, pairs=data.part("pairs").whole(split), path=data.text("glue_dir"))
        for split in data.part("pairs").values
    ]
    splits[-1]["digest"] = data.text("sentences_sha256", optional=True)
    fitted = {"all": "fitted on train, dev and test", "train": "fitted on train"}.get(record.text("fit_on"))
    return {
        "seeds": [int(seed) for seed in record.numbers("seeds", or_none=True)],
        "protocol": f"{_PROTOCOL}; calibrations {fitted or record.text('fit_on')}",
        "data": splits,
        "versions": _versions(record),
    }


def _of_analysis(source):
    record = source.record
    data = []
    if "task" in record:
        key = "pairs" if "pairs" in record else None
        data = [_data(record.text("task"), record.text("split"), pairs=key and record.whole(key))]
    return {"protocol": None, "data": data, "versions": _versions(record)}


def _data(task, split, *, pairs=None, path=None, digest=None):
    return {"task": task, "split": split, "pairs": pairs, "path": path, "digest": digest}


def _versions(record):
    versions = record.part("versions", optional=True)
    return {} if versions is None else {name: versions.text(name) for name in sorted(versions.values)}


_BY_KIND = {
    "run": _of_run,
    "predictions": _of_predictions,
    "reproduction": _of_reproduction,
    "evaluation": lambda source: _of_evaluation(source.record),
    "calibration": _of_calibration,
    "lexical": _of_analysis,
    "words": _of_analysis,
    "isotropy": _of_analysis,
}
