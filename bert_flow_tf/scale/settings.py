"""The settings of a folder of embeddings."""

import dataclasses

from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.vectors.texts import BLOCK_ROWS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardSettings(Settings):
    """The settings of a folder of embeddings, the same for all parts."""

    shard_rows: int = flag(BLOCK_ROWS, "Sentences in each file.", ge=1)
    precision: str = flag("float32", "Stored type.", choices=("float32", "float16"))
    normalize_embeddings: bool | None = flag(
        None, "Scale every embedding to norm 1.  [default: the encoder's]", option="normalize"
    )
    batch_size: int | None = flag(None, "Sentences per step.  [default: the fastest]", ge=1)
    prompt: str | None = flag(None, "Text before each sentence.  [default: the encoder's]")
