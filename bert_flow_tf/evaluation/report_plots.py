"""A report's own plots: calibrations side by side, and the scores of several seeds."""

from bert_flow_tf.evaluation import plots

_ROW_HEIGHT = 0.34


def calibration_figure(record):
    """Figure of a calibration's scores on the test split, a row a method; every seed of the flow is a dot of its own.

    Args:
      record: as `report_analyses.calibration` gives it.
    """
    rows = record["rows"]
    groups = [
        (row["method"] if row["k"] is None else f"{row['method']} (k={row['k']})", row["values_x100"], None)
        for row in rows
    ]
    none = next((row["mean_x100"] for row in rows if row["method"] == "none"), None)
    return _dots(groups, none, "not calibrated", _axis(record["metric"], record["task"], record["split"]))


def seeds_figure(rows):
    """Figure of the scores of several seeds, a row for each of `rows`, the original's and the baseline beside them.

    Args:
      rows: dicts as `report_comparisons.compared` gives them, of one metric, task and split.
    """
    groups = []
    for row in rows:
        label = row["pooling"] + (" + flow" if row["flow"] else "")
        groups.append((f"{label}\n{row['name']}", row["this_run"]["values_x100"], row["original"]))
    baselines = {row["baseline"]["mean_x100"] for row in rows if row["baseline"]}
    first = rows[0]
    baseline = baselines.pop() if len(baselines) == 1 else None
    return _dots(groups, baseline, "without flow", _axis(first["metric"], first["task"], first["split"]))


def _axis(metric, task, split):
    return f"{'AUC' if metric == 'auc' else 'Spearman'} × 100 on {task}, {split}"


def _dots(groups, reference, reference_words, axis):
    """Rows of dots, their mean as a line; groups are (label, values, dict of the original's `values_x100` or None)."""
    lines = sum(label.count("\n") + 1 for label, _, _ in groups)
    with plots._style():
        figure, (panel,) = plots._figure(7.2, 1.3 + _ROW_HEIGHT * max(lines, len(groups)))
        for place, (_, values, original) in enumerate(groups):
            if original is not None:
                panel.scatter(
                    original["values_x100"],
                    [place] * len(original["values_x100"]),
                    marker="D",
                    s=34,
                    facecolors="none",
                    edgecolors=plots._GREY,
                    label="TF1 code",
                )
            panel.scatter(values, [place] * len(values), s=30, color=plots._BLUE, alpha=0.8, linewidths=0, label="here")
            if len(values) > 1:
                mean = sum(values) / len(values)
                panel.plot([mean] * 2, [place - 0.3, place + 0.3], color=plots._BLUE, linewidth=1.6, label="mean")
        if reference is not None:
            panel.axvline(
                reference, color=plots._VERMILION, linewidth=1.2, linestyle=(0, (4, 2)), zorder=0, label=reference_words
            )
        panel.set_yticks(range(len(groups)), [label for label, _, _ in groups])
        panel.set_ylim(len(groups) - 0.4, -0.6)
        panel.grid(axis="y", visible=False)
        panel.margins(x=0.06)
        panel.set_xlabel(axis)
        _legend(figure, panel)
    return figure


def _legend(figure, panel):
    handles, labels = panel.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if len(once) > 1:
        figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=len(once), handletextpad=0.6)
