"""A sample of the campaigns, which depends on no clock: `python -m tests.campaigns`."""

import sys

from tests.campaigns import full_disk, kill
from tests.campaigns.processes import prepared

_NAMES = ("flow", "encode", "report")

with prepared(_NAMES) as start:
    statuses = [
        kill.main(["--kills", "6", "--at", "write", "--only", *_NAMES], start),
        full_disk.main(["--limits", "3", "--only", "flow", "report"], start),
    ]
sys.exit(max(statuses))
