#!/usr/bin/env python3
"""tests/tools_test.py PROGRAM [CASE...]: calls of tools that are promised to fit (strict, required, named, beside a format), on all
wires. An untrained model draws nearly at random, so whatever the constraint lets through comes; jsonschema judges it.
Last line `N passed, N failed`. Needs the packages of tools/serve_packages.txt."""
import concurrent.futures
import json
import os
import random
import re

import anthropic
import jsonschema
import openai
import pydantic

from cases import ROOT, case, main
from sdk_harness import anthropic_client, openai_client, raises
from serve_harness import Server

UNTRAINED = 'random:v41?layers=2&experts=8&engram_rows=0&hidden=128&expert_hidden=64&heads=8&q_rank=64&o_rank=64&top_k=2'  # the release's vocabulary
OFF = {'extra_body': {'thinking': {'type': 'disabled'}}}
ASK = [{'role': 'user', 'content': 'hi'}]


def random_value(chance, depth):
    kind = chance.randrange(8 if depth else 5)
    if kind == 0:
        return {'type': 'string', 'maxLength': chance.randrange(6)}
    if kind == 1:
        return {'type': 'integer', 'minimum': chance.randrange(20), 'maximum': 40}
    if kind == 2:
        return {'type': ['boolean', 'null']}
    if kind == 3:
        return {'enum': ['red', '<', 'two words', 7, None]}
    if kind == 4:
        return {'type': 'string', 'pattern': '^[a-f]{1,3}$'}
    if kind == 5:
        return {'type': 'array', 'items': random_value(chance, depth - 1), 'maxItems': 2}
    return random_object(chance, depth - 1)


def random_object(chance, depth):
    names = chance.sample(['city', 'with blank', 'ünder', 'q"', 'z'], chance.randrange(4))
    return {'type': 'object', 'properties': {name: random_value(chance, depth) for name in names},
            'required': [name for name in names if chance.randrange(2)], 'additionalProperties': False}


def schemas(chance):
    return {'f': random_object(chance, 2), 'g-2': random_object(chance, 1)}


def valid(found, wanted):
    assert found
    for name, arguments in found:
        jsonschema.validate(arguments, wanted[name])


def chat_calls(answer):
    return [(c.function.name, json.loads(c.function.arguments)) for c in answer.choices[0].message.tool_calls or []]


@case
def expressions_and_grammars_hold_over_http():
    with Server(model=UNTRAINED) as server:
        for wanted, answers in (({'type': 'regex', 'regex': '[ab]{3}c?'}, re.compile('[ab]{3}c?')),
                                ({'type': 'grammar', 'grammar': 'root ::= digit+ "!"\ndigit ::= [0-4]'}, re.compile('[0-4]+!'))):
            for seed in range(3):
                body = {'model': 'test', 'messages': ASK, 'response_format': wanted, 'seed': seed, 'max_tokens': 200, 'temperature': 1,
                        'chat_template_kwargs': {'enable_thinking': False}}
                answer = server.json('POST', '/v1/chat/completions', body)['choices'][0]
                assert answer['finish_reason'] == 'length' or answers.fullmatch(answer['message']['content']), answer
                one = [server.json('POST', '/v1/chat/completions', {**body, 'response_format': {'type': 'text'}, 'top_k': 1, 'seed': s,
                                                                    'max_tokens': 5})['choices'][0]['message']['content'] for s in (1, 2)]
                assert one[0] == one[1], one  # of one token there is no choice


@case
def chat_required_and_named_calls_fit_their_schemas():
    with Server('--context', '4096', model=UNTRAINED) as server:
        api, ended = openai_client(server), 0
        for seed in range(5):
            chance = random.Random(seed)
            wanted = schemas(chance)
            tools = [{'type': 'function', 'function': {'name': name, 'parameters': schema}} for name, schema in wanted.items()]
            choice = 'required' if seed % 3 else {'type': 'function', 'function': {'name': 'g-2'}}
            ask = dict(model='test', messages=ASK, tools=tools, tool_choice=choice, seed=seed, temperature=1.5, max_tokens=300, **OFF)
            answer = api.chat.completions.create(**ask)
            pieces = {}
            for chunk in api.chat.completions.create(**ask, stream=True):
                for call in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
                    piece = pieces.setdefault(call.index, ['', ''])
                    piece[0] += call.function.name or ''
                    piece[1] += call.function.arguments or ''
            if answer.choices[0].finish_reason == 'length':
                continue
            ended += 1
            assert answer.choices[0].finish_reason == 'tool_calls' and not answer.choices[0].message.content
            valid(chat_calls(answer), wanted)
            assert [(name, json.loads(text)) for name, text in pieces.values()] == chat_calls(answer)
            if isinstance(choice, dict):
                assert {name for name, _ in chat_calls(answer)} == {'g-2'}
        assert ended >= 3, ended


