"""Time ten steps of siamese training beside a plain PyTorch loop.

`run_siamese` gets one more Keras callback, which waits between blocks of steps while another side
takes its turn.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from unittest import mock

from benchmarks import peers
from benchmarks.processes import requests
from benchmarks.run import Options

STEPS = 10


def functions(options: Options, stack: contextlib.ExitStack) -> dict[str, Callable[[], dict]]:
    flags = {
        "task_name": "ALLNLI",
        "data_dir": f"{options.glue_dir}/MNLI",
        "bert_hub": options.bert_hub,
        "max_seq_length": 64,
        "train_batch_size": 16,
        "learning_rate": 2e-5,
        "sentence_embedding_type": "avg",
        # The process is killed before these epochs end.
        "num_train_epochs": 9,
        "exp_name": "run",
        "do_train": "true",
    }
    asks = {}
    for name, side in options.ours.items():
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        parent = f"--output_parent_dir={options.folder / name}"
        asks[name] = stack.enter_context(side.worker("benchmarks.nli_step", *arguments, parent))
    if options.with_peers:
        weights = peers.write_weights(options.bert_hub, options.folder / "weights")
        (options.folder / "pairs.json").write_text(json.dumps(options.pairs("ALLNLI", "train")))
        asks["PyTorch"] = stack.enter_context(peers.peer().worker("benchmarks.torch_peers"))
        asks["PyTorch"]("load_nli", weights=str(weights), pairs=str(options.folder / "pairs.json"))
    for ask in asks.values():
        ask("train", steps=STEPS)
    return {name: lambda ask=ask: ask("train", steps=STEPS) for name, ask in asks.items()}


def main(arguments: list[str]) -> None:
    """Run `run_siamese` for as many steps as each request says."""
    from bert_flow_tf import run_siamese  # isort: skip (it chooses the Keras)
    import tf_keras
    from absl import flags

    from bert_flow_tf.original.siamese import SiameseBertFlow

    class Turns(tf_keras.callbacks.Callback):
        incoming, answer, left, started = requests(), None, 1, 0.0

        def on_train_begin(self, logs: dict | None = None) -> None:
            self.on_train_batch_end(0)

        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            self.left -= 1
            if self.left:
                return
            if self.answer:
                self.answer({"seconds": time.perf_counter() - self.started})
            _, given, self.answer = next(self.incoming)
            self.left, self.started = given["steps"], time.perf_counter()

    fit = SiameseBertFlow.fit

    def fit_in_turn(
        model: SiameseBertFlow, *given: object, callbacks: list, **options: object
    ) -> object:
        return fit(model, *given, callbacks=[*callbacks, Turns()], **options | {"verbose": 0})

    os.environ["TQDM_DISABLE"] = "1"
    with mock.patch.object(SiameseBertFlow, "fit", fit_in_turn):
        values = flags.FlagValues()
        run_siamese.define_flags(values)
        sys.exit(run_siamese.main(run_siamese.parse(["run_siamese", *arguments], values), values))


if __name__ == "__main__":
    main(sys.argv[1:])
