"""The cases of tests/NAME_test.py PROGRAM [CASE...]: `@case` collects them, `main()` runs all or those named on the command line
and ends with the line that test.sh counts."""
import os
import sys
import tempfile
import time
import traceback

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


def main():
    only = sys.argv[2:]
    unknown = set(only) - {function.__name__ for function in CASES}
    assert not unknown, f'no such case: {", ".join(unknown)}'
    counts = {'ok': 0, 'FAILED': 0, 'left out': 0}
    for function in CASES:
        if only and function.__name__ not in only:
            continue
        begin, result, more = time.monotonic(), 'ok', ''
        try:
            function()
        except LeftOut as reason:
            result, more = 'left out', f': {reason}'
        except Exception as problem:  # noqa: BLE001 - whatever happens is a failed case
            result, more = 'FAILED', f': {problem!r}\n{traceback.format_exc()}'
        counts[result] += 1
        print(f'{result:8} {function.__name__} ({time.monotonic() - begin:.1f} s){more}', flush=True)
    left_out = f', {counts["left out"]} left out' if counts['left out'] else ''
    print(f'{counts["ok"]} passed, {counts["FAILED"]} failed{left_out}')
    sys.exit(1 if counts['FAILED'] else 0)
