"""Seeded generators of text abilities. Each returns (user text, answer, reasoning); evaluate_* also says how to check an answer.

Three-digit sums and differences are split by a hash of their operands: one pair in sixteen is never shown in training and is
all that the held-out sets ask for.
"""
import json
import os
import random
import zlib

from prompt import pj

TABLES = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tables.json'), encoding='utf-8'))
CAP, ANIMAL, OPP, PLUR, PAST, ELEM = (TABLES[k] for k in ('CAP', 'ANIMAL', 'OPP', 'PLUR', 'PAST', 'ELEM'))
DAYS, MONTHS, PLANETS, COLOR, FACT, CHAT = (TABLES[k] for k in ('DAYS', 'MONTHS', 'PLANETS', 'COLOR', 'FACT', 'CHAT'))
NAMES, THINGS, WORDS, CITIES, JOBS, ADJ, PYF = (TABLES[k] for k in ('NAMES', 'THINGS', 'WORDS', 'CITIES', 'JOBS', 'ADJ', 'PYF'))
ORD = 'first second third fourth fifth sixth seventh eighth'.split()


def a_an(w):
    return ('an ' if w[0].lower() in 'aeiou' else 'a ') + w


def cap(s):
    return s[0].upper() + s[1:]


def words(r, n):
    return r.sample(WORDS, n)


def num(r):
    return r.randint(1, r.choice([9, 20, 50, 99, 99, 999]))


def held_out(a, b):
    return max(a, b) >= 100 and zlib.crc32(b'%d,%d' % (a, b)) % 16 == 0


# ------------------------------------------------------------------ arithmetic
def add_steps(a, b):
    A, B = str(a)[::-1], str(b)[::-1]
    c, out, res = 0, [], ''
    for i in range(max(len(A), len(B))):
        x, y = int(A[i]) if i < len(A) else 0, int(B[i]) if i < len(B) else 0
        s = x + y + c
        out.append(f'{x} + {y}' + (f' + {c}' if c else '') + f' = {s}')
        res = str(s % 10) + res
        c = s // 10
    if c:
        res = str(c) + res
    return ', '.join(out) + f'. So {res}.'


def sub_steps(a, b):
    A, B = str(a)[::-1], str(b)[::-1].ljust(len(str(a)), '0')
    bw, out, res = 0, [], ''
    for x, y in zip(A, B):
        x, y = int(x), int(y)
        v = x - y - bw
        if v < 0:
            x += 10
        out.append(f'{x} - {y}' + (f' - {bw}' if bw else '') + f' = {v % 10}' + (' borrow' if v < 0 else ''))
        bw = 1 if v < 0 else 0
        res = str(v % 10) + res
    return ', '.join(out) + f'. So {int(res)}.'


def mul_steps(a, b):
    if a < 10 and b < 10:
        return f'{a} times {b} is {a * b}.'
    if a < 10:
        return mul_steps(b, a)
    t, o = a // 10 * 10, a % 10
    return f'{t} * {b} = {t * b}, {o} * {b} = {o * b}, {t * b} + {o * b} = {a * b}.'


ASK = ['What is {} {} {}?', 'What is {} {} {}?', 'What is {} {} {}?', '{} {} {}', '{} {} {} = ?', 'Calculate {} {} {}.', 'Compute {} {} {}',
       'what is {} {} {}', 'How much is {} {} {}?', 'Please work out {} {} {}.', '{} {} {}?', "What's {} {} {}?", 'Add up: {} {} {}']
SPELL = {'+': ['+', '+', '+', 'plus'], '-': ['-', '-', '-', 'minus'], '*': ['*', 'x', 'times', '×'], '/': ['/', '/', 'divided by']}


def ask_sum(r, a, op, b):
    forms = ASK if op == '+' else ASK[:-1]
    return r.choice(forms).format(a, r.choice(SPELL[op]), b)


