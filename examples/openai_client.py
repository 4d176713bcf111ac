#!/usr/bin/env python3
"""python3 examples/openai_client.py [URL]: talks to a running `deepinfer serve` through the openai package (pip install openai)."""
import sys

try:
    import openai
except ImportError:
    sys.exit('the openai package is missing: pip install openai')

url = sys.argv[1] if len(sys.argv) > 1 else 'http://127.0.0.1:8080'
client = openai.OpenAI(base_url=url.rstrip('/').removesuffix('/v1') + '/v1', api_key='none')
try:
    model = client.models.list().data[0].id
except openai.APIConnectionError:
    sys.exit(f'nothing answers at {url}: start one with deepinfer serve')
print(f'{model}:', end=' ')
stream = client.chat.completions.create(model=model, stream=True, stream_options={'include_usage': True}, max_tokens=200,
                                        messages=[{'role': 'user', 'content': 'What is 12 + 30?'}],
                                        extra_body={'thinking': {'type': 'disabled'}})
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or '', end='', flush=True)
    if chunk.usage:
        print(f'\n({chunk.usage.prompt_tokens} tokens in, {chunk.usage.completion_tokens} out)')
