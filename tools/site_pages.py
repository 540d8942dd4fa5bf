"""Generate the site's pages that are not in docs/.

mkdocs calls the functions at the bottom, see mkdocs.yml.
"""

import os
import pathlib
import posixpath
import re
from collections.abc import Iterator

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

from benchmarks import paper_effect
from bert_flow_tf.cli import main
from bert_flow_tf.original import recipe as run

_ROOT = pathlib.Path(__file__).parents[1]
# These files become pages with these names; files of docs/ keep their names.
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "benchmarks/NOTES.md": "speed.md",
    "LICENSE": "LICENSE.txt",
}
_COMMANDS_PAGE = "reference/commands.md"
# A page of the reference says where its text is to readers of the repository.
_REPOSITORY_NOTE = re.compile(r"<!-- repository -->\n.+\n\n")


def _help(command: click.Command, parent: click.Context | None = None) -> Iterator[str]:
    """Yield a heading and the help of each command, sub-commands included."""
    with click.Context(
        command, parent=parent, info_name=command.name, **command.context_settings
    ) as context:
        depth = "##" if parent is None or parent.parent is None else "###"
        yield f"{depth} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                yield from _help(command.get_command(context, name), context)


def _linked(markdown: str, source: str, name: str) -> str:
    """Make links to files of the repository point to the site's pages."""

    def link(match: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        if not (_ROOT / target).is_file():
            return match[0]
        on_site = _PAGES.get(target, target.removeprefix("docs/").replace(".ipynb", ".md"))
        return f"]({posixpath.relpath(on_site, posixpath.dirname(name) or '.')}"

    return re.sub(r"\]\(([^)#\s]+)", link, markdown)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, name in _PAGES.items():
        files.append(File.generated(config, name, abs_src_path=os.fspath(_ROOT / source)))
    for notebook in (_ROOT / "docs").glob("*.ipynb"):
        page, resources = MarkdownExporter().from_filename(notebook)
        for name, content in {f"{notebook.stem}.md": page, **resources["outputs"]}.items():
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    name = page.file.src_uri
    markdown = _REPOSITORY_NOTE.sub("", markdown)
    if name == _COMMANDS_PAGE:
        scripts = {"siamese_then_flow.sh": run, "paper_effect.sh": paper_effect}
        texts = (f"## {name}\n\n```text\n{module.__doc__}```\n" for name, module in scripts.items())
        markdown += "\n" + "\n".join([*_help(main), *texts])
    source = next((source for source, on_site in _PAGES.items() if on_site == name), f"docs/{name}")
    return _linked(markdown, source, name)
