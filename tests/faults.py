"""Break every command that writes by kills, full disks, races and damage.

    python -m tests.faults --trials 20 --seed 1

Each command runs in a process forked from this one, which has imported TensorFlow and not used it.
Whatever happens to a command, the same command run again must end well and leave what an
uninterrupted run leaves, except for times. It prints one JSON line per trial: the command, the
fault, and the violation ("" for none).
"""

import argparse
import contextlib
import fcntl
import functools
import gc
import hashlib
import importlib
import json
import mmap
import os
import pathlib
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
from tensorflow.python.lib.io import file_io

import bert_flow_tf
from bert_flow_tf import cli
from bert_flow_tf.original import recipe as recipes
from tests.bert_flow_tf import small_runs
from tests.small_bert import write_small_bert

Run = Callable[[], int]
FAULTS = ("kill", "full_disk", "twice", "damage")
# These functions of TensorFlow change files without an event that Python could see.
_TF_CHANGES = ("write_string_to_file", "rename_v2", "rename", "delete_file_v2", "delete_file")

_GOLDEN = pathlib.Path(__file__).parent / "golden" / "data"
_WORDS = small_runs.TINY_WORDS[:25]
_TRAIN = {
    "task_name": "STS-B",
    "data_dir": "glue/STS-B",
    "output_parent_dir": "runs",
    "exp_name": "run",
    "bert_hub": "encoder",
    "do_train": True,
    "max_seq_length": 10,
    "train_batch_size": 8,
    "num_train_epochs": 2.0,
    "save_checkpoints_steps": 2,
}
_FLOW = _TRAIN | {
    "flow": 1,
    "flow_loss": 1,
    "flow_model_config": "small_flow.json",
    "num_examples": 0,
    "use_full_for_training": 1,
    "do_predict": True,
}


def _siamese(settings: dict[str, object], **changes: object) -> Run:
    return functools.partial(small_runs.run_command, small_runs.as_flags(settings, **changes))


def _bert_flow(line: str) -> Run:
    def run() -> int:
        try:
            cli.main(line.split(), prog_name="bert-flow")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


def _recipe() -> int:
    environment = {
        "BERT_HUB": "encoder",
        "GLUE_DIR": "glue",
        "OUTPUT_PARENT_DIR": "recipes",
        "SKIP_NLI": "1",
    }
    return recipes.main([], environment)


_MODEL = "--model runs/finished"
# Each command that writes, small.
COMMANDS: dict[str, Run] = {
    "train_flow": _siamese(_FLOW),
    "train_bert": _siamese(_TRAIN, do_eval=True),
    "early_stopping": _siamese(
        _TRAIN, early_stopping=True, do_eval=True, do_predict=True, num_train_epochs=4.0
    ),
    "early_stopping_flow": _siamese(_FLOW, early_stopping=True, num_train_epochs=4.0),
    "overwrite": _siamese(_FLOW, exp_name="finished", flow_learning_rate=0.1, overwrite=True),
    "more_epochs": _siamese(_FLOW, exp_name="finished", num_train_epochs=4.0),
    "recipe": _recipe,
    "fit": _bert_flow(
        "fit --bert_hub encoder --input sentences.txt --out model --flow_model_config "
        "small_flow.json"
    ),
    "fit_array": _bert_flow(
        "fit --embeddings u.npy --out calibration --flow_model_config small_flow.json "
        "--train_batch_size 8"
    ),
    "pretrain": _bert_flow(
        "pretrain --bert_hub encoder --text sentences.txt --out pretrained --steps 8 "
        "--num_warmup_steps 2 "
        "--train_batch_size 8 --save_checkpoints_steps 2"
    ),
    "encode": _bert_flow(f"encode {_MODEL} --input sentences.txt --out out/e.npy"),
    "encode_folder": _bert_flow(
        f"encode-folder {_MODEL} --input sentences.txt --out embeddings --shard_rows 15"
    ),
    "convert": _bert_flow("convert --tf1_checkpoint tf1 --out converted"),
    "to_tf1": _bert_flow("convert --run runs/finished --to_tf1 --out to_tf1"),
    "export": _bert_flow(f"export {_MODEL} --out exported --version 1"),
    "compare": _bert_flow(f"compare {_MODEL} --glue_dir glue --methods sn --out comparison.json"),
    "duplicates": _bert_flow(
        f"duplicates {_MODEL} --input sentences.txt --threshold 0.5 --out groups.csv"
    ),
    "evaluate": _bert_flow(f"evaluate {_MODEL} --tasks stsb --glue_dir glue"),
    "isotropy": _bert_flow(f"isotropy {_MODEL} --glue_dir glue --split all --out isotropy.json"),
}


