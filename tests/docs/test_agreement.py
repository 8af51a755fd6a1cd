"""When the test of the tutorial accepts an output, and when it does not."""

import pytest

from tests.docs.agreement import agree


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("accuracy  0.71\n", "accuracy 0.7099\n"),
        ("accuracy  0.71", "accuracy 0.735"),
        ("energy 120.5 J", "energy 126 J"),
        ("wall time ... s", "wall time 13.2 s"),
        ("a\n...\nd", "a\nb\nc\nd"),
        ("a\n...", "a"),
        ("0.7 to ... by", "0.71 to 3.2 by"),
        ("a\n\nb", "a\nb\n"),
    ],
)
def test_rounding_spaces_and_what_is_left_out_do_not_matter(shown, found):
    assert agree(shown, found)


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("accuracy 0.71", "accuracy 0.75"),
        ("energy 120.5 J", "energy 127 J"),
        ("20 of 20 done", "19 of 20 done"),
        ("verdict met", "verdict open"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("a\n...\nd", "a\nb"),
        ("", "a warning"),
    ],
)
def test_another_figure_word_or_line_does(shown, found):
    assert not agree(shown, found)
