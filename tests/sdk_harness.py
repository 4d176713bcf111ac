"""What the tests with client libraries share: both clients, pictures."""
import base64

import anthropic
import openai

from serve_harness import picture


def openai_client(server, **more):
    return openai.OpenAI(base_url=server.url + '/v1', **{'api_key': 'none', 'max_retries': 0, **more})


def anthropic_client(server, **more):
    return anthropic.Anthropic(base_url=server.url, **{'api_key': 'none', 'max_retries': 0, **more})


def picture_base64(**more):
    return base64.b64encode(picture(**more)).decode()


def picture_url(**more):
    return 'data:image/png;base64,' + picture_base64(**more)


def raises(error, function, *words, **more):
    """The exception of that type (exactly) which the call raises."""
    try:
        function(*words, **more)
    except error as caught:
        assert type(caught) is error, f'{type(caught).__name__} instead of {error.__name__}: {caught}'
        return caught
    raise AssertionError(f'no {error.__name__}')