def sum_case(r, held=False):
    """A sum or difference of numbers up to three digits; (a, op, b)."""
    while True:
        op = r.choice('+-')
        lo = 100 if held or r.random() < .55 else 1
        a, b = (r.randint(lo, 999), r.randint(1, 999)) if r.random() < .75 else (num(r), num(r))
        if r.random() < .5:
            a, b = b, a
        if op == '-' and a < b:
            a, b = b, a
        if held_out(a, b) == held:
            return a, op, b


def sums(r, held=False):
    a, op, b = sum_case(r, held)
    v = a + b if op == '+' else a - b
    return ask_sum(r, a, op, b), f'{a} {op} {b} = {v}', (add_steps if op == '+' else sub_steps)(a, b)


def product(r):
    a, b = r.randint(2, 9), r.randint(10, 99)
    if r.random() < .25:
        a, b = r.randint(0, 12), r.randint(0, 12)
    if r.random() < .5:
        a, b = b, a
    return ask_sum(r, a, '*', b), f'{a} * {b} = {a * b}', mul_steps(a, b)


def product_held(r):
    a, b = r.randint(2, 9), r.randint(10, 99)
    a, b = (a, b) if r.random() < .5 else (b, a)
    return ask_sum(r, a, '*', b), f'{a} * {b} = {a * b}', mul_steps(a, b)


def division(r):
    b, v = r.randint(1, 12), r.randint(0, 12)
    return ask_sum(r, b * v, '/', b), f'{b * v} / {b} = {v}', f'{b} * {v} = {b * v}, so {b * v} / {b} = {v}.'


def word_problem(r):
    n, m = r.sample(NAMES, 2)
    t, a, b = r.choice(THINGS + ['pen', 'pencil', 'egg', 'book']), r.randint(2, 60), r.randint(2, 40)
    k = r.randrange(6)
    if k == 0:
        return (f'{n} has {a} {t}s. {m} gives {n} {b} more {t}s. How many {t}s does {n} have now?', f'{n} has {a + b} {t}s now.',
                f'{a} + {b}: ' + add_steps(a, b))
    if k == 1:
        a += b
        return (f'{n} has {a} {t}s and gives {b} to {m}. How many {t}s are left?', f'{n} has {a - b} {t}s left.', f'{a} - {b}: ' + sub_steps(a, b))
    if k == 2:
        a, b = r.randint(2, 12), r.randint(2, 12)
        q = r.choice([f'There are {a} boxes with {b} {t}s in each box. How many {t}s are there?', f'{n} has {a} boxes of {b} {t}s. How many {t}s?',
                      f'{n} has {a} bags with {b} {t}s each. How many {t}s does {n} have?'])
        return q, f'There are {a * b} {t}s.' if 'there' in q else f'{n} has {a * b} {t}s.', f'{a} * {b} = {a * b}.'
    if k == 3:
        b, q = r.randint(2, 10), r.randint(2, 12)
        return (f'{n} shares {b * q} {t}s equally among {b} friends. How many does each friend get?', f'Each friend gets {q} {t}s.',
                f'{b * q} / {b} = {q}.')
    if k == 4:
        a, b = r.randint(2, 9), r.randint(2, 12)
        return f'One {t} costs {b} dollars. How much do {a} {t}s cost?', f'They cost {a * b} dollars.', f'{a} * {b} = {a * b}.'
    return f'{n} is {a} years old. {m} is {b} years older than {n}. How old is {m}?', f'{m} is {a + b} years old.', f'{a} + {b}: ' + add_steps(a, b)


