"""Text from elsewhere in a Markdown file: names, handles and settings that must not become markup."""

import html
import re

# Not "_" within a word, as in a handle's address: it means nothing there.
_MARKDOWN = re.compile(r"([\\`*\[\]|#~]|(?<![^\W_])_|_(?![^\W_]))")


def markdown_text(text: str) -> str:
    """Text on one line in which no character means anything to Markdown or HTML."""
    return _MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))
