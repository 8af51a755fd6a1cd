"""Environments of the rivals: made by pip on first use, kept, and borrowed our own torch, so that all run the same."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

REQUIREMENTS = {
    "flower_app": ["flwr[simulation]==1.41.0"],
    "jax_app": ["jax==0.10.2"],
    "pfl_app": ["pfl==0.6.0"],
}
_LIMIT_S = 1200


class NotInstalled(Exception):
    """A rival's environment could not be made; the message says why."""


def python_of(program: str, folder: Path) -> str:
    """The interpreter that runs a program: our own, or that of the rival's environment under `folder`.

    A rival's packages come first in its environment. What it lacks, torch above all, it takes from ours by a path file.

    Raises:
        NotInstalled: pip failed.
    """
    if program not in REQUIREMENTS:
        return sys.executable
    home = folder / program.removesuffix("_app")
    wanted = " ".join(REQUIREMENTS[program])
    done = home / "installed.txt"
    python = home / "bin" / "python"
    if not done.is_file() or done.read_text() != wanted:
        print(f"installing {wanted} into {home}", file=sys.stderr, flush=True)
        venv.create(home, clear=True, with_pip=True)
        _install(python, REQUIREMENTS[program])
        done.write_text(wanted)
    _lend(home)
    return str(python)


def _install(python: Path, requirements: list[str]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"pip did not finish within {_LIMIT_S} s") from None
    if finished.returncode != 0:
        lines = [line for line in finished.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled(" ".join(lines[-2:]) or f"pip ended with {finished.returncode}")


def _lend(home: Path) -> None:
    """A path file in the rival's packages that names ours; it is read after its own are found."""
    torch = find_spec("torch")
    assert torch is not None, "h2fdp depends on torch"
    assert torch.origin is not None
    for packages in home.glob("lib/python*/site-packages"):
        (packages / "torch-of-h2fdp.pth").write_text(str(Path(torch.origin).parents[1]) + "\n")
