"""A table of isotropy."""

from bert_flow_tf.evaluation.records import IsotropyResults
from bert_flow_tf.table import Entry, Table, number

# Each measure of `evaluation.isotropy.Isotropy` has this many decimals.
_ISOTROPY = {
    "constant_channels": 0,
    "mean_cosine": 4,
    "mean_share": 4,
    "top_share": 4,
    "centred_top_share": 4,
}


_ISOTROPY |= {"participation_ratio": 1, "effective_rank": 1, "partition_ratio": 4}


def isotropy_table(result: IsotropyResults) -> Table:
    """Return a table of measures, then bits per dimension of each density."""
    measures = result.measures | {"standard normal": result.reference}
    rows: list[list[Entry]] = []
    for key, digits in _ISOTROPY.items():
        rows.append(
            [
                key.replace("_", " "),
                *(number(getattr(one, key), digits) for one in measures.values()),
            ]
        )
    blanks = [None] * (len(measures) - 1)
    rows += [
        [f"bits per dimension, {name}", number(bits, 4), *blanks]
        for name, bits in result.bits_per_dim.items()
    ]
    return Table(("measure", *measures), rows)