@case
def thinking_comes_first():
    with Server('--context', '8192', model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api, ended = openai_client(server), 0
        for seed in range(4):
            wanted = schemas(random.Random(seed))
            tools = [{'type': 'function', 'function': {'name': name, 'parameters': schema}} for name, schema in wanted.items()]
            answer = api.chat.completions.create(model='test', messages=ASK, tools=tools, tool_choice='required', seed=seed, max_tokens=2500)
            if answer.choices[0].finish_reason == 'length':
                continue
            ended += 1
            assert answer.choices[0].message.reasoning_content, answer
            valid(chat_calls(answer), wanted)
        assert ended, 'every answer was cut'


@case
def strict_tools_fit_when_they_are_called():
    schema = {'type': 'object', 'properties': {'kind': {'type': 'string', 'enum': ['add', 'take']}, 'count': {'type': 'integer'}},
              'required': ['kind', 'count'], 'additionalProperties': False}
    with Server('--context', '4096', model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api = openai_client(server)
        tools = [{'type': 'function', 'function': {'name': 'step', 'parameters': schema, 'strict': True}}]
        for seed in range(4):
            ask = dict(model='test', messages=[{'role': 'user', 'content': 'Take a step.'}], seed=seed, max_tokens=600)
            answer = api.chat.completions.create(**ask, tools=tools, temperature=1.5, **OFF)
            for name, arguments in chat_calls(answer) if answer.choices[0].finish_reason == 'tool_calls' else []:
                jsonschema.validate(arguments, schema)
            forced = api.chat.completions.create(**ask, tools=tools, tool_choice='required', temperature=1.5, **OFF)
            valid(chat_calls(forced), {'step': schema})
            response = api.responses.create(model='test', input='Take a step.', tool_choice='required', max_output_tokens=600, temperature=1.5,
                                            tools=[{'type': 'function', 'name': 'step', 'parameters': schema, 'strict': True}], reasoning={'effort': 'none'})
            found = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == 'function_call']
            valid(found, {'step': schema})
            assert not api.chat.completions.create(**ask, tools=tools, tool_choice='none', **OFF).choices[0].message.tool_calls
        bad = {**schema, 'properties': {**schema['properties'], 'kind': {'type': 'string', 'pattern': '(a)\\1'}}}
        error = raises(openai.BadRequestError, api.chat.completions.create, model='test', messages=ASK, **OFF,
                       tools=[{'type': 'function', 'function': {'name': 'step', 'parameters': bad, 'strict': True}}])
        assert "tool 'step': JSON Schema keyword 'pattern' at #/properties/kind" in str(error), error


@case
def nested_models_of_the_client_are_strict_tools():
    class Box(pydantic.BaseModel):
        size: int = pydantic.Field(ge=10, le=99)
        name: str = pydantic.Field(max_length=3)

    class Pack(pydantic.BaseModel):
        first: Box
        more: list[Box] = pydantic.Field(max_length=1)
        spare: Box | None

    tool = openai.pydantic_function_tool(Pack, name='pack')
    with Server('--context', '4096', model=UNTRAINED) as server:
        api, ended = openai_client(server), 0
        for seed in range(6):
            chat = api.chat.completions.create(model='test', messages=ASK, seed=seed, temperature=1.5, max_tokens=300, tools=[tool], tool_choice='required',
                                               parallel_tool_calls=False, **OFF)
            found = [(c.function.name, c.function.arguments) for c in chat.choices[0].message.tool_calls or []] if chat.choices[0].finish_reason == 'tool_calls' else []
            response = api.responses.create(model='test', input='hi', temperature=1.5, max_output_tokens=300, reasoning={'effort': 'none'}, parallel_tool_calls=False,
                                            tools=[{'type': 'function', **tool['function']}], tool_choice='required')
            assert response.parallel_tool_calls is False
            calls = [(item.name, item.arguments) for item in response.output if item.type == 'function_call'] if response.status == 'completed' else []
            for one in (found, calls):
                assert len(one) <= 1, one
                for name, arguments in one:
                    ended += 1
                    assert name == 'pack' and Pack.model_validate_json(arguments)
        assert ended, 'every call was cut'


@case
def only_allowed_tools_are_called_and_no_more_than_allowed():
    tools = [{'type': 'function', 'function': {'name': name, 'parameters': {'type': 'object', 'properties': {}, 'additionalProperties': False}}} for name in ('f', 'g', 'h')]
    allowed = {'type': 'allowed_tools', 'allowed_tools': {'mode': 'required', 'tools': [{'type': 'function', 'function': {'name': name}} for name in ('g', 'h')]}}
    with Server('--context', '4096', model=UNTRAINED) as server:
        api, names = openai_client(server), set()
        for seed in range(6):
            answer = api.chat.completions.create(model='test', messages=ASK, seed=seed, temperature=1.5, max_tokens=200, tools=tools, tool_choice=allowed, **OFF)
            names |= {name for name, _ in chat_calls(answer)}
            response = api.responses.create(model='test', input='hi', temperature=1.5, max_output_tokens=400, reasoning={'effort': 'none'}, max_tool_calls=2,
                                            tools=[{'type': 'function', **tool['function']} for tool in tools], tool_choice='required')
            calls = len([item for item in response.output if item.type == 'function_call'])
            assert calls <= 2 and (calls >= 1 or response.status == 'incomplete') and response.max_tool_calls == 2, response
        assert names and names <= {'g', 'h'}, names


@case
def a_format_beside_tools_holds_for_answers_and_calls():
    schema = {'type': 'object', 'properties': {'ok': {'type': 'boolean'}}, 'required': ['ok'], 'additionalProperties': False}
    tool = {'type': 'object', 'properties': {'n': {'type': 'integer', 'minimum': 10, 'maximum': 99}}, 'required': ['n'], 'additionalProperties': False}
    with Server('--context', '4096', model=UNTRAINED) as server:
        api = openai_client(server)
        for seed in range(6):
            strict = seed % 2 == 1
            function = {'name': 'f', 'parameters': tool, 'strict': strict}
            response = api.responses.create(
                model='test', input='hi', temperature=1.5, max_output_tokens=200, reasoning={'effort': 'none'}, tools=[{'type': 'function', **function}],
                text={'format': {'type': 'json_schema', 'name': 'x', 'schema': schema, 'strict': strict}})
            if response.status == 'completed':
                found = [(item.name, json.loads(item.arguments)) for item in response.output if item.type == 'function_call']
                valid(found, {'f': tool}) if found else jsonschema.validate(json.loads(response.output_text), schema)
            answer = api.chat.completions.create(
                model='test', messages=ASK, seed=seed, temperature=1.5, max_tokens=200, tools=[{'type': 'function', 'function': function}],
                response_format={'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': schema, 'strict': strict}}, **OFF)
            if answer.choices[0].finish_reason == 'tool_calls':
                valid(chat_calls(answer), {'f': tool})
            elif answer.choices[0].finish_reason == 'stop':
                jsonschema.validate(json.loads(answer.choices[0].message.content), schema)


