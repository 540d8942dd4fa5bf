"""The report on any number of results: collected, compared, and written as a page, as Markdown and as data."""

import datetime
import json
import pathlib
from collections.abc import Iterable

from bert_flow_tf.atomic import new_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import report_analyses
from bert_flow_tf.evaluation.original_runs import original_runs
from bert_flow_tf.evaluation.report_comparisons import compared, compared_calibration
from bert_flow_tf.evaluation.report_markdown import markdown_page
from bert_flow_tf.evaluation.report_page import html_page
from bert_flow_tf.evaluation.report_provenance import provenance
from bert_flow_tf.evaluation.report_records import FORMAT_VERSION
from bert_flow_tf.evaluation.report_rows import score_rows
from bert_flow_tf.evaluation.report_sources import MADE_BY, RESULTS_FILE, Source, is_report
from bert_flow_tf.evaluation.report_svg import inline_svg, read_svg
from bert_flow_tf.evaluation.report_tables import sections

PAGE_FILE, MARKDOWN_FILE = "report.html", "report.md"
_FILES = (PAGE_FILE, MARKDOWN_FILE, RESULTS_FILE)
_PAPER = "Li et al., On the Sentence Embeddings from Pre-trained Language Models, EMNLP 2020"
_ANALYSES = {
    "calibration": ("calibrations", lambda source: compared_calibration(report_analyses.calibration(source))),
    "lexical": ("lexical", report_analyses.lexical),
    "words": ("words", report_analyses.words),
    "isotropy": ("isotropy", report_analyses.isotropy),
    "run": ("trainings", report_analyses.training),
}
_CAPTIONS = {
    "lexical": "Edit distance over each similarity; pairs up to an edit distance of 4 are highlighted, as in Figure 2.",
    "words": "Word embeddings along their first two singular directions, coloured by frequency rank, as in Figure 1.",
    "isotropy": "Singular spectra, as they are and with the mean subtracted; a flat line is isotropic.",
}


