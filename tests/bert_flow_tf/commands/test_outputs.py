"""The names that commands print stay on one line."""

from bert_flow_tf.commands.outputs import write_results


def test_a_name_with_a_line_break_stays_on_its_line(tmp_path, capsys):
    write_results(tmp_path / "a\nb.json", {})
    assert capsys.readouterr().err == f"results written: {tmp_path}/a\\nb.json\n"
