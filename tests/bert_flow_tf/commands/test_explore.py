"""`bert-flow explore`: the page of neighbours, as a browser and as a server of another name see it."""

import http.client
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.bert_flow_tf.markup import Page
from tests.refusals import refused

SENTENCES = ["w1 w2 w3", "w1 w2", "w4 w5 w6 w7", "w8", "<b>w9</b> <script>alert(1)</script>", "w10 w11", "w1 w2"]


@pytest.fixture(scope="module")
def model_dir(sts_run, tiny_trio, tmp_path_factory):
    """Folder of a saved model with a flow."""
    from bert_flow_tf.api import BertFlow

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
        return BertFlow.load(sts_run).save(tmp_path_factory.mktemp("explore") / "my_model")


@pytest.fixture(scope="module")
def address(model_dir):
    """Where the command, a process of its own, serves the page; it ends with status 0 when it is interrupted."""
    (model_dir.parent / "sentences.txt").write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    flags = ("--input", model_dir.parent / "sentences.txt", "--port", "0", "--neighbours", "4")
    # A shell that started the tests may have had them ignore the signal, which a process inherits.
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import signal; signal.signal({signal.SIGINT:d}, signal.default_int_handler); "
            "from bert_flow_tf.cli import main; main()",
            "explore",
            "--model",
            model_dir,
            *flags,
        ],
        # As the command has it where the tests do not.
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            line = process.stdout.readline()
            assert line.startswith("page: http://127.0.0.1:"), line
            yield line.split()[1]
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, *said) == (0, "", "")


def get(address, method="GET", path="/", **headers):
    """Status, headers and text of an answer."""
    host, port = re.fullmatch(r"http://(.+):(\d+)/", address).groups()
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_sentence_is_typed_and_its_neighbours_stand_on_both_sides_of_the_flow(browser, address, model_dir, width):
    from bert_flow_tf.api import BertFlow

    browser.open(address, width=width)
    before = browser.loads
    browser.type("w1 w2 w3 w5", into="input")
    browser.wait_for_load(before)
    model = BertFlow.from_pretrained(model_dir)
    distinct = SENTENCES[:-1]
    for side, embed in (("before", model.inverse), ("after", lambda values: values)):
        of_all, of_one = (embed(model.encode(one)) for one in (distinct, ["w1 w2 w3 w5"]))
        cosines = model.similarity(of_one, of_all)[0]
        nearest = np.argsort(-cosines)[:4]
        rows = browser.run(
            f"[...document.querySelectorAll('[aria-labelledby={side}] tbody tr')]"
            ".map(row => [...row.cells].slice(0, 2).map(cell => cell.innerText))"
        )
        assert rows == [[distinct[i], f"{cosines[i]:.2f}".replace("-", "−")] for i in nearest]
    assert browser.run("document.documentElement.scrollWidth") <= width
    # Chromium's, where the test has typed before the page put the cursor into its field.
    assert [line for line in browser.log if not line.startswith("Autofocus processing was blocked")] == []
    tops = browser.run("[...document.querySelectorAll('.sides > div')].map(one => one.getBoundingClientRect().top)")
    assert (tops[0] == tops[1]) == (width > 1000)


def test_axe_finds_no_fault_in_what_was_found(axe_faults, address):
    assert axe_faults(f"{address}?sentence=w1+w2") == []


def test_nothing_that_is_typed_or_read_becomes_markup(address):
    status, headers, text = get(address, path="/?sentence=%22%3E%3Cscript%3Ealert(2)%3C/script%3E")
    page = Page(text)
    assert status == 200 and not page.all("script") and not page.all("b")
    assert [one["value"] for one in page.all("input")] == ['"><script>alert(2)</script>']
    assert "script-src" not in text and "default-src 'none'" in text
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8600", "127.0.0.1.evil.example", ""])
def test_a_name_that_is_not_this_machines_is_refused(address, host):
    status, _, text = get(address, Host=host)
    assert (status, "form" in text) == (400, False)
    assert get(address, Host="localhost")[0] == 200


def test_what_the_page_does_not_have_is_refused(address):
    assert get(address, path="/etc/passwd")[0] == 404
    assert get(address, method="POST")[0] == 405
    status, _, text = get(address, path=f"/?sentence={'w' * 5001}")
    assert status == 400 and "expected at most 5,000" in text


def test_the_port_is_this_machines_alone(address):
    with socket.socket() as other:
        other.settimeout(5)
        # Another address of the loopback network, as one of another network would be.
        with pytest.raises(OSError):
            other.connect(("127.0.0.2", int(address.rstrip("/").rpartition(":")[2])))


def test_a_slip_is_one_line_before_tensorflow_loads(model_dir, address, tmp_path, monkeypatch):
    flags = ("explore", "--model", model_dir, "--input", model_dir.parent / "sentences.txt")
    port = address.rstrip("/").rpartition(":")[2]
    monkeypatch.setattr("bert_flow_tf.commands.options.ModelOptions.load", lambda self: pytest.fail("loads"))
    assert f"--port={port}: cannot be listened on (Address already in use)" in refused(*flags, "--port", port)
    assert "'http' is not a valid integer" in refused(*flags, "--port", "http")
    assert "65536 is not in the range" in refused(*flags, "--port", 65536)
    assert "did you mean" in refused("explore", "--model", f"{model_dir}l", *flags[3:])
    (tmp_path / "none.txt").touch()
    assert "found no sentence" in refused("explore", "--model", model_dir, "--input", tmp_path / "none.txt")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "werkzeug" else find(name))
    installs = "pip install 'bert-flow-tf[explore]', or '.[explore]' in a clone"
    assert refused(*flags) == f"explore: Werkzeug is not installed: {installs}"


def test_a_model_without_a_flow_is_refused(model_dir, tmp_path):
    from bert_flow_tf.api import BertFlow

    loaded = BertFlow.from_pretrained(model_dir)
    plain = BertFlow.from_hub(loaded.source.bert_hub, max_seq_length=8).save(tmp_path / "plain")
    line = refused("explore", "--model", plain, "--input", model_dir.parent / "sentences.txt", "--port", 0)
    assert "found a model without a flow" in line
