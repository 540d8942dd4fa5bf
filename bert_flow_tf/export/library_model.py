"""Export a calibrated model of sentence-transformers as ONNX, by torch's exporter."""

import dataclasses
import hashlib
import importlib
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from bert_flow_tf.common.atomic import locked, new_output
from bert_flow_tf.common.errors import ArgumentError, check_installed, hidden_stderr
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.version import (
    DESCRIPTION_FILE,
    ONNX_DATA_FILE,
    ONNX_FILE,
    TOKENIZER_FILE,
)
from bert_flow_tf.encoder.convert.folders import CONFIG_FILE, TOKENIZER_CONFIG_FILE
from bert_flow_tf.export.export import (
    CHECKED_SENTENCES,
    Exported,
    checked_export,
    checked_texts,
    text_batches,
    tolerance_of,
)
from bert_flow_tf.export.formats import EXPORT_FORMATS, INT8, ONNX, ExportSettings, export_path
from bert_flow_tf.export.onnx import quantize
from bert_flow_tf.model.any_encoder import Calibrated
from bert_flow_tf.runtime.description import Description
from bert_flow_tf.runtime.programs import INPUTS, OUTPUT, OnnxProgram
from bert_flow_tf.runtime.tokenizing import TextTokenizer
from bert_flow_tf.vectors.sentence_model import digest_of
from glow.folded import DenseLayer
from glow.saved import LARGE_WEIGHTS

_OPSET = 17
_LIBRARY = "sentence_transformers."
# Spaces and capitals show what the library does with a text before its tokenizer.
_TOKENIZED = (*CHECKED_SENTENCES, "  A boat\n", "ÀB")


def export_library_model(
    model: Calibrated, folder: pathlib.Path, dtype: str, *, overwrite: bool
) -> Exported:
    """Write encoder, maps and tail as one graph, and check it.

    The folder is that of `export.onnx.write_onnx`; its graph has the encoder's own inputs.

    Raises:
      ArgumentError: a part of the model cannot be exported; the error names it.
      UserError: the folder exists, or the written files give other embeddings.
    """
    settings = ExportSettings(format=ONNX, dtype=dtype)
    check_installed("onnxruntime", ONNX, "format", ArgumentError)
    given = model.encoder.given
    _check_parts(given)
    layers = _dense_layers(model)
    with locked(folder, wait=True):
        path = export_path(folder, settings, overwrite=overwrite)
        texts = checked_texts(dtype, _max_seq_length(given), ())
        expected = model.encode(texts, prompt="", batch_size=2)
        tolerance = tolerance_of(model.maps, settings)
        description = _describe(model, expected, dtype, tolerance)
        with new_output(path, EXPORT_FORMATS[ONNX], overwrite=overwrite) as new:
            _write_tokenizer(given, new, description.max_seq_length)
            _write_graph(model, layers, new / ONNX_FILE)
            if dtype == INT8:
                quantize(new / ONNX_FILE)
            tokenizer = TextTokenizer(new / TOKENIZER_FILE, description.max_seq_length)
            program = OnnxProgram(new)

            def run(texts: Sequence[str]) -> np.ndarray:
                return program(*tokenizer.pack(tokenizer.rows(texts)[0]), alone=True)

            if dtype == INT8:
                # The probes are those of the rounded matrices, in one batch.
                probed = [*description.probes]
                probes = dict(zip(probed, run(probed).tolist(), strict=True))
                description = dataclasses.replace(description, probes=probes)
            write_json(new / DESCRIPTION_FILE, description)
            found = np.concatenate([run(pair) for pair in text_batches(texts)])
            return checked_export(path, found, expected, tolerance, dtype)


def _refused(found: str, expected: str) -> ArgumentError:
    return ArgumentError(f"format: found {found}, expected {expected}; .npz has the maps alone")


def _check_parts(given: Any) -> None:
    """Raise `ArgumentError` for a part that cannot be exported."""
    if not hasattr(given, "_modules"):
        raise _refused("a function as encoder", "a SentenceTransformer")
    for module in given.children():
        kind = type(module)
        if not kind.__module__.startswith(_LIBRARY):
            raise _refused(f"the module {kind.__qualname__}", "sentence-transformers' own modules")
        if getattr(module, "include_prompt", True) is False:
            raise _refused("a pooling without the prompt's words", "include_prompt=True")
        network = getattr(module, "auto_model", None)
        if network is not None and not type(network).__module__.startswith("transformers."):
            found = f"the model {type(network).__qualname__} with code of its own"
            raise _refused(found, "a model of transformers")
    tokenizer = given.tokenizer
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise _refused(f"the tokenizer {type(tokenizer).__qualname__}", "one of tokenizers")
    for side in ("padding_side", "truncation_side"):
        if getattr(tokenizer, side) != "right":
            raise _refused(f"{side}={getattr(tokenizer, side)}", "right")
    inputs = _tokens(given, ["a"])
    if "input_ids" not in inputs or not set(inputs) <= set(INPUTS):
        raise _refused(f"the inputs {', '.join(inputs)}", ", ".join(INPUTS))


def _dense_layers(model: Calibrated) -> list[DenseLayer]:
    try:
        return model.chain.dense_layers()
    except ValueError as error:
        raise _refused(str(error), "maps of dense layers") from error


def _tokens(given: Any, texts: Sequence[str]) -> dict[str, Any]:
    """Return the library's tensors of tokens by name."""
    # The library has renamed the method.
    tokenize = getattr(given, "preprocess", None) or given.tokenize
    found = tokenize(list(texts))
    return {name: value.to(given.device) for name, value in found.items() if hasattr(value, "to")}


