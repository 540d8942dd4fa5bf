"""A sample of the campaigns, which depends on no clock: `python -m tests.campaigns`."""

import sys

from tests.campaigns import full_disk, fuzz, kill
from tests.campaigns.processes import prepared

_NAMES = ("flow", "encode", "report")
_READERS = ("results", "run", "flow_config", "jsonl", "parquet", "sts-b", "embeddings", "bert_flow", "rest", "grpc")

with prepared(_NAMES) as start:
    statuses = [
        kill.main(["--kills", "6", "--at", "write", "--only", *_NAMES], start),
        full_disk.main(["--limits", "3", "--only", "flow", "report"], start),
        fuzz.main(["--inputs", "1200", "--only", *_READERS]),
    ]
sys.exit(max(statuses))
