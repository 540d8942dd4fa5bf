"""The architecture of a flow, read from a JSON file."""

import dataclasses
import inspect
import json
import os
import pathlib
import pkgutil
import re
import sys
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from glow.number_types import plain_number

# The original's flag has this default: 3 levels of 3 steps, width 32. The paper's Table 7 has
# config_l2_d3_w32.
DEFAULT_CONFIG = "config_l3_d3_w32"
_CONFIG_DIR = pathlib.Path(__file__).parent / "configs"


def part_path(part: Any) -> str:
    """Return `module:name` of a class or function."""
    module = getattr(part, "__module__", "?")
    return f"{module}:{getattr(part, '__qualname__', repr(part))}"


class Registry(dict[str, str]):
    """Classes or functions by name, as paths `module:name`.

    The values are paths, because importing the classes here would load TensorFlow, which takes
    seconds. A class or function may be set itself.
    """

    def __setitem__(self, name: str, part: Any) -> None:
        path = part if isinstance(part, str) else part_path(part)
        if not re.fullmatch(r"[\w.]+:[\w.]+", path):
            expected = "expected a class or function of a module, or its 'module:name'"
            raise ValueError(f"{name}: found {path}, {expected}")
        super().__setitem__(name, path)


COUPLINGS = Registry(
    additive="glow.coupling:AdditiveCoupling", affine="glow.coupling:AffineCoupling"
)
NETWORKS = Registry(conv="glow.coupling:conv_network")


