"""Tables as text."""


def aligned(lines, left=(0,)):
    """The lines of cells as text: columns padded to one width, a rule below the first line.

    Args:
      lines: lists of as many strings each.
      left: numbers of the columns that are set to the left, the others are to the right.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join([text[0].rstrip(), "-" * len(text[0]), *(line.rstrip() for line in text[1:])])


def number(value):
    """The number with two decimals; `-` for None."""
    return "-" if value is None else f"{value:.2f}"
