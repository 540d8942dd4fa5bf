"""Run an exported model without TensorFlow, by onnxruntime or openvino."""
