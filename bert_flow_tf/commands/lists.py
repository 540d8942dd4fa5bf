"""Options that are lists of names or seeds."""

from collections.abc import Collection

import click

from bert_flow_tf.commands.command import Function
from bert_flow_tf.common.errors import suggest

_MOST_SEEDS = 1000
_LARGEST_SEED = 2**32 - 1


def name_list(known: Collection[str] = ()) -> Function:
    """Return a callback that splits names at commas and drops duplicates."""

    def convert(ctx: click.Context, option: click.Option, text: str | None) -> list[str] | None:
        names = list(dict.fromkeys(filter(None, map(str.strip, (text or "").split(",")))))
        if text is not None and not names:
            raise click.BadParameter("found none, expected names separated by commas")
        for name in names if known else ():
            if name not in known:
                raise click.BadParameter(
                    f"found {name}, expected some of {', '.join(known)}{suggest(name, known)}"
                )
        return names or None

    return convert


def seed_list(ctx: click.Context, option: click.Option, text: str) -> list[int]:
    """Parse seeds: `3` means 1 to 3, and `7,8,9` a list."""
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        seeds = []
    if "," not in text:
        seeds = list(range(1, seeds[0] + 1)) if seeds and seeds[0] <= _MOST_SEEDS else []
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > _LARGEST_SEED:
        expected = (
            f"expected a number of seeds up to {_MOST_SEEDS}, or different seeds: '7,8,9', "
            "or '7,' for one"
        )
        raise click.BadParameter(f"found {text[:40]!r}, {expected}")
    return seeds
