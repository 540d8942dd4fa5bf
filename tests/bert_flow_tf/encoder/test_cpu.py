"""What the CPU's own description tells."""

import pytest

from bert_flow_tf.encoder import cpu

X86 = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu avx512f {}\n\nprocessor\t: 1\nmodel name\t: Another\n"


@pytest.mark.parametrize(
    ("text", "units"),
    [
        (X86.format("avx512_bf16 amx_bf16"), ["amx_bf16", "avx512_bf16"]),
        (X86.format("avx512_vnni not_bf16"), []),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", ["bf16"]),
        (None, []),
    ],
)
def test_units_for_bfloat16_are_flags_of_the_first_cpu(tmp_path, monkeypatch, text, units):
    monkeypatch.setattr(cpu, "_CPUINFO", tmp_path / "cpuinfo")
    if text:
        (tmp_path / "cpuinfo").write_text(text)
        assert cpu.cpu_fields()["processor"] == "0"
    assert cpu.bfloat16_units() == units
