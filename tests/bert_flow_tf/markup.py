"""Text that tries to become markup, and what parsers of HTML and of GitHub's Markdown make of a page."""

import html.parser

import markdown_it
from hypothesis import strategies as st

ANY_TEXT = st.text(st.sampled_from("<>&\"'|\\`*_[]()#~!-+.:\n\r\t a1é")) | st.sampled_from(
    ["</td><script>alert(1)</script>", "<!--", "&lt;", "![x](x.png)", "|\n|", "\\|", "]]>", "a\n\n# b", "**a**"]
)


class Page(html.parser.HTMLParser):
    """An HTML page as a parser reads it.

    Attributes:
      tags: (name, attributes) of every element, in order.
      rows: of its tables, lists of the cells' text.
      text: everything that is shown, without white space.
    """

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.rows, self.text = [], [], ""
        self._in_cell = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.text += "".join(data.split())
        if self._in_cell:
            self.rows[-1][-1] += data

    def all(self, tag):
        """Attributes of every element of that name."""
        return [attributes for name, attributes in self.tags if name == tag]


def markdown_as_html(text: str) -> str:
    """What a reader of GitHub's Markdown makes of a text."""
    return markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
