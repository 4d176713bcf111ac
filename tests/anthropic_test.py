#!/usr/bin/env python3
"""tests/anthropic_test.py PROGRAM [CASE...]: Messages as the official anthropic package uses it. Last line `N passed, N failed`.
Needs the packages of tools/serve_packages.txt; scripted models where the answer's form matters."""
import hashlib
import os
import time

import anthropic

from cases import ROOT, case, main
from sdk_harness import anthropic_client, picture_base64, picture_url, raises
from serve_harness import Server, eventually, path, script, slow, stream_in_background
from tool_text import calls

ASK = {'model': 'test', 'max_tokens': 64, 'messages': [{'role': 'user', 'content': 'hi'}]}
OFF = {'thinking': {'type': 'disabled'}}
SCHEMA = {'type': 'object', 'properties': {'city': {'type': 'string'}, 'days': {'type': 'integer'}}, 'required': ['city']}


def thinker():
    return script('thinker.jsonl', {'text': 'Greet them.</think>Hello from the script.'})


@case
def create_and_stream_helpers():
    with Server(model=thinker()) as server:
        api = anthropic_client(server)
        whole = api.messages.create(**ASK, system='Be brief.')
        assert [block.type for block in whole.content] == ['thinking', 'text'] and whole.content[0].thinking == 'Greet them.'
        assert whole.content[1].text == 'Hello from the script.' and whole.stop_reason == 'end_turn' and whole.id.startswith('msg_')
        assert whole.content[0].signature and whole.usage.input_tokens > 0 and whole.usage.output_tokens > 5
        raw = api.messages.with_raw_response.create(**ASK)
        assert raw.headers['request-id'] == raw.headers['x-request-id'] == raw.parse()._request_id
        events = list(api.messages.create(**ASK, stream=True))
        assert [events[0].type, events[-2].type, events[-1].type] == ['message_start', 'message_delta', 'message_stop']
        text = ''.join(e.delta.text for e in events if e.type == 'content_block_delta' and e.delta.type == 'text_delta')
        assert text == 'Hello from the script.' and events[-2].usage.output_tokens == whole.usage.output_tokens
        with api.messages.stream(**ASK) as stream:
            assert ''.join(stream.text_stream) == 'Hello from the script.'
            final = stream.get_final_message()
        assert [b.to_dict() for b in final.content] == [{**b.to_dict(), **({'signature': final.id} if b.type == 'thinking' else {})} for b in whole.content]
        with api.messages.stream(**ASK) as stream:
            kinds = [event.type for event in stream]
        assert 'thinking' in kinds and 'text' in kinds and 'signature' in kinds, set(kinds)
        plain = api.messages.create(**{**ASK, 'max_tokens': 2}, **OFF)
        assert plain.stop_reason == 'max_tokens' and [b.type for b in plain.content] == ['text']
        stopped = api.messages.create(**ASK, stop_sequences=[' from'])
        assert stopped.stop_reason == 'stop_sequence' and stopped.stop_sequence == ' from' and stopped.content[1].text == 'Hello'
        assert api.messages.create(**{**ASK, 'model': 'claude-opus-4-6'}).model == 'claude-opus-4-6'
        models = api.models.list()
        assert [m.id for m in models] == ['test'] and models.data[0].display_name and models.data[0].created_at.year > 2000
        assert api.models.retrieve('test').type == 'model'


@case
def tools_round_trip():
    model = script('tools.jsonl', {'match': '731', 'text': 'I see.</think>It is 731 degrees.'},
                   {'text': 'Two calls.</think>Let me look.' + calls(('weather', {'city': 'Paris', 'days': 2}), ('weather', {'city': 'Zürich "Nord"'}))})
    with Server(model=model) as server:
        api = anthropic_client(server)
        tools = [{'name': 'weather', 'description': 'The weather.', 'input_schema': SCHEMA}]
        ask = {**ASK, 'max_tokens': 400, 'tools': tools, 'tool_choice': {'type': 'auto'}}
        answer = api.messages.create(**ask)
        assert answer.stop_reason == 'tool_use' and [b.type for b in answer.content] == ['thinking', 'text', 'tool_use', 'tool_use']
        assert [b.input for b in answer.content[2:]] == [{'city': 'Paris', 'days': 2}, {'city': 'Zürich "Nord"'}]
        alone = api.messages.create(**{**ask, 'tool_choice': {'type': 'auto', 'disable_parallel_tool_use': True}})
        assert [b.input for b in alone.content if b.type == 'tool_use'] == [{'city': 'Paris', 'days': 2}], alone
        with api.messages.stream(**ask) as stream:
            partial = [e.partial_json for e in stream if e.type == 'input_json']
            final = stream.get_final_message()
        assert [b.input for b in final.content[2:]] == [b.input for b in answer.content[2:]] and len(partial) > 4
        messages = [*ASK['messages'], {'role': 'assistant', 'content': final.content},
                    {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': b.id, 'content': [{'type': 'text', 'text': '731'}],
                                                  'cache_control': {'type': 'ephemeral'}} for b in final.content[2:]]}]
        last = api.messages.create(**{**ask, 'messages': messages})
        assert last.stop_reason == 'end_turn' and last.content[-1].text == 'It is 731 degrees.'
        again = api.messages.create(**{**ask, 'messages': messages})
        assert again.usage.cache_read_input_tokens > 0 and again.usage.input_tokens + again.usage.cache_read_input_tokens == last.usage.input_tokens + last.usage.cache_read_input_tokens
        error = raises(anthropic.BadRequestError, api.messages.create, **{**ask, 'messages': messages[:2] + [{'role': 'user', 'content': 'so?'}]})
        assert '`tool_use` ids were found without `tool_result` blocks' in str(error)


