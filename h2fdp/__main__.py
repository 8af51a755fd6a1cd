"""The command `h2fdp`, also as `python -m h2fdp`."""

import gc
import sys

# The modules that a command imports make some 300,000 objects, none of them garbage. Python looks for some after every
# 700 new ones, and all over again and again: a fifth of the time before the first interval.
_NEW_OBJECTS = 50_000


def run() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it in a line, too."""
    gc.set_threshold(_NEW_OBJECTS)
    try:
        from h2fdp.cli.main import main
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    try:
        main()
    finally:
        # At its end Python would look through all objects once more, for 0.8 s; the system takes them back. Triton,
        # which torchvision imports, would list what was not collected.
        if "triton" not in sys.modules:
            gc.freeze()


if __name__ == "__main__":
    run()
