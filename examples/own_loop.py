"""Train encoder and flow together, by a loop of one's own."""

from bert_flow_tf import BertFlow  # first: it imports TensorFlow without its messages
from bert_flow_tf.sample_data import sample_sentences
import tensorflow as tf
import tf_keras
from glow import Glow, GlowConfig


def train(model, sentences, steps, batch_size=16, learning_rate=1e-5):
    """Minimise the flow loss with BERT unfrozen; return the losses."""
    network = model.trainable(encoder=True)
    optimizer = tf_keras.optimizers.Adam(learning_rate)
    optimizer.build(network.trainable_variables)  # else TensorFlow traces the step twice
    texts = tf.data.Dataset.from_tensor_slices(sentences).shuffle(2000, seed=0).repeat()

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(network(batch, training=True)["bits_per_dim"])
        optimizer.minimize(loss, network.trainable_variables, tape)
        return loss

    return [float(step(batch)) for batch in texts.batch(batch_size).take(steps)]


if __name__ == "__main__":
    model = BertFlow.from_hub("demo", max_seq_length=64)
    model.flow = Glow(GlowConfig(), model.embedding_size, seed=0)
    losses = train(model, sample_sentences(), steps=30)
    saved = model.save("own_loop", overwrite=True)
    print(f"{losses[0]:.2f} to {losses[-1]:.2f} bits per dimension; saved: {saved}")
