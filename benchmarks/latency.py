"""Time one text and 32 texts: `python -m benchmarks.latency`."""

import concurrent.futures
import json
import pathlib
import random
import statistics
import tempfile
import time

import numpy as np
import onnxruntime
import tensorflow as tf

from benchmarks import peers
from benchmarks.processes import seconds_of
from bert_flow_tf import BertFlow
from glow import FlowCalibrator

TEXTS = [
    f"Boat {i} crosses the lake near the {word}."
    for i, word in enumerate(["hill", "old bridge"] * 16)
]
_ONNX_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def main() -> None:
    model = BertFlow.demo()
    u, tokens = model.encode_pooled(TEXTS), {n: model.tokenize(TEXTS[:n]).values() for n in (1, 32)}
    model.fit(TEXTS * 20, epochs=1, dev_fraction=0, show_progress_bar=False)
    calibrator = FlowCalibrator(epochs=1, show_progress_bar=False).fit(np.repeat(u, 10, axis=0))
    with (
        tempfile.TemporaryDirectory() as temporary,
        peers.peer().worker("benchmarks.torch_peers") as ask,
    ):
        folder = pathlib.Path(temporary)
        model.save(folder / "model")
        warm = BertFlow.from_pretrained(folder / "model", warm_up=True)
        print(
            "first request after warm_up=True: "
            f"{1e3 * seconds_of(lambda: warm.encode('A first request.')):.1f} ms"
        )
        model.export(folder / "saved")
        serve = tf.saved_model.load(str(folder / "saved" / "1")).signatures["serving_default"]
        BertFlow.demo().export(folder / "onnx", format="onnx")
        session = onnxruntime.InferenceSession(str(folder / "onnx" / "model.onnx"))
        ids = {
            n: {name: np.int64(one) for name, one in zip(_ONNX_INPUTS, tokens[n], strict=True)}
            for n in tokens
        }
        (folder / "texts.json").write_text(json.dumps(TEXTS))
        ask(
            "load_encoder",
            weights=str(peers.write_weights("demo", folder / "weights")),
            path=f"{folder}/texts.json",
        )
        sides = {
            "encode": lambda n: seconds_of(lambda: model.encode(TEXTS[:n])),
            "SavedModel": lambda n: seconds_of(
                lambda: serve(sentences=tf.constant(TEXTS[:n]))["embedding"].numpy()
            ),
            "FlowCalibrator.transform": lambda n: seconds_of(lambda: calibrator.transform(u[:n])),
            "ONNX Runtime": lambda n: seconds_of(lambda: session.run(None, ids[n])),
            "sentence-transformers": lambda n: ask("encode_few", n=n)["seconds"],
        }
        for n in (1, 32):
            # In a random order, because the threads of one side may still be busy when the next
            # begins.
            orders = [random.Random(i).sample(sorted(sides), len(sides)) for i in range(110)]
            rounds = [{name: sides[name](n) for name in order} for order in orders][10:]
            medians = {name: 1e3 * statistics.median(one[name] for one in rounds) for name in sides}
            print(
                f"{n:2} texts: "
                + "  ".join(f"{name} {found:.2f} ms" for name, found in medians.items())
            )
    for threads in (1, 8):
        with concurrent.futures.ThreadPoolExecutor(threads) as executor:
            texts = TEXTS * 2 * threads
            started = time.perf_counter()
            [*executor.map(model.encode, texts)]
            seconds = time.perf_counter() - started
        print(
            f"texts a second in {threads} threads, one text each: "
            f"{2 * threads * len(TEXTS) / seconds:.0f}"
        )


if __name__ == "__main__":
    main()