@case
def a_grammar_beside_tools_holds_for_answers_and_calls():
    tool = {'type': 'object', 'properties': {'n': {'type': 'integer', 'minimum': 10, 'maximum': 99}}, 'required': ['n'], 'additionalProperties': False}
    wanted = {'type': 'grammar', 'grammar': 'root ::= "sum: " sum\nsum ::= [0-9] | "(" sum "+" sum ")"'}
    with Server('--context', '4096', model=UNTRAINED) as server:
        ends = set()
        for seed in range(8):
            answer = server.json('POST', '/v1/chat/completions', {
                'model': 'test', 'messages': ASK, 'seed': seed, 'temperature': 1.5, 'max_tokens': 200, 'response_format': wanted,
                'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': tool}}], 'chat_template_kwargs': {'enable_thinking': False}})['choices'][0]
            ends.add(answer['finish_reason'])
            if answer['finish_reason'] == 'tool_calls':
                valid([(c['function']['name'], json.loads(c['function']['arguments'])) for c in answer['message']['tool_calls']], {'f': tool})
            elif answer['finish_reason'] == 'stop':
                assert re.fullmatch(r'sum: [0-9()+]+', answer['message']['content']), answer
        assert ends - {'length'}, ends


@case
def a_prefix_and_its_answer_fit_together():
    schema = {'type': 'object', 'properties': {'size': {'type': 'integer', 'minimum': 0}}, 'required': ['size'], 'additionalProperties': False}
    formats = {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': schema}}
    with Server('--context', '4096', model=UNTRAINED) as server:
        api, ended = openai_client(server), 0
        for seed in range(4):
            for body in ({'thinking': {'type': 'disabled'}}, {'thinking': {'type': 'enabled'}}):
                ask = dict(model='test', response_format=formats, seed=seed, temperature=1.5, max_tokens=200, extra_body=body)
                start = '{"size": 3' if seed % 2 else '{"si'
                answer = api.chat.completions.create(**ask, messages=[*ASK, {'role': 'assistant', 'content': start, 'prefix': True}]).choices[0]
                if answer.finish_reason == 'stop':
                    ended += 1
                    jsonschema.validate(json.loads(start + (answer.message.content or '')), schema)
                error = raises(openai.BadRequestError, api.chat.completions.create, **ask, messages=[*ASK, {'role': 'assistant', 'content': 'Sure: {', 'prefix': True}])
                assert 'prefix message' in str(error)
        assert ended, 'every call was cut'


@case
def an_answer_does_not_end_while_it_thinks():
    schema = {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a'], 'additionalProperties': False}
    formats = {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': schema}}
    with Server('--context', '4096', model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api, ended = openai_client(server), 0
        for seed in range(8):
            answer = api.chat.completions.create(model='test', response_format=formats, seed=seed, temperature=1.3, max_tokens=500,
                                                 messages=[{'role': 'user', 'content': 'json please. What is the weather in Paris?'}]).choices[0]
            if answer.finish_reason == 'stop':
                ended += 1
                jsonschema.validate(json.loads(answer.message.content), schema)
        assert ended > 0


@case
def speculation_and_company_change_no_byte():
    tools = [{'type': 'function', 'function': {'name': name, 'parameters': schema}} for name, schema in schemas(random.Random(3)).items()]
    found = []
    for flags in (('--spec', 'off'), ('--spec', 'on')):
        with Server('--context', '4096', *flags, model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
            api = openai_client(server)

            def answer(seed):
                made = api.chat.completions.create(model='test', messages=ASK, tools=tools, tool_choice='required', seed=seed, temperature=1.0, max_tokens=300, **OFF)
                return [(c.function.name, c.function.arguments) for c in made.choices[0].message.tool_calls]

            found.append([answer(seed) for seed in range(4)])
            with concurrent.futures.ThreadPoolExecutor(4) as together:
                found.append(list(together.map(answer, range(4))))
    assert all(answers == found[0] for answers in found), found


@case
def messages_any_named_strict_and_format():
    schema = {'type': 'object', 'properties': {'kind': {'enum': ['add', 'take']}, 'note': {'type': 'string', 'maxLength': 4}},
              'required': ['kind'], 'additionalProperties': False}
    with Server('--context', '4096', model=UNTRAINED) as server:
        api, ended = anthropic_client(server), 0
        tools = [{'name': name, 'input_schema': schema, 'strict': True} for name in ('step', 'hop')]
        ask = dict(model='test', max_tokens=200, messages=ASK, thinking={'type': 'disabled'})
        for _ in range(4):
            for choice in ({'type': 'any'}, {'type': 'tool', 'name': 'hop'}):
                answer = api.messages.create(**ask, tools=tools, tool_choice=choice)
                if answer.stop_reason == 'max_tokens':
                    continue
                ended += 1
                assert answer.stop_reason == 'tool_use'
                valid([(b.name, b.input) for b in answer.content], {'step': schema, 'hop': schema})
                assert choice['type'] == 'any' or {b.name for b in answer.content} == {'hop'}
            formed = api.messages.create(**ask, output_config={'format': {'type': 'json_schema', 'schema': schema}})
            if formed.stop_reason == 'end_turn':
                jsonschema.validate(json.loads(formed.content[0].text), schema)
        begun = {**ask, 'messages': [*ASK, {'role': 'assistant', 'content': '{"kind"'}]}
        error = raises(anthropic.BadRequestError, api.messages.create, **begun, output_config={'format': {'type': 'json_schema', 'schema': schema}})
        assert 'prefill' in str(error), error
        assert ended > 0, ended


main()
