"""The program of published shapes: theirs are what their files say, and a part of one runs."""

import sys
from dataclasses import replace

import pytest

from benchmarks import published
from h2fdp.models.architectures import char_lstm


def test_the_shapes_are_those_of_flutes_files():
    shapes = published.SHAPES
    assert [each.devices for each in shapes.values()] == [1_000, 3_400, 500, 715]
    assert [each.steps for each in shapes.values()] == [6, 10, 5, 6]
    sizes = [sum(each.numel() for each in shape.model().parameters()) for shape in shapes.values()]
    assert sizes == [7_850, 1_206_590, 11_227_812, 820_522]


@pytest.mark.run
@pytest.mark.parametrize("name", ["lr-mnist", "rnn-shakespeare"])
def test_a_part_of_a_shape_runs_and_prints_its_times_beside_the_published_ones(name, monkeypatch, capsys):
    shape = replace(published.SHAPES[name], devices=20, records=5, tests=100)
    if name == "rnn-shakespeare":
        shape = replace(shape, record=(6,), label=(6,), model=lambda: char_lstm((6,), (6, 90), 89, 8, 4))
    monkeypatch.setitem(published.SHAPES, name, shape)
    monkeypatch.setattr(sys, "argv", ["published", "--shape", name, "--rounds", "4", "--hosts", "2"])
    published.main()
    said = capsys.readouterr().out
    assert f"{name}: 4 of {shape.rounds:,} rounds of 10 of 20 devices, {shape.steps} steps" in said
    assert all(f"published: {who}" in said for who in shape.published)
    assert "seconds a round" in said


def test_a_part_without_a_round_that_counts_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["published", "--shape", "lr-mnist", "--rounds", "2"])
    with pytest.raises(SystemExit):
        published.main()
    assert "--rounds: expected more than 2" in capsys.readouterr().err
