"""An exported model, or `encode_parts`, at work for long: whether memory and latency stay what they were.

    python -m tests.campaigns.load serve VERSION --minutes 60 --clients 16 --seed 0
    python -m tests.campaigns.load encode --bert_hub small --sentences 1000000 --seed 0

`serve` runs the SavedModel in VERSION, the folder of an exported version, as a model server does: in a session of its
graph. Each client is a thread that sends a request, one in four of them invalid, and pauses for up to `--pause`
seconds. An embedding must be that of the sentence alone, and what is invalid must be refused. `encode` embeds
sentences that are all different; `small` is a BERT of 2 layers, 32 wide, whose word pieces are letters and digits, so
that for it they differ, too. Both print resident memory as they go, and end with status 1 after a violation, or if
memory at the end is more than `--growth` percent above that after a twelfth of the work.
"""

import argparse
import concurrent.futures
import contextlib
import pathlib
import random
import resource
import string
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy as np

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.convert.from_tf1 import convert_tf1
from tests.bert_flow_tf.serving.test_session import Session
from tests.small_bert import write_small_bert

_TINY = pathlib.Path(__file__).parents[1] / "golden" / "data" / "bert_tiny"
_PARTS = 12
# Signature, and inputs that it must refuse.
_INVALID = [
    ("serving_default", {"sentences": np.array([["a"]], object)}),
    ("serving_default", {"sentences": np.array([1], np.int32)}),
    ("pooled", {"sentences": np.array("a", object)}),
    ("similarity", {"sentence_a": np.array(["a", "b"], object), "sentence_b": np.array(["a"], object)}),
    *(
        ("tokens", {"input_word_ids": np.array(ids, np.int32), "input_mask": np.array(mask, np.int32)} | types)
        for types in [{"input_type_ids": np.zeros([1, 2], np.int32)}]
        for ids, mask in [([[-1, 5]], [[1, 1]]), ([[1, 5]], [[0, 0]]), ([[1, 5]], [[1, 2]]), ([[1, 5]], [[1]])]
    ),
]


def made_sentences(rng: random.Random) -> Iterator[str]:
    """Sentences without end, of 1 to 24 made-up words."""
    while True:
        yield " ".join(
            "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 8))) for _ in range(rng.randint(1, 24))
        )


def resident_memory() -> float:
    """MiB of memory that this process holds now."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def growth(memory: list[float]) -> float:
    """Percent that the last figure is above the first; prints both."""
    percent = 100 * (memory[-1] / memory[0] - 1)
    print(f"memory {memory[0]:.0f} MiB, at the end {memory[-1]:.0f} MiB ({percent:+.1f} %)")
    return percent


def serve(version: str, minutes: float, clients: int, pause: float, seed: int) -> tuple[int, list[float]]:
    """Number of violations of all clients, and twelve figures of memory."""
    session = Session(version)
    sentences = [sentence for sentence, _ in zip(made_sentences(random.Random(seed)), range(1000), strict=False)]
    alone = {
        name: np.concatenate([session.answer(name, {"sentences": np.array([s], object)}) for s in sentences])
        for name in ("pooled", "serving_default")
    }
    latencies: list[list[float]] = [[] for _ in range(_PARTS)]
    wrong: list[str] = []
    started, seconds = time.monotonic(), 60 * minutes

    def request(rng: random.Random) -> str:
        """What is wrong with the answer to one request; "" for nothing."""
        if rng.random() < 0.25:
            name, inputs = rng.choice(_INVALID)
            return "" if isinstance(session.answer(name, inputs), Exception) else f"{name}: not refused: {inputs}"
        rows = [rng.randrange(len(sentences)) for _ in range(rng.randint(0, 16))]
        name = rng.choice(list(alone))
        before = time.monotonic()
        answer = session.answer(name, {"sentences": np.array([sentences[row] for row in rows], object)})
        now = time.monotonic()
        latencies[min(int(_PARTS * (now - started) / seconds), _PARTS - 1)].append(now - before)
        if isinstance(answer, Exception):
            return f"{name}: {answer}"
        largest = np.abs(answer - alone[name][rows]).max(initial=0.0)
        return "" if largest < 1e-4 else f"{name}: {largest} from the embedding of the sentence alone"

    def client(number: int) -> int:
        rng = random.Random(f"{seed} {number}")
        sent = 0
        while time.monotonic() - started < seconds:
            sent += 1
            if problem := request(rng):
                wrong.append(problem)
                print(problem, flush=True)
            time.sleep(pause * rng.random())
        return sent

    memory = []
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        sent = pool.map(client, range(clients))
        for part in range(_PARTS):
            threading.Event().wait(max(0.0, started + (part + 1) * seconds / _PARTS - time.monotonic()))
            memory.append(resident_memory())
            p50, p99 = np.percentile(latencies[part] or [np.nan], [50, 99])
            print(
                f"minute {(part + 1) * minutes / _PARTS:.3g}: {len(latencies[part])} valid requests since the last "
                f"line, p50 {1e3 * p50:.1f} ms, p99 {1e3 * p99:.1f} ms, memory {memory[-1]:.0f} MiB",
                flush=True,
            )
        print(f"{sum(sent)} requests of {clients} clients, {len(wrong)} violations")
    return len(wrong), memory


def encode(bert_hub: str, total: int, seed: int) -> tuple[int, list[float]]:
    """Number of sentences without an embedding, and up to twelve figures of memory."""
    model = BertFlow.from_hub(bert_hub)
    made = made_sentences(random.Random(seed))
    stream = (f"{i} {sentence}" for i, sentence in zip(range(total), made, strict=False))
    memory, embedded, started = [], 0, time.monotonic()
    for _, embeddings in model.encode_parts(stream, show_progress_bar=False):
        embedded += len(embeddings)
        if embedded * _PARTS >= (len(memory) + 1) * total:
            memory.append(resident_memory())
            rate = embedded / (time.monotonic() - started)
            print(f"{embedded} sentences, {rate:.0f} a second, memory {memory[-1]:.0f} MiB", flush=True)
    return total - embedded, memory


@contextlib.contextmanager
def small_encoder() -> Iterator[str]:
    """The folder of a small encoder of letters and digits, as long as the block lasts."""
    characters = string.ascii_lowercase + string.digits
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{one}" for one in characters)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_small_bert(_TINY, folder / "tf1", pieces=pieces)
        yield str(convert_tf1(folder / "tf1", folder / "encoder"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    served = kinds.add_parser("serve")
    served.add_argument("version", help="folder of an exported version")
    served.add_argument("--minutes", type=float, default=60.0)
    served.add_argument("--clients", type=int, default=16)
    served.add_argument("--pause", type=float, default=2.0)
    encoded = kinds.add_parser("encode")
    encoded.add_argument("--bert_hub", default="demo")
    encoded.add_argument("--sentences", type=int, default=1_000_000)
    for kind in (served, encoded):
        kind.add_argument("--seed", type=int, default=0)
        kind.add_argument("--growth", type=float, default=5.0)
    arguments = parser.parse_args()
    if arguments.kind == "serve":
        clients = arguments.clients, arguments.pause
        violations, memory = serve(arguments.version, arguments.minutes, *clients, arguments.seed)
    else:
        named = small_encoder() if arguments.bert_hub == "small" else contextlib.nullcontext(arguments.bert_hub)
        with named as bert_hub:
            violations, memory = encode(bert_hub, arguments.sentences, arguments.seed)
    return int(growth(memory) > arguments.growth or violations > 0)


if __name__ == "__main__":
    sys.exit(main())
