"""The model card shows names and settings from elsewhere, and is a page of Markdown whatever they are."""

import pytest
from hypothesis import given, settings

from bert_flow_tf.model.card import model_card
from bert_flow_tf.model.saved_model import SavedModelConfig
from bert_flow_tf.runs.record import Training
from tests.bert_flow_tf import records
from tests.bert_flow_tf.markup import ANY_TEXT, Page, markdown_as_html


def _card(text):
    """The card of a model in which this text stands wherever one from elsewhere can."""
    training = Training(task=text, pairs=3, settings={f"k{text}": text}, seed=1)
    flow = records.flow_record(records.GlowConfig(), training)
    encoder = records.encoder(fine_tuning=training, handle=text, fingerprint=text)
    config = SavedModelConfig(
        made_by=records.MADE_BY,
        model=records.model(encoder=encoder, flow=flow, pooling=text),
        do_lower_case=True,
        embedding_size=8,
        files={},
    )
    return model_card(text, config)


def _shape(page):
    """Tags but for those of code, in whose typeface only a harmless name is."""
    return [name for name, _ in page.tags if name != "code"], [len(row) for row in page.rows]


@settings(derandomize=True, max_examples=300, deadline=None)
@given(ANY_TEXT)
def test_text_from_elsewhere_never_becomes_markup(text):
    page, harmless = (Page(markdown_as_html(_card(one))) for one in (text, "QQQ"))
    assert _shape(page) == _shape(harmless)
    shown, expected = (["".join(cell.split()) for row in one.rows for cell in row] for one in (page, harmless))
    assert shown == [cell.replace("QQQ", "".join(text.split())) for cell in expected]


@pytest.mark.parametrize(
    "name", ["---", "--- !!python/object:os.system", "a: {b: [c", "% @ & * ! |\n---\nlicense: mit"]
)
def test_no_name_makes_a_block_of_yaml_of_the_cards_beginning(name):
    # Which model hubs read as settings.
    card = _card(name)
    assert card.startswith("# ") and not any(line.startswith("---") for line in card.splitlines())


def test_an_address_is_shown_as_it_is():
    assert "| encoder | https://tfhub.dev/tensorflow/bert_en_uncased/4, fine-tuned |" in _card(
        "https://tfhub.dev/tensorflow/bert_en_uncased/4"
    )
