"""Several maps are one map, for every rank, form and copy."""

import copy
import pickle
import types

import numpy as np
import pytest
import tensorflow as tf

from glow.chain import Chain
from glow.config import GlowConfig
from glow.flow import Glow
from glow.maps import AffineMap, identity_of
from glow.parts import code_digest
from glow.saved import (
    RECIPES_FILE,
    check_exportable,
    export_calibration,
    made_maps,
    read_maps,
    write_maps,
)

WIDTH = 12


def affine(width=WIDTH, size=WIDTH, seed=0):
    rng = np.random.default_rng(seed)
    matrix = 0.3 * rng.normal(size=(width, size)) + 3 * np.eye(width, size)
    return AffineMap(width, rng.normal(size=width), matrix)


def flow(seed=3):
    made = Glow(GlowConfig(n_levels=2, depth=2), WIDTH, seed=seed)
    rng = np.random.default_rng(seed)
    for variable in made.trainable_variables:
        variable.assign_add(0.05 * rng.normal(size=variable.shape))
    return made


CHAINS = {
    "none": list,
    "affine": lambda: [affine()],
    "fewer channels": lambda: [affine(size=5)],
    "flow": lambda: [flow()],
    "affine, affine": lambda: [affine(), affine(size=5, seed=1)],
    "affine, flow": lambda: [affine(), flow()],
    "flow, affine": lambda: [flow(), affine(size=5)],
}


@pytest.fixture(params=CHAINS)
def chain(request):
    return Chain(CHAINS[request.param](), WIDTH)


@pytest.fixture(scope="module")
def u():
    return np.random.default_rng(1).normal(size=(200, WIDTH)).astype(np.float32)


def expected(chain, u):
    for one in chain.maps:
        u = one.forward(u).numpy()
    return u


