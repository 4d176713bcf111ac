"""The cases of tests/NAME_test.py PROGRAM [CASE...]: `@case` collects them, `main()` runs all or those named on the command line
and ends with the line that test.sh counts."""
import os
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

# No program of a test touches the user's folders.
CACHE = tempfile.TemporaryDirectory(prefix='deepinfer-cache-')
os.environ['XDG_CACHE_HOME'] = CACHE.name
PROGRAM = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = []


class LeftOut(Exception):
    """Raised by a case that cannot run here, with the reason."""


def case(function):
    CASES.append(function)
    return function


def run(function):
    begin, result, more = time.monotonic(), 'ok', ''
    try:
        function()
    except LeftOut as reason:
        result, more = 'left out', f': {reason}'
    except Exception as problem:  # noqa: BLE001 - whatever happens is a failed case
        result, more = 'FAILED', f': {problem!r}\n{traceback.format_exc()}'
    print(f'{result:8} {function.__name__} ({time.monotonic() - begin:.1f} s){more}', flush=True)
    return result


def main(at_once=1):
    """`at_once`: of cases that mostly wait, so many run side by side."""
    only = sys.argv[2:]
    unknown = set(only) - {function.__name__ for function in CASES}
    assert not unknown, f'no such case: {", ".join(unknown)}'
    with ThreadPoolExecutor(at_once) as workers:
        results = list(workers.map(run, [function for function in CASES if not only or function.__name__ in only]))
    left_out = f', {results.count("left out")} left out' if 'left out' in results else ''
    print(f'{results.count("ok")} passed, {results.count("FAILED")} failed{left_out}')
    sys.exit(1 if 'FAILED' in results else 0)