# The fault of each command under --quick; early stopping has a kill of its own, see `main`.
_QUICK = {
    "train_flow": "kill",
    "train_bert": "full_disk",
    "overwrite": "kill",
    "more_epochs": "damage",
    "recipe": "twice",
    "fit": "kill",
    "fit_array": "full_disk",
    "pretrain": "twice",
    "encode": "damage",
    "encode_folder": "kill",
    "convert": "full_disk",
    "to_tf1": "twice",
    "export": "damage",
    "compare": "damage",
    "duplicates": "kill",
    "evaluate": "full_disk",
    "isotropy": "twice",
}


def import_all() -> None:
    """Import the package's modules, which each forked process would import again."""
    for module in pkgutil.walk_packages(bert_flow_tf.__path__, "bert_flow_tf."):
        importlib.import_module(module.name)


def prepare() -> int:
    """Write what the commands read; return an exit status."""
    here = pathlib.Path.cwd()
    write_small_bert(_GOLDEN / "bert_tiny", here / "tf1")
    small_runs.write_stsb(here / "glue" / "STS-B", _WORDS, gold=True)
    small_runs.small_flow_file(here)
    small_runs.write_sentences(here / "sentences.txt", 80)
    np.save(here / "u.npy", np.random.default_rng(0).normal(size=[80, 16]).astype(np.float32))
    status = _bert_flow("convert --tf1_checkpoint tf1 --out encoder")()
    return status or _siamese(_FLOW, exp_name="finished")()


