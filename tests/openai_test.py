#!/usr/bin/env python3
"""tests/openai_test.py PROGRAM [CASE...]: Chat Completions and Responses as the official openai package uses them.
Last line `N passed, N failed`. Needs the packages of tools/serve_packages.txt; scripted models where the answer's form matters."""
import hashlib
import json
import os
import socket
import threading
import time
from typing import Literal

import openai
import pydantic

from cases import ROOT, case, main
from sdk_harness import openai_client, picture_url, raises
from serve_harness import Server, eventually, path, script, slow, stream_in_background
from tool_text import calls

OFF = {'extra_body': {'thinking': {'type': 'disabled'}}}
ASK = [{'role': 'user', 'content': 'hi'}]
WEATHER = {'type': 'object', 'properties': {'city': {'type': 'string'}, 'days': {'type': 'integer'}}, 'required': ['city']}


def weather_model():
    """Calls the tool twice, then speaks of its result (the number 731)."""
    return script('weather.jsonl', {'match': '731', 'text': 'I see.</think>It is 731 degrees.'},
                  {'text': 'Two calls.</think>Let me look.' + calls(('weather', {'city': 'Paris', 'days': 2}), ('weather', {'city': 'Zürich "Nord"'}))})


# ---- Chat Completions ---------------------------------------------------------------------------------------------

@case
def chat_create_stream_helper_models():
    with Server() as server:
        api = openai_client(server)
        messages = [{'role': 'developer', 'content': 'Be brief.'}, *ASK]
        whole = api.chat.completions.create(model='test', messages=messages, **OFF)
        assert whole.choices[0].message.content == 'Hello from the script.' and whole.usage.total_tokens > 5
        chunks = list(api.chat.completions.create(model='test', messages=messages, stream=True, stream_options={'include_usage': True}, **OFF))
        assert ''.join(c.choices[0].delta.content or '' for c in chunks if c.choices) == 'Hello from the script.'
        assert chunks[-1].usage.completion_tokens == 5
        with api.chat.completions.stream(model='test', messages=messages, **OFF) as stream:
            assert stream.get_final_completion().choices[0].message.content == 'Hello from the script.'
        assert hasattr(api.chat.completions.create(model='test', messages=messages).choices[0].message, 'reasoning_content')
        logged = api.chat.completions.create(model='test', messages=messages, logprobs=True, top_logprobs=2, max_completion_tokens=2, **OFF)
        assert len(logged.choices[0].logprobs.content) == 2 and logged.choices[0].finish_reason == 'length'
        assert api.completions.create(model='test', prompt='x').choices[0].text == 'Hello from the script.'
        assert [m.id for m in api.models.list()] == ['test'] and api.models.retrieve('test').id == 'test'


@case
def chat_tools_round_trip():
    with Server(model=weather_model()) as server:
        api = openai_client(server)
        tools = [{'type': 'function', 'function': {'name': 'weather', 'description': 'The weather.', 'parameters': WEATHER}}]
        messages = [{'role': 'user', 'content': 'The weather in Paris and Zürich?'}]
        answer = api.chat.completions.create(model='test', messages=messages, tools=tools).choices[0]
        assert answer.finish_reason == 'tool_calls' and answer.message.content == 'Let me look.'
        found = [(c.function.name, json.loads(c.function.arguments)) for c in answer.message.tool_calls]
        assert found == [('weather', {'city': 'Paris', 'days': 2}), ('weather', {'city': 'Zürich "Nord"'})], found
        with api.chat.completions.stream(model='test', messages=messages, tools=tools) as stream:
            done = [e for e in stream if e.type == 'tool_calls.function.arguments.done']
            assert [json.loads(e.arguments) for e in done] == [a for _, a in found]
            assert stream.get_final_completion().choices[0].finish_reason == 'tool_calls'
        messages += [answer.message.model_dump(exclude_none=True),
                     *({'role': 'tool', 'tool_call_id': c.id, 'content': '731'} for c in answer.message.tool_calls)]
        last = api.chat.completions.create(model='test', messages=messages, tools=tools).choices[0]
        assert last.message.content == 'It is 731 degrees.' and last.message.reasoning_content == 'I see.' and last.finish_reason == 'stop'


# ---- Responses ----------------------------------------------------------------------------------------------------

