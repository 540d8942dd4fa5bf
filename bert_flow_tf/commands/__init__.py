"""The sub-commands of bert-flow, one file each."""
