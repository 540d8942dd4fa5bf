"""Measure this checkout beside its peers; print and write a table.

    python -m benchmarks.run --glue_dir GLUE --summary
    python -m benchmarks.run --only encode,flow_run --beside ../another_checkout --repeats 5

The sides are measured in turn and compared by the median of the ratios of pairs. PyTorch and
sentence-transformers are installed into their own environment in the user's cache, some 900 MiB,
the first time. --summary ends with one line that compares all ratios with their targets; the exit
status is 1 if one is missed.
"""

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.processes import ROOT, Side, in_turn, ratios
from bert_flow_tf.common.errors import UserError, exit_status
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.tasks.tasks import get_task, read_split


class Row(NamedTuple):
    """A benchmark, and the least accepted ratio of each side."""

    what: str
    targets: Mapping[str, float]
    needs_peers: bool = False


# This checkout must reach at least this share of another checkout's speed.
BESIDE = {"beside": 0.97}
ROWS = {
    "encode": Row("encode all sentences of STS-B", {"sentence-transformers": 1.0}, True),
    "nli_step": Row("ten steps on NLI, 16 pairs each", {"PyTorch": 1.15}, True),
    "flow_run": Row(
        "learn the flow on STS-B with dropout, score the test set", {"PyTorch": 2.5}, True
    ),
    "recipe": Row("run the recipe on the sample data", {}),
    "start_up": Row("start a process, encode one sentence", {}),
    "scale": Row("encode 20,000 sentences to a folder", {"one file": 0.9}),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings that all benchmarks share.

    Attributes:
      glue_dir: folder that holds STS-B, and MNLI and SNLI for NLI, in GLUE's layout.
      bert_hub: encoder, `demo` or an encoder folder.
      folder: temporary folder of this benchmark.
      ours: the side of this checkout, `here`, and of another one, `beside`.
      with_peers: True to measure PyTorch, too.
    """

    glue_dir: str
    bert_hub: str
    folder: pathlib.Path
    ours: dict[str, Side]
    with_peers: bool

    def pairs(self, task: str, split: str) -> list[tuple[str, str, float]]:
        folder = os.path.join(self.glue_dir, get_task(task).directory.replace("ALLNLI", "MNLI"))
        found = read_split(get_task(task), folder, split)
        labels = found.labels.tolist() if found.has_labels else [0] * len(found)
        return list(zip(found.sentences_a, found.sentences_b, labels, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, 1 for a missed target, or 2 after an error."""
    return exit_status(lambda: _run(_parse(arguments)))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", default=",".join(ROWS), metavar="NAME[,NAME]", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--glue_dir", default=sample_glue_dir(), help="folder of GLUE's data (default: the sample)"
    )
    parser.add_argument("--bert_hub", default="demo", help="encoder (default: demo)")
    parser.add_argument(
        "--beside", metavar="CHECKOUT", help="another checkout of this project, timed in turn"
    )
    parser.add_argument(
        "--no_peers", action="store_true", help="leave out PyTorch and sentence-transformers"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="times that each side is measured (default: 3)"
    )
    parser.add_argument("--out", metavar="FILE", help="JSON file of all results")
    parser.add_argument(
        "--summary",
        action="store_true",
        help="judge the ratios; exit status 1 if a target is missed",
    )
    return parser.parse_args(arguments)


def _run(arguments: argparse.Namespace) -> int:
    names = arguments.only.split(",")
    for name in names:
        if name not in ROWS:
            raise UserError(f"--only: found {name!r}, expected some of {', '.join(ROWS)}")
    if arguments.repeats < 1:
        raise UserError(f"--repeats: found {arguments.repeats}, expected 1 or more")
    checkouts = {"here": ROOT}
    if arguments.beside:
        checkouts["beside"] = pathlib.Path(arguments.beside).resolve()
        if not (checkouts["beside"] / "bert_flow_tf").is_dir():
            raise UserError(
                f"--beside={arguments.beside}: found no bert_flow_tf in it, expected a checkout"
            )
    results, judged = {}, []
    for name in names:
        print(f"{name}: {ROWS[name].what}", flush=True)
        try:
            results[name] = _measured(name, arguments, checkouts)
        except RuntimeError as error:
            raise UserError(str(error)) from error
        judged += _table(name, results[name])
    if arguments.out:
        machine = {
            "python": platform.python_version(),
            "machine": platform.processor(),
            "cpus": os.cpu_count(),
        }
        described = {"machine": machine, "glue_dir": arguments.glue_dir, "results": results}
        pathlib.Path(arguments.out).write_text(json.dumps(described, indent=2) + "\n")
    if not arguments.summary:
        return 0
    missed = [line for line, met in judged if not met]
    print(
        f"summary: {len(judged) - len(missed)} of {len(judged)} met; "
        f"{'; '.join(line for line, _ in judged)}"
    )
    return 1 if missed else 0


def _measured(
    name: str, arguments: argparse.Namespace, checkouts: Mapping[str, pathlib.Path]
) -> dict[str, list[dict]]:
    with tempfile.TemporaryDirectory() as workspace, contextlib.ExitStack() as stack:
        folder = pathlib.Path(workspace)
        modules = folder / "modules"
        modules.mkdir()
        # Measure another checkout's package with these benchmarks.
        (modules / "benchmarks").symlink_to(ROOT / "benchmarks")
        ours = {side: Side.of(checkout, modules) for side, checkout in checkouts.items()}
        with_peers = ROWS[name].needs_peers and not arguments.no_peers
        options = Options(
            os.path.abspath(arguments.glue_dir), arguments.bert_hub, folder, ours, with_peers
        )
        functions = importlib.import_module(f"benchmarks.{name}").functions(options, stack)
        return in_turn(functions, arguments.repeats)


def _table(name: str, runs: Mapping[str, list[dict]]) -> list[tuple[str, bool]]:
    """Print a line per side; return (line, True if met) per target."""
    judged = []
    for side, each in runs.items():
        line = f"  {side:22} {statistics.median(run['seconds'] for run in each):9.2f} s"
        for what, unit, digits in (("peak_memory_mib", " MiB", 0), ("spearman", " Spearman", 4)):
            if what in each[0]:
                line += f"  {statistics.fmean(run[what] for run in each):.{digits}f}{unit}"
        if side != "here":
            median, least, greatest = ratios(each, runs["here"])
            line += f"  {median:.2f} x ours ({least:.2f} to {greatest:.2f})"
            if (target := (ROWS[name].targets | BESIDE).get(side)) is not None:
                line += f", target {target}"
                judged.append((f"{name} {side} {median:.2f} >= {target}", median >= target))
        print(line, flush=True)
    return judged


if __name__ == "__main__":
    sys.exit(main())