def test_every_form_gives_what_one_map_after_another_gives(chain, u):
    z = expected(chain, u)
    np.testing.assert_array_equal(chain.forward(u), z)
    for rows in (u, u[:5], u[:0]):
        found = chain.transform(rows)
        assert found.shape == (len(rows), chain.output_size) and found.dtype == np.float32
        np.testing.assert_allclose(found, z[: len(rows)], rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(chain.fixed_forward()(tf.constant(u)), z, rtol=1e-5, atol=2e-5)
    x = np.asarray(u, np.float64)
    for layer in chain.dense_layers():
        x = x @ layer.kernel + layer.bias
        x = np.where(x > 0, x, layer.slope * x)
    np.testing.assert_allclose(x, z, rtol=1e-5, atol=2e-5)


def test_vectors_have_any_rank(chain, u):
    z = expected(chain, u)
    for rows, found in ((u[0], z[0]), (u[:6].reshape(2, 3, WIDTH), z[:6].reshape(2, 3, -1))):
        np.testing.assert_allclose(chain.transform(rows), found, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(chain.forward(tf.constant(rows)), found, rtol=1e-5, atol=2e-5)


def test_copies_and_folders_are_the_same_maps(chain, u, tmp_path):
    z = chain.transform(u)
    if chain.maps:
        write_maps(tmp_path, chain.maps)
        again = Chain(read_maps(tmp_path), WIDTH)
        assert again.identities == chain.identities
        np.testing.assert_array_equal(again.transform(u), z)
    for maps in (pickle.loads(pickle.dumps(chain.maps)), copy.deepcopy(chain.maps)):
        again = Chain(maps, WIDTH)
        np.testing.assert_array_equal(again.transform(u), z)
        assert again.identities == chain.identities
        for one in maps:
            for variable in one.variables_by_path.values():
                variable.assign(variable + 1)
    np.testing.assert_array_equal(chain.transform(u), z)


def test_a_changed_variable_changes_latents_and_identity(u):
    chain = Chain([affine(), flow()], WIDTH)
    for one in chain.maps:
        before, identity = chain.transform(u), chain.identities
        variable = next(iter(one.variables_by_path.values()))
        variable.assign_add(np.ones(variable.shape))
        assert not np.array_equal(chain.transform(u), before)
        np.testing.assert_allclose(chain.transform(u), expected(chain, u), rtol=1e-5, atol=2e-5)
        assert chain.identities != identity


@pytest.mark.parametrize("affine_maps", [1, 2])
def test_the_inverse_and_the_density_are_those_of_the_whole_map(u, affine_maps):
    chain = Chain([*(affine(seed=seed) for seed in range(affine_maps)), flow()], WIDTH)
    assert chain.has_density
    np.testing.assert_allclose(chain.inverse(chain.forward(u)), u, rtol=0, atol=2e-5)
    with tf.GradientTape() as tape:
        point = tf.constant(u[:3])
        tape.watch(point)
        z = chain.forward(point)
    jacobian = tape.batch_jacobian(z, point).numpy().astype(np.float64)
    normal = -0.5 * np.sum(z.numpy() ** 2, axis=1) - WIDTH / 2 * np.log(2 * np.pi)
    log_prob = normal + np.linalg.slogdet(jacobian)[1]
    # Log densities reach thousands of nats, so three units in float32's last place are allowed.
    np.testing.assert_allclose(chain.log_prob(u[:3]), log_prob, rtol=3e-7)
    bits = chain.bits_per_dim(u[:3])
    np.testing.assert_allclose(bits, -log_prob / (WIDTH * np.log(2)), rtol=0, atol=1e-3)
    drawn = chain.sample(4000, seed=1)
    np.testing.assert_array_equal(drawn, chain.sample(4000, seed=1))
    z = chain.forward(drawn).numpy()
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(np.cov(z.T), np.eye(WIDTH), atol=0.15)


def test_other_chains_have_no_density(u):
    singular = AffineMap(WIDTH, matrix=np.diag([0.0] + [1.0] * (WIDTH - 1)))
    assert not Chain([singular, flow()], WIDTH).has_density
    for maps in ([], [affine()], [flow(), affine()]):
        chain = Chain(maps, WIDTH)
        assert not chain.has_density
        with pytest.raises(ValueError, match="expected a flow"):
            chain.log_prob(u)


def test_layers_of_an_affine_map_are_part_of_the_flow(tmp_path):
    chain = Chain([affine(), flow()], WIDTH)
    export_calibration(chain, tmp_path / "layers.npz")
    assert np.load(tmp_path / "layers.npz")["kernel_0"].shape == (WIDTH, WIDTH)
    assert len(chain.dense_layers()) == len(chain.maps[1].dense_layers())


def test_maps_must_fit_together_and_be_known():
    with pytest.raises(ValueError, match="found one of 12 channels, expected 5"):
        Chain([affine(size=5), flow()], WIDTH)
    with pytest.raises(ValueError, match="found one of 12 channels, expected 8"):
        Chain([flow()], 8)
    with pytest.raises(ValueError, match="found nothing:Known, whose module is not imported"):
        made_maps([{"kind": "nothing:Known"}], {})
    recipe = affine().recipe
    with pytest.raises(ValueError, match="0/matrix: found shape"):
        made_maps([recipe], {"0/mean": np.zeros(WIDTH), "0/matrix": np.zeros((WIDTH, 3))})


class Doubled(AffineMap):
    """A map of one's own, which a folder names by its class."""

    kind = f"{__name__}:Doubled"

    def forward(self, u):
        return 2 * super().forward(u)


def test_an_own_map_is_saved_with_its_code(tmp_path, u, monkeypatch):
    own = Doubled(WIDTH, matrix=np.eye(WIDTH))
    write_maps(tmp_path, [own])
    (loaded,) = read_maps(tmp_path)
    np.testing.assert_array_equal(loaded.forward(u), own.forward(u))
    assert identity_of(own)["code"] == {Doubled.kind: code_digest(Doubled.kind)}
    file = tmp_path / RECIPES_FILE
    file.write_text(file.read_text().replace(code_digest(Doubled.kind), "0" * 64))
    with pytest.warns(UserWarning, match="test_chain: the code has changed since the model"):
        read_maps(tmp_path)
    monkeypatch.setattr(Doubled, "kind", "__main__:Doubled")
    for identify in (identity_of, lambda one: write_maps(tmp_path, [one])):
        with pytest.raises(ValueError, match="found Doubled; put it into a module of its own"):
            identify(own)


class Mirrored(AffineMap):
    """A map of one's own without variables."""

    kind = f"{__name__}:Mirrored"
    variables_by_path = types.MappingProxyType({})
    recipe = types.MappingProxyType({"kind": kind})

    def forward(self, u):
        return -u

    @classmethod
    def from_recipe(cls, recipe):
        return cls(WIDTH)


def test_what_can_be_saved_can_be_exported(tmp_path, u):
    check_exportable(Chain([Mirrored(WIDTH)], WIDTH))
    write_maps(tmp_path, [Mirrored(WIDTH)])
    (loaded,) = read_maps(tmp_path)
    np.testing.assert_array_equal(loaded.forward(u), -u)


def test_maps_that_differ_have_other_identities():
    maps = [affine(), affine(seed=1), affine(size=5), flow(), flow(seed=4)]
    found = [str(identity_of(one)) for one in maps]
    assert len({*found}) == len(found)
    assert identity_of(affine()) == identity_of(affine())
