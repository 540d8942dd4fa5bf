"""A report's files: one HTML page that needs nothing but itself, the same as Markdown, and the data."""

import base64
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from bert_flow_tf.files.atomic import FolderKind, new_folder
from bert_flow_tf.files.json_files import to_json
from bert_flow_tf.files.markup import markdown_text
from bert_flow_tf.report.plots import own_plots
from bert_flow_tf.report.sections import Section, lead, sections
from bert_flow_tf.results.records import REPORT, RESULTS_FILE, is_of_kind
from bert_flow_tf.results.table import html_note, html_text

PAGE_FILE, MARKDOWN_FILE = "report.html", "report.md"
REPORT_FOLDER = FolderKind(
    "a report", RESULTS_FILE, (PAGE_FILE, MARKDOWN_FILE, RESULTS_FILE), lambda path: is_of_kind(path, REPORT)
)

# Nothing may be loaded, whatever a result file smuggles in: styles and images are in the page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --muted: #5c636b; --paper: #ffffff; --line: #d8dce1;
  --stripe: #f6f7f9; --accent: #0b63a5; --rise: #17663a; --fall: #b3261e; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --muted: #a2abb5; --paper: #15181c; --line: #363c44; --stripe: #1d2127;
    --accent: #7cbcf0; --rise: #6fd08c; --fall: #ff9c94; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .75rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: 1.25rem; border-top: 1px solid var(--line); }
