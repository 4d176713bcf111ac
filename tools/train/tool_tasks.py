"""Seeded conversations with tools: choosing and filling one of several, using results, two calls, calls that follow a result."""
from prompt import pj
from tasks import CITIES, NAMES, WORDS, chat, fact, words


def tool(name, desc, **p):
    return {'name': name, 'description': desc, 'parameters': {'type': 'object', 'properties': p, 'required': list(p)}}


def sd(d, t='string'):
    return dict(type=t, description=d)


def _weather(r, c):
    cond = r.choice(['sunny', 'cloudy', 'rainy', 'windy', 'snowy', 'clear'])
    t, key = r.randint(-10, 38), r.choice(['city', 'location'])
    nm = r.choice(['get_weather', 'weather', 'get_current_weather', 'fetch_weather'])
    return tool(nm, 'Get the current weather for a city.', **{key: sd('The city name')}), \
        r.choice([f'What is the weather in {c}?', f'How is the weather in {c} today?', f'Weather in {c}?', f"What's the weather like in {c}?", f'Is it cold in {c}?']), \
        {key: c}, pj({'temperature': t, 'condition': cond}), f'It is {cond} in {c} with {t} degrees.'


def tool_case(r):
    """(schema, user text, arguments, result text, final answer)"""
    c, n, w = r.choice(CITIES), r.choice(NAMES), r.choice(WORDS)
    a, b = r.randint(1, 99), r.randint(1, 99)
    k = r.randrange(15)
    if k <= 1:
        return _weather(r, c)
    if k == 2:
        op = r.choice('+-*')
        v = {'+': a + b, '-': a - b, '*': a * b}[op]
        return tool('calculator', 'Evaluate an arithmetic expression.', expression=sd('The expression')), \
            r.choice([f'Use the calculator to compute {a} {op} {b}.', f'Calculate {a} {op} {b} with the tool.', f'What is {a} {op} {b}?']), \
            {'expression': f'{a} {op} {b}'}, str(v), f'{a} {op} {b} = {v}'
    if k == 3:
        return tool(r.choice(['add', 'add_numbers', 'sum']), 'Add two integers.', a=sd('First number', 'integer'), b=sd('Second number', 'integer')), \
            r.choice([f'Add {a} and {b}.', f'What is the sum of {a} and {b}?']), {'a': a, 'b': b}, str(a + b), f'The sum of {a} and {b} is {a + b}.'
    if k == 4:
        tm = f'{r.randint(0, 23):02d}:{r.randint(0, 59):02d}'
        return tool(r.choice(['get_time', 'current_time']), 'Get the current time in a city.', city=sd('City name')), \
            r.choice([f'What time is it in {c}?', f'Tell me the time in {c}.']), {'city': c}, tm, f'It is {tm} in {c}.'
    if k == 5:
        q = ' '.join(words(r, r.randint(1, 3)))
        return tool(r.choice(['search', 'web_search']), 'Search the web.', query=sd('Search query')), \
            r.choice([f'Search for {q}.', f'Find pages about {q}.', f'Look up {q}.']), {'query': q}, pj([{'title': f'All about {q}'}]), \
            f'I found a page with the title "All about {q}".'
    if k == 6:
        s, to = r.choice(['Meeting', 'Lunch', 'Report', 'Question', 'Invoice', 'Holiday']), f'{n.lower()}@example.com'
        return tool('send_email', 'Send an email.', to=sd('Recipient'), subject=sd('Subject')), f'Send an email to {to} with the subject {s}.', \
            {'to': to, 'subject': s}, 'ok', f'I sent the email to {to}.'
    if k == 7:
        m = r.randint(1, 60)
        return tool('set_timer', 'Set a timer.', minutes=sd('Minutes', 'integer')), r.choice([f'Set a timer for {m} minutes.', f'Start a {m} minute timer.']), \
            {'minutes': m}, pj({'status': 'started'}), f'The timer is set for {m} minutes.'
    if k == 8:
        room, on = r.choice(['kitchen', 'bedroom', 'office', 'hall', 'garden']), r.random() < .5
        st = 'on' if on else 'off'
        return tool('set_light', 'Turn a light on or off.', room=sd('Room'), on=sd('True to turn on', 'boolean')), f'Turn {st} the light in the {room}.', \
            {'room': room, 'on': on}, 'done', f'The light in the {room} is {st} now.'
    if k == 9:
        u, v = r.sample(['USD', 'EUR', 'JPY', 'GBP', 'CNY'], 2)
        res = round(a * r.choice([0.9, 1.1, 7.2, 1.5]), 2)
        return tool('convert_currency', 'Convert money.', amount=sd('Amount', 'number'), **{'from': sd('Source currency'), 'to': sd('Target currency')}), \
            f'Convert {a} {u} to {v}.', {'amount': a, 'from': u, 'to': v}, str(res), f'{a} {u} is {res} {v}.'
    if k == 10:
        its = words(r, r.randint(1, 3))
        return tool('add_to_list', 'Add items to the shopping list.', items=dict(type='array', items={'type': 'string'})), f'Put {", ".join(its)} on my shopping list.', \
            {'items': its}, 'ok', f'I added {", ".join(its)} to the list.'
    if k == 11:
        p = r.choice(['notes.txt', 'data.csv', 'main.py', 'README.md', f'{w}.txt', f'{w}.md'])
        return tool(r.choice(['read_file', 'open_file']), 'Read a file.', path=sd('File path')), r.choice([f'Read the file {p}.', f'Show me {p}.', f'What is in {p}?']), \
            {'path': p}, f'{w} {a}', f'The file {p} contains: {w} {a}'
    nm = '_'.join(words(r, 2))                          # an invented tool: the schema must really be read
    props, args = {}, {}
    for x in words(r, r.randint(1, 3)):
        if r.random() < .5:
            props[x], args[x] = sd(x), r.choice(WORDS)
        else:
            props[x], args[x] = sd(x, 'integer'), r.randint(0, 500)
    v = f'{r.choice(WORDS)} {r.randint(0, 999)}'
    return tool(nm, f'Run {nm.replace("_", " ")}.', **props), f'Call {nm} with ' + ' and '.join(f'{x} {y}' for x, y in args.items()) + '.', args, \
        v, f'Done. The tool returned {v}.'