def compare(r):
    a, b = num(r), num(r)
    if r.random() < .25:
        b = max(1, min(999, a + r.choice([-11, -10, -9, -2, -1, 1, 2, 9, 10, 90, -90])))
    if r.random() < .2 and a > 9:
        b = int(str(a)[::-1])
    if a == b:
        b += 1
    k = r.randrange(6)
    if k == 0:
        return (r.choice([f'Which is larger, {a} or {b}?', f'Which number is bigger: {a} or {b}?', f'Which is greater, {a} or {b}?']),
                f'{max(a, b)} is larger.', f'Compare {a} and {b}. {max(a, b)} is larger.')
    if k == 1:
        return r.choice([f'Which is smaller, {a} or {b}?', f'Which number is less: {a} or {b}?']), f'{min(a, b)} is smaller.', \
            f'Compare {a} and {b}. {min(a, b)} is smaller.'
    if k == 2:
        return f'Is {a} greater than {b}?', ('Yes' if a > b else 'No') + f', {a} is {"greater" if a > b else "less"} than {b}.', f'Compare {a} and {b}.'
    if k == 3:
        return f'Is {a} less than {b}?', ('Yes' if a < b else 'No') + f', {a} is {"greater" if a > b else "less"} than {b}.', f'Compare {a} and {b}.'
    return r.choice([f'Is {a} even or odd?', f'Is {a} an even or an odd number?', f'Is the number {a} odd or even?']), \
        f'{a} is {"odd" if a % 2 else "even"}.', f'The last digit of {a} is {a % 10}.'


def next_number(r):
    b, up = num(r), r.random() < .5
    return f'What number comes {"after" if up else "before"} {b}?', f'{b + 1 if up else b - 1}', f'{b} {"+" if up else "-"} 1 = {b + 1 if up else b - 1}.'


# ------------------------------------------------------------------ lists
def list_core(r):
    """sort, reverse, count, smallest, largest of up to eight items"""
    k = r.randrange(7)
    n = r.sample(range(1, 100), r.randint(3, 8))
    t = ', '.join(map(str, n))
    if k in (0, 1):
        d = r.random() < .4
        s = sorted(n, reverse=d)
        q = r.choice(['Sort these numbers in descending order: {}', 'Sort the numbers from largest to smallest: {}']) if d else \
            r.choice(['Sort these numbers: {}', 'Sort the numbers from smallest to largest: {}', 'Sort these numbers in ascending order: {}', 'Sort: {}'])
        return q.format(t), ', '.join(map(str, s)), f'The {"largest" if d else "smallest"} is {s[0]}, then {s[1]}, and so on.'
    if k == 2:
        big = r.random() < .5
        return f'What is the {"largest" if big else "smallest"} number in {t}?', str(max(n) if big else min(n)), \
            f'Look at all the numbers: {", ".join(map(str, sorted(n, reverse=big)))}.'
    w = words(r, r.randint(3, 8))
    if k == 3:
        return r.choice(['Reverse this list: {}', 'Write this list in reverse order: {}', 'List these in reverse order: {}']).format(', '.join(w)), \
            ', '.join(w[::-1]), f'The last one is {w[-1]}, the first one is {w[0]}.'
    if k == 4:
        return r.choice(['Reverse this list: {}', 'Write these numbers in reverse order: {}']).format(t), ', '.join(map(str, n[::-1])), \
            f'The last one is {n[-1]}, the first one is {n[0]}.'
    if k == 5:
        return r.choice([f'How many words are in this list: {", ".join(w)}?', f'Count the words: {" ".join(w)}', f'How many items are in this list: {", ".join(w)}?']), \
            f'There are {len(w)}.', ' '.join(f'{i + 1} {x}' for i, x in enumerate(w)) + '.'
    return f'How many numbers are in this list: {t}?', f'There are {len(n)}.', ' '.join(f'{i + 1}: {x}' for i, x in enumerate(n)) + '.'


