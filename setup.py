"""Packaging: ranges of versions here, the exact ones of the scripts in requirements.txt."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent


def long_description() -> str:
    """README without links to files that are not beside it on the package index."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    return re.sub(r"!?\[([^]]+)\]\((?!https?://)[^)]+\)", r"\1", text)


def version() -> str:
    """The version, which the package itself says: reading it imports nothing."""
    source = (ROOT / "bert_flow_tf" / "common" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)[1]


setup(
    name="bert-flow-tf",
    version=version(),
    description="BERT-flow for TensorFlow 2: sentence embeddings calibrated by a normalizing flow",
    author="bert_flow_tf contributors",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["BERT", "BERT-flow", "sentence embeddings", "normalizing flow", "Glow", "TensorFlow"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    long_description=long_description(),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["bert_flow_tf", "bert_flow_tf.*", "glow", "glow.*"]),
    package_data={
        "glow": ["configs/*.json", "py.typed"],
        "bert_flow_tf": [
            "sample_data/**",
            "report/*.html",
            "report/*.json",
            "model/*.md",
            "py.typed",
        ],
    },
    python_requires=">=3.10,<3.14",
    install_requires=[
        "tensorflow>=2.20,<2.22",
        "tensorflow-text>=2.20,<2.22",
        "tf-keras>=2.20,<2.22",
        "tensorflow-probability~=0.25.0",
        "tensorflow-hub~=0.16.1",
        "scipy>=1.11.1",
        "scikit-learn>=1.6",
        "safetensors>=0.2.8",
        "tokenizers>=0.22.1",
        "huggingface-hub>=1.32",
        "msgspec>=0.16",
        # Earlier releases do not notice that another process has removed the lock's file.
        "filelock>=3.21",
        "fsspec>=2024.3",
        "jinja2>=3.0",
        "pyarrow>=20",
        "absl-py>=1.0",
        "click>=8.2",
        "tqdm>=4.42.1",
        "typing-extensions>=4.5",
        "platformdirs>=2.0",
        "tensorflow-serving-api>=2.20,<2.22",
        # tensorflow-hub 0.16 imports pkg_resources, whose own deprecation notice says to stay below
        # 81.
        "setuptools>=66.1,<81",
    ],
    extras_require={
        # For `pretrain` and `convert --to_tfhub`; it requires TensorFlow 2.20.
        "models": ["tf-models-official~=2.20.0"],
        # For `calibrate` and `fit --sentence_transformer`; no earlier version was tried.
        "sentence-transformers": ["sentence-transformers>=6", "torch"],
        "faiss": ["faiss-cpu"],
        # For `--plot`.
        "plots": ["matplotlib>=3.8"],
        # For `analyses`.
        "analyses": ["rapidfuzz>=3", "wordfreq>=3"],
        # For `encode-folder --workers` and `launch`; no other version was tried.
        "scale": ["ray[train]~=2.60.0"],
        # For `export --format onnx`; onnxruntime checks what was written.
        "onnx": ["tf2onnx>=1.17", "onnx>=1.14", "onnxruntime"],
        # For `open_export`. Without TensorFlow, in an environment of their own: see
        # docs/serving.md.
        "runtime": ["numpy", "tokenizers>=0.22.1", "onnxruntime>=1.14"],
        "openvino": ["openvino>=2024.4"],
        "gpu": ["tensorflow[and-cuda]>=2.20,<2.22"],
        "dev": [
            "pytest",
            "hypothesis",
            "ruff",
            "pytest-timeout",
            "pytest-xdist",
            "import-linter",
            "mypy",
            "matplotlib>=3.8",
        ],
    },
    entry_points={"console_scripts": ["bert-flow = bert_flow_tf.cli:main"]},
)
