"""Test that names stay as they are in every format and picture.

This holds for all characters of a name.
"""

import ast
import csv
import html
import inspect
import io
import json
import pathlib
import re
import string
import warnings

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

import bert_flow_tf
from bert_flow_tf import plots
from bert_flow_tf.common.errors import one_line
from bert_flow_tf.common.losses import BITS, Losses
from bert_flow_tf.common.table import FORMATS, Table, number
from bert_flow_tf.report.lexical import FrequencyTable, LexicalPairs
from bert_flow_tf.report.page import report_page
from bert_flow_tf.report.plots import style
from bert_flow_tf.report.reports import Report
from bert_flow_tf.vectors.isotropy import measure_isotropy
from tests.bert_flow_tf.records import MADE_BY

NAMES = (
    *("a$_$b", "$0-$50", "_other", "__", "x^2_{y}", r"back\slash", r"\$", "50% & #1 ~ {z}"),
    *("[first]", "*star*", "a|b", "`code`", "<script>alert(1)</script>", "line\nbreak", "tab\tx"),
    *("ℓ2 ± ≈ × ✓ ✗ Δ – …", "'\"", "中文", "mean ℓ2 norm"),
    *(string.punctuation, "a--b---c ``quoted'' ?`!`"),
)
SHOWN = [one_line(name) for name in NAMES]
TABLE = Table(("name & $_$", "x_100"), [(name, number(1.5, note=name)) for name in NAMES])


def of_text(text):
    rows = text.splitlines()[2:]
    assert len(rows) == len(NAMES)
    return [row.split("  ")[0].rstrip() for row in rows]


def of_csv(text):
    return [row[0] for row in csv.reader(io.StringIO(text))][1:]


def of_json(text):
    return [row["name & $_$"] for row in json.loads(text)["rows"]]


def of_markdown(text):
    """Read cells as GitHub does.

    A backslash takes the meaning of a sign.
    """
    _, _, *rows = text.splitlines()
    cells = [re.split(r"(?<!\\)(?:\\\\)*\|", row) for row in rows]
    assert {len(row) for row in cells} == {4}
    plain = [re.sub(r"\\(.)", "", row[1]) for row in cells]
    assert not any(re.search(r"[\\`*_\[\]<>|~&#$]", one) for one in plain)
    return [re.sub(r"\\(.)", r"\1", row[1]).strip() for row in cells]


