"""`python -m h2fdp` is the command `h2fdp`."""

from h2fdp.cli.main import main

main()
