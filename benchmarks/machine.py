"""What a result was measured on."""

import importlib.metadata
import platform

from benchmarks.cpu import bfloat16_units, cpu_fields


def machine() -> dict:
    """dict of Python, the versions of what this environment measures with, the CPU, and whether it has bfloat16."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("tensorflow", "tf-keras", "tensorflow-probability")},
        "cpu": cpu_fields().get("model name", platform.processor() or platform.machine()),
        "bfloat16_units": bfloat16_units(),
    }
