"""Every kind of model, copy and export has one interface."""

import copy
import dataclasses
import itertools
import pickle

import numpy as np
import pytest
import scipy.stats
import sklearn.base
import tensorflow as tf
from msgspec.structs import replace

from bert_flow_tf import BertFlow, calibrate, load_calibration, open_export
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.model.any_encoder import Calibrated
from bert_flow_tf.vectors.sentence_model import SentenceModel
from glow.config import GlowConfig
from glow.flow import Glow
from glow.maps import AffineMap
from tests.bert_flow_tf.small_runs import TINY_WORDS
from tests.glow.bijector_checks import perturb
from tests.refusals import user_error

WIDTH = 32
WORDS = TINY_WORDS[:12]
SENTENCES = [" ".join(words) for words in itertools.islice(itertools.permutations(WORDS, 3), 120)]
SOME = SENTENCES[:5]


def affine(size, seed=0):
    rng = np.random.default_rng(seed)
    return AffineMap(WIDTH, rng.normal(size=WIDTH), rng.normal(size=(WIDTH, size)))


def flow():
    made = Glow(GlowConfig(n_levels=2, depth=1), WIDTH, seed=0)
    perturb(made.trainable_variables, seed=1)
    return made


@dataclasses.dataclass(frozen=True)
class Kind:
    """A model as data, from which NumPy computes its embeddings."""

    maps: tuple = ()
    low_dim: int = -1
    normalizes: bool = False
    truncate_dim: int | None = None
    prompt: str = ""


KINDS = {
    "encoder": Kind(),
    "affine, prompt": Kind(maps=(affine(WIDTH),), prompt="w5 w6 "),
    "fewer channels": Kind(maps=(affine(5),), truncate_dim=3),
    "affine, flow": Kind(maps=(affine(WIDTH), flow())),
    "averages of a flow": Kind(maps=(flow(),), low_dim=16, truncate_dim=7),
    "norm, averages": Kind(normalizes=True, low_dim=8),
    "norm before truncation": Kind(normalizes=True, truncate_dim=6),
}
# A copy has the state of a pickle.
WAYS = ("itself", "pickle", "saved", "onnx")


def of_norm_1(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def expected(kind, u, normalize=None, truncate_dim=None):
    """Return embeddings of pooled vectors, as plainly as NumPy can."""
    for one in kind.maps:
        u = np.concatenate([one.forward(row[np.newaxis]).numpy() for row in u])
    if kind.low_dim > 0:
        u = np.stack([np.mean(part, axis=1) for part in np.split(u, kind.low_dim, axis=1)], axis=1)
    if kind.normalizes and normalize is None:
        u = of_norm_1(u)
    u = u[:, : truncate_dim or kind.truncate_dim]
    return of_norm_1(u) if normalize else u


@pytest.fixture(scope="module")
def encoder(tiny_encoder_dir):
    return BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)


@pytest.fixture(scope="module")
def made(encoder, require, tmp_path_factory):
    """A function that makes a kind of model in some way, once."""
    known = {}

    def itself(kind):
        stage = copy.copy(encoder.encoder)
        if kind.normalizes:
            pretrained = encoder.source.pretrained
            record = replace(pretrained.record, normalize=True, pooling=encoder.encoder.pooling)
            pretrained = dataclasses.replace(pretrained, record=record)
            source = dataclasses.replace(encoder.source, pretrained=pretrained)
            stage = TextEncoder(source, encoder.encoder.network, max_seq_length=8)
        model = BertFlow(stage, origin=encoder.origin)
        model.prompts = {"query": "w1 ", "passage": "w2 ", "own": kind.prompt}
        model.default_prompt_name = "own" if kind.prompt else None
        model.maps = list(kind.maps)
        model.low_dim = kind.low_dim
        model.truncate_dim = kind.truncate_dim
        return model

    def make(name, way):
        if (name, way) in known:
            return known[name, way]
        if way == "itself":
            model = itself(KINDS[name])
        else:
            model = make(name, "itself")
            folder = tmp_path_factory.mktemp("made")
            if way == "onnx":
                require("tf2onnx")
                require("onnxruntime")
                model.export(folder / "onnx", format="onnx")
                model = open_export(folder / "onnx")
            else:
                model = {
                    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
                    "saved": lambda one: BertFlow.from_pretrained(one.save(folder / "saved")),
                }[way](model)
        return known.setdefault((name, way), model)

    return make


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.fixture(params=KINDS)
def name(request):
    return request.param


@pytest.fixture
def model(made, name, way):
    return made(name, way)


@pytest.fixture
def kind(name):
    return KINDS[name]


