"""Checkpoints: whole or not there, checked when read, never more than two."""

import io
import pickle
from hashlib import sha256

import numpy as np
import pytest
import torch

from h2fdp.errors import UserError
from h2fdp.records.checkpoint import Outcomes, load_checkpoint, save_checkpoint

VALUES = {
    "model": torch.tensor([1.0, float("nan"), 3e-39]),
    "nested": {"a": [1, 2.5, None, "x"], "array": np.array([[1.0, 2.0]]), "number": np.float64(0.1)},
}


def loaded(folder):
    damaged = []
    return load_checkpoint(folder, damaged.append), [path.name for path in damaged]


def test_what_was_saved_comes_back(tmp_path):
    save_checkpoint(tmp_path / "checkpoint", 3, VALUES)
    values, damaged = loaded(tmp_path / "checkpoint")
    assert damaged == []
    assert values["model"].numpy().tobytes() == VALUES["model"].numpy().tobytes()
    assert values["nested"]["a"] == [1, 2.5, None, "x"]
    assert values["nested"]["array"].tolist() == [[1.0, 2.0]]
    assert values["nested"]["number"] == 0.1


def test_the_newest_counts_and_one_older_is_kept(tmp_path):
    for interval in (0, 9, 10, 100):
        save_checkpoint(tmp_path, interval, {"interval": interval})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000010.ckpt", "000000100.ckpt"]
    assert loaded(tmp_path)[0] == {"interval": 100}
    save_checkpoint(tmp_path, 5, {"interval": 5}, alone=True)
    assert [path.name for path in tmp_path.iterdir()] == ["000000005.ckpt"]


def test_no_byte_can_be_cut_off_or_changed_unnoticed(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"interval": 1})
    whole = path.read_bytes()
    for length in (*range(200), *range(200, len(whole), 53), len(whole) - 1):
        path.write_bytes(whole[:length])
        assert loaded(tmp_path) == (None, [path.name])
    for place in (*range(17), *range(19, 200), *range(200, len(whole), 53)):  # 17 and 18: the version and its end
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert loaded(tmp_path) == (None, [path.name]), place


def test_the_older_one_serves_when_the_newest_is_damaged(tmp_path):
    save_checkpoint(tmp_path, 1, {"interval": 1})
    save_checkpoint(tmp_path, 2, {"interval": 2}).write_bytes(b"")
    assert loaded(tmp_path) == ({"interval": 1}, ["000000002.ckpt"])


def test_another_format_is_refused_by_name(tmp_path):
    path = save_checkpoint(tmp_path, 1, {})
    path.write_bytes(path.read_bytes().replace(b"h2fdp checkpoint 4\n", b"h2fdp checkpoint 7\n", 1))
    with pytest.raises(UserError, match="a checkpoint of format 7, this version reads 4"):
        loaded(tmp_path)


def test_a_checkpoint_runs_no_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return (print, ("code was run",))

    buffer = io.BytesIO()
    torch.save({"x": Trap()}, buffer)
    content = buffer.getvalue()
    digest = sha256(content).hexdigest().encode()
    (tmp_path / "000000001.ckpt").write_bytes(b"h2fdp checkpoint 4\n" + digest + b"\n" + content)
    with pytest.raises(pickle.UnpicklingError):
        loaded(tmp_path)


def test_an_outcome_is_the_same_to_the_bit_or_another_in_every_process_and_after_a_line_that_was_cut_off(tmp_path):
    file, model = tmp_path / "outcomes", torch.tensor([1.0, 3e-39])
    first = Outcomes(file, b"secret")
    assert all(first.same("", interval, model + interval) for interval in range(3))
    written = file.read_bytes()
    for cut in range(len(written) + 1):
        file.write_bytes(written[:cut])
        again, whole = Outcomes(file, b"secret"), written[:cut].count(b"\n")
        for interval in range(3):
            other = again.same("", interval, model * 2 + interval)
            assert other == (interval >= whole), "what was not written whole is new"
        assert again.same("another", 0, model * 2), "under other draws all is another release"
        assert file.read_bytes().startswith(written[:cut])
        assert [Outcomes(file, b"secret").same("", interval, model + interval) for interval in range(3)] == [
            interval < whole for interval in range(3)
        ]
    file.write_bytes(written)
    assert not Outcomes(file, b"secret").same("", 0, torch.tensor([1.0, 0.0])), "a tiny number is not 0"
    assert not Outcomes(file, b"other").same("", 0, model), "digests are keyed"
    assert file.read_bytes() == written
