"""`src.tools.progress`: a bar that leaves no trace."""

from src.tools.progress import progress


def test_progress_hands_on_every_item_and_leaves_standard_output_alone(capsys):
    assert list(progress(iter("abc"), "spelling")) == ["a", "b", "c"]
    assert capsys.readouterr().out == ""


def test_a_status_is_asked_for_and_written_where_nobody_reads_output(capsys):
    asked = []
    items = progress("abc", "spelling", status=lambda: asked.append(1) or "loss 3")
    assert list(items) == ["a", "b", "c"]
    assert asked
    assert capsys.readouterr().out == ""
