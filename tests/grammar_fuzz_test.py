#!/usr/bin/env python3
"""tests/grammar_fuzz_test.py PROGRAM [CASE...]: regular expressions and JSON Schemas made at random, judged by others: Python's `re`
and jsonschema. GRAMMAR_CASES (300) says how many of each, of answers a tenth, GRAMMAR_SEED (1) which. Last line `N passed, N failed`. Needs the packages
of tools/serve_packages.txt."""
import json
import os
import random
import re
import subprocess
import tempfile

import jsonschema

from cases import PROGRAM, case, main

COUNT, SEED = int(os.environ.get('GRAMMAR_CASES', '300')), int(os.environ.get('GRAMMAR_SEED', '1'))
UNTRAINED = 'random:v41?layers=2&experts=8&engram_rows=0&hidden=128&expert_hidden=64&heads=8&q_rank=64&o_rank=64&top_k=2'
FOLDER = tempfile.TemporaryDirectory(prefix='deepinfer-fuzz-')
NAMES = ['a', 'ab', 'b', 'key', 'ü', 'x y', '"']


def path(name):
    return os.path.join(FOLDER.name, name)


def judge(rows, least):
    """Walks every instance through the masks of its schema; at least so many schemas must compile."""
    with open(path('rows.jsonl'), 'w') as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + '\n' for row in rows)
    done = subprocess.run([PROGRAM, 'bench', 'grammar', '--data', path('rows.jsonl'), '--list', '--json'], capture_output=True, check=True)
    figures = {row['name'].removeprefix('grammar/'): row['value'] for row in json.loads(done.stdout)['rows']}
    lines = done.stderr.decode().splitlines()
    wrong = [line for line in lines if not line.startswith(('refused', 'slow mask'))]
    assert not wrong, f'seed {SEED}: ' + '\n'.join(wrong[:20])
    # What nothing satisfies is rightly refused; it must not have a valid instance.
    empty = [line for line in lines if line.endswith('no value satisfies the schema')]
    satisfied = tuple(f"refused: {row['name']}: " for row in rows if any(test['valid'] for test in row['tests']))
    blocked = [line for line in empty if line.startswith(satisfied)]
    assert not blocked, f'seed {SEED}: ' + '\n'.join(blocked[:20])
    assert figures['valid blocked'] == figures['invalid accepted'] == 0, figures
    assert figures['schemas'] - figures['refused'] + len(empty) >= least * len(rows), figures
    assert figures['valid'] > len(rows) / 2 and figures['invalid'] > len(rows) / 2, figures


def expression(chance, depth):
    kind = chance.randrange(12 if depth else 5)
    if kind < 2:
        return chance.choice(['a', 'b', 'c', '0', '-', '\\.', 'é', '\\"'])
    if kind < 5:
        return chance.choice(['[ab]', '[^a]', '.', '\\d', '\\w', '[a-c0-5]', '\\s', '[^\\w]'])
    if kind < 7:
        return expression(chance, depth - 1) + expression(chance, depth - 1)
    if kind < 9:
        return f'({expression(chance, depth - 1)}|{expression(chance, depth - 1)})'
    if kind == 9:
        return f'(?:{expression(chance, depth - 1)}){chance.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])}'
    if kind == 10:
        return f'(?{chance.choice("=!")}{expression(chance, depth - 1)})' + expression(chance, depth - 1)
    return chance.choice(['^', '']) + expression(chance, depth - 1) + chance.choice(['$', ''])


@case
def expressions_find_what_python_finds():
    chance, rows = random.Random(SEED), []
    for _ in range(COUNT):
        pattern = chance.choice(['', '^']) + expression(chance, 3) + chance.choice(['', '$'])
        texts = {''.join(chance.choices('abc0-. é"', k=chance.randrange(6))) for _ in range(12)}
        found = re.compile(pattern, re.ASCII)
        # Word characters are ASCII to both; white space of ECMA-262 beyond ASCII is in no text here.
        rows.append({'name': pattern, 'schema': {'type': 'string', 'pattern': pattern},
                     'tests': [{'valid': found.search(text) is not None, 'data': text} for text in sorted(texts)]})
    judge(rows, 0.9)


def scalar(chance):
    return chance.choice([None, True, False, 0, 1, -2, 7, 2.5, 1.0, 30, '', 'a', 'ab', 'é"', 'b\t', '2024-02-29'])