def close(found, wanted):
    # Rounding in float32 differs by at most 7e-7 of the largest value, in all cases.
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * max(1, np.abs(wanted).max()))


def pooled(encoder, prompt, texts=SOME):
    return encoder.encode_pooled([prompt + text for text in texts])


@pytest.mark.filterwarnings("ignore:truncate_dim")
def test_options_of_what_comes_out_follow_the_maps(model, kind, encoder):
    u = pooled(encoder, kind.prompt)
    wanted = expected(kind, u)
    assert model.embedding_size == wanted.shape[1] == model.get_embedding_dimension()
    close(model.encode(SOME), wanted)
    close(model.encode(iter(SOME), batch_size=2), wanted)
    close(model.encode(SOME[1]), wanted[1])
    close(model.transform(SOME), wanted)
    if not kind.normalizes:
        close(model.after_flow(model.encode_pooled(SOME)), wanted)
    close(model.encode(SOME, normalize_embeddings=True), expected(kind, u, True))
    close(model.encode(SOME, truncate_dim=2), expected(kind, u, truncate_dim=2))
    both = model.encode(SOME, normalize_embeddings=True, truncate_dim=2)
    close(both, expected(kind, u, True, 2))
    bits = model.encode(SOME, precision="ubinary")
    np.testing.assert_array_equal(bits, np.packbits(wanted > 0, axis=1))
    np.testing.assert_array_equal(model.encode(SOME[0], precision="ubinary"), bits[0])
    assert model.normalizes == np.allclose(np.linalg.norm(wanted, axis=1), 1, atol=1e-5)


@pytest.mark.filterwarnings("ignore:truncate_dim")
def test_blocks_are_what_encode_gives(model, kind, encoder):
    u = pooled(encoder, kind.prompt)
    for normalize in (None, True):
        ((texts, found),) = model.encode_blocks(SOME, normalize_embeddings=normalize)
        assert texts == SOME
        close(found, expected(kind, u, normalize))
    ((_, found),) = model.encode_blocks(SOME, prompt="w9 ")
    close(found, expected(kind, pooled(encoder, "w9 ")))


@pytest.mark.filterwarnings("ignore:truncate_dim")
def test_options_of_what_goes_in_reach_the_encoder(model, kind, encoder):
    query = expected(kind, pooled(encoder, "w1 "))
    for found in (
        model.encode(SOME, prompt="w1 "),
        model.encode(SOME, prompt_name="query"),
        model.encode_query(SOME),
        np.float32([model.embed_query(text) for text in SOME]),
    ):
        close(found, query)
    document = expected(kind, pooled(encoder, "w2 "))
    close(model.encode_document(SOME), document)
    close(np.float32(model.embed_documents(SOME)), document)
    close(
        model.similarity(SOME, SOME[:2]),
        of_norm_1(model.encode(SOME)) @ of_norm_1(model.encode(SOME[:2])).T,
    )
    assert all(len(rows) == len(SOME) for rows in model.tokenize(SOME).values())


@pytest.mark.filterwarnings("ignore:truncate_dim")
def test_scores_are_of_the_embeddings(model, kind):
    pairs = (SENTENCES[:40], SENTENCES[1:41], [i % 5 for i in range(40)])
    found = model.evaluate(pairs)
    a, b = (of_norm_1(model.encode(side)) for side in pairs[:2])
    wanted = scipy.stats.spearmanr(np.sum(a * b, axis=1), pairs[2]).statistic
    assert found.tasks["pairs"].by_protocol["all"] == pytest.approx(wanted, abs=1e-3)
    assert (found.without_flow is not None) == bool(getattr(model, "maps", ()))
    assert found.runs[0].fingerprint == model.fingerprint
    for wrong in (np.zeros(3), [found, "typo"], "pairs"):
        with user_error("found"):
            model.evaluate(wrong)


@pytest.mark.filterwarnings("ignore:truncate_dim")
def test_wrong_options_are_refused_before_work(model, monkeypatch):
    monkeypatch.setattr(type(model), "encode_pooled", None)
    size = model.tail.averaged_size
    for options, message in (
        ({"precision": "int4"}, "precision: found 'int4'"),
        ({"truncate_dim": 0}, "truncate_dim: found 0"),
        ({"truncate_dim": size + 1}, f"truncate_dim: found {size + 1}"),
        ({"truncate_dim": 2.0}, "truncate_dim: found 2.0"),
        ({"output_value": "token_embeddings"}, "output_value: found 'token_embeddings'"),
    ):
        with user_error(message):
            model.encode(SOME, **options)
    with user_error("false_matches: found 2"):
        model.threshold(SENTENCES, false_matches=2)
    for name, value in (
        ("truncate_dim", 0),
        ("truncate_dim", True),
        ("max_seq_length", 2),
        ("max_seq_length", 12.5),
        ("max_seq_length", "64"),
        ("default_prompt_name", "typo"),
        ("similarity_fn_name", "typo"),
        ("prompts", {"query": 3}),
        ("prompts", ["query"]),
    ):
        before = getattr(model, name)
        with user_error(f"{name}: found"):
            setattr(model, name, value)
        assert getattr(model, name) == before


