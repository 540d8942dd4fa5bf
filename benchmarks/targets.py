"""What is asked of each benchmark, as a table, and whether its figures meet it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    """One figure that is asked for.

    Attributes:
      benchmark: name of the benchmark that measures it.
      figure: its name in that benchmark's `figures`.
      question: what it says, for the table.
      at_least: whether the figure must be at least `target`; else at most.
      target: the number.
      aim: what would be better still, or None.
      unit: behind the number, `x` for a ratio.
    """

    benchmark: str
    figure: str
    question: str
    at_least: bool
    target: float
    aim: float | None = None
    unit: str = "x"

    def is_met(self, value: float) -> bool:
        """Whether `value` is as asked for."""
        return value >= self.target if self.at_least else value <= self.target

    @property
    def wanted(self) -> str:
        """What is asked for, as `>= 5x`."""
        return f"{'>=' if self.at_least else '<='} {self.target:g}{self.unit}"

    def shown(self, value: float) -> str:
        """`value` with its unit, with the digits that the target calls for."""
        return f"{value:.4f}{self.unit}" if self.target < 0.1 else f"{value:.2f}{self.unit}"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A figure beside its target."""

    target: Target
    value: float

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.target.is_met(self.value)

    @property
    def line(self) -> str:
        """Such as `encode in float32, to sentence-transformers: 1.08x, target >= 1x, aim 1.15x: met`."""
        aim = f", aim {self.target.aim:g}{self.target.unit}" if self.target.aim is not None else ""
        value, met = self.target.shown(self.value), "met" if self.met else "missed"
        return f"{self.target.question}: {value}, target {self.target.wanted}{aim}: {met}"

    def __str__(self) -> str:
        """Such as `encode.to_sentence_transformers 1.08x >= 1x`, with `MISSED` behind where it is."""
        value, missed = self.target.shown(self.value), "" if self.met else " MISSED"
        return f"{self.target.benchmark}.{self.target.figure} {value} {self.target.wanted}{missed}"


TARGETS = (
    Target("flow_run", "to_original", "flow run, times faster than in the original's way", True, 6.0),
    Target("flow_run", "spearman_from_original", "the same, difference of Spearman", False, 0.0015, unit=""),
    Target("flow_run", "to_cached", "flow run, its time to that without dropout, from a cache", False, 1.25),
    Target("flow_run", "to_pytorch", "flow run, times faster than a PyTorch loop with dropout", True, 2.5),
    Target("flow_run", "spearman_from_pytorch", "the same, difference of Spearman", False, 0.003, unit=""),
    Target(
        "flow_run", "cached_to_pytorch", "cached, times faster than a PyTorch loop without dropout", True, 2.5, aim=4.0
    ),
    Target("flow_run", "peak_memory_mib", "flow run, peak memory", False, 1024.0, unit=" MiB"),
    Target("encode", "to_sentence_transformers", "encode in float32, to sentence-transformers", True, 1.0, aim=1.15),
    Target("encode_bfloat16", "to_float32", "encode in bfloat16, to sentence-transformers in float32", True, 1.6),
    Target("encode_bfloat16", "to_bfloat16", "encode in bfloat16, to sentence-transformers in bfloat16", True, 1.0),
    Target("encode_bfloat16", "spearman_loss", "the same, loss of Spearman to float32", False, 0.002, unit=""),
    Target("flow_step", "to_pytorch", "step of the flow, to PyTorch", True, 1.5),
    Target("nli_step", "to_pytorch", "step of siamese training on NLI, to PyTorch", True, 1.15),
    Target("nli_step", "first_step_seconds", "the same, loaded model to first step", False, 5.0, unit=" s"),
    Target("mlm_step", "to_pytorch", "step of masked language modelling, to PyTorch", True, 1.15),
    Target(
        "nli_run", "memory_to_allowed", "NLI run, peak memory to the greater of PyTorch's and 1,536 MiB", False, 1.0
    ),
    Target("recipe", "seconds", "recipe on the sample data, after its set-up", False, 110.0, unit=" s"),
    Target("recipe", "rows_that_differ", "its scores, rows that differ between runs", False, 0.0, unit=""),
    Target("flow_share", "percent", "flow in encode, of the total", False, 2.0, unit="%"),
    Target("floor", "percent", "encoder's matrix products, of encode's time", True, 70.0, aim=80.0, unit="%"),
    Target("start_up", "seconds", "start-up to the first embedding", False, 6.0, unit=" s"),
    Target("growth", "time_deviation", "time per sentence at 1k and 100k, off that at 10k", False, 10.0, unit="%"),
    Target("growth", "memory_ratio", "peak memory at 100k sentences to that at 10k", False, 1.1),
    Target("scale", "efficiency", "two workers, their rate to twice that of one", True, 0.9, unit=""),
    Target("scale", "overhead_percent", "a folder of shards, slower than one file", False, 5.0, unit="%"),
    Target("scale", "memory_ratio", "peak memory of a folder of more sentences to that of 10k", False, 1.1),
)


def judge(results: dict[str, dict]) -> list[Verdict]:
    """list of the `Verdict` of every target whose benchmark is in `results`, dict of name -> dict with `figures`."""
    return [
        Verdict(target, results[target.benchmark]["figures"][target.figure])
        for target in TARGETS
        if target.benchmark in results
    ]


def summary(results: dict[str, dict]) -> tuple[str, bool]:
    """The closing line on `results`, and whether no target is missed.

    Quick results are not judged, and the line says so.
    """
    if any(result["quick"] for result in results.values()):
        return f"summary: quick sizes, whose figures are no results: {', '.join(results)} ran", True
    verdicts = judge(results)
    if not verdicts:
        return f"summary: nothing is asked of {', '.join(results)}", True
    missed = sum(not verdict.met for verdict in verdicts)
    return f"summary: {len(verdicts) - missed} of {len(verdicts)} met; {'; '.join(map(str, verdicts))}", not missed