def value(chance, depth):
    kind = chance.randrange(4 if depth else 2)
    if kind == 2:
        return [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 3:
        return {name: value(chance, depth - 1) for name in chance.sample(NAMES, chance.randrange(4))}
    return scalar(chance)


def schema(chance, depth):
    """Any schema; most words of JSON Schema, alone and together."""
    if chance.randrange(12) == 0:
        return chance.choice([True, {}, {'$ref': '#/$defs/one'}, {'$ref': '#'} if depth < 2 else {}])
    out = {}
    inner = lambda: schema(chance, depth - 1)  # noqa: E731
    few = lambda: [inner() for _ in range(chance.randrange(1, 4))]  # noqa: E731
    words = ['type', 'enum', 'const', 'minimum', 'exclusiveMaximum', 'multipleOf', 'minLength', 'maxLength', 'pattern', 'maxItems', 'minItems',
             'maxProperties', 'required', 'dependentRequired', 'minProperties']
    nested = ['properties', 'patternProperties', 'additionalProperties', 'propertyNames', 'dependentSchemas', 'items', 'prefixItems', 'contains', 'allOf',
              'anyOf', 'oneOf', 'not', 'if', 'unevaluatedProperties']
    for word in chance.sample(words + (2 * nested if depth else []), chance.randrange(1, 4)):
        if word == 'type':
            out[word] = chance.sample(['null', 'boolean', 'integer', 'number', 'string', 'array', 'object'], chance.randrange(1, 4))
        elif word in ('enum', 'const'):
            out[word] = value(chance, 1) if word == 'const' else [value(chance, 1) for _ in range(3)]
        elif word == 'multipleOf':
            out[word] = chance.choice([2, 3, 0.5, 2.5])
        elif word == 'pattern':
            out[word] = chance.choice(['^a', 'b$', '^[a-c]*$', '^.{2}$'])
        elif word == 'required':
            out[word] = chance.sample(NAMES, chance.randrange(3))
        elif word == 'dependentRequired':
            out[word] = {chance.choice(NAMES): chance.sample(NAMES, 1)}
        elif word in ('properties', 'dependentSchemas'):
            out[word] = {name: inner() for name in chance.sample(NAMES, chance.randrange(1, 4))}
        elif word == 'patternProperties':
            out[word] = {chance.choice(['^a', 'b', '^.$']): inner()}
        elif word in ('prefixItems', 'allOf', 'anyOf', 'oneOf'):
            out[word] = few()
        elif word == 'if':
            out.update({'if': inner(), 'then': inner(), 'else': inner()})
        elif word in ('additionalProperties', 'items', 'contains', 'not', 'propertyNames', 'unevaluatedProperties'):
            out[word] = chance.choice([False, True]) if chance.randrange(4) == 0 else inner()
        else:
            out[word] = chance.randrange(4)
    return out


@case
def schemas_mean_what_jsonschema_says():
    chance, rows = random.Random(SEED), []
    while len(rows) < COUNT:
        wanted = schema(chance, 2)
        if not isinstance(wanted, dict):
            continue
        wanted = {'$schema': 'https://json-schema.org/draft/2020-12/schema', '$defs': {'one': schema(chance, 1)}, **wanted}
        validator, tests = jsonschema.Draft202012Validator(wanted), []
        try:
            for _ in range(20):
                data = value(chance, 2)
                tests.append({'valid': validator.is_valid(data), 'data': data})
        except BaseException as problem:  # a $ref that leads to itself; where the stack ends inside a library of Rust it panics
            if 'Recursion' not in repr(problem):
                raise
            continue
        rows.append({'name': json.dumps(wanted), 'schema': wanted, 'tests': tests})
    judge(rows, 0.5)


def bounded(chance, depth):
    """A schema of which every value is short, so that an answer at random ends."""
    kind = chance.randrange(9 if depth else 5)
    if kind == 0:
        return {'type': 'string', 'maxLength': chance.randrange(6)}
    if kind == 1:
        return {'type': 'integer', 'minimum': chance.randrange(-20, 20), 'maximum': 40, 'multipleOf': chance.choice([1, 2, 3])}
    if kind == 2:
        return {'type': ['boolean', 'null']}
    if kind == 3:
        return {'enum': [value(chance, 1) for _ in range(3)]}
    if kind == 4:
        return {'type': 'string', 'pattern': '^(ab|[0-9]{2}|é"){1,2}$', 'minLength': chance.randrange(3)}
    if kind == 5:
        return {'type': 'array', 'items': bounded(chance, depth - 1), 'minItems': chance.randrange(2), 'maxItems': 2}
    if kind == 6:
        return {chance.choice(['anyOf', 'oneOf']): [bounded(chance, depth - 1), bounded(chance, depth - 1)]}
    if kind == 7:
        return {'if': {'type': 'string'}, 'then': {'maxLength': 1}, **bounded(chance, 0)}
    names = chance.sample(NAMES, chance.randrange(4))
    return {'type': 'object', 'properties': {name: bounded(chance, depth - 1) for name in names}, 'additionalProperties': False,
            'required': [name for name in names if chance.randrange(2)], 'maxProperties': 3}


@case
def answers_of_an_untrained_model_are_valid():
    chance, wanted = random.Random(SEED), []
    while len(wanted) < max(COUNT // 10, 10):
        wanted.append(bounded(chance, 2))
    with open(path('in.jsonl'), 'w') as file:
        for i, one in enumerate(wanted):
            body = {'model': 'any', 'messages': [{'role': 'user', 'content': 'json'}], 'seed': SEED * COUNT + i, 'temperature': 1.5, 'max_tokens': 120,
                    'thinking': {'type': 'disabled'}, 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': one}}}
            file.write(json.dumps({'custom_id': str(i), 'method': 'POST', 'url': '/v1/chat/completions', 'body': body}) + '\n')
    subprocess.run([PROGRAM, 'batch', path('in.jsonl'), '-o', path('out.jsonl'), '-m', UNTRAINED, '--context', '1024'], capture_output=True, check=True)
    ended = refused = 0
    for line in open(path('out.jsonl')):
        answer = json.loads(line)
        one, body = wanted[int(answer['custom_id'])], answer['response']['body']
        if answer['response']['status_code'] == 400:
            refused += 1
            assert '#' in body['error']['message'], body
            continue
        choice = body['choices'][0]
        assert choice['finish_reason'] in ('stop', 'length'), choice
        if choice['finish_reason'] == 'stop':
            ended += 1
            jsonschema.Draft202012Validator(one).validate(json.loads(choice['message']['content']))
    assert refused < len(wanted) / 4 and ended > len(wanted) / 2, (refused, ended)


main()
