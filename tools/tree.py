"""What the checks share: the tracked files of the repository and C++ text without comments."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def tracked(*suffixes):
    """Paths relative to the root; files not yet added count, ignored ones do not. Works on an unpacked archive, too."""
    try:
        listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '-z'], cwd=ROOT, check=True, capture_output=True)
        paths = listed.stdout.decode().split('\0')
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in ('build', '.git', '.cache', 'install', '__pycache__')]
            paths += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return sorted(p for p in paths if p.endswith(suffixes or '') and os.path.isfile(os.path.join(ROOT, p)))


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8', errors='replace') as file:
        return file.read()


_TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)


def code_only(text):
    """Comments and literals blanked, line numbers kept."""
    return _TOKENS.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()), text)


def report(name, problems, good):
    for problem in problems:
        print(problem)
    print(f'{name}: {len(problems)} problem(s)' if problems else f'{name}: {good}')
    raise SystemExit(1 if problems else 0)
