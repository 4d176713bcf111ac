#!/usr/bin/env python3
"""tests/grammar_test.py PROGRAM: answers of a real model, held to a constraint: they match, validate, or say why not.
Last line `N passed, N failed`. The untrained model draws nearly at random, so whatever the constraint lets through comes."""
import json
import os
import re
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = []
FOLDER = tempfile.TemporaryDirectory(prefix='deepinfer-grammar-')


def case(function):
    CASES.append(function)
    return function


def written(name, text):
    path = os.path.join(FOLDER.name, name)
    with open(path, 'w') as file:
        file.write(text)
    return path


def run(*words, code=0, cut=False):
    done = subprocess.run([PROGRAM, 'run', *words], capture_output=True, timeout=300, cwd=ROOT)
    if cut and b'cut at the limit' in done.stderr:
        assert done.returncode == 1, done.returncode
        return done.stdout.decode().rstrip('\n')
    assert done.returncode == code, f'exit code {done.returncode}: {done.stderr.decode()[:500]}'
    return (done.stdout if code == 0 else done.stderr).decode().rstrip('\n')


@case
def a_regular_expression_is_matched_whole():
    for seed in range(3):
        answer = run('--regex', '[0-9]{4}-(0[1-9]|1[0-2])-[a-f]{3,5}', '--seed', str(seed), '--temperature', '2', 'When?')
        assert re.fullmatch('[0-9]{4}-(0[1-9]|1[0-2])-[a-f]{3,5}', answer), answer


@case
def a_schema_is_satisfied():
    schema = {'type': 'object', 'required': ['name', 'size', 'tags'], 'additionalProperties': False,
              'properties': {'name': {'type': 'string', 'maxLength': 12}, 'size': {'type': 'integer', 'minimum': 10, 'maximum': 99},
                             'tags': {'type': 'array', 'items': {'enum': ['red', 'green']}, 'minItems': 1, 'maxItems': 3}}}
    path = written('schema.json', json.dumps(schema))
    for seed in range(5):
        answer = json.loads(run('--json-schema', path, '--seed', str(seed), '--temperature', '1.5', 'Describe a box.'))
        assert sorted(answer) == ['name', 'size', 'tags'], answer
        assert len(answer['name']) <= 12 and 10 <= answer['size'] <= 99 and float(answer['size']).is_integer(), answer
        assert 1 <= len(answer['tags']) <= 3 and set(answer['tags']) <= {'red', 'green'}, answer


@case
def a_grammar_is_followed():
    path = written('sum.ebnf', 'root ::= term ("+" term){1,3}\nterm ::= [0-9] | "(" term "-" term ")"\n')
    for seed in range(3):
        answer = run('--grammar', path, '--seed', str(seed), '--temperature', '1.5', '--max-tokens', '400', 'Add.', cut=True)
        if answer.count('(') == answer.count(')'):
            eval(re.fullmatch('[-+()0-9]+', answer).group())


@case
def a_form_that_is_cut_is_said():
    path = written('long.json', '{"type": "string", "minLength": 40}')
    done = subprocess.run([PROGRAM, 'run', '--json-schema', path, '--max-tokens', '5', 'x'], capture_output=True, timeout=300, cwd=ROOT)
    assert done.returncode == 1 and done.stdout.startswith(b'"') and b'cut at the limit of 5 tokens' in done.stderr, done
    assert 'name of a file' in run('--json-schema', '', 'x', code=2)
    assert 'name of a file' in run('--grammar', '', 'x', code=2)
    assert 'empty' in run('--grammar', written('none.ebnf', ' \n'), 'x', code=2)


@case
def an_answer_of_many_counted_characters_ends():
    path = written('many.json', '{"type": "string", "minLength": 3000, "maxLength": 3010}')
    answer = json.loads(run('--json-schema', path, '--seed', '1', '--temperature', '2', '--context', '16384', 'Write.'))
    assert 3000 <= len(answer) <= 3010, len(answer)


@case
def what_looks_like_markup_arrives():
    assert run('--regex', '\n\n<b></think>\n</b>', 'x') == '\n\n<b></think>\n</b>'
    path = written('think.json', '{"const": "a</think>b"}')
    assert run('--json-schema', path, 'x') == '"a</think>b"'


@case
def the_constraint_begins_after_thinking():
    answer = run('--think', 'low', '--regex', 'yes|no', '--max-tokens', '2000', 'Is 12 + 30 above 40?', cut=True)
    assert answer.endswith(('yes', 'no')) or len(answer) > 1000, answer[-200:]


@case
def an_empty_expression_matches_the_empty_text():
    assert run('--regex', '', 'hi') == ''


@case
def what_cannot_be_enforced_is_refused_by_name():
    path = written('bad.json', '{"properties": {"a": {"pattern": "(x)\\\\1"}}}')
    error = run('--json-schema', path, 'x', code=1)
    assert "'pattern' at #/properties/a" in error, error
    error = run('--grammar', written('bad.ebnf', 'root ::= missing'), 'x', code=2)
    assert 'line 1' in error and 'missing' in error, error
    assert 'one of' in run('--regex', 'a', '--grammar', path, 'x', code=2)


def main():
    failed = 0
    for function in CASES:
        try:
            function()
            print(f'ok {function.__name__}')
        except Exception as error:  # every case reports
            failed += 1
            print(f'FAILED {function.__name__}: {error}')
    print(f'{len(CASES) - failed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
