"""What a result was measured on."""

import importlib.metadata
import pathlib
import platform

_BFLOAT16_UNITS = {"avx512_bf16", "amx_bf16", "bf16"}


def machine():
    """dict of Python, the versions of what this environment measures with, the CPU, and whether it has bfloat16."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    fields = _fields(cpuinfo.read_text()) if cpuinfo.is_file() else {}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("tensorflow", "tf-keras", "tensorflow-probability")},
        "cpu": fields.get("model name", platform.processor() or platform.machine()),
        "bfloat16_units": sorted(flags & _BFLOAT16_UNITS),
    }


def _fields(text):
    """The first CPU's lines `name : value`."""
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