@pytest.mark.parametrize("texts", ["A boat.", ["a", None], ["\ud800"], 3, {"a": 1}], ids=str)
def test_every_way_in_checks_its_texts(made, texts, way):
    model = made("affine, prompt", way)
    for call in (model.encode, model.encode_pooled, model.transform, model.encode_query):
        if isinstance(texts, str):
            assert call(texts).ndim == 1
        else:
            with user_error("found"):
                call(texts)
    with user_error("found"):
        list(model.encode_blocks(texts))


@pytest.mark.filterwarnings("ignore:truncate_dim")
def test_equal_recipes_have_one_fingerprint(made, name, way):
    assert made(name, way).fingerprint == made(name, "itself").fingerprint


@pytest.mark.filterwarnings("ignore:truncate_dim")
def test_models_of_one_fingerprint_give_the_same_vectors(made, way):
    known = {}

    def meets(model, **options):
        ((_, vectors),) = model.encode_blocks(
            SOME,
            prompt=options.get("prompt"),
            normalize_embeddings=options.get("normalize"),
        )
        fingerprint = model.fingerprint_of(**options)
        close(vectors, known.setdefault(fingerprint, vectors))

    for name in KINDS:
        model = made(name, way)
        meets(model)
        meets(model, prompt="w3 ")
        meets(model, normalize=True)
        changed = copy.copy(model) if way != "onnx" else model
        for attribute, value in (("max_seq_length", 4), ("truncate_dim", 2)):
            before = getattr(changed, attribute)
            setattr(changed, attribute, value)
            meets(changed)
            setattr(changed, attribute, before)
    # Every kind gives other vectors, in several ways.
    assert len(known) > 3 * len(KINDS)


@pytest.mark.filterwarnings("ignore:truncate_dim")
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_have_the_recipe(made, name, copied):
    one = made(name, "itself")
    assert copied(one).recipe() == one.recipe()


@pytest.mark.filterwarnings("ignore:truncate_dim")
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_no_copy_shares_what_can_be_set(made, copied):
    one = made("affine, flow", "itself")
    wanted = one.encode(SOME)
    for way in ("itself", "saved"):
        other = copied(made("affine, flow", way))
        close(other.encode(SOME), wanted)
        other.prompts["z"] = "z"
        other.truncate_dim = 3
        other.max_seq_length = 4
        other.flow = None
        assert "z" not in one.prompts and one.truncate_dim is None
        assert one.max_seq_length == 8 and one.maps


# The second library is an export, whose `encode` has the arguments of sentence-transformers.
@pytest.fixture(scope="module", params=["function", "library", "copy", "pickle", "saved"])
def calibrated(request, made, encoder, tmp_path_factory):
    if request.param == "library":
        return calibrate(made("encoder", "onnx"), SENTENCES, method="whitening-4", dev_fraction=0)
    model = calibrate(encode_plainly, SENTENCES, method="whitening-4", dev_fraction=0)
    if request.param == "copy":
        return copy.copy(model)
    if request.param == "pickle":
        return pickle.loads(pickle.dumps(model))
    if request.param == "saved":
        folder = model.save(tmp_path_factory.mktemp("calibrated") / "saved")
        return load_calibration(folder, encode_plainly)
    return model


def encode_plainly(texts):
    return np.array([[text.count(word) + len(text) ** 0.5 for word in WORDS] for text in texts])


