"""Quiet TensorFlow before anything imports it, and where the golden data is."""

import os
import pathlib

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


@pytest.fixture(scope="session")
def golden_dir():
    """Folder of values that the TF1 code computed."""
    return pathlib.Path(__file__).parent / "golden"
