"""`bert-flow encode`, `encode-folder`, `similarity` and `project`: embeddings to files and to a plot, and cosines."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np

from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import own, own_file, own_folder
from bert_flow_tf.errors import UserError, command_line_message
from bert_flow_tf.files.atomic import FolderKind, new_folder
from bert_flow_tf.files.embedding_files import OUTPUT_FORMATS, STDOUT, embedding_writer
from bert_flow_tf.files.sentence_files import PART, STDIN, format_of_ending, read_sentences
from bert_flow_tf.scale.on_ray import RayEngine, connected
from bert_flow_tf.scale.shards import PART_PRECISIONS, Engine, Job, PartSettings, ShardsError, input_files
from bert_flow_tf.serving import DTYPES

_CONFIG_FILE, _METADATA_FILE = "projector_config.pbtxt", "sentences.tsv"
_FILES = (_CONFIG_FILE, _METADATA_FILE, "embedding.tsv", "with_flow.tsv", "without_flow.tsv")
_OPTIONS = [
    click.option("--batch_size", type=opt.COUNT, metavar="N", help="Sentences per step.  [default: the fastest]"),
    click.option("--dtype", type=click.Choice(DTYPES), default=DTYPES[0], help="Type of the encoder's matrices."),
    click.option("--normalize", "normalize_embeddings", is_flag=True, help="Scale every embedding to norm 1."),
]


@click.command(epilog="\b\nbert-flow encode --model my_model --input sentences.txt --out embeddings.npy")
@opt.model_options()
@opt.sentence_options()
@click.option("--out", required=True, metavar="FILE", help=".npy, .parquet or .tfrecord; -: stdout")
@click.option("--output_format", type=click.Choice(sorted(OUTPUT_FORMATS.values())), help="If the ending is another.")
@opt.with_options(_OPTIONS)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def encode(
    model: opt.ModelOptions, sentences: Iterator[str], out: str, output_format: str | None, dtype: str, **how: Any
) -> None:
    """Write the embeddings of a file's sentences, in their order.

    NPY holds the embeddings alone, [n, D] float32; Parquet and TFRecord also hold the sentences. Memory does not grow
    with the file.
    """
    overwrite = how.pop("overwrite")
    if out != STDOUT:
        output_format = output_format or format_of_ending(out, OUTPUT_FORMATS, "output_format")
        own_file(out, overwrite=overwrite)
    loaded = model.load(dtype=dtype)
    n = 0
    with embedding_writer(out, file_format=output_format or "npy", width=loaded.embedding_size) as write:
        for part, embeddings in loaded.encode_parts(sentences, **how):
            write(part, embeddings)
            n += len(part)
    click.echo(f"embeddings written: {out} ({n} of width {loaded.embedding_size})", err=out == STDOUT)


@click.command(
    epilog="\b\nbert-flow encode-folder --model my_model --input 'crawl/*.parquet' --column text --out embeddings"
)
@opt.model_options()
@click.option("--input", "inputs", required=True, multiple=True, metavar="FILE", help="File or 'pattern*'; repeatable.")
@opt.with_options(opt.FORMAT_OPTIONS)
@click.option("--out", required=True, metavar="DIR", help="Folder to write.")
@opt.with_options(_OPTIONS)
@click.option("--keep", callback=opt.name_list(), metavar="NAMES", help="Columns.  [default: the sentences]")
@click.option("--shard_rows", type=opt.COUNT, default=PART, metavar="N", help="Sentences in each file.")
@click.option("--precision", type=click.Choice(PART_PRECISIONS), default=PART_PRECISIONS[0])
@click.option("--workers", type=opt.WHOLE, default=0, metavar="N", help="Processes, through Ray; 0: this one.")
@click.option("--ray", metavar="HOST:PORT", help="Ray cluster.  [default: on this machine]")
@click.option("--worker_threads", type=opt.COUNT, default=1, metavar="N", help="Of each worker.")
@click.option("--overwrite", is_flag=True, help="Replace other input, model or settings.")
def encode_folder(
    model: opt.ModelOptions, inputs: Sequence[str], out: str, workers: int, ray: str | None, **given: Any
) -> None:
    """Write the embeddings of many files into a folder.

    The folder gets a Parquet file for each shard, and a manifest. The same command resumes an interrupted one.
    """
    own(out, f"--out={out}")
    columns = {name: given.pop(name) for name in ("column", "keep")}
    files = input_files(inputs, file_format=given.pop("input_format"), **columns)
    overwrite, threads = given.pop("overwrite"), given.pop("worker_threads")
    load = functools.partial(model.load, given.pop("dtype"))
    settings = PartSettings(**given)
    job = Job(files, out, settings, overwrite=overwrite)
    try:
        if workers or ray:
            workers = workers or 1
            with connected(ray, workers, threads):
                manifest = job.run(RayEngine(load, out, settings, workers=workers, threads=threads))
        else:
            manifest = job.run(Engine(load(), out, settings))
    except ShardsError as error:
        for problem in error.problems if len(error.problems) > 1 else ():
            click.echo(f"error: {command_line_message(problem)}", err=True)
        raise
    rows, made = sum(manifest.parts.values()), f"{len(manifest.parts)} parts, {job.made} of them now"
    click.echo(f"embeddings written: {out} ({rows} of width {manifest.embedding_size}, {made})")


@click.command(epilog='\b\nbert-flow similarity --model my_model "A boat crosses the lake." "A ship sails."')
@click.argument("sentences", nargs=-1, metavar="[A B]")
@opt.model_options()
@click.option("--pairs", metavar="FILE", help="File of pairs; -: TSV from stdin")
@click.option("--columns", default="sentence1,sentence2", metavar="A,B", help="Of --pairs: names, or numbers: 1,2.")
def similarity(sentences: tuple[str, ...], model: opt.ModelOptions, pairs: str | None, columns: str) -> None:
    """Print the cosine of two sentences, or of each pair of a file, one per line."""
    if len(sentences) != (0 if pairs else 2):
        raise click.UsageError(f"found {len(sentences)} sentences, expected 2, or --pairs")
    names = columns.split(",")
    if len(names) != 2 or not all(names):
        raise click.BadParameter("expected two names with a comma between", param_hint="--columns")
    rows = iter([list(sentences)])
    if pairs:
        rows = read_sentences(pairs, file_format="tsv" if pairs == STDIN else None, columns=names)
    loaded = model.load()
    while part := list(itertools.islice(rows, PART)):
        both = loaded.encode([sentence for pair in part for sentence in pair], normalize_embeddings=True)
        for cosine in np.sum(both[0::2] * both[1::2], axis=1):
            click.echo(f"{cosine:.6f}")


@click.command(epilog="\b\nbert-flow project --model my_model --input sentences.txt --out projection")
@opt.model_options()
@opt.sentence_options()
@click.option("--out", required=True, metavar="DIR", help="Folder for TensorBoard's --logdir.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier projection.")
def project(model: opt.ModelOptions, sentences: Iterator[str], out: str, overwrite: bool) -> None:
    """Write embeddings for TensorBoard's projector, with and without the flow.

    A few thousand sentences are what the projector can show.
    """
    path = own_folder(out, FolderKind("a projection", _CONFIG_FILE, _FILES), overwrite=overwrite)
    points = list(sentences)
    if not points:
        raise UserError("--input: found no sentence, expected at least one")
    loaded = model.load()
    embeddings = loaded.encode(points)
    tensors = {"embedding": embeddings}
    if loaded.flow is not None and loaded.low_dim <= 0:
        tensors = {"with_flow": embeddings, "without_flow": loaded.inverse(embeddings)}
    with new_folder(path) as folder:
        # A tab or a line break would start another column or point.
        labels = "".join(f"{' '.join(sentence.split()) or '(empty)'}\n" for sentence in points)
        (folder / _METADATA_FILE).write_text(labels, encoding="utf-8")
        config = ""
        for name, values in tensors.items():
            np.savetxt(folder / f"{name}.tsv", values, fmt="%.7g", delimiter="\t")
            config += f'embeddings {{\n  tensor_name: "{name}"\n  tensor_path: "{name}.tsv"\n'
            config += f'  metadata_path: "{_METADATA_FILE}"\n}}\n'
        (folder / _CONFIG_FILE).write_text(config, encoding="utf-8")
    click.echo(f"projection written: {out} (tensorboard --logdir {out})")
