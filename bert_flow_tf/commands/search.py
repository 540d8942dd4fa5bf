"""`bert-flow search`: the sentences of a corpus nearest to queries."""

import pathlib
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.commands import options as opt
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import locked
from bert_flow_tf.files.embedding_files import EMBEDDING
from bert_flow_tf.files.sentence_files import joined, read_sentences
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import Job, LocalEngine, Manifest, input_files, read_manifest

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow


@click.command(
    epilog='\b\nbert-flow search --model my_model --input corpus.txt "Who crosses the lake?"'
)
@click.argument("texts", nargs=-1, metavar="[QUERY]...")
@opt.model_options()
@opt.with_options(opt.INPUT_FILES)
@click.option("--queries", metavar="FILE", help="File of queries; -: text from stdin")
@click.option("--top_k", type=opt.COUNT, default=10, metavar="N", help="Sentences for each query.")
@click.option(
    "--keep",
    callback=opt.name_list(),
    metavar="NAMES",
    help="Columns to print before the sentence.",
)
@click.option("--unique", is_flag=True, help="Print equal sentences once.")
@click.option(
    "--embeddings", metavar="DIR", help="Keep the embeddings here, or use those of encode-folder."
)
@click.option("--overwrite", is_flag=True, help="Replace --embeddings of another corpus or model.")
def search(
    texts: tuple[str, ...],
    model: opt.ModelOptions,
    inputs: Sequence[str],
    queries: str | None,
    top_k: int,
    keep: list[str] | None,
    unique: bool,
    embeddings: str | None,
    overwrite: bool,
    **given: Any,
) -> None:
    """Print the sentences of a corpus that are nearest to each query.

    Each line holds rank, cosine, kept columns and sentence. With several queries, each is printed
    before its lines.
    """
    all_queries = [*texts, *(read_sentences(queries) if queries else ())]
    if not all_queries:
        raise click.UsageError("found no query, expected QUERY or --queries")
    name = given["column"] or "sentence"
    file_format = given.pop("input_format")
    shown = [*dict.fromkeys([*(keep or ()), name])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(embeddings or temporary, "" if embeddings else "embeddings")
        columns = shown
        settings = ShardSettings()
        manifest = None if overwrite else read_manifest(folder)
        if manifest is not None:
            # Any folder of the same model and input will do, whatever its other settings; an
            # unfinished one is resumed.
            settings = manifest.settings
            columns = manifest.columns or shown
            if missing := [one for one in shown if one not in columns]:
                raise UserError(
                    f"--embeddings={embeddings}: found the columns {', '.join(columns)}, not "
                    f"{missing[0]}"
                )
        files = input_files(inputs, file_format=file_format, keep=columns, **given)
        with locked(folder, wait=True):
            loaded = model.load()
            prompt = loaded.document_prompt
            if manifest is None:
                is_default = prompt == loaded.default_prompt
                settings = ShardSettings(prompt=None if is_default else prompt)
            elif prompt != _prompt(manifest, loaded):
                raise UserError(
                    f"--embeddings={embeddings}: found sentences with the prompt "
                    f"{_prompt(manifest, loaded)!r}, expected documents with {prompt!r}; "
                    "encode-folder takes --prompt"
                )
            job = Job(files, folder, settings, overwrite=overwrite)
            manifest = job.run(LocalEngine(loaded, folder, settings))
            import pyarrow.parquet

            tables = [pyarrow.parquet.read_table(folder / part) for part in manifest.parts]
    if not tables:
        raise UserError("--input: found no sentence, expected at least one")
    from sklearn.neighbors import NearestNeighbors

    table = joined(tables)
    corpus = table.select(shown).to_pylist()
    first = {row[name]: i for i, row in reversed([*enumerate(corpus)])}
    numbers = sorted(first.values()) if unique else range(len(corpus))
    flat = table.take(list(numbers))[EMBEDDING].combine_chunks().flatten().to_numpy()
    neighbors = NearestNeighbors(n_neighbors=min(top_k, len(numbers)), metric="cosine")
    neighbors.fit(flat.reshape(len(numbers), -1))
    for query, distances, rows in zip(
        all_queries, *neighbors.kneighbors(loaded.encode_query(all_queries)), strict=True
    ):
        if len(all_queries) > 1:
            click.echo(" ".join(query.split()))
        for rank, (distance, row) in enumerate(zip(distances, rows, strict=True), 1):
            # Replace tabs and line breaks, because they separate fields and lines.
            cells = [" ".join(str(corpus[numbers[row]][column]).split()) for column in shown]
            click.echo("\t".join([f"{rank}", f"{1 - distance:.6f}", *cells]))


def _prompt(manifest: Manifest, model: "BertFlow") -> str:
    """Return the text before each sentence of a folder of embeddings."""
    prompt = manifest.settings.prompt
    return model.default_prompt if prompt is None else prompt