def _write_tokenizer(given: Any, folder: pathlib.Path, max_seq_length: int) -> None:
    """Write the tokenizer's files, and check that they give the library's ids."""
    with tempfile.TemporaryDirectory() as saved:
        given.tokenizer.save_pretrained(saved)
        settings = pathlib.Path(saved, TOKENIZER_CONFIG_FILE)
        (folder / TOKENIZER_CONFIG_FILE).write_bytes(settings.read_bytes())
    import tokenizers

    written = tokenizers.Tokenizer.from_str(given.tokenizer.backend_tokenizer.to_str())
    written.no_truncation()
    written.enable_padding(pad_id=given.tokenizer.pad_token_id, pad_token=given.tokenizer.pad_token)
    written.save(str(folder / TOKENIZER_FILE))
    given[0].auto_model.config.to_json_file(str(folder / CONFIG_FILE))
    ours = TextTokenizer(folder / TOKENIZER_FILE, max_seq_length)
    for text in _TOKENIZED:
        (found,), _ = ours.rows([text])
        (wanted,) = _tokens(given, [text])["input_ids"].tolist()
        if found != wanted:
            raise _refused(
                f"the ids {found[:8]} for {text[:20]!r} by {TOKENIZER_FILE}",
                f"sentence-transformers' {wanted[:8]}",
            )


def _write_graph(model: Calibrated, layers: Sequence[DenseLayer], path: pathlib.Path) -> None:
    """Write the graph from tokens to `sentence_embedding`."""
    import onnx

    torch: Any = importlib.import_module("torch")
    given = model.encoder.given
    # Rows of unlike lengths have padding, without which a mask would not be traced.
    tokens = _tokens(given, CHECKED_SENTENCES[1:3])
    names = [name for name in INPUTS if name in tokens]
    matrices = [
        tuple(torch.tensor(np.float32(value), device=given.device) for value in layer)
        for layer in layers
    ]

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.given = given

        def forward(self, *inputs: Any) -> Any:
            features = self.given(dict(zip(names, inputs, strict=True)))
            x = features[OUTPUT].float()
            if given.truncate_dim is not None:
                x = x[:, : given.truncate_dim]
            for kernel, bias, slope in matrices:
                x = x @ kernel + bias
                x = torch.where(x < 0, slope * x, x)
            if model.tail.normalizes:
                x = torch.nn.functional.normalize(x, dim=-1)
            return x[:, : model.tail.size]

    axes = {name: {0: "n", 1: "t"} for name in names} | {OUTPUT: {0: "n"}}
    was_training = given.training
    given.eval()
    try:
        with warnings.catch_warnings(), hidden_stderr(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Graph(),
                tuple(tokens[name] for name in names),
                str(path),
                input_names=names,
                output_names=[OUTPUT],
                dynamic_axes=axes,
                opset_version=_OPSET,
                dynamo=False,
            )
    except Exception as error:  # Torch has many kinds of errors for what it cannot export.
        first = str(error).strip().partition("\n")[0]
        found = f"a model that torch cannot export ({type(error).__name__}: {first:.200})"
        raise _refused(found, "another encoder") from error
    finally:
        given.train(was_training)
    if path.stat().st_size > LARGE_WEIGHTS:
        graph = onnx.load(path)
        path.unlink()
        onnx.save(graph, path, save_as_external_data=True, location=ONNX_DATA_FILE)


def _fingerprint(given: Any) -> str:
    """Return the SHA-256 of the encoder's modules, weights and tokenizer."""
    digest = hashlib.sha256(repr(given).encode())
    digest.update(given.tokenizer.backend_tokenizer.to_str().encode())
    for name, tensor in sorted(given.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def _max_seq_length(given: Any) -> int:
    """Return the most tokens of a text that the library encodes."""
    return int(min(given.max_seq_length or sys.maxsize, given.tokenizer.model_max_length))


def _describe(model: Calibrated, expected: np.ndarray, dtype: str, tolerance: float) -> Description:
    """Describe an export; `expected` are the embeddings of `CHECKED_SENTENCES`."""
    given = model.encoder.given
    fingerprint = _fingerprint(given)
    length = _max_seq_length(given)
    encoder = {
        "kind": "sentence-transformers",
        "fingerprint": fingerprint,
        "max_seq_length": length,
        "dtype": dtype,
    }
    stages = [encoder, *model.chain.identities, model.tail.recipe()]
    record = model.model_record
    name = getattr(given[0].auto_model.config, "_name_or_path", "") or record.encoder.handle
    origin = msgspec.structs.replace(
        record.encoder, handle=pathlib.PurePath(name).name, fingerprint=fingerprint
    )
    record = msgspec.structs.replace(record, encoder=origin, max_seq_length=length)
    prompt = model.prompts.get(model.default_prompt_name or "", "")
    return Description(
        max_seq_length=length,
        embedding_size=expected.shape[1],
        normalized=model.normalizes,
        dtype=dtype,
        probes={text: expected[i].tolist() for i, text in enumerate(CHECKED_SENTENCES[:6]) if text},
        fingerprint=digest_of([encoder, *model.prompt_recipe(prompt), *stages[1:]]),
        stages=stages,
        model=msgspec.to_builtins(record),
        prompts=model.prompts,
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        tolerance=tolerance,
    )