@dataclasses.dataclass(frozen=True)
class GlowConfig:
    """Architecture of a flow, with the keys of the original's config files.

    Attributes:
      latent_architecture, top_prior, use_fp16: the original's keys for which only the default is
        valid.
      coupling_residual: a key of older files, for which only the default is valid.
      activation: non-linearity after the coupling network's second layer, "relu" or "gatu" (tanh ·
        sigmoid).
      coupling: "additive", "affine", or another key of `COUPLINGS`.
      coupling_width: channels of the coupling network's hidden layers, 1 to 8192.
      coupling_dropout: dropout rate of the coupling network in training, from 0 to below 1.
      n_levels: number of levels, 1 to 16; after each level but the last, half of the channels
        become latents.
      depth: steps of {actnorm, permutation, coupling} per level, 1 to 256.
      permutation: True to reverse the channels, False to learn an invertible 1x1 convolution.
      network: the couplings' network, "conv" or another key of `NETWORKS`.
      own: keys that only the coupling's class or the network's function takes, as keywords. In a
        file they stand beside the others.
      code: the paths, `module:name`, of a coupling and a network of one's own by their names, so
        that whoever loads the configuration learns which code is missing.

    Raises:
      ValueError: a value has the wrong type or is out of its range; the message names its key.
    """

    latent_architecture: Literal["glow_resnet"] = "glow_resnet"
    activation: Literal["relu", "gatu"] = "relu"
    coupling: str = "additive"
    # The upper limits catch typos; they are far above all published values.
    coupling_width: Annotated[int, msgspec.Meta(ge=1, le=8192)] = 32
    coupling_dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    top_prior: Literal["normal"] = "normal"
    n_levels: Annotated[int, msgspec.Meta(ge=1, le=16)] = 3
    depth: Annotated[int, msgspec.Meta(ge=1, le=256)] = 3
    permutation: bool = True
    use_fp16: bool = False
    coupling_residual: bool = False
    network: str = "conv"
    own: dict[str, bool | int | float | str] = dataclasses.field(default_factory=dict, hash=False)
    code: dict[str, str] = dataclasses.field(default_factory=dict, hash=False, compare=False)

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(GlowConfig, include_extras=True).items():
            object.__setattr__(self, name, plain_number(getattr(self, name)))
            try:
                msgspec.convert(getattr(self, name), kind)
            except msgspec.ValidationError as error:
                is_choice = get_origin(kind) is Literal
                expected = (
                    f"expected one of {', '.join(get_args(kind))}"
                    if is_choice
                    else str(error).lower()
                )
                raise ValueError(f"{name}: found {getattr(self, name)!r}, {expected}") from None
        code = {}
        for name, known, kind in (
            ("coupling", COUPLINGS, "Class"),
            ("network", NETWORKS, "function"),
        ):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(
                    f"{name}: found {value!r}, expected one of {', '.join(known)}; "
                    f"{_missing(name, value, kind, self.code.get(value))}"
                )
            if not known[value].startswith("glow.coupling:"):
                code[value] = _file_path(known[value])
        object.__setattr__(self, "code", code)
        if self.own and (unknown := sorted(self.own.keys() - self.own_keys())):
            keys = sorted(self._keys() | self.own_keys())
            raise ValueError(f"unknown key {unknown[0]!r}, expected {', '.join(keys)}")
        for name in ("use_fp16", "coupling_residual"):
            if getattr(self, name):
                raise ValueError(f"{name}: found True, expected False")

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> "GlowConfig":
        """Read a JSON file of some or all keys.

        Raises:
          ValueError: the file is missing or not JSON, or a key or value is invalid; the message
            names the file.
        """
        try:
            values = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            if not isinstance(values, dict):
                raise ValueError(
                    f"found {type(values).__name__}, expected an object of flow settings"
                )
            known = {key: value for key, value in values.items() if key in cls._keys()}
            # `to_dict` writes the coupling's own keys under `own`.
            own = values.get("own", {})
            code = values.get("code", {})
            rest = {key: values[key] for key in values.keys() - {"own", "code", *known}}
            return cls(**known, own=own | rest if isinstance(own, dict) else own, code=code)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path}: invalid flow config: {getattr(error, 'strerror', error)}"
            ) from None

    @classmethod
    def from_name(cls, name: str) -> "GlowConfig":
        """Return a shipped config; raise `ValueError` for an unknown name."""
        if name not in cls.names():
            raise ValueError(
                f"unknown flow config {name!r}, expected one of {', '.join(cls.names())}"
            )
        return cls.from_file(_CONFIG_DIR / f"{name}.json")

    @classmethod
    def load(cls, name_or_path: str | os.PathLike) -> "GlowConfig":
        """Return a shipped config by name, or read a `.json` file."""
        name = os.fspath(name_or_path)
        return cls.from_file(name) if name.endswith(".json") else cls.from_name(name)

    @staticmethod
    def names() -> list[str]:
        return sorted(path.stem for path in _CONFIG_DIR.glob("*.json"))

    @classmethod
    def _keys(cls) -> set[str]:
        """Return a file's possible keys with the library's own couplings."""
        return {field.name for field in dataclasses.fields(cls)} - {"own", "code"}

    def own_keys(self) -> set[str]:
        """Return the keywords of the coupling's class and the network's function."""
        return {*_own_keywords(COUPLINGS[self.coupling]), *_own_keywords(NETWORKS[self.network])}

    def own_of(self, path: str) -> dict[str, bool | int | float | str]:
        """Return the values of `own` for a registered class or function."""
        names = _own_keywords(path)
        return {name: value for name, value in self.own.items() if name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return all keys, but `network` and `own` only where they say something."""
        values = dataclasses.asdict(self)
        if self.network == "conv":
            del values["network"]
        for name in ("own", "code"):
            if not values[name]:
                del values[name]
        return values


def _missing(name: str, value: str, kind: str, path: str | None) -> str:
    """Return what to do about a part that no registry has."""
    if path is None:
        register = f"glow.config.{name.upper()}S[{value!r}] = {kind}"
        return f"one of your own is registered before, or in a file given to --code: {register}"
    module, _, part = path.partition(":")
    if module == "__main__":
        advice = f"put {part} into a file, and import that first, or give it to --code"
        return f"{path} of an interactive session registered it: {advice}"
    return f"{path} registered it, so import {module} first, or give --code {module}.py"


def _file_path(path: str) -> str:
    """Return a path with a script's file instead of `__main__`."""
    module, _, name = path.partition(":")
    file = getattr(sys.modules["__main__"], "__file__", None)
    return f"{pathlib.Path(file).stem}:{name}" if module == "__main__" and file else path


def _own_keywords(path: str) -> set[str]:
    """Return the keyword arguments that only a user's class or function has.

    They follow a class's `network` and `dtype`, and a function's `parameters`, `inputs` and
    `outputs`.
    """
    if path.startswith("glow.coupling:"):
        return set()
    found = pkgutil.resolve_name(path)
    names = list(inspect.signature(found).parameters)
    return set(names[2 if inspect.isclass(found) else 3 :])
