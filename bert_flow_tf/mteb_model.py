"""BertFlow as a model for MTEB, the Massive Text Embedding Benchmark."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_flow_tf.errors import UserError, pip_install

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow


class MtebModel:
    """A `BertFlow` with the methods that MTEB expects of an encoder.

        import mteb
        from bert_flow_tf import BertFlow
        from bert_flow_tf.mteb_model import MtebModel

        model = MtebModel(BertFlow.from_pretrained("my_model"), name="me/my_model")
        results = mteb.evaluate(model, mteb.get_tasks(["STSBenchmark"]))

    A task's instructions are ignored, because the encoder takes none.

    Args:
      name: `organisation/model`; MTEB caches results by this name and the revision.
      revision: None uses a digest of encoder, pooling and flow.

    Raises:
      UserError: MTEB is not installed, or `name` has no organisation.
    """

    def __init__(self, bert_flow: "BertFlow", name: str = "bert_flow_tf/model", revision: str | None = None) -> None:
        try:
            import mteb
        except ImportError as error:
            raise UserError(f"mteb is not installed: {pip_install('mteb')}") from error
        if name.count("/") != 1:
            raise UserError(f"name: found {name!r}, expected organisation/model, as MTEB names models")
        self.bert_flow = bert_flow
        self.similarity, self.similarity_pairwise = bert_flow.similarity, bert_flow.similarity_pairwise
        meta: dict[str, Any] = {"name": name, "revision": revision or bert_flow.fingerprint[:16], "languages": None}
        meta |= {"embed_dim": bert_flow.embedding_size, "max_tokens": float(bert_flow.max_seq_length)}
        meta |= {"similarity_fn_name": bert_flow.similarity_fn_name, "use_instructions": False}
        meta |= {"framework": ["TensorFlow"]}
        self.mteb_model_meta = mteb.models.ModelMeta.create_empty(meta)

    def encode(
        self, inputs: Iterable[dict[str, Any]], *, batch_size: int = 32, show_progress_bar: bool = False, **task: Any
    ) -> np.ndarray:
        """Return embeddings, float32 [n, D], of the texts in MTEB's batches."""
        sentences = (sentence for batch in inputs for sentence in batch["text"])
        return self.bert_flow.encode(sentences, batch_size=batch_size, show_progress_bar=show_progress_bar)