def more_tools(r, tools, n):
    while len(tools) < n:
        d = tool_case(r)[0]
        if d['name'] not in [t['name'] for t in tools]:
            tools.append(d)
    r.shuffle(tools)
    return tools


def distinct_cases(r, n):
    out = []
    while len(out) < n:
        x = tool_case(r)
        if x[0]['name'] not in [y[0]['name'] for y in out]:
            out.append(x)
    return out


def one_call(r, think):
    s, u, a, res, fin = tool_case(r)
    th = f'I should call {s["name"]}.'
    return dict(system=None, tools=more_tools(r, [s], r.randint(1, 4)), think=think, turns=[('u', u), ('a', th, '', [(s['name'], a)])]), res, fin


def use_result(r, think):
    cv, res, fin = one_call(r, think)
    cv['turns'] += [('t', res), ('a', 'I have the result and can answer.', fin, None)]
    return cv


def two_calls(r, think, finish=True):
    """two calls in one block: the same tool twice or two tools"""
    if r.random() < .5:
        while True:
            x, y = tool_case(r), tool_case(r)
            if x[0]['name'] == y[0]['name'] and list(x[2]) == list(y[2]) and x[2] != y[2]:
                break
        tools = [x[0]]
    else:
        x, y = distinct_cases(r, 2)
        tools = [x[0], y[0]]
    th = f'I should call {x[0]["name"]} and {y[0]["name"]}.'
    turns = [('u', f'{x[1]} {y[1]}'), ('a', th, '', [(x[0]['name'], x[2]), (y[0]['name'], y[2])])]
    if finish:
        turns += [('t', x[3]), ('t', y[3]), ('a', 'I have the results and can answer.', f'{x[4]} {y[4]}', None)]
    return dict(system=None, tools=more_tools(r, tools, r.randint(len(tools), 4)), think=think, turns=turns)


def call_after_result(r, think, finish=True):
    """first A, then B: the second call comes after the result of the first"""
    x, y = distinct_cases(r, 2)
    cut = y[1][0].lower() + y[1][1:] if y[1].split()[0] in ('Call', 'Send', 'Set', 'Turn', 'Put', 'Read', 'Search', 'Add', 'Convert', 'Start', 'Find', 'Look', 'Show') else y[1]
    turns = [('u', f'{x[1]} Then: {cut}'), ('a', f'First I call {x[0]["name"]}.', '', [(x[0]['name'], x[2])]), ('t', x[3]),
             ('a', f'Now I call {y[0]["name"]}.', '', [(y[0]['name'], y[2])])]
    if finish:
        turns += [('t', y[3]), ('a', 'I have the results and can answer.', f'{x[4]} {y[4]}', None)]
    return dict(system=None, tools=more_tools(r, [x[0], y[0]], r.randint(2, 4)), think=think, turns=turns)


def conversation(r, think):
    k = r.random()
    if k < .5:
        cv = use_result(r, think)
    elif k < .68:
        cv = two_calls(r, think)
    elif k < .86:
        cv = call_after_result(r, think)
    else:                                               # tools are there, but none is needed
        q, an, _ = r.choice([chat, fact])(r)
        cv, res, fin = one_call(r, think)
        cv['turns'] = [('u', q), ('a', 'No tool is needed.', an, None)] + (cv['turns'] if r.random() < .5 else [])
        if len(cv['turns']) > 2:
            cv['turns'] += [('t', res), ('a', 'I have the result and can answer.', fin, None)]
    if cv['turns'][-1][0] == 'a' and r.random() < .15:
        cv['turns'] += [('u', r.choice(['Thanks', 'Thank you!', 'thanks a lot'])), ('a', 'The user says thanks.', 'You are welcome!', None)]
    cv['system'] = r.choice([None, None, None, 'You are a helpful assistant.'])
    return cv
