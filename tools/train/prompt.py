"""The V4.1 prompt template: conversations to weighted text segments."""
import json

BOS, EOS = '<｜begin▁of▁sentence｜>', '<｜end▁of▁sentence｜>'
SYS, USER, ASST = '<｜System｜>', '<｜User｜>', '<｜Assistant｜>'
IMAGE = '<｜deepseek_image｜>'
D = '｜DSML｜'

TOOL_SECTION = '''## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

%s

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
'''
JSON_SECTION = ('\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n'
                '{"type": "json_object"}')
EFFORT = 'Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the reasoning)\n\n'


def pj(x):
    return json.dumps(x, ensure_ascii=False)


def call_text(calls):
    out = []
    for n, a in calls:
        ps = '\n'.join(f'<{D} parameter name="{k}" string="{"true" if isinstance(v, str) else "false"}">'
                       f'{v if isinstance(v, str) else pj(v)}</{D} parameter>' for k, v in a.items())
        out.append(f'<{D} invoke name="{n}">\n{ps}\n</{D} invoke>')
    return f'\n\n<{D} calls>\n' + '\n'.join(out) + f'\n</{D} calls>'


def render(cv, prompt_only=False, pw=0.05):
    """[[text, loss weight]] of a conversation.

    cv: system, tools, json, think, effort, turns [(role, ...)]: ('u', text) user, ('t', text) tool result,
    ('a', reasoning, text, calls) assistant; an image stands in a user text as the character IMAGE.
    pw: weight of user text (predicting it teaches language, answers count fully).
    """
    msgs = list(cv['turns'])
    system = cv.get('system')
    if cv.get('tools') or cv.get('json'):
        system = system or ''
        if cv.get('tools'):
            system += '\n\n' + TOOL_SECTION % '\n'.join(pj(t) for t in cv['tools'])
        if cv.get('json'):
            system += JSON_SECTION
    th = cv['think']
    eff = EFFORT % cv.get('effort', 75) if th else ''
    seg = [[BOS, 0.0]]
    if eff or system is not None:
        seg.append([SYS + eff + (system or ''), pw * 0.2])
    lastu = max(i for i, m in enumerate(msgs) if m[0] == 'u')
    prev = None
    for i, m in enumerate(msgs):
        if m[0] == 'u':
            seg.append([('\n\n' if prev in ('u', 't') else USER) + m[1], pw])
        elif m[0] == 't':
            seg.append([('\n\n' if prev in ('u', 't') else USER) + '<tool_result>' + m[1] + '</tool_result>', 0.0])
        else:
            last = i == len(msgs) - 1
            keep = th and (cv.get('tools') or i > lastu)
            if last and prompt_only:
                seg.append([ASST + ('<think>' if th else '</think>'), 0.0])
                break
            body = (m[2] or '') + (call_text(m[3]) if m[3] else '')
            if keep:
                seg.append([ASST + '<think>', 0.0])
                seg.append([(m[1] or '') + '</think>' + body + EOS, 1.0])
            else:
                seg.append([ASST + '</think>', 0.0])
                seg.append([body + EOS, 0.0 if (th and not last) else 1.0])
        prev = m[0]
    return seg
