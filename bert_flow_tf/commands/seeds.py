"""The option `--seeds`."""

from bert_flow_tf.errors import UserError

_MOST = 1000
_LARGEST = 999_999_999


def parse_seeds(text):
    """list of the seeds that `--seeds` names: 1 to N for a number, the numbers themselves for a list (`7,` for one).

    Raises:
      UserError: it is neither, empty, or a seed is given twice; or seeds, or their number, beyond reason.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"--seeds: found {text!r}, expected how many, or a list of seeds from 0, as 7,8,9")
    seeds = [int(part) for part in parts]
    if "," not in text:
        if not seeds[0]:
            raise UserError("--seeds: found 0, expected at least one (0, with the comma is the seed 0)")
        if seeds[0] > _MOST:
            raise UserError(
                f"--seeds: found {text}, expected at most {_MOST} of them ({text}, with the comma is one seed)"
            )
        return list(range(1, seeds[0] + 1))
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds: found {text!r}, expected different seeds")
    if max(seeds) > _LARGEST:
        raise UserError(f"--seeds: found {max(seeds)}, expected seeds up to {_LARGEST}")
    return seeds
