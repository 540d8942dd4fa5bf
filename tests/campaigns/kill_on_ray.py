"""SIGKILL of workers, of a node and of the driver of `encode --ray`, at random moments, and the folder that is made.

    python -m tests.campaigns.kill_on_ray --kills 20 --seed 1

A cluster has a head and a node, both on this machine, where two workers embed a file in small shards. The driver is
started again when it was killed, the node at once. Each time that the command has ended well the folder must have the
bytes that one process writes. Ray must be installed.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from tests.bert_flow_tf.scale.ray_cluster import VARIABLES, descendants, head, node, workers
from tests.campaigns.processes import differing, prepared

_KINDS = ("worker", "node", "driver")
_SENTENCES, _SHARD_ROWS = 3000, 2


def _encode(folder: pathlib.Path, out: pathlib.Path, *options: str) -> subprocess.Popen:
    arguments = ("--bert_hub", folder / "encoder", "--max_seq_length", 10, "--input", folder / "many.txt")
    arguments = (*arguments, "--out", out, "--shard_rows", _SHARD_ROWS, *options)
    command = [sys.executable, "-m", "bert_flow_tf.cli", "encode", *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | VARIABLES, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _parts(out: pathlib.Path) -> int:
    return len(list(out.glob("part-*")))


def _files(out: pathlib.Path) -> dict[str, str]:
    return {path.name: path.read_bytes().hex() for path in out.iterdir()}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status of the campaign with these arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    rng, began = random.Random(arguments.seed), time.monotonic()
    kills, violations = collections.Counter(), 0
    with prepared(["bulk"]) as folder, head(0) as address, contextlib.ExitStack() as nodes:
        words = (folder / "sentences.txt").read_text().split()
        lines = [" ".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(_SENTENCES)]
        (folder / "many.txt").write_text("".join(f"{line}\n" for line in lines))
        whole, out = folder / "whole", folder / "out"
        assert _encode(folder, whole).wait() == 0
        places = nodes.enter_context(tempfile.TemporaryDirectory(prefix="ray_"))

        def start_node() -> subprocess.Popen:
            place = tempfile.mkdtemp(dir=places)
            return nodes.enter_context(node(f"--address={address}", "--num-cpus=2", f"--temp-dir={place}"))

        running = start_node()
        while min(kills[kind] for kind in _KINDS) < arguments.kills:
            driver = _encode(folder, out, "--workers", "2", "--ray", address)
            while driver.poll() is None:
                # Two kills never meet one shard.
                wanted = _parts(out) + rng.randint(10, 200)
                while driver.poll() is None and _parts(out) < wanted:
                    time.sleep(0.01)
                kind = min(_KINDS, key=lambda kind: (kills[kind], rng.random()))
                victims = {"driver": [driver.pid], "worker": rng.sample(workers(running.pid) or [0], 1)}.get(
                    kind, [running.pid, *descendants(running.pid)]
                )
                if driver.poll() is not None or victims == [0]:
                    continue
                for victim in victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                kills[kind] += 1
                print(f"{time.monotonic() - began:5.0f} s, {kind} at {_parts(out)} parts", flush=True)
                if kind == "node":
                    running = start_node()
            said = driver.communicate()[1].decode(errors="replace")
            if driver.returncode == -signal.SIGKILL:
                continue
            wrong = f"exit status {driver.returncode}: {said[-500:]}" if driver.returncode else ""
            wrong = wrong or differing(_files(out), _files(whole))
            violations += bool(wrong)
            print(f"{time.monotonic() - began:5.0f} s, ended{f': VIOLATION: {wrong}' if wrong else ''}", flush=True)
            shutil.rmtree(out)
    print(f"{', '.join(f'{kills[kind]} {kind}' for kind in _KINDS)} kills, {violations} violations")
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