@case
def the_tool_runner():
    model = script('runner.jsonl', {'match': '908', 'text': 'Done.</think>The sum is 908.'},
                   {'text': 'Add.</think>' + calls(('add', {'a': 451, 'b': 457}))})
    with Server(model=model) as server:
        seen = []

        @anthropic.beta_tool
        def add(a: int, b: int) -> str:
            """Adds two numbers.

            Args:
                a: one
                b: the other
            """
            seen.append((a, b))
            return str(a + b)

        runner = anthropic_client(server).beta.messages.tool_runner(
            model='test', max_tokens=400, tools=[add], messages=[{'role': 'user', 'content': 'Add them.'}])
        assert runner.until_done().content[-1].text == 'The sum is 908.' and seen == [(451, 457)], seen
        # The runner asks for a thread that the server keeps; told that there are none, it sends the whole history.
        assert [line['status'] for line in server.lines()] == [400, 200, 200]


@case
def counts_what_a_message_costs():
    with Server(model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api = anthropic_client(server)
        tools = [{'name': 'weather', 'input_schema': SCHEMA}]
        image = {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': picture_base64()}}
        words = {'type': 'text', 'text': 'Which colour?'}
        seen = set()
        for content, more in ((words, {}), (words, {'system': [{'type': 'text', 'text': 'Be brief.'}]}), (words, {'tools': tools}),
                              (image, {}), (image, {'thinking': {'type': 'disabled'}})):
            ask = {'model': 'test', 'messages': [{'role': 'user', 'content': [content, words]}], **more}
            count = api.messages.count_tokens(**ask).input_tokens
            usage = api.messages.create(**ask, max_tokens=1).usage
            assert count == usage.input_tokens + usage.cache_read_input_tokens, (count, usage)
            seen.add(count)
        assert len(seen) == 5, seen
        error = raises(anthropic.NotFoundError, api.messages.count_tokens, model='none', messages=ASK['messages'])
        assert 'The supported API model names are' in str(error)


@case
def pictures():
    with Server(model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api = anthropic_client(server)

        def ask(source):
            image = {'type': 'image', 'source': source}
            return api.messages.create(model='test', max_tokens=8, **OFF, messages=[
                {'role': 'user', 'content': [image, {'type': 'text', 'text': 'Which colour?'}]}])
        png = {'type': 'base64', 'media_type': 'image/png', 'data': picture_base64()}
        one, two = ask(png), ask(png)
        assert one.content[0].text == two.content[0].text and two.usage.cache_read_input_tokens >= 0
        result = {'type': 'tool_result', 'tool_use_id': 't1', 'content': [{'type': 'image', 'source': png}]}
        shown = api.messages.create(model='test', max_tokens=4, **OFF, messages=[
            {'role': 'user', 'content': 'Look.'}, {'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 't1', 'name': 'see', 'input': {}}]},
            {'role': 'user', 'content': [result]}])
        assert shown.usage.input_tokens > 30
        for source, text in (({'type': 'base64', 'media_type': 'image/png', 'data': 'AAAA'}, 'unsupported image'),
                             ({'type': 'base64', 'media_type': 'image/tiff', 'data': 'AAAA'}, 'unknown variant'),
                             ({'type': 'url', 'url': 'https://127.0.0.1/x.png'}, 'links are not fetched'),
                             ({'type': 'url', 'url': picture_url()}, 'invalid url')):
            assert text in str(raises(anthropic.BadRequestError, ask, source)), source


@case
def errors_have_their_classes():
    with Server(model=thinker()) as server:
        api = anthropic_client(server)
        unknown = raises(anthropic.NotFoundError, api.messages.create, **{**ASK, 'model': 'none'})
        assert 'The supported API model names' in str(unknown) and unknown.body['error']['type'] == 'not_found_error', unknown.body
        for wrong, text in ((dict(extra_body={'temperature': 9}), 'temperature'), (dict(messages=[]), 'at least one message'), (dict(messages=[{'role': 'user', 'content': 'x ' * 9000}]), 'context')):
            error = raises(anthropic.BadRequestError, api.messages.create, **{**ASK, **wrong})
            assert text in str(error) and error.body['type'] == 'error' and error.body['error']['type'] == 'invalid_request_error', error.body
            assert error.request_id == error.body['request_id'] and error.response.headers['x-should-retry'] == 'false'
        error = raises(anthropic.NotFoundError, api.post, '/v1/messages/batches', body={}, cast_to=object)
        assert error.body['error']['type'] == 'not_found_error'
        assert raises(anthropic.APIStatusError, api.get, '/v1/messages', cast_to=object).status_code == 405
        late = raises(anthropic.GatewayTimeoutError, api.messages.create, **ASK, extra_headers={'x-request-timeout': '0.000001'})
        assert late.status_code == 504 and late.body['error']['type'] == 'timeout_error'
    keys = path('anthropic-keys.txt')
    with open(keys, 'w') as file:
        file.write('a ' + hashlib.sha256(b'right').hexdigest() + '\n')
    with Server('--keys', keys) as server:
        error = raises(anthropic.AuthenticationError, anthropic_client(server).messages.create, **ASK)
        assert error.body['error']['type'] == 'authentication_error'
        raises(anthropic.AuthenticationError, anthropic_client(server).messages.count_tokens, model='test', messages=ASK['messages'])
        assert anthropic_client(server, api_key='right').messages.create(**ASK).content
        assert anthropic.Anthropic(base_url=server.url, auth_token='right').messages.create(**ASK).content
        # Older versions of the package send x-api-key.
        server.json('POST', '/v1/messages', ASK, {'x-api-key': 'right', 'anthropic-version': '2023-06-01'})
    with Server(model=script('fail3.jsonl', {'text': 'one two three four'}, faults=[{'step': 3, 'kind': 'error'}])) as server:
        seen = []
        error = raises(anthropic.APIStatusError, lambda: [seen.append(e) for e in anthropic_client(server).messages.create(**ASK, **OFF, stream=True)])
        assert 'step failed' in str(error) and seen[0].type == 'message_start'


@case
def official_errors_are_those_of_the_recipe():
    with Server('--profile', 'official', model=thinker()) as server:
        api = anthropic_client(server)
        error = raises(anthropic.BadRequestError, api.messages.create, **{**ASK, 'messages': []})
        assert error.body == {'error': {'message': 'messages: at least one message is required', 'type': 'invalid_request_error', 'param': None,
                                        'code': 'invalid_request_error'}}, error.body
        assert error.request_id
        assert raises(anthropic.NotFoundError, api.post, '/v1/messages/batches', body={}, cast_to=object).body['error']['param'] is None
    with Server('--profile', 'official', model=script('fail3.jsonl', {'text': 'one two three four'}, faults=[{'step': 3, 'kind': 'error'}])) as server:
        error = raises(anthropic.APIStatusError, lambda: list(anthropic_client(server).messages.create(**ASK, **OFF, stream=True)))
        assert 'step failed' in str(error)


@case
def a_full_queue_is_waited_for():
    with Server('--batch', '1', '--queue', '1', model=slow(5)) as server:
        streams = [stream_in_background(server) for _ in range(2)]
        eventually(lambda: any(stream.begun.is_set() for stream in streams), 'no stream begins')
        eventually(lambda: server.metric('deepinfer_engine_running') + server.metric('deepinfer_engine_waiting') == 2)
        error = raises(anthropic.RateLimitError, anthropic_client(server).messages.create, **ASK)
        assert error.body['error']['type'] == 'rate_limit_error'
        assert [error.response.headers[name] for name in ('retry-after', 'retry-after-ms', 'x-should-retry')] == ['1', '1000', 'true']
        begin = time.monotonic()
        assert anthropic_client(server, max_retries=8).messages.create(**{**ASK, 'max_tokens': 3}).content
        assert time.monotonic() - begin >= 1  # as retry-after says


@case
def a_silent_stream_is_pinged_and_a_reader_that_leaves_frees_the_engine():
    with Server(model=script('silent.jsonl', {'text': 'one two', 'delay_ms': 6500})) as server:
        data = server.ask('POST', '/v1/messages', {**ASK, **OFF, 'stream': True, 'max_tokens': 1})[2].decode()
        assert data.startswith('event: message_start') and data.count('event: ping') >= 1, data
        assert data.index('event: ping') < data.index('content_block_start')
    with Server(model=slow(20)) as server:
        with anthropic_client(server).messages.stream(**ASK) as stream:
            next(iter(stream))
        eventually(lambda: server.metric('deepinfer_engine_running') == 0, 'an answer nobody reads runs on', 3)
        server.settles()


main()
