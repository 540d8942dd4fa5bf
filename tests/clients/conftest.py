"""A small model and its ONNX export, for other libraries to use."""

import pytest

from tests.bert_flow_tf.runtime.conftest import onnx_dir, prompted

__all__ = ["onnx_dir", "prompted"]


@pytest.fixture(scope="session")
def texts():
    """A hundred short texts, which an export computes in several batches."""
    words = ("the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog")
    return [" ".join((words[i % 8], words[i // 8 % 8], words[i // 64])) for i in range(100)]


@pytest.fixture
def exported(onnx_dir, require):
    """The export, opened."""
    require("onnxruntime")
    from bert_flow_tf import open_export

    return open_export(onnx_dir)
