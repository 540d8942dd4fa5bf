"""One training step of the flow on given embeddings: `glow.trainer` against the same in PyTorch.

D is 768, the width of BERT base, a step is 32 pairs, the flow the default. Both start from the same values and see the
same batches. Compared first are the losses of the first steps, and the latents after them. PyTorch takes the number of
threads, out of those allowed, that makes it fastest: its operations are small, and more threads may slow it down.
"""

import pathlib
import statistics
import tempfile
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import peers
from benchmarks.options import Options
from benchmarks.timing import in_turn, paired_ratios, seconds_of, shown
from bert_flow_tf.errors import UserError
from glow.config import DEFAULT_CONFIG, GlowConfig

if TYPE_CHECKING:
    from glow.flow import Glow
    from glow.trainer import FlowTrainer

SIZE = 768
ROWS_PER_STEP = 64  # 32 pairs
LEARNING_RATE = 1e-3
STEPS = 269  # those of an epoch of all of STS-B
QUICK_STEPS = 20
COMPARED_STEPS = 5
# Largest difference of a loss, in bits per dimension, and of a latent, relative to the latents' deviation.
LARGEST_DIFFERENCE = 1e-4


def measure(options: Options) -> dict:
    """dict of times, ratios and figures of one step; see `run`."""
    from glow.flow import Glow
    from glow.trainer import FlowTrainer

    steps = QUICK_STEPS if options.quick else STEPS
    generator = np.random.default_rng(0)
    u = generator.normal(0.0, 0.5, [steps * ROWS_PER_STEP, SIZE]).astype(np.float32)
    batches = generator.permutation(len(u)).reshape(steps, ROWS_PER_STEP)
    config = GlowConfig.from_name(DEFAULT_CONFIG)
    training = FlowTrainer(Glow(config, SIZE, seed=0), LEARNING_RATE)
    with peers.Worker("benchmarks.peer_flow_step") as worker, tempfile.TemporaryDirectory() as folder:
        _load(worker, pathlib.Path(folder), training.flow, u, batches)
        differences = _compare(worker, pathlib.Path(folder), training, u, batches)
        threads, trial = _best_threads(worker, options)
        ways = {
            "ours": lambda: seconds_of(lambda: training.train(u, list(batches), show_progress_bar=False)) / steps,
            "pytorch": lambda: worker.ask("train", steps=steps, threads=threads)["seconds"] / steps,
        }
        in_turn(ways, 1)  # set-up is not timed
        seconds = in_turn(ways, 2 * options.repeats)
    ratio = paired_ratios(seconds["pytorch"], seconds["ours"])
    for way, each in seconds.items():
        print(f"  {way:10} {1e3 * statistics.median(each):8.2f} ms per step")
    print(f"  to PyTorch: {shown(ratio)} x")
    return {
        "size": SIZE,
        "rows_per_step": ROWS_PER_STEP,
        "steps": steps,
        "flow_config": DEFAULT_CONFIG,
        "dtype": "float32",
        "largest_differences": differences,
        "their_threads": threads,
        "their_seconds_per_step_by_threads": trial,
        "seconds_per_step": seconds,
        "ratios": ratio,
        "figures": {"to_pytorch": ratio["median"]},
    }


def _load(worker: peers.Worker, folder: pathlib.Path, flow: "Glow", u: np.ndarray, batches: np.ndarray) -> None:
    values = {path: variable.numpy() for path, variable in flow.variables_by_path.items()}
    np.savez(folder / "flow.npz", **values)
    np.save(folder / "u.npy", u)
    config = flow.config
    worker.ask(
        "load",
        values=str(folder / "flow.npz"),
        embeddings=str(folder / "u.npy"),
        batches=batches.tolist(),
        learning_rate=LEARNING_RATE,
        config={"levels": config.n_levels, "depth": config.depth, "width": config.coupling_width},
    )


def _best_threads(worker: peers.Worker, options: Options) -> tuple[int, dict[int, float]]:
    """Number of threads that PyTorch's step is fastest with, and dict of each number tried to its seconds per step."""

    def seconds(threads: int) -> float:
        return worker.ask("train", steps=QUICK_STEPS, threads=threads)["seconds"] / QUICK_STEPS

    tried = sorted({1, max(1, options.threads // 2), options.threads})
    ways = {threads: lambda threads=threads: seconds(threads) for threads in tried}
    in_turn(ways, 1)  # set-up is not timed
    trial = {threads: statistics.median(each) for threads, each in in_turn(ways, 3).items()}
    best = min(trial, key=trial.get)
    print(f"  PyTorch is fastest with {best} of {options.threads} threads")
    return best, trial


def _compare(
    worker: peers.Worker, folder: pathlib.Path, training: "FlowTrainer", u: np.ndarray, batches: np.ndarray
) -> dict[str, float]:
    """Largest differences of the first steps' losses, and of the latents after them."""
    ours = training.train(u, list(batches[:COMPARED_STEPS]), show_progress_bar=False)
    theirs = worker.ask("train", steps=COMPARED_STEPS, threads=1)["losses"]
    worker.ask("latents", rows=ROWS_PER_STEP, out=str(folder / "z.npy"))
    z = training.flow.forward(u[:ROWS_PER_STEP]).numpy()
    differences = {
        "loss": float(np.abs(ours - theirs).max()),
        "z": float(np.abs(z - np.load(folder / "z.npy")).max() / z.std()),
    }
    print(f"  after {COMPARED_STEPS} steps: losses differ by {differences['loss']:.1e}, z by {differences['z']:.1e}")
    if max(differences.values()) > LARGEST_DIFFERENCE:
        raise UserError(f"flow_step: found differences {differences} from PyTorch, expected {LARGEST_DIFFERENCE:.0e}")
    return differences