def list_more(r):
    w = words(r, r.randint(3, 8))
    k = r.randrange(6)
    if k == 0:
        t = ' '.join(w) if r.random() < .6 else ''.join(r.choice('abcdefghijklmnopqrstuvwxyz0123456789') for _ in range(r.randint(4, 12)))
        return r.choice(['Repeat: {}', 'Say this back to me: {}', 'Copy this text: {}', 'Repeat the following exactly: {}']).format(t), t, 'I only repeat the text.'
    if k == 1:
        return f'Sort these words alphabetically: {", ".join(w[:5])}', ', '.join(sorted(w[:5])), 'Compare the first letters.'
    if k == 2:
        i = r.randrange(len(w))
        return f'What is the {ORD[i]} word in "{" ".join(w)}"?', w[i], ' '.join(f'{j + 1} {x}' for j, x in enumerate(w[:i + 1])) + '.'
    if k == 3:
        return f'What is the last word in "{" ".join(w)}"?', w[-1], f'The last word is {w[-1]}.'
    if k == 4:
        a, b = r.randint(1, 40), r.randint(3, 8)
        return r.choice([f'Count from {a} to {a + b}.', f'Write the numbers from {a} to {a + b}.']), ', '.join(map(str, range(a, a + b + 1))), f'Start at {a}, stop at {a + b}.'
    t = ' '.join(w[:r.randint(1, 4)])
    return f'Write this in capital letters: {t}', t.upper(), 'Change every letter to a capital.'


# ------------------------------------------------------------------ facts and talk
def fact(r):
    k = r.randrange(14)
    if k < 3:
        c = r.choice(CAP)
        q = r.choice(['What is the capital of {}?', 'What is the capital of {}?', 'capital of {}', 'Name the capital city of {}.',
                      'Which city is the capital of {}?', 'Tell me the capital of {}.'])
        return q.format(c[0]), f'The capital of {c[0]} is {c[1]}.', f'The user asks for the capital of {c[0]}. It is {c[1]}.'
    if k == 3:
        c = r.choice(CAP)
        return r.choice([(f'Which continent is {c[0]} in?', f'{cap(c[0])} is in {c[2]}.', f'{cap(c[0])} lies in {c[2]}.'),
                         (f'What language do people speak in {c[0]}?', f'People in {c[0]} speak {c[3]}.', f'The main language is {c[3]}.'),
                         (f'What is the currency of {c[0]}?', f'The currency of {c[0]} is the {c[4]}.', f'It is the {c[4]}.'),
                         (f'{c[1]} is the capital of which country?', f'{c[1]} is the capital of {c[0]}.', f'{c[1]} is in {c[0]}.')])
    if k in (4, 5):
        a = r.choice(ANIMAL)
        A = a_an(a[0])
        sound = 'no sound' if a[1] == 'no sound' else 'the sound ' + a[1]
        return r.choice([(f'What sound does {A} make?', f'{cap(A)} makes {sound}.', f'Think about {A}.'),
                         (f'What is a baby {a[0]} called?', f'A baby {a[0]} is called {a_an(a[2])}.', f'The young of {A}.'),
                         (f'What does {A} eat?', f'{cap(A)} eats {a[3]}.', f'Food of {A}: {a[3]}.'),
                         (f'How many legs does {A} have?', f'{cap(A)} has {a[4]} legs.', f'Count the legs of {A}: {a[4]}.'),
                         (r.choice([f'Tell me about {A}.', f'Describe {A}.', f'What is {A}?']),
                          f'{cap(A)} is an animal. It has {a[4]} legs and lives {a[5]}. It eats {a[3]}. Its young is called {a_an(a[2])}.',
                          f'I describe {A}: legs, home, food, young.')])
    if k == 6:
        a = r.choice(r.choice(OPP))
        b = next((y for x, y in OPP if x == a), None) or next(x for x, y in OPP if y == a)
        return r.choice([f'What is the opposite of {a}?', f'Opposite of "{a}"?', f'Give me the opposite of {a}.']), f'The opposite of {a} is {b}.', \
            f'{a} and {b} are opposites.'
    if k == 7:
        a, b = r.choice(PLUR)
        return r.choice([f'What is the plural of {a}?', f'Plural of "{a}"?']), f'The plural of {a} is {b}.', f'One {a}, two {b}.'
    if k == 8:
        a, b = r.choice(PAST)
        return r.choice([f'What is the past tense of {a}?', f'Past tense of "{a}"?']), f'The past tense of {a} is {b}.', f'Today I {a}, yesterday I {b}.'
    if k == 9:
        e = r.choice(ELEM)
        return r.choice([(f'What is the chemical symbol of {e[0]}?', f'The chemical symbol of {e[0]} is {e[1]}.', f'Symbol: {e[1]}.'),
                         (f'What is the atomic number of {e[0]}?', f'The atomic number of {e[0]} is {e[2]}.', f'Number: {e[2]}.'),
                         (f'Which element has the symbol {e[1]}?', f'{e[1]} is the symbol of {e[0]}.', f'{e[1]} stands for {e[0]}.')])
    if k == 10:
        L, nm = (DAYS, 'day') if r.random() < .5 else (MONTHS, 'month')
        i, s = r.randrange(len(L)), r.choice([1, -1])
        w = 'after' if s > 0 else 'before'
        t = L[(i + s) % len(L)]
        return f'Which {nm} comes {w} {L[i]}?', f'{t} comes {w} {L[i]}.', f'{t} is the {nm} {w} {L[i]}.'
    if k == 11:
        t, c = r.choice(COLOR)
        return r.choice([f'What color is {t}?', f'What is the color of {t}?']), f'{cap(t)} is {c}.', f'{t} is {c}.'
    if k == 12 and r.random() < .3:
        i = r.randrange(8)
        return f'What is the {ORD[i]} planet from the sun?', f'The {ORD[i]} planet from the sun is {PLANETS[i]}.', ', '.join(PLANETS[:i + 1]) + '.'
    q, a = r.choice(FACT)
    if q.startswith('What is ') and len(q.split()) < 6 and r.random() < .4:
        t = q[8:-1]
        q = r.choice([f'Explain {t}.', f'Tell me what {t} is.', f'Tell me about {t}.', f'Describe {t}.', f'{cap(t)}?'])
    return q, a, 'This is a simple question. I know the answer.'


