"""A report of small results, with something in every section; it is to be read, not changed."""

import pytest

from bert_flow_tf.results.collect import collect
from bert_flow_tf.results.sources import find_sources
from tests.bert_flow_tf import records
from tests.bert_flow_tf.results import written


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    def model(name, seed):
        return records.model(pooling="cls", flow=records.flow(seed=seed))

    folder = written.write_all(tmp_path_factory.mktemp("report") / "results")
    rows = {"flow-target": [0.79, 0.80, 0.84]}
    written.write(folder / "seeds" / "reproduction.json", written.reproduction(rows, model))
    return find_sources([folder])[0]


@pytest.fixture(scope="session")
def report(sources):
    return collect(sources, "Results", "2020-09-13")
