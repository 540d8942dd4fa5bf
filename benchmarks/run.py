"""Runs the benchmarks, prints a table for each and writes its figures as JSON.

    python -m benchmarks.run --glue_dir GLUE --out_dir results --summary
    python -m benchmarks.run --only encode,floor
    python -m benchmarks.run --from_results --out_dir results --summary

The two sides are measured in turn, on the same CPUs, and compared by the median of the ratios of pairs. The libraries
to compare with are installed into their own environment in the user's cache. --summary ends with one line that sets all
figures against their targets; the exit status is 1 if one is missed. A wrong argument is one line, status 2. With all
of STS-B, the original's way alone takes seven minutes per repeat on two CPUs.
"""

import argparse
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Sequence

from benchmarks.cpu import usable_cpus
from benchmarks.machine import machine
from benchmarks.options import Options, limit_threads
from benchmarks.targets import TARGETS, judge, summary
from benchmarks.timing import in_own_process
from bert_flow_tf.errors import ArgumentParser, UserError, exit_status, quiet_libraries
from bert_flow_tf.files.atomic import write_atomically
from bert_flow_tf.sample_data import sample_glue_dir

# Name -> what it asks, and whether it needs the peers' environment. The module has the benchmark's name.
BENCHMARKS = {
    "flow_run": ("the flow on STS-B, then its test set scored, against the original's way and a PyTorch loop", True),
    "encode": ("encode in float32, against sentence-transformers", True),
    "encode_bfloat16": ("encode in bfloat16, against sentence-transformers", True),
    "flow_step": ("one training step of the flow on cached embeddings, against PyTorch", True),
    "nli_step": ("one step of siamese training on NLI, against PyTorch", True),
    "mlm_step": ("one step of masked language modelling, against PyTorch", True),
    "nli_run": ("siamese training on NLI as a process, against a PyTorch loop", True),
    "recipe": ("the recipe on the sample data, against a process for each of its stages", False),
    "flow_share": ("the flow's share of encode", False),
    "floor": ("encode's distance from its matrix products at the machine's rate", True),
    "encoder_steps": ("what each optimisation of encode gained", False),
    "start_up": ("time from the start of a process to its first embedding", False),
    "growth": ("time and memory of encoding 1k, 10k and 100k sentences", False),
    "scale": ("embedding into a folder: by two workers, beside encode, and its memory", False),
}
# A machine with a higher load per CPU in use is called busy.
BUSY = 0.25


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status of the command line: 0; 1 for a missed target under --summary; 2 after one `error:` line."""
    return exit_status(lambda: _run(_parse(arguments)))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="NAME[,NAME]", help="benchmarks to run (default: all)")
    parser.add_argument("--list", action="store_true", help="print each benchmark's name and question, then end")
    parser.add_argument("--glue_dir", default=sample_glue_dir(), help="folder of GLUE's data (default: the sample)")
    parser.add_argument("--bert_hub", default="demo", help="encoder (default: demo)")
    parser.add_argument("--out_dir", help="folder for a file NAME.json of each benchmark")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument("--repeats", type=int, default=3, help="times that each side is measured (default: 3)")
    parser.add_argument("--threads", type=int, help="CPUs that each process may use (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works; no results")
    parser.add_argument(
        "--sentences", type=int, default=40_000, metavar="N", help="scale's larger number (default: 40000)"
    )
    parser.add_argument("--summary", action="store_true", help="judge the figures; exit status 1 if a target is missed")
    parser.add_argument(
        "--from_results", action="store_true", help="with --summary: run nothing, read the files in --out_dir"
    )
    return parser.parse_args(arguments)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        for name, (question, needs_peers) in BENCHMARKS.items():
            print(f"{name:16} {question}{' (installs PyTorch beside it)' if needs_peers else ''}")
        return 0
    names = _names(arguments.only)
    out_dir = None if arguments.out_dir is None else pathlib.Path(arguments.out_dir)
    if arguments.from_results and not arguments.summary:
        raise UserError("--from_results: found no --summary, expected it to judge what is read")
    if arguments.from_results:
        results = _read_results(out_dir, names)
    else:
        results = _measure_all(names, _options(arguments, names), out_dir, arguments.overwrite)
    if not arguments.summary:
        return 0
    line, met = summary(results)
    print(line)
    return 0 if met else 1


def _names(only: str | None) -> list[str]:
    names = list(BENCHMARKS) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in BENCHMARKS:
            raise UserError(f"--only: found {name!r}, expected names out of {', '.join(BENCHMARKS)}")
    return list(dict.fromkeys(names))


def _options(arguments: argparse.Namespace, names: list[str]) -> Options:
    if arguments.repeats < 1:
        raise UserError(f"--repeats: found {arguments.repeats}, expected 1 or more")
    if arguments.sentences <= 10_000:
        raise UserError(
            f"--sentences: found {arguments.sentences}, expected more than 10000, which it is compared with"
        )
    threads = usable_cpus() if arguments.threads is None else arguments.threads
    limit_threads(threads)
    glue_dir = os.path.abspath(arguments.glue_dir)
    for folder in dict.fromkeys(folder for name in names for folder in _folders(name)):
        if not os.path.isdir(os.path.join(glue_dir, folder)):
            raise UserError(
                f"--glue_dir={arguments.glue_dir}: found no folder {folder} in it, expected one in GLUE's layout"
            )
    # Processes are started from the repository's root.
    bert_hub = os.path.abspath(arguments.bert_hub) if os.path.isdir(arguments.bert_hub) else arguments.bert_hub
    return Options(glue_dir, bert_hub, arguments.repeats, threads, arguments.quick, arguments.sentences)


def _folders(name: str) -> tuple[str, ...]:
    """What a benchmark reads of the GLUE folder."""
    return ("MNLI", "SNLI") if name.startswith("nli_") else ("STS-B",)


def _measure_all(names: list[str], options: Options, out_dir: pathlib.Path | None, overwrite: bool) -> dict[str, dict]:
    """dict of name -> result, each measured in a process of its own and written when it is done."""
    if out_dir is not None:
        for name in names:
            if (out_dir / f"{name}.json").exists() and not overwrite:
                raise UserError(f"{out_dir / name}.json: exists, expected a new file, or --overwrite")
        pathlib.Path(out_dir).mkdir(parents=True, exist_ok=True)
    if _is_sample(options.glue_dir):
        print(
            "note: the sample's sentences only show that everything works; --glue_dir names a folder of GLUE's data",
            file=sys.stderr,
        )
    peer_versions = {}
    if any(BENCHMARKS[name][1] for name in names):
        from benchmarks import peers

        peer_versions = peers.versions()
    load = os.getloadavg()[0]
    if load > BUSY * options.threads:
        print(f"warning: this machine is busy, its load is {load:.2f}; the figures mean little", file=sys.stderr)
    results = {}
    for name in names:
        print(f"{name}: {BENCHMARKS[name][0]}", flush=True)
        head = {
            "benchmark": name,
            "quick": options.quick,
            "machine": machine() | (peer_versions if BENCHMARKS[name][1] else {}),
            "threads": options.threads,
            "load_before": load,
            "bert_hub": options.bert_hub,
            "glue_dir": "sample" if _is_sample(options.glue_dir) else options.glue_dir,
            "repeats": options.repeats,
        }
        results[name] = head | _measured(name, options)
        if not options.quick:
            print(*(f"  {verdict.line}" for verdict in judge({name: results[name]})), sep="\n", flush=True)
        if out_dir is not None:
            write_atomically(out_dir / f"{name}.json", json.dumps(results[name], indent=2) + "\n")
    return results


def _is_sample(glue_dir: str) -> bool:
    return os.path.samefile(glue_dir, sample_glue_dir())


def _measured(name: str, options: Options) -> dict:
    """What the benchmark's `measure` gives, in its own process, so that no benchmark profits from another's set-up."""
    return in_own_process(name, measure, name, options)


def measure(name: str, options: Options) -> dict:
    """The result of one benchmark; its output is shown line by line."""
    quiet_libraries()
    sys.stdout.reconfigure(line_buffering=True)
    return importlib.import_module(f"benchmarks.{name}").measure(options)


def _read_results(out_dir: pathlib.Path | None, names: list[str]) -> dict[str, dict]:
    if out_dir is None:
        raise UserError("--from_results: found no --out_dir, expected the folder of the results")
    results = {}
    for name in names:
        path = out_dir / f"{name}.json"
        if not path.is_file():
            raise UserError(
                f"{path}: no such file, expected the results of {', '.join(names)} (--only names those to read)"
            )
        try:
            results[name] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{path}: found text that is not JSON ({error}), expected results") from error
        result = results[name]
        if not isinstance(result, dict) or "quick" not in result or not isinstance(result.get("figures"), dict):
            raise UserError(f"{path}: found no figures, expected what this command writes")
        for target in TARGETS:
            figure = result["figures"].get(target.figure)
            if target.benchmark == name and not isinstance(figure, (int, float)):
                raise UserError(f"{path}: {target.figure}: found {figure!r}, expected a number; measure it again")
    return results


if __name__ == "__main__":
    sys.exit(main())
