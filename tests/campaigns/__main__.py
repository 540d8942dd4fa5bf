"""A sample of the campaigns of killing, of full disks, of two at once and of bad input: `python -m tests.campaigns`."""

import sys

from tests.campaigns import full_disk, fuzz, kill, together
from tests.campaigns.processes import prepared

_NAMES = ("flow", "encode", "report")
_READERS = ("results", "run", "flow_config", "jsonl", "parquet", "sts-b", "embeddings", "bert_flow", "rest", "grpc")

with prepared(_NAMES) as start:
    statuses = [
        # Which depends on no clock.
        kill.main(["--kills", "6", "--at", "write", "--only", *_NAMES], start),
        full_disk.main(["--limits", "3", "--only", "encode", "report"], start),
        together.main(["--times", "2", "--only", "encode+encode", "prepare+prepare"], start),
        fuzz.main(["--inputs", "1200", "--only", *_READERS]),
    ]
sys.exit(max(statuses))