PRIMES = {n for n in range(2, 100) if all(n % k for k in range(2, n))}


def prime(r):
    n = r.randint(2, 99)
    d = next((k for k in range(2, n) if n % k == 0), None)
    return r.choice([f'Is {n} prime?', f'Is {n} a prime number?']), f'Yes, {n} is a prime number.' if d is None else f'No, {n} can be divided by {d}.', \
        f'{n} has no divisor.' if d is None else f'{n} = {d} * {n // d}.'


TOPICS = TABLES['TOPICS']
LANGS = 'French German Spanish Italian Chinese Japanese Russian Arabic'.split()
DO_NOT_KNOW = ['I am a very small model and do not know that.', 'I am a very small model and do not know that.', 'I am sorry, I am too small to do that.']


def unknown(r):
    """what a tiny model should admit not to know, or not to be able to do"""
    k = r.randrange(12)
    w = r.choice(WORDS)
    t = r.choice(TOPICS) if r.random() < .6 else r.choice([f'the history of the {w}', f'the {r.choice(WORDS)} {w}', f'{r.choice(ADJ)} {w} theory', f'the {w} of {r.choice(CITIES)}',
                                                          f'{w} {r.choice(WORDS)} design', f'{r.choice(CITIES)} {w}'])
    person = r.choice(NAMES) + ' ' + cap(r.choice(WORDS)) + r.choice(['', 'son', 'er', 'man', 'ley'])
    if k < 5:
        return r.choice(['Explain {}.', 'What is {}?', 'Tell me about {}.', 'How does {} work?', 'Why is {} important?', 'What do you know about {}?', 'Explain {}', 'Can you explain {}?',
                         'Describe {} in detail.', 'What are the causes of {}?']).format(t), DO_NOT_KNOW[0], 'I do not know this.'
    if k < 7:
        return r.choice(['Who is {}?', 'Who was {}?', 'When was {} born?', 'What did {} do?', 'Where is {} from?']).format(person), DO_NOT_KNOW[0], 'I do not know this person.'
    if k < 9:
        return r.choice([f'When was {t} invented?', f'Who discovered {t}?', f'How many people live in {r.choice(CITIES)}?', f'How far is {r.choice(CITIES)} from {r.choice(CITIES)}?',
                         f'What is the best {w} in {r.choice(CITIES)}?', f'How old is {r.choice(CITIES)}?', f'What is the price of {a_an(w)}?']), DO_NOT_KNOW[0], 'I do not know this.'
    return r.choice([f'Translate "{w}" into {r.choice(LANGS)}.', f'How do you say {w} in {r.choice(LANGS)}?', f'Write an essay about {t}.', f'Write a poem about {t}.',
                     f'Summarize the book "{cap(w)} of the {cap(r.choice(WORDS))}".', f'Write a song about {a_an(w)}.', f'Give me a recipe for {w} {r.choice(WORDS)}.',
                     f'Plan a trip to {r.choice(CITIES)}.', f'Write a {r.choice(["Rust", "C++", "Java", "Haskell"])} program about {t}.']), DO_NOT_KNOW[2], 'This is too hard for me.'