p { max-width: 46rem; margin: .5rem 0; }
section > p { color: var(--muted); font-size: .92rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: 1.25rem 0 0; list-style: none; }
a { color: var(--accent); }
.scroll { overflow-x: auto; margin: 1.25rem 0 1.75rem; }
table { border-collapse: collapse; font-size: .86rem; line-height: 1.35; width: 100%; }
caption { text-align: left; font-weight: 600; font-size: .92rem; padding: 0 0 .5rem; }
th, td { padding: .36rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { vertical-align: bottom; font-weight: 600; color: var(--muted); border-bottom: 2px solid var(--line); }
td { white-space: nowrap; }
tbody th { font-weight: 500; }
tbody tr:nth-child(even) { background: var(--stripe); }
.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.rise { color: var(--rise); }
.fall { color: var(--fall); }
.note { display: block; color: var(--muted); font-size: .78rem; font-weight: 400; white-space: normal; }
th .note { min-width: 9rem; overflow-wrap: anywhere; }
figure { margin: 1.25rem 0 1.75rem; }
.plot { background: #ffffff; border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; overflow-x: auto;
  display: flex; justify-content: center; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 0 1.25rem; }
.plot img { display: block; max-width: 100%; height: auto; }
figcaption { color: var(--muted); font-size: .88rem; margin-top: .5rem; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; }
summary { cursor: pointer; padding: .5rem .75rem; font-weight: 500; overflow-wrap: anywhere; }
summary .note { padding-left: 1.1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.25rem; margin: 0;
  padding: .25rem .75rem .75rem; font-size: .88rem; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
@media screen and (max-width: 40rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .4rem; }
  .scroll { overflow: visible; }
  table, caption, tbody, tr, tbody th, td { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tr { border-bottom: 1px solid var(--line); padding: .3rem 0; }
  tbody th, td { border: 0; padding: .15rem .6rem; overflow-wrap: anywhere; }
  tbody th { font-weight: 600; }
  td { display: flex; justify-content: flex-end; gap: .75rem; white-space: normal; text-align: right; }
  td::before { content: attr(data-label); color: var(--muted); white-space: nowrap; margin-right: auto; }
  td:empty { display: none; }
  .plot { justify-content: flex-start; }
  .plot[tabindex] img { max-width: none; width: 36rem; }
}
@page { size: A4; margin: 14mm 12mm; }
@media print {
  :root { color-scheme: light; font-size: 9pt; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  h2 { margin-top: 1.5rem; }
  h2, caption, summary { break-after: avoid; }
  tr, figure, section:has(.panels) { break-inside: avoid; }
  .scroll, .plot { overflow: visible; }
  .panels { grid-template-columns: repeat(3, 1fr); }
  table { font-size: .78rem; }
  th, td { padding: .2rem .3rem; white-space: normal; }
  .note { font-size: .7rem; }
  th .note { min-width: 0; }
  .plot { border: 0; padding: 0; }
  details::details-content { content-visibility: visible; }
}
"""


def write_report(out: pathlib.Path, report: dict, analysis_plots: Mapping[str, bytes]) -> None:
    """Makes the folder of a report, whole or not at all: `report.html`, `report.md` and `results.json`.

    The same report and plots, of `results.collect`, give the same bytes. A `UserError` if it cannot be written there.
    """
    title, parts, paragraphs = report["title"], sections(report), lead(report)
    plots, words = {**own_plots(report), **analysis_plots}, (report["figures"], report["alternatives"])
    page = html_page(title, paragraphs, parts, plots, *words)
    with new_folder(out) as folder:
        (folder / PAGE_FILE).write_text(page, encoding="utf-8")
        (folder / MARKDOWN_FILE).write_text(markdown_page(title, paragraphs, parts), encoding="utf-8")
        (folder / RESULTS_FILE).write_text(to_json(report), encoding="utf-8")


def html_page(
    title: str,
    lead: Sequence[str],
    parts: Sequence[Section],
    plots: Mapping[str, bytes],
    captions: Mapping[str, str],
    alternatives: Mapping[str, str],
) -> str:
    """The page as text.

    `plots` holds the SVG documents that the sections name; `captions`, and `alternatives` for those who do not see a
    plot, go by the same names. A plot without an alternative has its caption for one.
    """
    contents = "".join(f'<li><a href="#{part.name}">{html_text(part.title)}</a></li>' for part in parts)
    body = [
        *_paragraphs(lead),
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>',
        *(line for part in parts for line in _section(part, plots, captions, alternatives)),
    ]
    return document(title, body)


def document(title: str, body: Sequence[str], *, form_action: str = "'none'", style: str = "") -> str:
    """An HTML document in the report's style: a title, and the markup below it.

    Args:
      title: text.
      body: lines of markup.
      form_action: where forms may be sent, as a policy says it.
      style: more of it, after the report's.
    """
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}; form-action {form_action}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html_text(title)}</title>",
            f"<style>{_STYLE}{style}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<h1>{html_text(title)}</h1>",
            *body,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _section(
    part: Section, plots: Mapping[str, bytes], captions: Mapping[str, str], alternatives: Mapping[str, str]
) -> Iterator[str]:
    def figure(name: str, kind: str) -> str:
        # As an image a drawing can neither run a script nor load anything, whatever its file holds.
        source, caption = base64.b64encode(plots[name]).decode(), html_text(captions[name])
        alternative = html_text(alternatives.get(name, captions[name]))
        image = f'<img alt="{alternative}" src="data:image/svg+xml;base64,{source}">'
        return f"<figure><div {kind}>{image}</div><figcaption>{caption}</figcaption></figure>"

    yield f'<section aria-labelledby="{part.name}">'
    yield f'<h2 id="{part.name}">{html_text(part.title)}</h2>'
    yield from _paragraphs(part.paragraphs)
    for number, table in enumerate(part.tables, start=1):
        yield table.to_html(f"{part.name}-table-{number}")
    for name in part.plots:
        yield figure(name, f'class="plot" role="region" aria-label="{html_text(captions[name])}" tabindex="0"')
    if part.panels:
        yield '<div class="panels">'
        yield from (figure(name, 'class="plot"') for name in part.panels)
        yield "</div>"
    for terms in part.terms:
        yield f"<details><summary>{html_text(terms.title)}{html_note(terms.summary)}</summary><dl>"
        yield from (f"<dt>{html_text(term)}</dt><dd>{html_text(text)}</dd>" for term, text in terms.pairs)
        yield "</dl></details>"
    yield "</section>"


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [f"<p>{html_text(text)}</p>" for text in texts]


def markdown_page(title: str, lead: Sequence[str], parts: Sequence[Section]) -> str:
    """The report as text: headings, paragraphs, tables and lists. The plots are on the HTML page alone."""
    blocks = [f"# {markdown_text(title)}", *map(markdown_text, lead)]
    for section in parts:
        blocks += [f"## {markdown_text(section.title)}", *map(markdown_text, section.paragraphs)]
        blocks += [table.to_markdown() for table in section.tables]
        for terms in section.terms:
            blocks.append(f"### {markdown_text(terms.title)}")
            blocks.append("\n".join(f"- {markdown_text(term)}: {markdown_text(text)}" for term, text in terms.pairs))
    return "\n\n".join(blocks) + "\n"