@case
def nested_models_are_parsed():
    class Step(pydantic.BaseModel):
        kind: Literal['add', 'take']
        done: bool

    class Plan(pydantic.BaseModel):
        first: Step
        last: Step

    with Server(model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api = openai_client(server)
        for seed in range(3):
            answer = api.chat.completions.parse(model='test', messages=ASK, response_format=Plan, temperature=2, seed=seed, **OFF)
            assert isinstance(answer.choices[0].message.parsed.last.done, bool)
            response = api.responses.parse(model='test', input='hi', text_format=Plan, reasoning={'effort': 'none'})
            assert response.output_parsed.first.kind in ('add', 'take')


@case
def responses_create_and_stream_helper():
    with Server(model=script('think.jsonl', {'text': 'Greet them.</think>Hello from the script.'})) as server:
        api = openai_client(server)
        whole = api.responses.create(model='test', input='hi', instructions='Be brief.', metadata={'a': 'b'}, reasoning={'effort': 'high'})
        assert whole.output_text == 'Hello from the script.' and whole.status == 'completed' and whole.error is None
        assert [item.type for item in whole.output] == ['reasoning', 'message'] and whole.output[0].content[0].text == 'Greet them.'
        assert whole.metadata == {'a': 'b'} and whole.instructions == 'Be brief.' and whole.reasoning.effort == 'high'
        assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
        assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens
        events = list(api.responses.create(model='test', input='hi', stream=True))
        assert [e.sequence_number for e in events] == list(range(len(events)))
        assert [events[0].type, events[1].type, events[-1].type] == ['response.created', 'response.in_progress', 'response.completed']
        assert ''.join(e.delta for e in events if e.type == 'response.output_text.delta') == 'Hello from the script.'
        assert ''.join(e.delta for e in events if e.type == 'response.reasoning_text.delta') == 'Greet them.'
        with api.responses.stream(model='test', input=[{'role': 'user', 'content': [{'type': 'input_text', 'text': 'hi'}]}]) as stream:
            assert [e.snapshot for e in stream if e.type == 'response.output_text.delta'][-1] == 'Hello from the script.'
            assert stream.get_final_response().output_text == 'Hello from the script.'
        cut = api.responses.create(model='test', input='hi', max_output_tokens=2)
        assert cut.status == 'incomplete' and cut.incomplete_details.reason == 'max_output_tokens'
        assert api.responses.input_tokens.count(model='test', input='hi').input_tokens == cut.usage.input_tokens


def tool_answers(response, output='731'):
    return [{'type': 'function_call_output', 'call_id': item.call_id, 'output': output} for item in response.output if item.type == 'function_call']


@case
def responses_tools_by_id_and_by_full_input():
    with Server(model=weather_model()) as server:
        api = openai_client(server)
        tools = [{'type': 'function', 'name': 'weather', 'parameters': WEATHER, 'strict': False}]
        question = [{'role': 'user', 'content': 'The weather in Paris and Zürich?'}]
        first = api.responses.create(model='test', input=question, tools=tools)
        assert [item.type for item in first.output] == ['reasoning', 'message', 'function_call', 'function_call'], first.output
        assert first.output[1].phase == 'commentary' and first.output_text == 'Let me look.'
        assert json.loads(first.output[2].arguments) == {'city': 'Paris', 'days': 2}
        with api.responses.stream(model='test', input=question, tools=tools) as stream:
            done = [e for e in stream if e.type == 'response.function_call_arguments.done']
            assert [json.loads(e.arguments)['city'] for e in done] == ['Paris', 'Zürich "Nord"']
        by_id = api.responses.create(model='test', previous_response_id=first.id, input=tool_answers(first), tools=tools)
        full = api.responses.create(model='test', tools=tools, store=False,
                                    input=question + [item.model_dump(exclude_none=True) for item in first.output] + tool_answers(first))
        for answer in (by_id, full):
            assert answer.output_text == 'It is 731 degrees.', answer
        assert by_id.usage.input_tokens == full.usage.input_tokens and by_id.previous_response_id == first.id
        third = api.responses.create(model='test', previous_response_id=by_id.id, input='Thanks', tools=tools)
        assert third.usage.input_tokens > by_id.usage.input_tokens + by_id.usage.output_tokens
        error = raises(openai.BadRequestError, api.responses.create, model='test', previous_response_id=first.id, input=tool_answers(first)[:1], tools=tools)
        assert 'No tool output found' in str(error)


@case
def responses_kept_and_forgotten():
    with Server() as server:
        api = openai_client(server)
        kept = api.responses.create(model='test', input=[{'role': 'user', 'content': str(i)} for i in range(25)])
        assert api.responses.retrieve(kept.id) == kept
        texts = [item.content[0].text for item in api.responses.input_items.list(kept.id)]
        assert texts == [str(i) for i in reversed(range(25))], texts  # two pages
        assert api.responses.input_items.list(kept.id, order='asc', limit=2).data[1].content[0].text == '1'
        raises(openai.BadRequestError, api.responses.input_items.list, kept.id, limit=1000)
        raises(openai.BadRequestError, api.responses.cancel, kept.id)
        api.responses.delete(kept.id)
        for ask in (api.responses.retrieve, api.responses.delete, api.responses.cancel, api.responses.input_items.list):
            raises(openai.NotFoundError, ask, kept.id)
        raises(openai.NotFoundError, api.responses.create, model='test', input='x', previous_response_id=kept.id)
        unkept = api.responses.create(model='test', input='x', store=False)
        assert unkept.store is False
        raises(openai.NotFoundError, api.responses.retrieve, unkept.id)


@case
def responses_in_the_background():
    with Server(model=slow(10)) as server:
        api = openai_client(server)
        queued = api.responses.create(model='test', input='hi', background=True, max_output_tokens=40)
        assert queued.status in ('queued', 'in_progress') and queued.background
        eventually(lambda: api.responses.retrieve(queued.id).status == 'in_progress', 'never in progress')
        eventually(lambda: api.responses.retrieve(queued.id).status == 'incomplete', 'never done')
        assert len(api.responses.retrieve(queued.id).output) == 1
        stopped = api.responses.create(model='test', input='hi', background=True)
        assert api.responses.cancel(stopped.id).status == 'cancelled' and api.responses.retrieve(stopped.id).status == 'cancelled'
        gone = api.responses.create(model='test', input='hi', background=True)
        api.responses.delete(gone.id)
        # A stream in the background goes on without its reader; cancelling it ends the stream with an error.
        left = api.responses.create(model='test', input='hi', background=True, stream=True, max_output_tokens=30)
        identity = next(iter(left)).response.id
        left.close()
        eventually(lambda: api.responses.retrieve(identity).status == 'incomplete', 'the reader took it along')
        read = api.responses.create(model='test', input='hi', background=True, stream=True)
        identity = next(iter(read)).response.id
        eventually(lambda: api.responses.retrieve(identity).status == 'in_progress', 'never in progress')
        seen = [next(iter(read)) for _ in range(6)]
        cancelled = api.responses.cancel(identity)
        assert cancelled.status == 'cancelled' and 'word' in cancelled.output[0].content[0].text, cancelled
        # The second time changes nothing, and who retrieves it or reads its stream sees the same.
        assert api.responses.cancel(identity) == cancelled == api.responses.retrieve(identity)
        raises(openai.APIError, lambda: [seen.append(event) for event in read])
        assert seen[-1].type == 'response.cancelled' and seen[-1].response == cancelled.to_dict() or seen[-1].response == cancelled, seen[-1]
        server.settles()
        assert server.metric('deepinfer_requests_aborted_total') >= 3


@case
def responses_too_large_to_keep():
    with Server('--max-stored-mb', '1', '--context', '16384', model=script('long2.jsonl', {'text': 'ok'}, context=16384)) as server:
        api = openai_client(server)
        large = 'wordwordwordword' * 12000  # once as input, once among the items that follow
        error = raises(openai.BadRequestError, api.responses.create, model='test', input=[{'role': 'user', 'content': 'x' * 10, 'note': large * 4}],
                       background=True)
        assert 'larger than all responses' in str(error), error
        kept = api.responses.create(model='test', input=[{'role': 'user', 'content': 'x', 'note': large * 4}])
        assert kept.store is False
        raises(openai.NotFoundError, api.responses.retrieve, kept.id)
        # Streamed: it fits alone, but not with its answer; so its last event says so.
        assert api.responses.create(model='test', input='x').store is True
        stream = list(api.responses.create(model='test', input=[{'role': 'user', 'content': 'x', 'note': 'x' * 522000}], stream=True))
        assert stream[0].response.store is True and stream[-1].response.store is False, (stream[0], stream[-1])
        kept = list(api.responses.create(model='test', input='x', stream=True))[-1].response
        assert kept.store is True and api.responses.retrieve(kept.id) == kept


@case
def responses_are_nobody_elses():
    keys = path('response-keys.txt')
    with open(keys, 'w') as file:
        for name in ('alice', 'bob'):
            file.write(f'{name} {hashlib.sha256(name.encode()).hexdigest()}\n')
    with Server('--keys', keys, '--max-stored-mb', '1', '--context', '16384', model=script('long.jsonl', {'text': 'ok'}, context=16384)) as server:
        alice, bob = openai_client(server, api_key='alice'), openai_client(server, api_key='bob')
        mine = alice.responses.create(model='test', input='hi')
        for ask in (bob.responses.retrieve, bob.responses.delete, bob.responses.cancel, bob.responses.input_items.list):
            raises(openai.NotFoundError, ask, mine.id)
        raises(openai.NotFoundError, bob.responses.create, model='test', input='x', previous_response_id=mine.id)
        assert alice.responses.retrieve(mine.id).id == mine.id
        # Bounded: the oldest of who keeps most go.
        flood = [bob.responses.create(model='test', input='word ' * 12000, max_output_tokens=1) for _ in range(20)]
        raises(openai.NotFoundError, bob.responses.retrieve, flood[0].id)
        assert bob.responses.retrieve(flood[-1].id).id == flood[-1].id and alice.responses.retrieve(mine.id).id == mine.id


@case
def official_profile_keeps_nothing():
    with Server('--profile', 'official') as server:
        api = openai_client(server)
        answer = api.responses.create(model='test', input='hi', store=True, previous_response_id='resp_none')
        assert answer.store is False and answer.previous_response_id is None
        raises(openai.NotFoundError, api.responses.retrieve, answer.id)


# ---- pictures, errors, retries ------------------------------------------------------------------------------------

@case
def pictures_on_both_wires():
    with Server(model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api = openai_client(server)
        assert api.models.retrieve('test').input_modalities == ['text', 'image']
        words = {'type': 'text', 'text': 'Which colour?'}
        plain = api.chat.completions.create(model='test', messages=[{'role': 'user', 'content': [words]}], max_tokens=8, **OFF)
        part = {'type': 'image_url', 'image_url': {'url': picture_url()}}
        seen = api.chat.completions.create(model='test', messages=[{'role': 'user', 'content': [part, words]}], max_tokens=8, **OFF)
        again = api.chat.completions.create(model='test', messages=[{'role': 'user', 'content': [part, words]}], max_tokens=8, **OFF)
        assert seen.usage.prompt_tokens > plain.usage.prompt_tokens + 5 and seen.choices[0].message.content
        assert again.choices[0].message.content == seen.choices[0].message.content
        answer = api.responses.create(model='test', reasoning={'effort': 'none'}, max_output_tokens=8, input=[{'role': 'user', 'content': [
            {'type': 'input_image', 'image_url': picture_url(), 'detail': 'high'}, {'type': 'input_text', 'text': 'Which colour?'}]}])
        assert answer.usage.input_tokens == seen.usage.prompt_tokens
        broken = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,AAAA'}}
        link = {'type': 'image_url', 'image_url': {'url': 'https://127.0.0.1/x.png'}}
        for part, text in ((broken, 'unsupported image'), (link, 'links are not fetched')):
            error = raises(openai.BadRequestError, api.chat.completions.create, model='test', messages=[{'role': 'user', 'content': [part]}])
            assert text in str(error), error
    with Server('--fetch-images', model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        api = openai_client(server)
        for url in ('https://127.0.0.1/x.png', 'https://[::1]/x.png', 'https://169.254.169.254/x', 'http://example.com/x.png'):
            error = raises(openai.BadRequestError, api.chat.completions.create, model='test',
                           messages=[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': url}}]}])
            assert 'Failed to download image' in str(error) and 'public' not in str(error), error
            assert error.response.headers['x-should-retry'] == 'false'
        reasons = [line['outcome'] for line in server.lines() if line['outcome'].startswith('image not fetched')]
        assert len(reasons) == 4 and '127.0.0.1, which is no public address' in reasons[0] and 'only https' in reasons[3], reasons
        # What only failed may come later.
        part = {'type': 'image_url', 'image_url': {'url': 'https://no.such.host.invalid/x.png'}}
        error = raises(openai.BadRequestError, api.chat.completions.create, model='test', messages=[{'role': 'user', 'content': [part]}])
        assert 'Failed to download image' in str(error) and error.response.headers['x-should-retry'] == 'true', error.response.headers
    with Server() as server:
        error = raises(openai.BadRequestError, openai_client(server).responses.create, model='test', input=[
            {'role': 'user', 'content': [{'type': 'input_image', 'image_url': picture_url()}]}])
        assert 'no vision tower' in str(error)


@case
def errors_have_their_classes():
    with Server() as server:
        api = openai_client(server)
        for wrong, kind in ((dict(model='none'), openai.NotFoundError), (dict(temperature=9), openai.BadRequestError)):
            error = raises(kind, api.chat.completions.create, **{'model': 'test', 'messages': ASK, **wrong})
            assert error.request_id and error.type == 'invalid_request_error' and error.response.headers['x-should-retry'] == 'false'
            raises(kind, api.responses.create, **{'model': 'test', 'input': 'hi', **wrong})
        raises(openai.NotFoundError, api.models.retrieve, 'none')
        raises(openai.NotFoundError, api.post, '/nowhere', cast_to=object)
        raises(openai.APIStatusError, api.get, '/chat/completions', cast_to=object)
        error = raises(openai.BadRequestError, api.responses.create, model='test', input='x ' * 9000)
        assert 'context' in str(error)
        late = raises(openai.InternalServerError, openai_client(server).responses.create, model='test', input='hi',
                      extra_headers={'x-request-timeout': '0.000001'})
        assert late.status_code == 504 and late.response.headers['retry-after-ms'] == '1000'
    keys = path('openai-keys.txt')
    with open(keys, 'w') as file:
        file.write('a ' + hashlib.sha256(b'right').hexdigest() + '\n')
    with Server('--keys', keys) as server:
        raises(openai.AuthenticationError, openai_client(server).responses.create, model='test', input='hi')
        assert openai_client(server, api_key='right').responses.create(model='test', input='hi').id
    model = script('fail2.jsonl', {'text': 'one two three four'}, faults=[{'step': 3, 'kind': 'error'}])
    for ask in (lambda api: api.chat.completions.create(model='test', messages=ASK, stream=True),
                lambda api: api.responses.create(model='test', input='hi', stream=True)):
        with Server(model=model) as server:
            seen = []
            error = raises(openai.APIError, lambda: [seen.append(event) for event in ask(openai_client(server))])
            assert 'step failed' in str(error) and seen
            if hasattr(seen[-1], 'type'):
                assert seen[-1].type == 'response.failed' and 'step failed' in seen[-1].response.error.message


@case
def a_full_queue_is_waited_for():
    with Server('--batch', '1', '--queue', '1', model=slow(5)) as server:
        streams = [stream_in_background(server) for _ in range(2)]
        # Either may be first; waiting for a certain one would see the other through.
        eventually(lambda: any(stream.begun.is_set() for stream in streams), 'no stream begins')
        eventually(lambda: server.metric('deepinfer_engine_running') + server.metric('deepinfer_engine_waiting') == 2)
        error = raises(openai.RateLimitError, openai_client(server).responses.create, model='test', input='hi')
        assert [error.response.headers[name] for name in ('retry-after', 'retry-after-ms', 'x-should-retry')] == ['1', '1000', 'true']
        begin = time.monotonic()
        api = openai_client(server, max_retries=8)
        assert api.responses.create(model='test', input='hi', max_output_tokens=3).output
        assert api.chat.completions.create(model='test', messages=ASK, max_tokens=3).choices
        assert time.monotonic() - begin >= 1  # as retry-after says


@case
def a_loading_server_is_waited_for():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    with Server('--port', str(port), model='random:v41?layers=4&experts=16&engram_rows=0&hidden=512', wait=False) as server:
        server.port, server.url = port, f'http://127.0.0.1:{port}'
        eventually(lambda: server.process.poll() is None and socket.socket().connect_ex(('127.0.0.1', port)) == 0, 'does not listen')
        assert openai_client(server, max_retries=30).responses.create(model='test', input='hi', max_output_tokens=1).id
        statuses = [line['status'] for line in server.lines() if line['path'] == '/v1/responses']
        assert statuses[-1] == 200, statuses
        if statuses[0] == 503:
            times = [line['time'] for line in server.lines() if line['path'] == '/v1/responses']
            assert times[0] != times[1]


@case
def a_client_that_leaves_frees_the_engine():
    with Server(model=slow(20)) as server:
        api = openai_client(server)
        stream = api.responses.create(model='test', input='hi', stream=True)
        next(iter(stream))
        stream.close()
        waiting = threading.Thread(target=lambda: raises(openai.APITimeoutError, openai_client(server, timeout=0.5).responses.create, model='test', input='hi'))
        waiting.start()
        waiting.join()
        eventually(lambda: server.metric('deepinfer_engine_running') == 0, 'an answer nobody reads runs on', 3)
        server.settles()


main()