def chat(r):
    q, a = r.choice(CHAT)
    return q, a, r.choice(['The user is talking to me. I answer politely.', 'A friendly answer is enough.'])


def story(r, who=None):
    if who and r.random() < .7:                         # each animal has a few favourite stories, so that asking for another one gives another one
        r = random.Random(zlib.crc32(who.encode()) * 8 + r.choice([0, 0, 0, 1, 2]))
    n = r.choice(NAMES)
    an = who or r.choice([a[0] for a in ANIMAL])
    adj = r.choice(ADJ)
    place = r.choice(['the forest', 'a small village', 'the park', 'a big city', 'the farm', 'a house by the sea', 'the mountains', 'a quiet garden'])
    fr = r.choice([x for x in NAMES if x != n])
    fan = r.choice([a[0] for a in ANIMAL if a[0] != an])
    thing = r.choice(['a red ball', 'a golden key', 'a lost hat', 'a shiny stone', 'an old map', 'a blue kite', 'a small boat', 'a sweet cake', 'a music box', 'a warm scarf'])
    it = thing.split(' ', 1)[1]
    s = [r.choice([f'Once upon a time, there was {a_an(adj)} {an} named {n}.', f'There once was {a_an(adj)} {an} called {n}.',
                   f'In {place} lived {a_an(adj)} {an}. Its name was {n}.'])]
    s.append(r.choice([f'{n} lived in {place} and liked to play every day.', f'Every morning, {n} walked through {place}.', f'{n} loved the sun and the wind.']))
    k = r.randrange(4)
    if k == 0:
        s += [f'One day, {n} found {thing} under a tree.', f'"Whose {it} is this?" asked {n}.', f'{n} asked {a_an(fan)} named {fr}.',
              f'"It is mine," said {fr}. "I lost it yesterday."', f'{n} gave the {it} back, and {fr} was very happy.',
              r.choice(['From that day on, they were best friends.', f'{fr} said thank you and shared some food with {n}.'])]
    elif k == 1:
        s += ['One day, it began to rain very hard.', f'{n} was wet and cold and could not find the way home.', f'Then {a_an(fan)} named {fr} came by.',
              f'"Come with me," said {fr}. "My home is warm and dry."', 'They drank tea and told each other stories until the rain stopped.', f'{n} was not afraid any more.']
    elif k == 2:
        s += [f'{n} wanted {thing} more than anything.', f'But the {it} was at the top of a high hill.', f'"The hill is too high for me," said {n}.',
              f'{fr}, {a_an(fan)}, heard this and said, "Let us try together."', 'Step by step they climbed the hill.', f'At the top they found the {it} and laughed with joy.']
    else:
        s += [f'One night, {n} heard a strange sound outside.', f'It was {a_an(fan)} named {fr} who was stuck in a hole.', f'"Please help me!" cried {fr}.',
              f'{n} took a long rope and pulled as hard as it could.', f'At last {fr} was free.', f'"You are very brave," said {fr}.']
    s.append(r.choice(['They lived happily ever after.', 'The end.', f'And {n} learned that it is good to help others.', f'That night, {n} slept very well.', 'It was a wonderful day.']))
    return ' '.join(s)


