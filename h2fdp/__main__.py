"""The command `h2fdp`, also as `python -m h2fdp`."""

import sys


def run() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it in a line, too."""
    try:
        from h2fdp.cli.main import main
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    main()


if __name__ == "__main__":
    run()
