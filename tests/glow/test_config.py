import json
import pathlib
import re

import pytest

from glow.config import GlowConfig

SHIPPED = {
    "config_l2_d2_w32": (2, 2, 32),
    "config_l2_d3_w16": (2, 3, 16),
    "config_l2_d3_w32": (2, 3, 32),
    "config_l3_d2_w32": (3, 2, 32),
    "config_l3_d3_w16": (3, 3, 16),
    "config_l3_d3_w32": (3, 3, 32),
}


def changed(key, value):
    return json.dumps({**GlowConfig().to_dict(), key: value})


@pytest.mark.differs("`config_l2_d3_w16`")
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_config_says_what_its_name_says(name):
    config = GlowConfig.load(name)
    assert GlowConfig.names() == sorted(SHIPPED)
    assert (config.n_levels, config.depth, config.coupling_width) == SHIPPED[name]
    assert (config.coupling, config.activation, config.permutation) == ("additive", "relu", True)


def test_shipped_config_equals_the_originals(golden_dir):
    for name in ("config_l2_d2_w32", "config_l2_d3_w32", "config_l3_d3_w32"):
        assert GlowConfig.load(name) == GlowConfig.load(golden_dir / f"flow_{name}.json")


@pytest.mark.differs("`--flow_model_config`")
def test_load_takes_a_name_or_a_path(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(changed("depth", 7))
    assert GlowConfig.load(str(path)).depth == 7
    assert GlowConfig.load(path).depth == 7
    assert GlowConfig.load("config_l2_d2_w32").depth == 2
    with pytest.raises(ValueError, match=r"'config_l9'.*config_l2_d2_w32, config_l2_d3_w16"):
        GlowConfig.load("config_l9")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (changed("depth", 0), "depth: found 0"),
        (changed("depth", "3"), "depth: found '3'"),
        (changed("depth", True), "depth: found True"),
        (changed("permutation", 1), "permutation: found 1"),
        (changed("coupling", "cubic"), "coupling: found 'cubic'"),
        (changed("network", "no_such_module:name"), "network: found no_such_module:name"),
        (changed("activation", "gelu"), "activation: found 'gelu'"),
        (changed("latent_architecture", "maf"), "latent_architecture: found 'maf'"),
        (changed("coupling_dropout", 1.0), "coupling_dropout: found 1.0"),
        (changed("coupling_dropout", float("nan")), "coupling_dropout: found nan"),
        (changed("use_fp16", True), "use_fp16: found True"),
        (changed("coupling_residual", True), "coupling_residual: found True"),
        (changed("width", 32), "unknown key 'width'"),
        ("{", "invalid flow config"),
        (changed("depth", 10**9), "depth: found 1000000000"),
        ("[]", "found list"),
        (None, "No such file"),
    ],
)
def test_bad_file_is_named_with_the_key(tmp_path, text, found):
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError) as error:
        GlowConfig.load(path)
    line = str(error.value)
    assert line.startswith(str(path)) and found in line and "\n" not in line


def test_an_own_part_is_read_without_its_module_and_not_built():
    config = GlowConfig(coupling="no_such_module:Own", own={"bound": 2.0})
    assert GlowConfig(**config.to_dict()) == config
    with pytest.raises(ValueError, match=r"^coupling: found no_such_module:Own, whose module is"):
        config.own_parts()
    with pytest.raises(ValueError, match="coupling: found 3, expected a name, a class or"):
        GlowConfig(coupling=3)
    with pytest.raises(ValueError, match="expected additive, affine or module:name of one's own"):
        GlowConfig(coupling="none of them")


def test_a_configuration_does_not_follow_the_callers_dict():
    own = {"bound": 2.0}
    config = GlowConfig(coupling="no_such_module:Own", own=own)
    own["bound"] = 3.0
    assert config.own == {"bound": 2.0}


def test_the_page_lists_every_key_with_its_default():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| `?([^|`]+)`? \|", page, re.MULTILINE))
    assert {key: json.loads(value) for key, value in rows.items()} == GlowConfig().to_dict() | {
        "network": "conv"
    }
