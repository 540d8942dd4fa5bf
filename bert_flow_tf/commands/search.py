"""`bert-flow search`: the sentences of a corpus nearest to queries."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import INPUTS, InputForm
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.model_options import EncodingOptions
from bert_flow_tf.common.atomic import locked
from bert_flow_tf.common.embedding_files import EMBEDDING
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import Job, LocalEngine, Manifest, read_manifest
from bert_flow_tf.tasks.sentence_files import SENTENCE, FormNames, TextFile, joined, read_texts
from bert_flow_tf.vectors.neighbours import nearest_rows

if TYPE_CHECKING:
    import pyarrow

    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.runtime.model import ExportedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(Settings):
    """The settings of a search's lines."""

    top_k: int = flag(10, "Sentences for each query.", ge=1)
    unique: bool = flag(False, "Print equal sentences once.")


@command(
    epilog='\b\nbert-flow search --model my_model --input corpus.txt "Who crosses the lake?"',
    one_of=[("model", "bert_hub")],
)
@click.argument("texts", nargs=-1, metavar="[QUERY]...")
@setting_options(EncodingOptions, name="model")
@INPUTS
@setting_options(InputForm, name="form")
@option("--queries", metavar="FILE", help="File of queries; -: text from stdin")
@option(
    "--query_column",
    default=SENTENCE,
    metavar="NAME|N",
    needs=("queries",),
    help="Column of --queries.",
)
@setting_options(SearchSettings, name="printed")
@option(
    "--keep",
    callback=name_list(),
    metavar="NAMES",
    help="Columns to print before the sentence.",
)
@option(
    "--embeddings", metavar="DIR", help="Keep the embeddings here, or use those of encode-folder."
)
@option(
    "--overwrite",
    is_flag=True,
    needs=("embeddings",),
    help="Replace --embeddings of another corpus or model.",
)
def search(
    texts: tuple[str, ...],
    model: EncodingOptions,
    inputs: tuple[str, ...],
    form: InputForm,
    queries: str | None,
    query_column: str,
    printed: SearchSettings,
    keep: list[str] | None,
    embeddings: str | None,
    overwrite: bool,
) -> None:
    """Print the sentences of a corpus that are nearest to each query.

    Each line holds rank, cosine, kept columns and sentence. With several queries, each is printed
    before its lines.
    """
    all_queries = [*texts, *(_read_queries(queries, query_column) if queries else ())]
    if not all_queries:
        raise click.UsageError("found no query, expected QUERY or --queries")
    name = form.column or SENTENCE
    shown = [*dict.fromkeys([*(keep or ()), name])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(embeddings or temporary, "" if embeddings else "embeddings")
        manifest = None if overwrite else read_manifest(folder)
        columns = shown if manifest is None else _kept_columns(manifest, shown, embeddings)
        files = form.files(inputs, columns)
        with locked(folder, wait=True):
            loaded = model.open()
            settings = _settings(manifest, loaded, embeddings)
            job = Job(files, folder, settings, overwrite=overwrite)
            parts = job.run(LocalEngine(loaded, folder, settings)).parts
            if not parts:
                raise _no_sentences(inputs)
            table = _table(folder, parts)
    rows = table.select(shown).to_pylist()
    # An empty sentence is near to many queries, and no answer.
    numbers = [i for i, row in enumerate(rows) if row[name].strip()]
    if not numbers:
        raise _no_sentences(inputs)
    if empty := len(rows) - len(numbers):
        click.echo(f"empty sentences, left out: {empty:,}", err=True)
    if printed.unique:
        numbers = _first_of_each([row[name] for row in rows], numbers)
    corpus = [[rows[i][column] for column in shown] for i in numbers]
    vectors = table.take(numbers)[EMBEDDING].combine_chunks().flatten().to_numpy()
    found = nearest_rows(
        loaded.encode_query(all_queries), vectors.reshape(len(numbers), -1), printed.top_k
    )
    for query, (cosines, nearest) in zip(all_queries, found, strict=True):
        if len(all_queries) > 1:
            click.echo(_one_cell(query))
        for rank, (cosine, i) in enumerate(zip(cosines, nearest, strict=True), 1):
            cells = map(_one_cell, corpus[i])
            click.echo("\t".join([f"{rank}", f"{cosine:.6f}", *cells]))


def _read_queries(path: str, column: str) -> Iterator[str]:
    """Return the queries of a file."""
    names = FormNames(column="--query_column")
    return read_texts(TextFile(path=path, columns=(column,), names=names))


def _kept_columns(manifest: Manifest, shown: list[str], embeddings: str | None) -> list[str]:
    """Return a folder's columns, which must hold those shown."""
    columns = manifest.columns
    if missing := [one for one in shown if one not in columns]:
        raise UserError(
            f"--embeddings={embeddings}: found the columns {', '.join(columns)}, not {missing[0]}"
        )
    return columns


def _settings(
    manifest: Manifest | None, model: "BertFlow | ExportedModel", embeddings: str | None
) -> ShardSettings:
    """Return the settings of the folder's embeddings, or of new ones.

    Any folder of the same model and input will do, whatever its other settings; an unfinished one
    is resumed.
    """
    prompt = model.document_prompt
    if manifest is None:
        return ShardSettings(prompt=None if prompt == model.default_prompt else prompt)
    if prompt != _prompt(manifest, model):
        raise UserError(
            f"--embeddings={embeddings}: found sentences with the prompt "
            f"{_prompt(manifest, model)!r}, expected documents with {prompt!r}; "
            "encode-folder takes --prompt"
        )
    return manifest.settings


def _table(folder: pathlib.Path, parts: Iterable[str]) -> "pyarrow.Table":
    """Read the parts of a folder of embeddings as one table."""
    import pyarrow.parquet

    return joined([pyarrow.parquet.read_table(folder / part) for part in parts])


def _no_sentences(inputs: Sequence[str]) -> UserError:
    return UserError(f"--input={' '.join(inputs)}: found no sentences, expected at least one")


def _first_of_each(sentences: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """Return the first number of each different sentence."""
    first: dict[str, int] = {}
    for i in numbers:
        first.setdefault(sentences[i], i)
    return list(first.values())


def _one_cell(value: object) -> str:
    """Replace tabs and line breaks, because they separate fields and lines."""
    return " ".join(str(value).split())


def _prompt(manifest: Manifest, model: "BertFlow | ExportedModel") -> str:
    """Return the text before each sentence of a folder of embeddings."""
    prompt = manifest.settings.prompt
    return model.default_prompt if prompt is None else prompt
