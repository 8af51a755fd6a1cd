"""Children of the process of a test: they have its libraries, which take seconds to import, and what it prepared."""

import os
import traceback
import warnings
from collections.abc import Callable

import h2fdp.arithmetic  # noqa: F401 - which gives a child one thread


def in_a_child(action: Callable[[], object]) -> int:
    """Calls `action` in a forked process and waits for its end; returns 0, or minus the signal that ended it.

    Raises:
        AssertionError: the child raised something; it is printed to standard error.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's, of forks where there are threads: the child starts none of its own
        child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code <= 0, "see what the child printed"
    return code
