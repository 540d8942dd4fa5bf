"""Time one text and 32 texts in turn, in milliseconds: `python -m benchmarks.latency`.

sentence-transformers runs in the peers' environment. ONNX Runtime, without a flow, is timed if it is installed.
"""

import importlib.util
import json
import pathlib
import random
import statistics
import tempfile
import threading
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from benchmarks import peers
from benchmarks.processes import seconds_of
from bert_flow_tf import BertFlow
from glow import FlowCalibrator

TEXTS = [f"Boat {i} crosses the lake near the {word}." for i, word in enumerate(["hill", "old bridge"] * 16)]


def main() -> None:
    model = BertFlow.demo()
    u = model.encode_pooled(TEXTS)
    model.fit(TEXTS * 20, epochs=1, dev_fraction=0, show_progress_bar=False)
    calibrator = FlowCalibrator(epochs=1, show_progress_bar=False).fit(np.repeat(u, 10, axis=0))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model.save(folder / "model")
        warm = BertFlow.from_pretrained(folder / "model", warm_up=True)
        print(f"first request after warm_up=True: {1e3 * seconds_of(lambda: warm.encode('A first request.')):.1f} ms")
        model.export(folder / "saved")
        serve = tf.saved_model.load(str(folder / "saved" / "1")).signatures["serving_default"]
        sides: dict[str, Callable[[int], float]] = {
            "encode": lambda n: seconds_of(lambda: model.encode(TEXTS[:n])),
            "SavedModel": lambda n: seconds_of(lambda: serve(sentences=tf.constant(TEXTS[:n]))["embedding"].numpy()),
            "FlowCalibrator.transform": lambda n: seconds_of(lambda: calibrator.transform(u[:n])),
        }
        if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("tf2onnx"):
            sides["ONNX Runtime"] = _onnx(folder / "onnx")
        (folder / "texts.json").write_text(json.dumps(TEXTS))
        with peers.peer().worker("benchmarks.torch_peers") as ask:
            ask(
                "load_encoder",
                weights=str(peers.write_weights("demo", folder / "weights")),
                path=f"{folder}/texts.json",
            )
            sides["sentence-transformers"] = lambda n: ask("encode_few", n=n)["seconds"]
            for n in (1, 32):
                # In a random order, because the threads of one side may still be busy when the next begins.
                orders = [random.Random(i).sample(sorted(sides), len(sides)) for i in range(110)]
                rounds = [{name: sides[name](n) for name in order} for order in orders][10:]
                medians = {name: 1e3 * statistics.median(one[name] for one in rounds) for name in sides}
                print(f"{n:2} texts: " + "  ".join(f"{name} {found:.2f} ms" for name, found in medians.items()))
    one, eight = (_texts_per_second(model, threads) for threads in (1, 8))
    print(f"texts a second: {one:.0f} in one thread, {eight:.0f} in eight")


def _onnx(folder: pathlib.Path) -> Callable[[int], float]:
    plain = BertFlow.demo()
    plain.export(folder, format="onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = ("input_ids", "attention_mask", "token_type_ids")
    tokens = {n: [value.numpy().astype(np.int64) for value in plain.tokenize(TEXTS[:n]).values()] for n in (1, 32)}
    return lambda n: seconds_of(lambda: session.run(None, dict(zip(names, tokens[n], strict=True))))


def _texts_per_second(model: BertFlow, count: int) -> float:
    def work() -> None:
        for text in TEXTS * 2:
            model.encode(text)

    def together() -> None:
        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return 2 * count * len(TEXTS) / seconds_of(together)


if __name__ == "__main__":
    main()