def check_out(out: pathlib.Path, overwrite: bool) -> None:
    """Does nothing where the folder of a report may be made.

    Raises:
      UserError: something is there, and `overwrite` is false or it is no report.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"--out={out}: found a file, expected a folder or nothing")
    if not overwrite:
        raise UserError(f"--out={out}: exists, expected a new folder or --overwrite")
    if any(out.iterdir()) and not is_report(out):
        raise UserError(f"--out={out}: found a folder that holds no report, expected an earlier report to overwrite")
    # The whole folder is replaced, so whatever else was put there would be lost.
    others = sorted(entry.name for entry in out.iterdir() if entry.name not in _FILES)
    if others:
        raise UserError(f"--out={out}: found {others[0]} beside a report, expected nothing else to overwrite")


def collect(sources: Iterable[Source], title: str, date: str | None = None) -> dict:
    """All that a report shows, ready for JSON; scores and differences, of keys that end in `_x100`, are times 100.

    Returns:
      dict of `format_version`, `made_by`, `title`, `date`, `paper` and `original` (what is compared with), `sources`
      (see `report_provenance`), `scores` (`report_comparisons.compared`), `calibrations`, `lexical`, `words`,
      `isotropy`, `trainings` (`report_analyses`), and `figures`: from a plot's name on the page to its caption.

    Args:
      sources: of `report_sources.find_sources`.
      title: of the report.
      date: day to print, or None.

    Raises:
      UserError: a value in a file is missing or of another kind.
    """
    sources = list(sources)
    rows = score_rows(sources)
    analysed = {source.label: _ANALYSES[source.kind][1](source) for source in sources if source.kind in _ANALYSES}
    record = {
        "format_version": FORMAT_VERSION,
        "made_by": MADE_BY,
        "title": title,
        "date": date,
        "paper": _PAPER,
        "original": {key: original_runs()[key] for key in ("code", "commit", "versions")},
        "sources": [
            provenance(source, [row for row in rows if row.source == source.label], analysed.get(source.label))
            for source in sources
        ],
        "scores": compared(rows),
    }
    for kind, (key, _) in _ANALYSES.items():
        record[key] = [analysed[source.label] for source in sources if source.kind == kind]
    return record | {"figures": _figures(record)}


def _figures(record):
    figures = {}
    for number, rows in enumerate(_seed_groups(record), start=1):
        metric = "AUC" if rows[0]["metric"] == "auc" else "Spearman"
        figures[f"seeds-{number}"] = (
            f"{metric} × 100 of every seed on {rows[0]['task']}, {rows[0]['split']}; the bar is the mean."
        )
    for number, one in enumerate(record["calibrations"], start=1):
        figures[f"calibration-{number}"] = f"Calibrations; every seed of the flow is a dot. Source: {one['source']}."
    for kind, caption in _CAPTIONS.items():
        for number, one in enumerate(record[kind], start=1):
            figures[f"{kind}-{number}"] = f"{caption} Source: {one['source']}."
    return figures


def _seed_groups(record):
    """Rows that have a place in one plot of seeds, for each place: those of one task with several seeds."""
    groups = {}
    for row in record["scores"]:
        if row["this_run"]["n"] > 1:
            groups.setdefault((row["metric"], row["task"], row["split"], row["protocol"]), []).append(row)
    return list(groups.values())


def drawings(record: dict, sources: Iterable[Source]) -> dict[str, tuple[str, str]]:
    """The plots of a report: from a figure's name to its `<svg>` element and its caption.

    Raises:
      UserError: the plot of an analysis is missing or no SVG.
    """
    from bert_flow_tf.evaluation import plots, report_plots

    texts = {}
    for number, rows in enumerate(_seed_groups(record), start=1):
        texts[f"seeds-{number}"] = (plots.svg_text(report_plots.seeds_figure(rows)), "seeds")
    for number, one in enumerate(record["calibrations"], start=1):
        texts[f"calibration-{number}"] = (plots.svg_text(report_plots.calibration_figure(one)), "calibrations")
    for kind, file in report_analyses.FIGURES.items():
        for number, source in enumerate((one for one in sources if one.kind == kind), start=1):
            path = source.path / file
            texts[f"{kind}-{number}"] = (read_svg(path), str(path))
    return {
        name: (inline_svg(text, f"{name}-", record["figures"][name], place), record["figures"][name])
        for name, (text, place) in texts.items()
    }


def write_report(out: pathlib.Path, record: dict, drawn: dict[str, tuple[str, str]]) -> None:
    """Makes the folder of a report, whole or not at all: `report.html`, `report.md` and `results.json`.

    The same record and drawings give the same bytes.

    Raises:
      UserError: the place cannot be written to.
    """
    parts, lead = sections(record), _lead(record)
    with new_folder(out) as folder:
        folder.mkdir()
        (folder / PAGE_FILE).write_text(html_page(record["title"], lead, parts, drawn), encoding="utf-8")
        (folder / MARKDOWN_FILE).write_text(markdown_page(record["title"], lead, parts), encoding="utf-8")
        text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / RESULTS_FILE).write_text(f"{text}\n", encoding="utf-8")


def _lead(record):
    number = len(record["sources"])
    lead = (
        f"What {number} result{'s' if number != 1 else ''} of BERT-flow say{'s' if number == 1 else ''}, beside the "
        f"figures of the paper ({record['paper']}) and of its authors' TensorFlow 1 code."
    )
    return [lead, *([f"Made on {record['date']}."] if record["date"] else [])]


def date_of_epoch(seconds: str | None) -> str | None:
    """The day, in UTC, that SOURCE_DATE_EPOCH names; None without one.

    Raises:
      UserError: it is no number of seconds.
    """
    if not seconds:
        return None
    try:
        return datetime.datetime.fromtimestamp(int(seconds), tz=datetime.timezone.utc).date().isoformat()
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(f"SOURCE_DATE_EPOCH: found {seconds!r}, expected a number of seconds since 1970") from error
