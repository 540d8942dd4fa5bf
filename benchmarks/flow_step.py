"""A step of the flow on embeddings that are there: `glow.maximum_likelihood` against the same in PyTorch.

D is 768, the width of BERT base, a step is 32 pairs, the flow the default. Both start from the same values and see the
same batches. Compared first are the losses of the first steps, and the latents after them. PyTorch takes the number of
threads, of those allowed, that it is fastest with: its operations here are small, and more threads may slow them down.
"""

import pathlib
import statistics
import tempfile

import numpy as np

from benchmarks import peers
from benchmarks.timing import in_turn, paired_ratios, seconds_of, shown
from bert_flow_tf.errors import UserError
from glow.config import GlowConfig

CONFIG = "config_l3_d3_w32"
SIZE = 768
ROWS_A_STEP = 64  # 32 pairs
LEARNING_RATE = 1e-3
STEPS = 269  # those of an epoch of all of STS-B
QUICK_STEPS = 20
COMPARED_STEPS = 5
# Largest difference of a loss, in bits per dimension, and of a latent, relative to the latents' deviation.
LARGEST_DIFFERENCE = 1e-4


def measure(options):
    """dict of times, ratios and figures of a step; see `run`."""
    from glow.flow import Glow
    from glow.maximum_likelihood import MaximumLikelihood

    steps = QUICK_STEPS if options.quick else STEPS
    generator = np.random.default_rng(0)
    u = generator.normal(0.0, 0.5, [steps * ROWS_A_STEP, SIZE]).astype(np.float32)
    batches = generator.permutation(len(u)).reshape(steps, ROWS_A_STEP)
    config = GlowConfig.from_name(CONFIG)
    training = MaximumLikelihood(Glow(config, SIZE, seed=0), LEARNING_RATE)
    with peers.Worker("benchmarks.peer_flow_step") as worker, tempfile.TemporaryDirectory() as folder:
        _load(worker, pathlib.Path(folder), training.flow, u, batches)
        differences = _compare(worker, pathlib.Path(folder), training, u, batches)
        threads, trial = _best_threads(worker, options)
        ways = {
            "ours": lambda: seconds_of(lambda: training.train(u, list(batches), show_progress_bar=False)) / steps,
            "pytorch": lambda: worker.ask("train", steps=steps, threads=threads)["seconds"] / steps,
        }
        in_turn(ways, 1)  # what is set up once
        seconds = in_turn(ways, 2 * options.repeats)
    ratio = paired_ratios(seconds["pytorch"], seconds["ours"])
    for way, each in seconds.items():
        print(f"  {way:10} {1e3 * statistics.median(each):8.2f} ms a step")
    print(f"  to PyTorch: {shown(ratio)} x")
    return {
        "size": SIZE,
        "rows_a_step": ROWS_A_STEP,
        "steps": steps,
        "flow_config": CONFIG,
        "dtype": "float32",
        "largest_differences": differences,
        "their_threads": threads,
        "their_seconds_a_step_by_threads": trial,
        "seconds_a_step": seconds,
        "ratios": ratio,
        "figures": {"to_pytorch": ratio["median"]},
    }


def _load(worker, folder, flow, u, batches):
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


def _best_threads(worker, options):
    """Number of threads that PyTorch's step is fastest with, and dict of each number tried to its seconds a step."""

    def seconds(threads):
        return worker.ask("train", steps=QUICK_STEPS, threads=threads)["seconds"] / QUICK_STEPS

    tried = sorted({1, max(1, options.threads // 2), options.threads})
    ways = {threads: lambda threads=threads: seconds(threads) for threads in tried}
    in_turn(ways, 1)  # what is set up once
    trial = {threads: statistics.median(each) for threads, each in in_turn(ways, 3).items()}
    best = min(trial, key=trial.get)
    print(f"  PyTorch is fastest with {best} of {options.threads} threads")
    return best, trial


def _compare(worker, folder, training, u, batches):
    """Largest differences of the first steps' losses, and of the latents after them."""
    ours = training.train(u, list(batches[:COMPARED_STEPS]), show_progress_bar=False)
    theirs = worker.ask("train", steps=COMPARED_STEPS, threads=1)["losses"]
    worker.ask("latents", rows=ROWS_A_STEP, out=str(folder / "z.npy"))
    z = training.flow.forward(u[:ROWS_A_STEP]).numpy()
    differences = {
        "loss": float(np.abs(ours - theirs).max()),
        "z": float(np.abs(z - np.load(folder / "z.npy")).max() / z.std()),
    }
    print(f"  after {COMPARED_STEPS} steps: losses differ by {differences['loss']:.1e}, z by {differences['z']:.1e}")
    if max(differences.values()) > LARGEST_DIFFERENCE:
        raise UserError(f"flow_step: found differences {differences} from PyTorch, expected {LARGEST_DIFFERENCE:.0e}")
    return differences
