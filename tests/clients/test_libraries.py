"""Other libraries, as their users run them, with numbers compared."""

import concurrent.futures
import functools
import pathlib
import pickle

import numpy as np
import pytest

from bert_flow_tf import calibrate
from tests.refusals import user_error

QUERY = "the quick fox"


def nearest(model, texts, count=3):
    """Return the texts nearest to `QUERY`, and their cosines."""
    cosines = model.similarity(model.encode_query(QUERY), model.encode_document(texts))[0]
    order = np.argsort(-cosines, kind="stable")[:count]
    return {texts[i] for i in order}, np.sort(cosines)[::-1][:count]


def test_faiss_finds_the_nearest(exported, texts, require):
    require("faiss")
    import faiss

    index = faiss.IndexFlatIP(exported.embedding_size)
    index.add(exported.encode_document(texts, normalize_embeddings=True))
    query = exported.encode_query([QUERY], normalize_embeddings=True)
    cosines, rows = index.search(query, 3)
    names, expected = nearest(exported, texts)
    assert {texts[i] for i in rows[0]} == names
    np.testing.assert_allclose(cosines[0], expected, atol=1e-5)


def test_langchain_finds_the_nearest(exported, texts, require):
    require("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore.from_texts(texts, exported)
    found = store.similarity_search_with_score(QUERY, k=3)
    names, expected = nearest(exported, texts)
    assert {one.page_content for one, _ in found} == names
    np.testing.assert_allclose([score for _, score in found], expected, atol=1e-5)


def test_chroma_finds_the_nearest(exported, texts, require):
    require("chromadb")
    import chromadb

    collection = chromadb.EphemeralClient().create_collection("texts")
    ids = [str(i) for i in range(len(texts))]
    collection.add(ids=ids, documents=texts, embeddings=exported.embed_documents(texts))
    found = collection.query(query_embeddings=[exported.embed_query(QUERY)], n_results=1)
    query = exported.encode_query(QUERY)
    squares = np.sum((exported.encode_document(texts) - query) ** 2, axis=1)
    assert found["distances"][0][0] == pytest.approx(squares.min(), abs=1e-3)


def test_datasets_maps_in_two_processes(exported, texts, require):
    require("datasets")
    import datasets

    rows = datasets.Dataset.from_dict({"text": texts})
    exported.encode(texts)
    found = rows.map(
        lambda batch: {"embedding": exported.encode(batch["text"])},
        batched=True,
        batch_size=20,
        num_proc=2,
    )
    np.testing.assert_allclose(found["embedding"], exported.encode(texts), atol=1e-5)


def test_torch_loads_in_workers(exported, texts, require):
    require("torch")
    import torch

    exported.encode(texts)
    loader = torch.utils.data.DataLoader(
        texts, batch_size=25, num_workers=2, collate_fn=exported.encode
    )
    np.testing.assert_allclose(np.concatenate([*loader]), exported.encode(texts), atol=1e-5)


def test_polars_maps_a_column(exported, texts, require):
    require("polars")
    import polars

    table = polars.DataFrame({"text": texts})
    found = exported.encode(table["text"])
    np.testing.assert_allclose(found, exported.encode(texts), atol=1e-6)
    with user_error("found a table, expected one of its columns"):
        exported.encode(table)


def test_ray_data_maps_with_an_export(exported, texts, require):
    require("ray")
    # Ray starts processes for seconds; what it sends to them is the pickle.
    import ray.cloudpickle

    again = ray.cloudpickle.loads(ray.cloudpickle.dumps(exported))
    np.testing.assert_allclose(again.encode(texts), exported.encode(texts), atol=1e-5)
    assert len(pickle.dumps(exported)) < 2000


def test_tf_data_embeds_in_its_graph(prompted, texts):
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(texts).batch(32).map(prompted.embed)
    found = np.concatenate([*rows.as_numpy_iterator()])
    np.testing.assert_allclose(found, prompted.encode(texts), atol=1e-5)


def test_service_answers_eight_clients(exported, texts, require):
    require("fastapi")
    require("httpx")
    import fastapi
    from fastapi.testclient import TestClient

    service = fastapi.FastAPI()

    @service.post("/embed")
    async def embed(body: list[str]) -> list[list[float]]:
        return await exported.aembed_documents(body)

    def ask(text):
        return client.post("/embed", json=[text]).json()[0]

    with TestClient(service) as client, concurrent.futures.ThreadPoolExecutor(8) as clients:
        found = [*clients.map(ask, texts)]
    np.testing.assert_allclose(found, exported.embed_documents(texts), atol=1e-5)


def test_keybert_takes_the_functions_of_the_page(exported, texts, require):
    require("keybert")
    from keybert import KeyBERT
    from keybert.backend import BaseEmbedder

    class Embedder(BaseEmbedder):
        def embed(self, documents, verbose=False):
            return exported.encode(list(documents))

    ((word, score), *_) = KeyBERT(Embedder()).extract_keywords(" ".join(texts[:5]))
    document = exported.encode(" ".join(texts[:5]))
    assert score == pytest.approx(float(exported.similarity([word], [document])), abs=1e-3)


def test_node_reads_what_the_page_says(onnx_dir):
    names = {path.name for path in pathlib.Path(onnx_dir).iterdir()}
    assert {"model.onnx", "tokenizer.json", "tokenizer_config.json", "config.json"} <= names


def test_calibration_of_a_partial_function_is_pickled(texts):
    model = calibrate(functools.partial(_counts, letters="aeiou"), texts, method="whitening")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.encode(texts), model.encode(texts))


def _counts(texts, letters):
    return np.array([[text.count(letter) for letter in letters] for text in texts], float)
