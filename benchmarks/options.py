"""The command line's settings, as every benchmark takes them."""

import dataclasses
import os
import sys

from benchmarks.cpu import usable_cpus
from bert_flow_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings that all benchmarks share.

    Attributes:
      glue_dir: folder that holds STS-B in GLUE's layout.
      bert_hub: encoder, `demo` or an encoder folder.
      repeats: times that each side of a comparison is measured.
      threads: CPUs that every process of a benchmark, ours and theirs, may use.
      quick: small sizes, to see that all works; the figures are no results.
      sentences: the larger number of `scale`, whose memory is compared with that of 10,000.
    """

    glue_dir: str
    bert_hub: str = "demo"
    repeats: int = 3
    threads: int = 1
    quick: bool = False
    sentences: int = 40_000


def limit_threads(threads: int) -> None:
    """Keeps this process and all that it starts to the first `threads` of its CPUs, so that pools are of that size.

    Raises:
      UserError: there are fewer, or this system cannot limit them.
    """
    available = usable_cpus()
    if not 1 <= threads <= available:
        raise UserError(f"--threads: found {threads}, expected 1 to {available}, the CPUs that this process may use")
    if threads == available:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise UserError(f"--threads: found {threads}, expected all {available} on {sys.platform}")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