def story_qa(r):
    an = r.choice([a[0] for a in ANIMAL])
    if r.random() < .4:
        return r.choice(['Tell me a story.', 'Tell me a short story.', 'Write a short story.', 'Please tell me a story']), story(r), \
            'I write a short story with a beginning, a problem and a happy end.'
    return r.choice([f'Tell me a story about {a_an(an)}.', f'Write a short story about {a_an(an)}.', f'Tell me a short story about {a_an(an)}.']), story(r, an), \
        f'I write a short story about {a_an(an)}.'


# ------------------------------------------------------------------ reading, needles, code, JSON
def reading(r):
    n, m = r.sample(NAMES, 2)
    c, c2, j, j2, t = *r.sample(CITIES, 2), *r.sample(JOBS, 2), r.choice(THINGS)
    a, a2, col = r.randint(18, 70), r.randint(18, 70), r.choice(['red', 'blue', 'green', 'black', 'white', 'yellow'])
    S = [f'{n} is {a} years old.', f'{n} lives in {c}.', f'{n} works as {a_an(j)}.', f'{m} lives in {c2}.', f'{m} works as {a_an(j2)}.',
         f'{m} is {a2} years old.', f'{n} has a {col} {t}.']
    Q = [(f'How old is {n}?', f'{n} is {a} years old.'), (f'Where does {n} live?', f'{n} lives in {c}.'), (f'What is the job of {n}?', f'{n} works as {a_an(j)}.'),
         (f'Where does {m} live?', f'{m} lives in {c2}.'), (f'What is the job of {m}?', f'{m} works as {a_an(j2)}.'), (f'How old is {m}?', f'{m} is {a2} years old.'),
         (f'What color is the {t} of {n}?', f'The {t} is {col}.')]
    i = r.randrange(len(S))
    keep = [s for k, s in enumerate(S) if k == i or r.random() < .6]
    r.shuffle(keep)
    q = Q[i]
    if r.random() < .2:
        return q[0] + r.choice([' ', '\n', '\n\n']) + ' '.join(keep), q[1], 'The text says: ' + S[i]
    return ' '.join(keep) + r.choice([' ', '\n', '\n\n']) + q[0], q[1], 'The text says: ' + S[i]


def filler(r):
    k = r.randrange(7)
    if k == 0:
        return story(r)
    if k == 1:
        return fact(r)[1]
    if k == 2:
        return reading(r)[0].split('\n')[0]
    if k == 3:
        q, a, _ = r.choice([fact, word_problem])(r)
        return f'{q} {a}'
    if k == 4:
        return f'The {r.choice(ADJ)} {r.choice(WORDS)} is near the {r.choice(WORDS)}.'
    if k == 5:
        return f'{r.choice(NAMES)} saw {a_an(r.choice(WORDS))} and {a_an(r.choice(WORDS))} in {r.choice(CITIES)}.'
    return f'On {r.choice(DAYS)}, {r.choice(NAMES)} had {r.randint(2, 900)} {r.choice(THINGS)}s and went to {r.choice(CITIES)}.'