def test_another_librarys_encoder_has_the_same_interface(calibrated):
    assert isinstance(calibrated, Calibrated) and isinstance(calibrated, SentenceModel)
    (one,) = calibrated.maps
    wanted = one.forward(calibrated.encode_pooled(SOME)).numpy()
    close(calibrated.encode(SOME), wanted)
    close(calibrated.encode(SOME[0]), wanted[0])
    close(calibrated.encode(SOME, normalize_embeddings=True), of_norm_1(wanted))
    close(calibrated.encode(SOME, truncate_dim=2), wanted[:, :2])
    np.testing.assert_array_equal(
        calibrated.encode(SOME, precision="ubinary"), np.packbits(wanted > 0, axis=1)
    )
    assert isinstance(calibrated.encode(SOME, convert_to_tensor=True), tf.Tensor)
    assert len(calibrated.encode(SOME, convert_to_numpy=False)) == 5
    close(calibrated.similarity(SOME, SOME[:1]), of_norm_1(wanted) @ of_norm_1(wanted[:1]).T)
    close(calibrated.transform(calibrated.encode_pooled(SOME)), wanted)
    assert calibrated.threshold(SENTENCES, 0.01).sentences == len(SENTENCES)
    assert calibrated.embedding_size == 4
    changed = copy.copy(calibrated)
    changed.truncate_dim = 2
    close(changed.encode(SOME), wanted[:, :2])
    assert calibrated.truncate_dim is None
    for ask in (lambda: calibrated.fingerprint, lambda: calibrated.encode("a", truncate_dim=9)):
        with user_error("found"):
            ask()


SETTINGS = {
    "truncate_dim": 2,
    "prompts": {"query": "w1 ", "mine": "w4 "},
    "default_prompt_name": "mine",
    "similarity_fn_name": "dot",
}


@pytest.fixture(scope="module", params=["BertFlow", "export", "library", "function"])
def settable(request, made):
    """A model of every class, and what opens its folder."""
    if request.param == "BertFlow":
        return copy.copy(made("affine, prompt", "itself")), BertFlow.from_pretrained
    if request.param == "export":
        return copy.copy(made("affine, prompt", "onnx")), None
    encoder = encode_plainly if request.param == "function" else made("encoder", "onnx")
    model = calibrate(encoder, SENTENCES, method="whitening-4", dev_fraction=0)
    return model, lambda folder: load_calibration(folder, encoder)


@pytest.mark.parametrize("way", ["copy", "deepcopy", "pickle", "clone", "frozen", "saved"])
def test_every_way_keeps_what_can_be_set(settable, way, tmp_path):
    model, opened = settable
    model.default_prompt_name = None
    for name, value in SETTINGS.items():
        setattr(model, name, value)
    model.frozen = way == "frozen"
    if way == "saved":
        if opened is None:
            return
        again = opened(model.save(tmp_path / "saved"))
    else:
        again = {
            "copy": copy.copy,
            "deepcopy": copy.deepcopy,
            "pickle": lambda one: pickle.loads(pickle.dumps(one)),
            "clone": sklearn.base.clone,
            "frozen": sklearn.base.clone,
        }[way](model)
        assert again.frozen == model.frozen
    assert {name: getattr(again, name) for name in SETTINGS} == SETTINGS


def test_a_functions_options_are_refused(encoder):
    model = calibrate(encode_plainly, SENTENCES, method="sn")
    for options in ({"prompt": "w1 "}, {"batch_size": 3}, {"device": "cpu"}):
        with user_error(f"{next(iter(options))}: found with a function"):
            model.encode(SOME, **options)


def test_a_librarys_own_prompts_reach_it(made):
    library = made("encoder", "onnx")
    model = calibrate(library, SENTENCES, method="sn")
    (one,) = model.maps
    for found, ours in (
        (model.encode_query(SOME), library.encode_query(SOME)),
        (model.encode(SOME, prompt="w4 "), library.encode(SOME, prompt="w4 ")),
        (np.float32(model.embed_documents(SOME)), library.encode_document(SOME)),
    ):
        close(found, one.forward(ours).numpy())


def test_prompts_that_are_set_come_before_a_librarys_own(made):
    library = copy.copy(made("affine, prompt", "onnx"))
    model = calibrate(library, SENTENCES, method="sn")
    (one,) = model.maps

    def gives(found, prompt):
        close(found, one.forward(library.encode(SOME, prompt=prompt)).numpy())

    gives(model.encode(SOME), "w5 w6 ")
    model.default_prompt_name = None
    gives(model.encode(SOME), "")
    model.prompts = {"query": "w7 ", "mine": "w8 "}
    model.default_prompt_name = "mine"
    for changed in (model, copy.copy(model)):
        gives(changed.encode(SOME), "w8 ")
        ((_, found),) = changed.encode_blocks(SOME)
        gives(found, "w8 ")
        gives(changed.encode_query(SOME), "w7 ")
        gives(changed.encode_document(SOME), "")
    function = calibrate(encode_plainly, SENTENCES, method="sn")
    function.prompts = {"query": "w7 "}
    close(function.encode(SOME), function.transform(encode_plainly(SOME)))
    with user_error("prompt: found with a function"):
        function.encode_query(SOME)
