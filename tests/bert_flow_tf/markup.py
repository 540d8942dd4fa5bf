"""The tables of an HTML page as a parser reads them."""

import html.parser


class Page(html.parser.HTMLParser):
    """An HTML page's elements in `tags`, its tables' cells in `rows`."""

    def __init__(self, text: str):
        super().__init__()
        self.rows, self.tags, self._in_cell = [], [], False
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
        if self._in_cell:
            self.rows[-1][-1] += data

    def all(self, tag):
        """Attributes of every element of that name."""
        return [attributes for name, attributes in self.tags if name == tag]
