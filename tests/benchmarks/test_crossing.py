"""What a change crosses, of a small repository."""

import subprocess

import pytest

from benchmarks.crossing import Crossing, crossing, table

pytestmark = pytest.mark.process
HEADLINE = '"""A module."""\n\n'


@pytest.fixture
def committed(tmp_path):
    """Writes modules of a package, or deletes those that are None, and commits them."""

    def commit(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink() if text is None else path.write_text(text)
        for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        return subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return commit


def test_files_that_stood_are_counted_with_the_lines_that_they_held(committed, tmp_path):
    longer = HEADLINE + "\n".join(f"x{each} = {each}  # a comment" for each in range(20)) + "\n"
    base = committed(
        {"h2fdp/a/one.py": longer, "h2fdp/a/two.py": HEADLINE + "y = 1\n", "h2fdp/b.py": "z = 1\n", "c.py": "z = 1\n"}
    )
    changed = {
        "h2fdp/a/one.py": longer + "w = 1\n",
        "h2fdp/b.py": None,
        "h2fdp/c.py": HEADLINE + "u = 1\nv = 2\n",
        "c.py": "z = 2\n",
    }
    head = committed(changed)
    assert crossing(base, head, tmp_path) == Crossing(files=2, rooms=2, read=21, new=1, net=2)


def test_a_file_that_is_moved_as_it_stands_is_not_read(committed, tmp_path):
    base = committed({"h2fdp/a.py": HEADLINE + "x = 1\ny = 2\n"})
    moved = committed({"h2fdp/a.py": None, "h2fdp/room/a.py": HEADLINE + "x = 1\ny = 2\n"})
    assert crossing(base, moved, tmp_path) == Crossing(files=0, rooms=0, read=0, new=0, net=0)


def test_the_table_ends_with_medians():
    rows = {"a": Crossing(1, 1, 1_000, 0, -5), "b": Crossing(3, 1, 2_000, 2, 15), "c": Crossing(7, 2, 1_500, 1, 7)}
    assert table(rows).splitlines()[-1].split() == ["median", "3", "1", "1,500", "1", "+7"]
