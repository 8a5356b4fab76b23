"""`src.progress`: a bar that leaves no trace."""

from src.progress import progress


def test_progress_hands_on_every_item_and_leaves_standard_output_alone(capsys):
    assert list(progress(iter("abc"), "spelling")) == ["a", "b", "c"]
    assert capsys.readouterr().out == ""
