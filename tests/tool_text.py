"""The text with which a model calls tools, for scripted models."""
import json

TOKEN = '｜DSML｜'


def calls(*pairs):
    """The text of calls [(name, {argument: value})] as the model writes them: strings raw, other values as JSON."""
    lines = [f'\n\n<{TOKEN} calls>']
    for name, arguments in pairs:
        lines.append(f'<{TOKEN} invoke name="{name}">')
        for key, value in arguments.items():
            raw = isinstance(value, str)
            lines.append(f'<{TOKEN} parameter name="{key}" string="{str(raw).lower()}">{value if raw else json.dumps(value)}</{TOKEN} parameter>')
        lines.append(f'</{TOKEN} invoke>')
    return '\n'.join([*lines, f'</{TOKEN} calls>'])