LATEX = {
    **{rf"\{sign}": sign for sign in "&%$#_{}"},
    **{r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"},
    **{"$<$": "<", "$>$": ">", "$|$": "|", r"$\pm$": "±", r"$\approx$": "≈", r"\ldots{}": "…"},
    **{r"$\surd$": "✓", r"$\Delta$": "Δ", r"$\ell$": "ℓ", "--": "–"},
    # It only keeps two signs apart.
    "{}": "",
}


def of_latex(text):
    """Read cells as LaTeX does.

    Each special sign must belong to a known command.
    """
    rows = text.splitlines()[5:-2]
    assert len(rows) == len(NAMES) and not any(row.startswith(("[", "*")) for row in rows)
    found = []
    for row in rows:
        cell = re.split(r"(?<!\\) & ", row.removeprefix("{}"))[0]
        # Two signs have one symbol.
        cell = cell.replace(r"$\times$", "×")
        known = "|".join(re.escape(one) for one in sorted(LATEX, key=len, reverse=True))
        rest = re.sub(known, "", cell)
        assert not re.search(r"[\\&%$#_{}~^]", rest), cell
        assert not re.search(r"``|''|[?!]`", cell), cell
        found.append(re.sub(known, lambda match: LATEX[match[0]], cell))
    return found


READERS = {
    "text": of_text,
    "csv": of_csv,
    "markdown": of_markdown,
    "latex": of_latex,
    "json": of_json,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_of_each_format_has_the_names(name):
    expected = SHOWN
    if name == "latex":
        expected = [one.replace("✗", "×") for one in SHOWN]
    assert READERS[name](TABLE.to_format(name)) == expected


def test_latex_has_each_sign_that_the_tables_use():
    package = pathlib.Path(bert_flow_tf.__file__).parent
    rooms = ("report", "tasks", "calibration", "vectors")
    files = [path for room in rooms for path in (package / room).rglob("*.py")]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    docstrings = [node.value for node in nodes if isinstance(node, ast.Expr)]
    words = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node not in docstrings
    ]
    words.append((package / "report" / "paper.json").read_text(encoding="utf-8"))
    signs = sorted({sign for sign in "".join(words) if not sign.isascii() and sign.isprintable()})
    assert {*"ℓ✓≈"} < {*signs}
    latex = Table(("sign", "x"), [(sign, number(1.0)) for sign in signs]).to_latex()
    assert [sign for sign in signs if sign in latex] == []


def test_the_page_has_the_names():
    page = report_page(Report(rows=[], scores=None, others=[TABLE], verdict=None), {}, [])
    cells = [html.unescape(cell) for cell in re.findall(r"<td[^>]*>([^<]*)<", page)]
    assert [name for name in SHOWN if name in cells] == SHOWN
    assert "<script>alert" not in page


RNG = np.random.default_rng(0)
U = RNG.normal(size=[40, 5])
GOLD = RNG.integers(0, 6, 40) / 1.0
MEASURED = measure_isotropy(U)
LOSSES = Losses(made_by=MADE_BY, unit=BITS, training={1: 2.0, 2: 1.0}, held_out={2: 1.5})


# Each side is a picture of its own, which takes time to draw.
SIDES = ("a$_$b", "$0-$50", "_other", "line\nbreak")


def by_name(value, names=NAMES):
    return dict.fromkeys(names, value)


def table(measures):
    return FrequencyTable(["1 to 99", "100 to 499"], {name: [1.0, 2.0] for name in measures})


# Each picture with as many names as it shows.
PICTURES = {
    "cosines": lambda: plots.cosines(by_name(MEASURED.cosine_counts)),
    "losses": lambda: plots.losses(by_name(LOSSES)),
    "spectrum": lambda: plots.spectrum(by_name(MEASURED), title="".join(NAMES)),
    "bars": lambda: plots.bars({"here": by_name(plots.Score(1.0))}, title="".join(NAMES)),
    "plane": lambda: plots.plane(by_name(U[:4], SIDES), list(SIDES), name=SIDES[0]),
    "gold": lambda: plots.gold(plots.ScoredPairs(GOLD, by_name(GOLD, SIDES), "$t$")),
    "reliability": lambda: plots.reliability(
        plots.ScoredPairs(GOLD > 2, by_name(GOLD, SIDES), "_t_")
    ),
    "distances": lambda: plots.distances(LexicalPairs(GOLD, GOLD, by_name(GOLD, SIDES))),
    "frequency": lambda: plots.frequency(table(NAMES)),
    "word_plane": lambda: plots.word_plane(U, np.arange(40)),
}


def test_every_picture_is_tried():
    functions = [name for name in plots.__all__ if inspect.isfunction(getattr(plots, name))]
    others = {"cosines_of", "scores_of_comparison", "panels", "save", "to_svg"}
    assert {*functions} - others == PICTURES.keys()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_the_names(name):
    with warnings.catch_warnings():
        # No font of this machine may have Chinese.
        warnings.filterwarnings("ignore", "Glyph")
        warnings.filterwarnings("ignore", "constrained_layout not applied")
        figure = PICTURES[name]()
        svg = plots.to_svg(figure)
    texts = [one for one in figure.findobj(Text) if one.get_text() and one.get_visible()]
    assert not [one.get_text() for one in texts if "$" in one.get_text() and one.get_parse_math()
                and "mathdefault" not in one.get_text()]  # fmt: skip
    shown = "|".join(re.sub(r"\s", "", one.get_text()) for one in texts)
    has_sides = name in ("plane", "gold", "reliability", "distances")
    expected = [one_line(side) for side in SIDES] if has_sides else SHOWN
    if name != "word_plane":
        assert [one for one in expected if re.sub(r"\s", "", one) not in shown] == []
    assert "<script>" not in svg.replace("<!-- <script>", "")


def test_bars_of_long_names_differ():
    names = [
        f"bert_{one}_first_try_of_a_flow_avg_last_2_lr_1e-3_seed_1234" for one in ("base", "large")
    ]
    middle = [f"{'a' * 60}{one}{'b' * 60}" for one in "xy"]
    assert style.shortened(names) == ["…base…", "…large…"]
    assert style.shortened([f"runs/{one}" for one in names]) == ["…base…", "…large…"]
    assert style.shortened(["runs/a/x", "runs/b/x"]) == ["a/x", "b/x"]
    assert style.shortened(["one"]) == ["one"]
    short = style.shortened(middle)
    assert len({*short}) == 2 and max(map(len, short)) < 56
    (axes,) = plots.bars({"here": dict.fromkeys(names, plots.Score(1.0))}).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["…base…", "…large…"]


@pytest.fixture
def chinese_font(tmp_path):
    """The name of an installed font that has one Chinese character."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    pen.lineTo((500, 0))
    pen.lineTo((250, 700))
    pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "middle"])
    builder.setupCharacterMap({ord("中"): "middle"})
    builder.setupGlyf({".notdef": pen.glyph(), "middle": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (600, 0), "middle": (600, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "One Character", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "one.ttf")
    known = [*font_manager.fontManager.ttflist]
    font_manager.fontManager.addfont(tmp_path / "one.ttf")
    style.fallback_fonts.cache_clear()
    yield "One Character"
    font_manager.fontManager.ttflist[:] = known
    style.fallback_fonts.cache_clear()


def test_a_label_has_a_font_with_its_characters(chinese_font):
    axes = Figure().subplots()
    style.label(axes, "中 and Latin", "x", "y")
    families = axes.title.get_fontfamily(), axes._left_title.get_fontfamily()
    assert chinese_font in families[1] and chinese_font not in axes.xaxis.label.get_fontfamily()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.to_svg(axes.figure)