class Process:
    """A command in a forked process whose working directory is `folder`.

    Args:
      kill_at: number, from 1, of the file operation before which it kills itself; 0 for none.
      counted: beginning of the names of the files whose operations count; "" for all.
      most_bytes: size that no file may exceed, like a full disk; -1 for any size.
    """

    def __init__(
        self,
        run: Run,
        folder: pathlib.Path,
        *,
        kill_at: int = 0,
        counted: str = "",
        most_bytes: int = -1,
    ) -> None:
        self._folder = str(folder)
        self._kill_at = kill_at
        self._counted = counted
        self._operations = memoryview(mmap.mmap(-1, 8)).cast("q")
        reading, writing = os.pipe()
        # The pipe holds all that a command prints. A file would count as one that is too large.
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
            self._printed = os.fdopen(reading, errors="replace")
            return
        status = 70
        try:
            os.dup2(writing, 1)
            os.dup2(writing, 2)
            os.close(writing)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
            os.chdir(folder)
            os.environ["BERT_FLOW_CACHE"] = str(folder / "cache")
            sys.addaudithook(self._heard)
            for name in _TF_CHANGES:
                self._count_calls(name)
            gc.disable()
            status = run()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 70
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _heard(self, event: str, arguments: tuple) -> None:
        """Count an event of Python that changes a file."""
        is_change = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")
        if is_change or (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        ):
            self._count(arguments[0])

    def _count_calls(self, name: str) -> None:
        """Count the calls of one of TensorFlow's functions that change a file."""
        function = getattr(file_io, name)

        @functools.wraps(function)
        def counted(path, *arguments, **options):
            self._count(path)
            return function(path, *arguments, **options)

        setattr(file_io, name, counted)

    def _count(self, path: object) -> None:
        if not isinstance(path, str | os.PathLike):
            return
        is_below = os.path.abspath(path).startswith(self._folder)
        if is_below and os.path.basename(path).startswith(self._counted):
            self._operations[0] += 1
            if self._operations[0] == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    @property
    def operations(self) -> int:
        """Number of file operations below the folder so far."""
        return self._operations[0]

    def end(self) -> int:
        """Wait for the process; return its exit status, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def output(self) -> str:
        """Return all that the command printed until its end."""
        return self._printed.read()


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Return digests of files by name, without what differs between whole runs."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"tfevents.*", "tfevents", str(path.relative_to(folder)))
        if path.is_dir():
            continue
        data = path.read_bytes()
        if re.search(
            r"tfevents|saved_model\.pb$|fingerprint\.pb$|variables\.(data-|index)|\.lock$", name
        ):
            # TensorFlow writes these in another way each time.
            data = b""
        elif path.name == "checkpoint":
            data = data.splitlines()[0]
        elif path.suffix == ".json":
            data = str(json.loads(data, object_pairs_hook=_without_times)).encode()
        found[name] = hashlib.sha256(data).hexdigest()
    return {name: digest for name, digest in found.items() if not name.endswith(".lock")}


def _without_times(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Drop times, memory and the digests of SavedModels' graphs."""
    times = ("seconds", "fit_seconds", "peak_memory_mib")
    return {
        name: value
        for name, value in pairs
        if name not in times and not name.endswith("saved_model.pb")
    }


def _differing(found: dict[str, str], whole: dict[str, str]) -> str:
    names = sorted(
        name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name)
    )
    return f"differ: {', '.join(names)}" if names else ""


def _badly_said(status: int, output: str) -> str:
    """Return what is wrong with a command's status or last line."""
    lines = re.findall(r"^(?:error: .*|Traceback.*)$", output, re.MULTILINE)
    is_right = status == 0 or (status == 2 and len(lines) == 1 and lines[0].startswith("error: "))
    return "" if is_right else f"status {status}: {' | '.join(output.splitlines()[-3:])}"


