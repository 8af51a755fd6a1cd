"""All measurements of our own, one after another: `python -m benchmarks [--data-root DIR]` (or `make bench`).

`python -m benchmarks.side_by_side` measures others beside us; it installs them first.
"""

from __future__ import annotations

from benchmarks import engines, whole_runs

if __name__ == "__main__":
    engines.main()
    whole_runs.main()
