"""The multi-level flow, a bijection from embeddings to Gaussian latents."""

import contextlib
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from glow.bijectors import ActNorm, LearnedPermutation, Reversal, VectorBijector
from glow.config import GlowConfig
from glow.coupling import (
    AdditiveCoupling,
    AffineCoupling,
    ConvStack,
    Coupling,
    MakeNetwork,
    halves,
)
from glow.folded import DenseLayer, FoldedFlow, dense_layers
from glow.parameters import Parameters

tfb = tfp.bijectors
tfd = tfp.distributions

_COUPLINGS = {"additive": AdditiveCoupling, "affine": AffineCoupling}


@contextlib.contextmanager
def _refuse_variables_outside(parameters: Parameters) -> Iterator[None]:
    """Raise `ValueError` for a variable that `parameters` did not make.

    It would neither be trained nor saved.
    """
    made: list[tf.Variable] = []

    def create(make: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
        variable = make(**arguments)
        made.append(variable)
        return variable

    with tf.variable_creator_scope(create):
        yield
    known = {id(variable) for variable in parameters.variables.values()}
    for variable in made:
        if id(variable) not in known:
            raise ValueError(
                f"network: found the variable {variable.name} of shape {variable.shape}, which is "
                "neither trained nor saved; expected variables of Parameters, such as "
                "parameters.variable(name, value)"
            )


class Glow(tf.Module):
    """A normalizing flow over embeddings: the map to latents and the density.

    `z = f(u)` for u and z [..., D] with `log p(u) = log N(f(u); 0, I) + log |det ∂f/∂u|`. A level
    is `config.depth` steps of {actnorm, permutation, coupling}. After each level but the last, the
    channels are split into halves: x1 goes to the next level, x2 becomes latents. `z = concat(x2 of
    level 0, x2 of level 1, ..., last level's output)`.

        >>> flow = Glow(GlowConfig(n_levels=2), event_size=8, seed=0)
        >>> u = flow.sample(3, seed=1)
        >>> flow.forward(u).shape, flow.bits_per_dim(u).shape
        (TensorShape([3, 8]), TensorShape([3]))

    The bijectors are composed twice. `walk` visits them in order and makes every pass of training
    and encoding, without TFP's caches and shape checks, which would double the operations. The
    chain `bijector` and the `distribution` are the same map for whoever composes it with other
    parts of TFP; `inverse` and `sample` come from it.

    Attributes:
      levels: the bijectors of each level, in the order of the forward pass.
      bijector: the `tfb.Chain` of all levels, from u to z.
      distribution: `tfd.TransformedDistribution` over u. TFP caches results by tensor object, so
        after the variables change, `bijector` and `distribution` may return old results for an old
        tensor. This class's methods do not.

    Source: Li et al., On the Sentence Embeddings from Pre-trained Language Models, EMNLP 2020,
    section 3, <https://arxiv.org/abs/2011.05864>.
    """

    kind: ClassVar[str] = "flow"

    def __init__(
        self,
        config: GlowConfig,
        event_size: int,
        *,
        seed: int,
        dtype: tf.DType = tf.float32,
    ) -> None:
        """Create the variables with the original's initial values.

        Their names begin with `flow/`; the same seed gives the same bits. The original accepts only
        multiples of 2 ** n_levels as `event_size`; here x2 gets the extra channel if the number of
        channels is odd.

        Raises:
          ValueError: `event_size` is below 2 ** n_levels, `seed` is negative, the module of a
            coupling or network is not imported, it has variables of its own or another width, or
            it takes no `drop` where `config.coupling_dropout` asks for it.
        """
        super().__init__(name="flow")
        least = 2**config.n_levels
        if event_size < least:
            raise ValueError(
                f"event_size: found {event_size}, expected {least} or more for {config.n_levels} "
                "levels"
            )
        if seed < 0:
            raise ValueError(f"seed: found {seed}, expected 0 or more")
        self.config = config
        self._seed = seed
        self.event_size = event_size
        self.output_size = event_size
        self.dtype = tf.as_dtype(dtype)
        parameters = Parameters(seed=seed, dtype=dtype)
        if config.is_built_in:
            self._build(parameters)
        else:
            with _refuse_variables_outside(parameters):
                self._build(parameters)
                with tf.init_scope():
                    # Layers such as Keras's make their variables at the first call.
                    self.forward(tf.zeros([1, event_size], self.dtype))
        # Checkpoints store the variables under these paths, not under the attributes of bijectors.
        self._parameters = dict(parameters.variables)

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _build(self, parameters: Parameters) -> None:
        config = self.config
        own = config.own_parts()
        self._make_coupling = functools.partial(
            own.get("coupling") or _COUPLINGS[config.coupling], dtype=self.dtype
        )
        self._make_network: MakeNetwork = own.get("network") or functools.partial(
            ConvStack, width=config.coupling_width, activation=config.activation
        )
        sizes = [self.event_size // 2**level for level in range(config.n_levels)]
        self.levels = [
            self._level(parameters.scope(f"revnet_{i}"), size) for i, size in enumerate(sizes)
        ]
        visited: list[tuple[int, VectorBijector]] = []

        def visit(bijector: VectorBijector, channels: tf.Tensor) -> tf.Tensor:
            visited.append((channels.shape[0], bijector))
            return channels

        with tf.init_scope():
            latent_order = self.walk(tf.range(self.event_size), visit).numpy()
        chain: list[tfp.bijectors.Bijector] = []
        for size, steps in itertools.groupby(visited, key=lambda one: one[0]):
            level = tfb.Chain([bijector for _, bijector in steps][::-1])
            rest = self.event_size - size
            # The finished latents follow the level's channels and do not change.
            parts = (
                tfb.Blockwise([level, tfb.Identity()], [size, rest], maybe_changes_size=False)
                if rest
                else level
            )
            chain.append(parts)
        if rest:
            chain.append(tfb.Permute(latent_order, name="latent_order"))
        self.bijector = tfb.Chain(chain[::-1], name="glow")
        standard_normal = tfd.Normal(loc=tf.zeros([], self.dtype), scale=tf.ones([], self.dtype))
        self.distribution = tfd.TransformedDistribution(
            distribution=tfd.Sample(standard_normal, sample_shape=[self.event_size]),
            bijector=tfb.Invert(self.bijector),
            name="glow_distribution",
        )

    def _level(self, parameters: Parameters, size: int) -> list[VectorBijector]:
        config = self.config
        coupling: Any = self._make_coupling.func
        # Another class's path has characters that a name of variables may not have.
        coupling_name = config.coupling if config.coupling in _COUPLINGS else coupling.__name__
        bijectors: list[VectorBijector] = []
        for i in range(config.depth):
            step = parameters.scope(f"revnet_step_{i}")
            bijectors.append(ActNorm(step.scope("actnorm"), size))
            bijectors.append(
                Reversal()
                if config.permutation
                else LearnedPermutation(step.scope("invertible"), size)
            )
            scope = step.scope(coupling_name).scope("nn")
            outputs = coupling.outputs_per_channel * (size - size // 2)
            network = self._make_network(scope, size // 2, outputs)
            if config.coupling_dropout and "drop" not in inspect.signature(network).parameters:
                raise ValueError(
                    f"coupling_dropout: found {config.coupling_dropout:g} with a network without "
                    "the argument drop, expected 0"
                )
            try:
                bijectors.append(self._make_coupling(network))
            except TypeError as error:
                # A coupling's own check may compare values of another type.
                found = ", ".join(f"{key} = {value!r}" for key, value in config.own.items())
                raise ValueError(f"{found or coupling_name}: {error}") from error
        return bijectors

    def __repr__(self) -> str:
        described = f"{self.config}, event_size={self.event_size}, seed={self._seed}"
        return f"Glow({described}, dtype={self.dtype.name!r})"

    @property
    def recipe(self) -> dict[str, Any]:
        """The kind, the size and the configuration.

        Raises `ValueError` for a coupling or network that another process could not import.
        """
        return {"kind": self.kind, "event_size": self.event_size, "config": self.config.recipe}

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> "Glow":
        """Return the flow with initial values."""
        return cls(GlowConfig.of_recipe(recipe["config"]), int(recipe["event_size"]), seed=0)

    def __reduce__(self) -> tuple:
        arrays = {name: variable.numpy() for name, variable in self.variables_by_path.items()}
        return _restored, (self.config, self.event_size, self._seed, self.dtype.name, arrays)

    @property
    def variables(self) -> tuple[tf.Variable, ...]:
        """All variables, each once, in order of creation."""
        return tuple(self._parameters.values())

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """All variables except P and sign_S of learned permutations."""
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def non_trainable_variables(self) -> tuple[tf.Variable, ...]:
        return tuple(variable for variable in self.variables if not variable.trainable)

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by path, such as `revnet_0/revnet_step_0/actnorm/actnorm_center/b`."""
        return dict(self._parameters)

    def walk(
        self, x: tf.Tensor, advance: Callable[[VectorBijector, tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """Return the latents; `advance(bijector, x)` applies each bijector to `x`.

        The likelihood and the initialisation walk with values as `x`, the chain and `glow.folded`
        with channel indices.
        """
        latents = []
        for i, bijectors in enumerate(self.levels):
            if i:
                x, x2 = halves(x)
                latents.append(x2)
            for bijector in bijectors:
                x = advance(bijector, x)
        return tf.concat([*latents, x], axis=-1)

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the latents z [..., D] of the embeddings `u` [..., D]."""
        return self.walk(self._event(u), lambda bijector, x: bijector.forward(x))

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as dense layers, see `folded.dense_layers`."""
        if not self.config.is_built_in:
            raise ValueError("couplings or networks of one's own are not dense layers")
        return dense_layers(self.walk, self.event_size, self.config)

    def folded(self) -> FoldedFlow | None:
        """Return a `FoldedFlow` of the variables, or None without such a form."""
        is_additive = self.config.coupling == "additive" and self.config.is_built_in
        if not is_additive or not self.config.permutation:
            return None
        return FoldedFlow(
            self.variables,
            self.walk,
            self.event_size,
            self.levels[0][-1].network.activate,
        )

    def fixed_forward(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return the fastest form of `forward`, for variables that no longer change."""
        return self.folded() or self.forward

    def inverse(self, z: tf.Tensor) -> tf.Tensor:
        """Return the embeddings u [..., D] of the latents `z` [..., D]."""
        return self.bijector.inverse(self._event(z))

    def log_prob(self, u: tf.Tensor) -> tf.Tensor:
        """Return the log-density [...] of the embeddings `u` [..., D], in nats."""
        return self._forward_and_log_prob(u)[1]

    def bits_per_dim(self, u: tf.Tensor, step: tf.Tensor | None = None) -> tf.Tensor:
        """Return the flow loss of each row: `-log p(u) / (D ln 2)`.

        In training, `step` and the flow's seed determine the masks of `coupling_dropout`; None
        turns dropout off.
        """
        return self.forward_and_bits_per_dim(u, step)[1]

    def forward_and_bits_per_dim(
        self, u: tf.Tensor, step: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return `(forward(u), bits_per_dim(u, step))` in one pass."""
        z, log_prob = self._forward_and_log_prob(u, step)
        return z, log_prob / (-self.event_size * math.log(2.0))

    def _forward_and_log_prob(
        self, u: tf.Tensor, step: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # `distribution.log_prob` would double the operations, because it computes shapes of
        # log-determinants.
        log_det = tf.zeros([], self.dtype)
        rate = self.config.coupling_dropout
        seed = tf.stack([self._seed, step]) if rate and step is not None else None

        def drop(h: tf.Tensor) -> tf.Tensor:
            nonlocal seed
            seed = tf.random.fold_in(seed, 1)
            return tf.nn.experimental.stateless_dropout(h, rate, seed)

        def advance(bijector: VectorBijector, x: tf.Tensor) -> tf.Tensor:
            nonlocal log_det
            if seed is not None and isinstance(bijector, Coupling):
                bijector = self._make_coupling(functools.partial(bijector.network, drop=drop))
            x, added = bijector.forward_and_log_det(x)
            log_det += added
            return x

        z = self.walk(self._event(u), advance)
        return z, self.distribution.distribution.log_prob(z) + log_det

    def sample(self, n: int, seed: int) -> tf.Tensor:
        """Draw `n` embeddings [n, D]; the seed determines them."""
        return self.distribution.sample(n, seed=tf.constant([seed, 0], tf.int32))

    def initialize_from_data(self, u: tf.Tensor) -> None:
        """Set every actnorm from `u` [..., D], see `ActNorm.initialize_from_data`.

        The original defines this data-dependent initialisation but never runs it.
        """
        typical_deviation = 0.0

        def advance(bijector: VectorBijector, x: tf.Tensor) -> tf.Tensor:
            nonlocal typical_deviation
            x = bijector.initialize_from_data(x, typical_deviation)
            # After the first actnorm, a channel that is not constant has a deviation of about 1.
            typical_deviation = 1.0
            return x

        self.walk(tf.reshape(self._event(u), [-1, self.event_size]), advance)

    def _event(self, x: tf.Tensor) -> tf.Tensor:
        """Convert `x` to a new tensor of `self.dtype`; check its width."""
        # TFP caches results by tensor object, so the same object would get results from before a
        # training step.
        x = tf.identity(tf.convert_to_tensor(x, self.dtype))
        if x.shape.rank == 0 or (
            x.shape.rank is not None and x.shape[-1] not in (None, self.event_size)
        ):
            raise ValueError(
                f"found a tensor of shape {x.shape}, expected [..., {self.event_size}]"
            )
        return x


def _restored(
    config: GlowConfig, event_size: int, seed: int, dtype: str, arrays: Mapping[str, np.ndarray]
) -> Glow:
    """Return the flow of `Glow.__reduce__`."""
    flow = Glow(config, event_size, seed=seed, dtype=dtype)
    for name, variable in flow.variables_by_path.items():
        variable.assign(arrays[name])
    return flow