class Trials:
    """Trials of one command in copies of the folder `start`.

    Args:
      kills: most kills before the command may finish.
    """

    def __init__(self, name: str, start: pathlib.Path, rng: random.Random, kills: int = 3) -> None:
        self._run, self._start, self._rng, self._kills = COMMANDS[name], start, rng, kills
        with self._copy() as folder:
            began = time.monotonic()
            before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
            process = Process(self._run, folder)
            status = process.end()
            assert status == 0, f"{name}: {process.output()}"
            self._seconds = time.monotonic() - began
            self.operations = process.operations
            self._whole = contents(folder)
            changed = [
                p
                for p in folder.rglob("*")
                if p.is_file() and before.get(p) != p.stat().st_mtime_ns
            ]
            self._largest = max(path.stat().st_size for path in changed)

    @contextlib.contextmanager
    def _copy(self):
        folder = self._start.parent / "work"
        shutil.copytree(self._start, folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def _finish(self, folder: pathlib.Path) -> str:
        """Run the command again; return what is wrong with its results."""
        process = Process(self._run, folder)
        status, output = process.end(), process.output()
        is_done = status == 2 and re.search(r": exists|a finished run", output)
        if status and not is_done:
            return f"again: status {status}: {' | '.join(output.splitlines()[-3:])}"
        return _differing(contents(folder), self._whole)

    def kill(self) -> str:
        """Kill it one or more times, and run it again."""
        with self._copy() as folder:
            for _ in range(self._rng.randint(1, self._kills)):
                if self._rng.random() < 0.7:
                    Process(self._run, folder, kill_at=self._rng.randint(1, self.operations)).end()
                else:
                    process = Process(self._run, folder)
                    time.sleep(self._rng.uniform(0, self._seconds))
                    os.kill(process.pid, signal.SIGKILL)
                    process.end()
            return self._finish(folder)

    def kills(self, counted: str = "", last: int = 0) -> Iterator[tuple[int, str]]:
        """Kill it before each file operation, and run it again.

        Args:
          counted: beginning of the files' names, see `Process`.
          last: number of operations at the command's end; 0 for all.
        """
        with self._copy() as folder:
            process = Process(self._run, folder, counted=counted)
            process.end()
        first = process.operations - last + 1 if last else 1
        for kill_at in range(first, process.operations + 1):
            with self._copy() as folder:
                Process(self._run, folder, counted=counted, kill_at=kill_at).end()
                yield kill_at, self._finish(folder)

    def full_disk(self) -> str:
        """Let no file grow beyond a size, then run it again."""
        with self._copy() as folder:
            process = Process(
                self._run, folder, most_bytes=int(self._rng.random() ** 2 * self._largest)
            )
            return _badly_said(process.end(), process.output()) or self._finish(folder)

    def twice(self) -> str:
        """Start it twice at once; one may end with one line."""
        with self._copy() as folder:
            first = Process(self._run, folder)
            time.sleep(self._rng.uniform(0, 0.5 * self._seconds))
            both = [first, Process(self._run, folder)]
            statuses = [process.end() for process in both]
            wrong = [_badly_said(s, p.output()) for s, p in zip(statuses, both, strict=True)]
            return "; ".join(
                filter(None, [*wrong, 0 not in statuses and "neither ended well"])
            ) or self._finish(folder)

    def damage(self) -> str:
        """Damage a file; the command may end with one line."""
        with self._copy() as folder:
            files = [
                path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size
            ]
            path = self._rng.choice(files)
            data = bytearray(path.read_bytes())
            at = self._rng.randrange(len(data))
            if self._rng.random() < 0.5:
                del data[at:]
            else:
                data[at : at + 8] = self._rng.randbytes(8)
            path.write_bytes(data)
            process = Process(self._run, folder)
            wrong = _badly_said(process.end(), process.output())
            return wrong and f"{path.relative_to(folder)}: {wrong}"


def main(arguments: list[str] | None = None) -> int:
    """Run trials, print a line for each, return 1 after a violation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1, help="of each command and fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=sorted(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--quick", action="store_true", help="one fault of each command")
    parser.add_argument("--every", action="store_true", help="kill at each file operation")
    chosen = parser.parse_args(arguments)
    import_all()
    gc.collect()
    gc.freeze()
    violations = 0
    with tempfile.TemporaryDirectory() as temporary:
        start = pathlib.Path(temporary, "start")
        # It is prepared where it is used, because results name their folder.
        work = start.with_name("work")
        work.mkdir()
        process = Process(prepare, work)
        assert process.end() == 0, process.output()
        work.rename(start)
        for name in chosen.only:
            trials = Trials(
                name, start, random.Random(f"{chosen.seed} {name}"), 1 if chosen.quick else 3
            )
            if chosen.every:
                for kill_at, violation in trials.kills():
                    violations += bool(violation)
                    print(json.dumps([name, f"kill at {kill_at}", violation]), flush=True)
                continue
            if chosen.quick and name.startswith("early_stopping"):
                # Before this change, TensorFlow's list does not name the checkpoint that the run takes.
                _, violation = next(trials.kills("checkpoint", last=4))
                violations += bool(violation)
                print(json.dumps([name, "kill", violation]), flush=True)
                continue
            faults = (_QUICK[name],) if chosen.quick else chosen.faults
            for fault in faults * chosen.trials:
                violation = getattr(trials, fault)()
                violations += bool(violation)
                print(json.dumps([name, fault, violation]), flush=True)
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
