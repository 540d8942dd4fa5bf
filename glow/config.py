"""The architecture of a flow, read from a JSON file."""

import contextlib
import dataclasses
import functools
import inspect
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from glow.number_types import plain_number
from glow.parts import code_digest, is_part_path, part_path, resolve_part, warn_if_changed

# The original's flag has this default: 3 levels of 3 steps, width 32. The paper's Table 7 has
# config_l2_d3_w32.
DEFAULT_CONFIG = "config_l3_d3_w32"
_CONFIG_DIR = pathlib.Path(__file__).parent / "configs"


# Other couplings and networks are one's own. `Glow` has the classes, whose import loads TensorFlow.
_BUILT_IN = {"coupling": ("additive", "affine"), "network": ("conv",)}


@dataclasses.dataclass(frozen=True)
class GlowConfig:
    """Architecture of a flow, with the keys of the original's config files.

    Attributes:
      latent_architecture, top_prior, use_fp16: the original's keys for which only the default is
        valid.
      coupling_residual: a key of older files, for which only the default is valid.
      activation: non-linearity after the coupling network's second layer, "relu" or "gatu" (tanh ·
        sigmoid).
      coupling: "additive", "affine", or a class of one's own: its path, `module:name`, or in Python
        the class itself. See `glow.parts`.
      coupling_width: channels of the coupling network's hidden layers, 1 to 8192.
      coupling_dropout: dropout rate of the coupling network in training, from 0 to below 1.
      n_levels: number of levels, 1 to 16; after each level but the last, half of the channels
        become latents.
      depth: steps of {actnorm, permutation, coupling} per level, 1 to 256.
      permutation: True to reverse the channels, False to learn an invertible 1x1 convolution.
      network: the couplings' network, "conv", or a function of one's own, like `coupling`:
        `network(parameters, inputs, outputs)` returns a callable from [..., inputs] to [...,
        outputs] whose variables `parameters` has made.
      own: keys that only the coupling's class or the network's function takes, as keywords. In a
        file they stand beside the others.

    Raises:
      ValueError: a value has the wrong type or is out of its range; the message names its key.
    """

    latent_architecture: Literal["glow_resnet"] = "glow_resnet"
    activation: Literal["relu", "gatu"] = "relu"
    coupling: Any = "additive"
    # The upper limits catch typos; they are far above all published values.
    coupling_width: Annotated[int, msgspec.Meta(ge=1, le=8192)] = 32
    coupling_dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    top_prior: Literal["normal"] = "normal"
    n_levels: Annotated[int, msgspec.Meta(ge=1, le=16)] = 3
    depth: Annotated[int, msgspec.Meta(ge=1, le=256)] = 3
    permutation: bool = True
    use_fp16: bool = False
    coupling_residual: bool = False
    network: Any = "conv"
    own: dict[str, bool | int | float | str] = dataclasses.field(default_factory=dict, hash=False)

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
        # The recipe stays the flow's when the caller's dict changes.
        object.__setattr__(self, "own", dict(self.own))
        for key, known in _BUILT_IN.items():
            if (part := getattr(self, key)) not in known:
                object.__setattr__(self, key, _checked_part(key, part, known))
        if self.is_built_in:
            # The keys of parts of one's own are known when their modules are imported.
            self.own_parts()
        for name in ("use_fp16", "coupling_residual"):
            if getattr(self, name):
                raise ValueError(f"{name}: found True, expected False")

    @classmethod
    def load(cls, name_or_path: str | os.PathLike) -> "GlowConfig":
        """Return a shipped config by name, or read a `.json` file.

        The file has some or all keys.

        Raises:
          ValueError: the name is unknown, the file is missing or not JSON, a key or value is
            invalid, or a part's module is not imported; the message has the name or the path.
        """
        name = os.fspath(name_or_path)
        path = pathlib.Path(name)
        if not name.endswith(".json"):
            path = _CONFIG_DIR / f"{name}.json"
            if not path.is_file():
                known = ", ".join(cls.names())
                raise ValueError(f"unknown flow config {name!r}, expected one of {known}")
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(values, dict):
                raise ValueError(
                    f"found {type(values).__name__}, expected an object of flow settings"
                )
            # `to_dict` writes the keys of one's own under `own`.
            own = values.pop("own", {})
            rest = {key: values.pop(key) for key in values.keys() - cls.__dataclass_fields__.keys()}
            config = cls(**values, own=own | rest if isinstance(own, dict) else own)
            config.own_parts()
            return config
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path}: invalid flow config: {getattr(error, 'strerror', error)}"
            ) from None

    @staticmethod
    def names() -> list[str]:
        return sorted(path.stem for path in _CONFIG_DIR.glob("*.json"))

    @property
    def is_built_in(self) -> bool:
        """True if neither coupling nor network is one's own."""
        return all(getattr(self, key) in known for key, known in _BUILT_IN.items())

    def own_parts(self) -> dict[str, Callable[..., Any]]:
        """Return a coupling and a network of one's own by their keys.

        Each is a `functools.partial` with the values of `own` that it takes.

        Raises:
          ValueError: a part's module is not imported, or a key of `own` belongs to none of them.
        """
        parts: dict[str, Callable[..., Any]] = {}
        taken: set[str] = set()
        for key, known in _BUILT_IN.items():
            value = getattr(self, key)
            if value in known:
                continue
            with _naming(key):
                part = resolve_part(value) if isinstance(value, str) else value
            names = _own_keywords(part)
            parts[key] = functools.partial(
                part, **{name: self.own[name] for name in names if name in self.own}
            )
            taken.update(names)
        if unknown := sorted(self.own.keys() - taken):
            expected = ", ".join(sorted(self.__dataclass_fields__.keys() - {"own"} | taken))
            raise ValueError(f"unknown key {unknown[0]!r}, expected {expected}")
        return parts

    def to_dict(self) -> dict[str, Any]:
        """Return all keys, but `network` and `own` only where they say something."""
        values = dataclasses.asdict(self)
        for key in _BUILT_IN:
            if not isinstance(values[key], str):
                values[key] = part_path(values[key])
        if self.network == "conv":
            del values["network"]
        if not self.own:
            del values["own"]
        return values

    def code(self) -> dict[str, str]:
        """Return the digests of the parts of one's own by their paths.

        Raises:
          ValueError: another process could not import a part, see `parts.code_digest`.
        """
        digests = {}
        for key in self.own_parts():
            with _naming(key):
                value = getattr(self, key)
                digests[value] = code_digest(value)
        return digests

    @property
    def recipe(self) -> dict[str, Any]:
        """All that a flow's function depends on but its variables, for JSON.

        `to_dict`, and `code` if there is any.
        """
        code = self.code()
        return self.to_dict() | ({"code": code} if code else {})

    @classmethod
    def of_recipe(cls, recipe: Mapping[str, Any]) -> "GlowConfig":
        """Return the configuration of a `recipe`; warn of code that has changed."""
        config = cls(**{key: value for key, value in recipe.items() if key != "code"})
        warn_if_changed(recipe.get("code", {}), config.code())
        return config


@contextlib.contextmanager
def _naming(key: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _checked_part(key: str, part: Any, known: Sequence[str]) -> Any:
    """Return the path of a part, or an object without a path."""
    if isinstance(part, str):
        if not is_part_path(part):
            expected = f"expected {', '.join(known)} or module:name of one's own"
            raise ValueError(f"{key}: found {part!r}, {expected}")
        return part
    if not callable(part):
        raise ValueError(f"{key}: found {part!r:.60}, expected a name, a class or a function")
    path = part_path(part)
    return path if _resolves(path, part) else part


def _resolves(path: str, part: Any) -> bool:
    try:
        return resolve_part(path) is part
    except ValueError:
        return False


def _own_keywords(part: Any) -> list[str]:
    """Return the keyword arguments that only one's own class or function has.

    They follow a class's `network` and `dtype`, and a function's `parameters`, `inputs` and
    `outputs`.
    """
    return list(inspect.signature(part).parameters)[2 if inspect.isclass(part) else 3 :]