def needle(r, n_words=None, passages=()):
    """secret codes hidden in filler; passages: further texts to hide them in"""
    n = n_words or r.choice([40, 80, 150, 250])
    ks = r.sample(NAMES, r.randint(1, 5))
    vals = [str(r.randint(1000, 99999)) if r.random() < .6 else ' '.join(words(r, 2)) for _ in ks]
    body, cnt = [], 0
    own = not passages or r.random() < .5
    while cnt < n:
        s = filler(r) if own or r.random() < .2 else r.choice(passages)
        body.append(s)
        cnt += len(s.split())
    for k, v in zip(ks, vals):
        body.insert(r.randint(0, len(body)), f'The secret code of {k} is {v}.')
    i = r.randrange(len(ks))
    q = r.choice([f'What is the secret code of {ks[i]}?', f'Find the secret code of {ks[i]} in the text.', f'Which secret code does {ks[i]} have?'])
    return ' '.join(body) + '\n\n' + q, f'The secret code of {ks[i]} is {vals[i]}.', f'The text says that the secret code of {ks[i]} is {vals[i]}.'


def code(r):
    d, n, a, b = r.choice(PYF)
    if r.random() < .15:
        w = r.choice(WORDS)
        return r.choice([f'Write a Python program that prints "{w}".', f'Print {w} in Python.']), f'```python\nprint("{w}")\n```', 'Use the print function.'
    if r.random() < .15:
        k = r.randint(2, 20)
        return f'Write a Python loop that prints the numbers from 1 to {k}.', f'```python\nfor i in range(1, {k + 1}):\n    print(i)\n```', f'Use range from 1 to {k + 1}.'
    return r.choice([f'Write a Python function that {d}.', f'Write a function in Python that {d}.', f'Python function that {d}', f'How do I write a Python function that {d}?']), \
        f'```python\ndef {n}({a}):\n    {b}\n```', f'I need a function that {d}.'


def json_object(r):
    n, c, j, a = r.choice(NAMES), r.choice(CITIES), r.choice(JOBS), r.randint(18, 80)
    k = r.randrange(8)
    F = {'name': n, 'age': a, 'city': c, 'job': j, 'email': f'{n.lower()}@example.com', 'active': r.random() < .5}
    S = {'name': f'My name is {n}.', 'age': f'I am {a} years old.', 'city': f'I live in {c}.', 'job': f'I work as {a_an(j)}.', 'email': f'My email is {F["email"]}.',
         'active': 'My account is ' + ('active.' if F['active'] else 'not active.')}
    if k < 4:
        keys = r.sample(list(F), r.randint(2, 4))
        txt = [S[x] for x in keys + [x for x in F if x not in keys and r.random() < .3]]
        r.shuffle(txt)
        q = r.choice(['Extract {} as JSON: {}', 'Return a JSON object with the keys {} for this text: {}', 'Read the text and answer in JSON with the fields {}.\n\n{}', 'JSON with {} please. {}'])
        return q.format(', '.join(keys), ' '.join(txt)), pj({x: F[x] for x in keys}), 'Fields: ' + ', '.join(keys) + '.'
    if k == 4:
        ks = words(r, r.randint(1, 4))
        o = {x: (r.randint(0, 999) if r.random() < .5 else r.choice(WORDS)) for x in ks}
        return r.choice(['Write a JSON object where ', 'Make JSON: ', 'Give me a JSON object in which ']) + ' and '.join(f'{x} is {v}' for x, v in o.items()) + '.', pj(o), 'I write the keys and values.'
    if k == 5:
        w = words(r, r.randint(2, 5))
        return f'Put these words in a JSON array under the key "items": {", ".join(w)}', pj({'items': w}), 'One array with all words.'
    if k == 6:
        x = r.choice(CAP)
        return f'Give me the capital and continent of {x[0]} as JSON.', pj({'country': x[0], 'capital': x[1], 'continent': x[2]}), f'{x[0]}: {x[1]}, {x[2]}.'
    x, y = r.randint(1, 50), r.randint(1, 50)
    return f'What is {x} + {y}? Answer in JSON with the key "result".', pj({'result': x + y}), f'{x} + {y} = {x + y}.'
