"""SVG drawings made fit to stand in one page: nothing but shapes, nothing loaded, no name twice."""

import pathlib
import re
import xml.etree.ElementTree as ET

from bert_flow_tf.errors import UserError

# What draws; all else of a file is dropped.
_ELEMENTS = """
svg g defs clipPath path rect circle ellipse line polyline polygon use image text tspan linearGradient radialGradient
stop symbol title desc
"""
_ATTRIBUTES = """
id class d style transform x y x1 y1 x2 y2 cx cy r rx ry fx fy width height viewBox points offset opacity fill
fill-opacity fill-rule stroke stroke-width stroke-opacity stroke-linecap stroke-linejoin stroke-dasharray
stroke-dashoffset clip-path clip-rule clipPathUnits gradientUnits gradientTransform stop-color stop-opacity font-size
font-family font-weight font-style text-anchor preserveAspectRatio
"""
_DRAWING_ELEMENTS, _DRAWING_ATTRIBUTES = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())
_ENTITY = re.compile(r"<!ENTITY", re.IGNORECASE)
_URL = re.compile(r"url\(\s*['\"]?#([^'\")\s]*)['\"]?\s*\)", re.IGNORECASE)
# Other ways to name something outside in a style, escapes that spell them among these.
_LOADS = re.compile(r"url\((?!#)|//|\\|@|\b(?:image|image-set|src|element|cross-fade)\s*\(", re.IGNORECASE)
_IMAGE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")


def read_svg(path: pathlib.Path) -> str:
    """The text of an SVG file.

    Raises:
      UserError: there is no such file, or it cannot be read as text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file, expected the plot that bert-flow analyze writes") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}), expected the plot that bert-flow analyze writes") from error


def inline_svg(text: str, prefix: str, label: str, place: str = "SVG") -> str:
    """A drawing as an `<svg role="img">` element for an HTML page.

    Elements and attributes that do not draw are dropped: scripts, style sheets (which would rule the page), metadata,
    event handlers and links. Images stay if they are PNG within the file, references if they are to the drawing's own
    parts. Every id gets the prefix, so that no two drawings of a page share one. Width and height become the largest
    ones that the page may give it.

    Args:
      text: an SVG document.
      prefix: of the ids; letters, digits and hyphens.
      label: what the drawing shows, for those who do not see it.
      place: its file, for errors.

    Raises:
      UserError: it is not SVG, or it declares entities.
    """
    if _ENTITY.search(text):
        raise UserError(f"{place}: found an entity declaration, expected a drawing of bert-flow analyze")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise UserError(f"{place}: found text that is not SVG ({error}), expected a drawing") from error
    if _local(root.tag) != "svg":
        raise UserError(f"{place}: found an element {_local(root.tag)}, expected svg")
    drawing = _cleaned(root, prefix)
    width = re.fullmatch(r"([0-9.]+)(pt|px)?", root.get("width") or "")
    if "viewBox" not in drawing.attrib and width and root.get("height"):
        drawing.set("viewBox", f"0 0 {width[1]} {re.sub('[a-z]+$', '', root.get('height'))}")
    for name in ("width", "height"):
        drawing.attrib.pop(name, None)
    # Matplotlib's style sheet says this of every element; here it is inherited.
    size = f"max-width: {width[1]}{width[2] or 'px'}; " if width else ""
    drawing.set("style", f"{size}stroke-linejoin: round; stroke-linecap: butt")
    drawing.set("role", "img")
    drawing.set("aria-label", label)
    return ET.tostring(drawing, encoding="unicode")


def _cleaned(element, prefix):
    clean = ET.Element(_local(element.tag))
    for name, value in element.attrib.items():
        name = _local(name)
        if name == "href":
            value = value.strip()
            if value.startswith("#"):
                clean.set("href", f"#{prefix}{value[1:]}")
            elif _local(element.tag) == "image" and _IMAGE.fullmatch(value):
                clean.set("href", value)
        elif name == "id":
            clean.set("id", f"{prefix}{value}")
        elif name in _DRAWING_ATTRIBUTES:
            value = _URL.sub(lambda match: f"url(#{prefix}{match[1]})", value)
            if not _LOADS.search(value):
                clean.set(name, value)
    clean.text, clean.tail = element.text, element.tail
    for child in element:
        if isinstance(child.tag, str) and _local(child.tag) in _DRAWING_ELEMENTS:
            clean.append(_cleaned(child, prefix))
    return clean


def _local(name):
    return name.rpartition("}")[2]
