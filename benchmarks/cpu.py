"""What the operating system says about the CPU."""

import os
import pathlib

_CPUINFO = pathlib.Path("/proc/cpuinfo")
_BFLOAT16_UNITS = {"avx512_bf16", "amx_bf16", "bf16"}


def cpu_fields() -> dict[str, str]:
    """dict of name -> value of the first CPU's lines in /proc/cpuinfo; empty where there is none."""
    if not _CPUINFO.is_file():
        return {}
    lines = (line.partition(":") for line in _CPUINFO.read_text().split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def usable_cpus() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bfloat16_units() -> list[str]:
    """Sorted list of the CPU's names for its units that multiply bfloat16; empty where it has none."""
    fields = cpu_fields()
    return sorted(_BFLOAT16_UNITS & set(fields.get("flags", fields.get("Features", "")).split()))
