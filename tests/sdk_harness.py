"""What the tests with client libraries share: both clients, pictures."""
import base64
import struct
import zlib

import anthropic
import openai


def openai_client(server, **more):
    return openai.OpenAI(base_url=server.url + '/v1', **{'api_key': 'none', 'max_retries': 0, **more})


def anthropic_client(server, **more):
    return anthropic.Anthropic(base_url=server.url, **{'api_key': 'none', 'max_retries': 0, **more})


def picture(width=60, height=40, color=(200, 30, 30)):
    """A PNG of one colour."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    rows = (b'\0' + bytes(color) * width) * height
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0))
            + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


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
