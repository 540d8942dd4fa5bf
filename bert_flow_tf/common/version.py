"""The version, which every room may import."""

__version__ = "0.1.0"
# Increase this when a file's format changes; the demo encoder's folder is named after it.
FORMAT_VERSION = 3

# An export's folder has these files.
DESCRIPTION_FILE = "export.json"
TOKENIZER_FILE = "tokenizer.json"
ONNX_FILE = "model.onnx"
ONNX_DATA_FILE = "model.onnx_data"  # the weights, if they are large
OPENVINO_FILE = "openvino_model.xml"
