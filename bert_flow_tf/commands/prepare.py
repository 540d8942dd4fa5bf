"""`bert-flow prepare`: data sets in the layout that training reads."""

import pathlib

import click

from bert_flow_tf.commands.options import SENTEVAL_OPTION, name_list
from bert_flow_tf.commands.outputs import locked_folder
from bert_flow_tf.errors import UserError


@click.command(epilog="\b\nbert-flow prepare --data tfds:glue/mnli,tfds:snli --out glue_data")
@click.option("--data", "names", callback=name_list(), required=True, metavar="LIST", help="Data sets, see above.")
@SENTEVAL_OPTION
@click.option("--out", required=True, metavar="DIR", help="Folder that gets a folder per data set.")
@click.option("--overwrite", is_flag=True, help="Replace folders that this command made.")
def prepare(names: list[str], senteval_dir: str | None, out: str, overwrite: bool) -> None:
    """Write data sets into folders for --glue_dir, GLUE_DIR and run_siamese.

    tfds:glue/stsb, tfds:glue/mrpc, tfds:glue/qnli, tfds:glue/qqp, tfds:glue/mnli and tfds:snli come from TensorFlow
    Datasets and become GLUE's files (MNLI/train.tsv, …). sts12 to sts16, or sts12-16 for all of them, come from
    SentEval and become STS-12/full.txt, …, which hold the pairs with a gold score. GLUE has no test labels of STS-B: to
    score that split, put sts-test.csv of the STS Benchmark into the folder STS-B.
    """
    from bert_flow_tf.data.datasets import DATASETS, PREPARED_FOLDER, write_dataset, write_task
    from bert_flow_tf.data.scored_tasks import read_task, task_key
    from bert_flow_tf.data.senteval import SUBSETS
    from bert_flow_tf.data.tasks import TASKS, concatenate

    folders, tasks = {}, {}
    for given in names:
        name = task_key(given)
        keys = list(SUBSETS) if name == "sts1216" else [name] * (name in SUBSETS)
        if not keys and name not in DATASETS:
            known = ", ".join(DATASETS)
            raise UserError(f"--data: found {given}, expected some of sts12 to sts16, sts12-16, {known}")
        directory = f"STS-{'12-16' if len(keys) > 1 else name[3:]}" if keys else DATASETS[name].directory
        folders[name] = pathlib.Path(out, directory)
        locked_folder(folders[name], PREPARED_FOLDER, overwrite=overwrite)
        tasks[name] = [read_task(key, senteval_dir=senteval_dir) for key in keys]
    for name, folder in folders.items():
        parts = [part for task in tasks[name] for part in task.subsets.values()]
        if parts:
            pairs, source = {"full": sum(map(len, parts))}, ", ".join(task.source for task in tasks[name])
            write_task(folder, TASKS["sts-12"], {"train": concatenate(parts)}, source)
        else:
            pairs = write_dataset(folder, name)
        counts = ", ".join(f"{count} {split}" for split, count in pairs.items())
        click.echo(f"written: {folder} ({counts} pairs)")
