#!/usr/bin/env python3
"""tests/agents_test.py PROGRAM [CASE...]: coding agents at work. A scripted model says what a model would; the loops send what
Claude Code and Codex send (headers, blocks, items, fields that mean nothing here) and really run the tools they are asked for.
Last line `N passed, N failed`. The standard library only: these agents are not Python."""
import http.client
import json
import os
import subprocess
import sys

from cases import case, main
from serve_harness import FOLDER, Server, script
from tool_text import calls

PROGRAM_TEXT = 'def total(items):\n    return 417\n\n\nassert total([1, 2]) == 3\nprint("all", 640 - 1, "checks passed")\n'


def workplace(name):
    folder = os.path.join(FOLDER.name, name)
    os.mkdir(folder)
    with open(os.path.join(folder, 'total.py'), 'w') as file:
        file.write(PROGRAM_TEXT)
    return folder


def read(folder):
    with open(os.path.join(folder, 'total.py')) as file:
        return file.read()


def shell(folder, *words):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


def server_sent(server, target, body, headers):
    """The events of a stream, (name, data) each, as an agent's strict parser takes them."""
    connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=30)
    connection.request('POST', target, json.dumps(body), {'content-type': 'application/json', 'accept': 'text/event-stream', **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200 and answer.getheader('content-type').startswith('text/event-stream'), text
    found = []
    for block in text.split('\n\n')[:-1]:
        if block.startswith(':'):
            continue
        name, data = block.split('\n')
        assert name.startswith('event: ') and data.startswith('data: '), block
        data = json.loads(data[6:])
        assert data['type'] == name[7:], block
        found.append((name[7:], data))
    return found


# ---- Claude Code --------------------------------------------------------------------------------------------------

CLAUDE_HEADERS = {'x-api-key': 'sk-anything', 'anthropic-version': '2023-06-01', 'x-app': 'cli', 'user-agent': 'claude-cli/2.1.0 (external, cli)',
                  'anthropic-beta': 'claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14,context-management-2025-06-27',
                  'anthropic-dangerous-direct-browser-access': 'true', 'x-stainless-lang': 'js', 'x-stainless-retry-count': '0'}
CACHED = {'cache_control': {'type': 'ephemeral', 'ttl': '1h'}}


def claude_tool(name, **properties):
    return {'name': name, 'description': f'The tool {name}.', 'input_schema': {
        '$schema': 'http://json-schema.org/draft-07/schema#', 'type': 'object', 'additionalProperties': False, 'required': list(properties),
        'properties': {key: {'type': kind, 'description': key} for key, kind in properties.items()}}}


CLAUDE_TOOLS = [claude_tool('Read', file_path='string'), claude_tool('Edit', file_path='string', old_string='string', new_string='string', replace_all='boolean'),
                {**claude_tool('Bash', command='string', timeout='number'), **CACHED},
                {'type': 'web_search_20250305', 'name': 'web_search', 'max_uses': 8}]


def claude_body(messages, **more):
    return {'model': 'claude-opus-4-6', 'max_tokens': 32000, 'stream': True, 'messages': messages,
            'system': [{'type': 'text', 'text': 'You are a coding agent.', **CACHED}, {'type': 'text', 'text': 'Be careful.', **CACHED}],
            'tools': CLAUDE_TOOLS, 'thinking': {'type': 'enabled', 'budget_tokens': 31999}, 'metadata': {'user_id': 'user_1_account__session_2'},
            'context_management': {'edits': [{'type': 'clear_thinking_20251015', 'keep': 'all'}]}, **more}


def claude_message(events):
    """The message of a stream, put together as the TypeScript client does."""
    kinds = [name for name, _ in events]
    assert kinds[0] == 'message_start' and kinds[-2:] == ['message_delta', 'message_stop'], kinds
    message, partial = events[0][1]['message'], {}
    for _, data in events[1:]:
        if data['type'] == 'content_block_start':
            assert data['index'] == len(message['content'])
            message['content'].append(data['content_block'])
        elif data['type'] == 'content_block_delta':
            block, delta = message['content'][data['index']], data['delta']
            if delta['type'] == 'input_json_delta':
                partial[data['index']] = partial.get(data['index'], '') + delta['partial_json']
            else:
                field = delta['type'].removesuffix('_delta')
                block[field] += delta[field]
        elif data['type'] == 'content_block_stop' and data['index'] in partial:
            message['content'][data['index']]['input'] = json.loads(partial[data['index']])
        elif data['type'] == 'message_delta':
            message.update(data['delta'], usage=data['usage'])
    return message


def claude_result(folder, call):
    name, asked = call['name'], call['input']
    if name == 'Read':
        return read(folder), False
    if name == 'Edit':
        text = read(folder)
        if asked['old_string'] not in text:
            return 'String to replace not found in file: 528', True
        with open(asked['file_path'], 'w') as file:
            file.write(text.replace(asked['old_string'], asked['new_string'], -1 if asked['replace_all'] else 1))
        return 'The file has been updated: 851', False
    code, text = shell(folder, 'sh', '-c', asked['command'])
    return text, code != 0


@case
def claude_code_repairs_a_program():
    folder = workplace('claude')
    file = os.path.join(folder, 'total.py')
    edit = {'file_path': file, 'old_string': 'return 417', 'new_string': 'return sum(items)', 'replace_all': False}
    model = script('claude.jsonl',
                   {'match': '639 checks', 'text': 'It works.</think>Repaired: `total` adds its items.'},
                   {'match': '851', 'text': 'Now the checks.</think>' + calls(('Bash', {'command': f'{sys.executable} total.py', 'timeout': 5000}))},
                   {'match': '528', 'text': 'Wrong string.</think>' + calls(('Edit', edit))},
                   {'match': '417', 'text': 'A constant.</think>I repair it.' + calls(('Edit', {**edit, 'old_string': 'return 714'}))},
                   {'match': '907', 'text': '{"isNewTopic": true, "title": "Repair"}'},
                   {'match': 'Plan updated', 'text': 'The file.</think>' + calls(('shell', {'command': ['cat', 'total.py']}))},
                  # Codex sends parallel_tool_calls false: of the two calls, one is made.
                  {'text': 'Look first.</think>I look at the file.' + calls(('Read', {'file_path': file}), ('Bash', {'command': 'ls', 'timeout': 1}))})
    with Server(model=model) as server:
        # Side requests: a title by the small model, without thinking; the size of the first prompt.
        title = claude_message(server_sent(server, '/v1/messages?beta=true', claude_body(
            [{'role': 'user', 'content': 'A title for chat 907?'}], model='claude-haiku-4-5', max_tokens=512, tools=[], thinking={'type': 'disabled'}, temperature=0), CLAUDE_HEADERS))
        assert json.loads(title['content'][0]['text'])['title'] == 'Repair' and title['stop_reason'] == 'end_turn'
        reminder = {'type': 'text', 'text': '<system-reminder>\nToday is a day.\n</system-reminder>'}
        messages = [{'role': 'user', 'content': [reminder, {'type': 'text', 'text': 'Repair total.py.', **CACHED}]}]
        count = server.json('POST', '/v1/messages/count_tokens?beta=true', {k: v for k, v in claude_body(messages).items() if k not in ('stream', 'max_tokens')}, CLAUDE_HEADERS)
        rounds, reused, tools = [], [], []
        while True:
            answer = claude_message(server_sent(server, '/v1/messages?beta=true', claude_body(messages), CLAUDE_HEADERS))
            usage = answer['usage']
            rounds.append(usage['input_tokens'] + usage['cache_read_input_tokens'])
            reused.append(usage['cache_read_input_tokens'])
            assert answer['content'][0]['type'] == 'thinking' and answer['content'][0]['signature'] and answer['model'] == 'claude-opus-4-6'
            messages.append({'role': 'assistant', 'content': answer['content']})
            if answer['stop_reason'] != 'tool_use':
                break
            results = []
            for call in (block for block in answer['content'] if block['type'] == 'tool_use'):
                text, failed = claude_result(folder, call)
                tools.append((call['name'], failed))
                results.append({'type': 'tool_result', 'tool_use_id': call['id'], 'content': text, **({'is_error': True} if failed else {})})
            results[-1].update(CACHED)
            messages.append({'role': 'user', 'content': [*results, reminder]})
            assert len(rounds) < 9, tools
        assert answer['content'][-1]['text'] == 'Repaired: `total` adds its items.' and answer['stop_reason'] == 'end_turn'
        assert tools == [('Read', False), ('Bash', False), ('Edit', True), ('Edit', False), ('Bash', False)], tools
        assert shell(folder, sys.executable, 'total.py')[0] == 0
        assert rounds[0] == count['input_tokens'] and rounds == sorted(set(rounds)), (rounds, count)
        assert reused[0] == 0 or reused[0] < rounds[0]
        assert all(reused[i] > rounds[i - 1] - 200 for i in range(1, len(rounds))), (rounds, reused)  # turns are not computed again
        server.settles()


# ---- Codex --------------------------------------------------------------------------------------------------------

CODEX_HEADERS = {'authorization': 'Bearer sk-anything', 'originator': 'codex_cli_rs', 'user-agent': 'codex_cli_rs/0.90.0', 'version': '0.90.0',
                 'session_id': '0199-a', 'conversation_id': '0199-a', 'openai-beta': 'responses=experimental'}
CODEX_TOOLS = [
    {'type': 'function', 'name': 'shell', 'description': 'Runs a command.', 'strict': False, 'parameters': {
        'type': 'object', 'additionalProperties': False, 'required': ['command'],
        'properties': {'command': {'type': 'array', 'items': {'type': 'string'}}, 'workdir': {'type': 'string'}, 'timeout_ms': {'type': 'number'}}}},
    {'type': 'function', 'name': 'update_plan', 'description': 'Says the plan.', 'strict': False, 'parameters': {
        'type': 'object', 'additionalProperties': False, 'required': ['plan'], 'properties': {'plan': {'type': 'array', 'items': {
            'type': 'object', 'additionalProperties': False, 'required': ['step', 'status'], 'properties': {'step': {'type': 'string'}, 'status': {'type': 'string'}}}}}}},
    {'type': 'custom', 'name': 'apply_patch', 'description': 'Edits files.', 'format': {'type': 'grammar', 'syntax': 'lark', 'definition': 'start: "x"'}},
    {'type': 'web_search', 'external_web_access': False}, {'type': 'local_shell'}, {'type': 'image_generation', 'output_format': 'png'}]
PATCH = '*** Begin Patch\n*** Update File: total.py\n@@ def total(items):\n-    return 417\n+    return sum(items)\n*** End Patch'


def codex_body(items, **more):
    return {'model': 'test', 'instructions': 'You are a coding agent.', 'input': items, 'tools': CODEX_TOOLS, 'tool_choice': 'auto', 'parallel_tool_calls': False,
            'reasoning': {'effort': 'medium', 'summary': 'auto'}, 'store': False, 'stream': True, 'include': ['reasoning.encrypted_content'],
            'prompt_cache_key': '0199-a', 'text': {'verbosity': 'low'}, 'client_metadata': {'x': 'y'}, **more}


def codex_turn(events):
    """(items, completed response) as Codex reads a stream."""
    assert [data['sequence_number'] for _, data in events] == list(range(len(events)))
    assert events[0][0] == 'response.created' and events[-1][0] == 'response.completed', events[-1]
    items = [data['item'] for name, data in events if name == 'response.output_item.done']
    usage = events[-1][1]['response']['usage']
    assert usage['total_tokens'] == usage['input_tokens'] + usage['output_tokens'] and 'reasoning_tokens' in usage['output_tokens_details']
    assert items == events[-1][1]['response']['output']
    for item in items:
        streamed = ''.join(data['delta'] for name, data in events if name.endswith('.delta') and data['item_id'] == item['id'])
        whole = item.get('arguments') or item.get('input') or ''.join(part['text'] for part in item.get('content', []))
        assert streamed == whole, (streamed, item)
    return items, events[-1][1]['response']


def codex_output(folder, item):
    if item['type'] == 'custom_tool_call':
        assert item['name'] == 'apply_patch' and item['input'] == PATCH, item
        with open(os.path.join(folder, 'total.py'), 'w') as file:
            file.write(PROGRAM_TEXT.replace('return 417', 'return sum(items)'))
        return {'type': 'custom_tool_call_output', 'call_id': item['call_id'], 'output': 'Success. Updated the files: 851'}
    asked = json.loads(item['arguments'])
    if item['name'] == 'update_plan':
        return {'type': 'function_call_output', 'call_id': item['call_id'], 'output': 'Plan updated'}
    code, text = shell(folder, *asked['command'])
    return {'type': 'function_call_output', 'call_id': item['call_id'], 'output': json.dumps({'output': text, 'metadata': {'exit_code': code, 'duration_seconds': 0.1}})}


def codex_model():
    plan = [{'step': 'Repair', 'status': 'in_progress'}]
    return script('codex.jsonl',
                  {'match': '639 checks', 'text': 'It works.</think>Repaired.'},
                  {'match': '851', 'text': 'Now the checks.</think>' + calls(('shell', {'command': [sys.executable, 'total.py'], 'timeout_ms': 5000}))},
                  {'match': '417', 'text': 'A constant.</think>I repair it.' + calls(('apply_patch', {'input': PATCH}))},
                  {'match': 'Plan updated', 'text': 'The file.</think>' + calls(('shell', {'command': ['cat', 'total.py']}))},
                  # Codex sends parallel_tool_calls false: of the two calls, one is made.
                  {'text': 'Look first.</think>I look at the file.' + calls(('update_plan', {'plan': plan}), ('shell', {'command': ['cat', 'total.py']}))})


def codex_loop(folder, server, by_id):
    """Codex sends the whole history each time; other clients of this wire continue from the last response."""
    def say(role, text):
        return {'type': 'message', 'role': role, 'content': [{'type': 'input_text', 'text': text}]}
    items = [say('developer', '<permissions instructions>Everything.</permissions instructions>'), say('user', '<environment_context>\n  <cwd>/w</cwd>\n</environment_context>'),
             say('user', 'Repair total.py.')]
    history, previous, kinds, sizes = [], None, [], []
    while True:
        body = codex_body(items, store=True, previous_response_id=previous) if by_id else codex_body(history + items)
        made, response = codex_turn(server_sent(server, '/v1/responses', body, CODEX_HEADERS))
        sizes.append(response['usage']['input_tokens'])
        kinds += [item.get('name') or item['type'] for item in made]
        # Reasoning goes back encrypted, without its text, and items without their ids.
        echo = [{k: v for k, v in item.items() if k not in ('id', 'status') and not (item['type'] == 'reasoning' and k == 'content')} for item in made]
        history, previous = history + items + echo, response['id']
        items = [codex_output(folder, item) for item in made if item['type'].endswith('_call')]
        if not items:
            return made[-1]['content'][0]['text'], kinds, sizes
        assert len(sizes) < 9, kinds


@case
def codex_repairs_a_program():
    for by_id in (False, True):
        folder = workplace(f'codex-{by_id}')
        with Server(model=codex_model()) as server:
            text, kinds, sizes = codex_loop(folder, server, by_id)
            assert text == 'Repaired.' and shell(folder, sys.executable, 'total.py')[0] == 0
            assert kinds == ['reasoning', 'message', 'update_plan', 'reasoning', 'shell', 'reasoning', 'message', 'apply_patch',
                             'reasoning', 'shell', 'reasoning', 'message'], kinds
            assert sizes == sorted(set(sizes)), sizes
            server.settles()


main()
