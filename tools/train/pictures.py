"""Seeded pictures of coloured shapes with a question: shape, colour, count, position. 168 x 168 pixels, RGB."""
import struct
import zlib

import numpy as np

SIZE = 168
COLORS = {'red': (220, 30, 30), 'green': (30, 160, 50), 'blue': (30, 70, 220), 'yellow': (240, 215, 30), 'black': (15, 15, 15), 'orange': (245, 140, 20),
          'purple': (140, 40, 170), 'pink': (250, 140, 190)}
SHAPES = ['circle', 'square', 'triangle', 'star', 'cross']
GROUND = [(255, 255, 255), (245, 245, 245), (225, 225, 225), (250, 245, 230), (230, 240, 250)]
PLACES = {(0, 0): 'top left', (1, 0): 'top right', (0, 1): 'bottom left', (1, 1): 'bottom right'}
NUMBER = 'zero one two three four five six'.split()
_Y, _X = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) + 0.5


def _star():
    a = np.arange(10) * np.pi / 5 - np.pi / 2
    q = np.where(np.arange(10) % 2, 0.42, 1.0)
    return np.stack([q * np.cos(a), q * np.sin(a)], -1)


STAR = _star()


def inside(shape, x, y, cx, cy, rad):
    u, v = (x - cx) / rad, (y - cy) / rad
    if shape == 'circle':
        return u * u + v * v <= 0.95
    if shape == 'square':
        return np.maximum(abs(u), abs(v)) <= 0.85
    if shape == 'triangle':
        return (v <= 0.8) & (v >= 2 * abs(u) - 1.0)
    if shape == 'cross':
        return (np.minimum(abs(u), abs(v)) <= 0.3) & (np.maximum(abs(u), abs(v)) <= 0.95)
    n, odd = len(STAR), np.zeros(u.shape, bool)          # even-odd rule
    for i in range(n):
        (ax, ay), (bx, by) = STAR[i], STAR[(i + 1) % n]
        if ay != by:
            odd ^= ((v >= min(ay, by)) & (v < max(ay, by))) & (u < ax + (v - ay) * (bx - ax) / (by - ay))
    return odd


def draw(r, objects):
    """objects: (shape, colour name, cx, cy, radius) -> uint8 [168, 168, 3]"""
    img = np.empty((SIZE, SIZE, 3), np.uint8)
    img[:] = r.choice(GROUND)
    for shape, colour, cx, cy, rad in objects:
        x0, x1 = max(0, int(cx - rad) - 1), min(SIZE, int(cx + rad) + 2)
        y0, y1 = max(0, int(cy - rad) - 1), min(SIZE, int(cy + rad) + 2)
        m = inside(shape, _X[y0:y1, x0:x1], _Y[y0:y1, x0:x1], cx, cy, rad)
        rgb = [min(255, max(0, c + r.randint(-12, 12))) for c in COLORS[colour]]
        img[y0:y1, x0:x1][m] = rgb
    return img


def place(r, radii):
    """centres of discs that do not touch"""
    while True:
        out = []
        for rad in radii:
            for _ in range(40):
                x, y = r.uniform(rad + 1, SIZE - rad - 1), r.uniform(rad + 1, SIZE - rad - 1)
                if all((x - a) ** 2 + (y - b) ** 2 > (rad + q + 3) ** 2 for a, b, q in out):
                    out.append((x, y, rad))
                    break
        if len(out) == len(radii):
            return out


def picture(r, kind=None, n=None):
    """(pixels, question, answer, words that a right answer must hold, reasoning); n: shapes, where the kind leaves it open"""
    kind = kind or r.choice(['shape', 'colour', 'count', 'position', 'describe'])
    if kind == 'position':
        (qx, qy), where = r.choice(list(PLACES.items()))
        s, c, rad = r.choice(SHAPES), r.choice(list(COLORS)), r.uniform(14, 28)
        cx, cy = (r.uniform(rad + 2, 74) if q == 0 else r.uniform(94, SIZE - rad - 2) for q in (qx, qy))
        img = draw(r, [(s, c, cx, cy, rad)])
        return img, r.choice([f'Where is the {s}?', f'Where is the {s} in the picture?', f'Where in this image is the {s}?']), f'The {s} is in the {where}.', [where], \
            f'The {s} is in the {where}.'
    if kind == 'count':
        n = r.randint(1, 6)
        s, c = r.choice(SHAPES), r.choice(list(COLORS))
        pts = place(r, [r.uniform(14, 20) for _ in range(n)])
        same = r.random() < .5
        img = draw(r, [(s, c if same else r.choice(list(COLORS)), x, y, q) for x, y, q in pts])
        t = s + ('s' if s != 'cross' else 'es')
        q = r.choice([f'How many {t} are there?', f'How many {t} do you see?', f'Count the {t} in this picture.'])
        a = f'There is one {s}.' if n == 1 else f'There are {NUMBER[n]} {t}.'
        return img, q, a, [NUMBER[n]], f'I count {NUMBER[n]}.'
    n = n or r.choice([1, 1, 2])
    ss, cc = r.sample(SHAPES, n), r.sample(list(COLORS), n)
    pts = place(r, [r.uniform(16, 36 if n == 1 else 30) for _ in range(n)])
    order = sorted(range(n), key=lambda i: pts[i][0])
    img = draw(r, [(ss[i], cc[i], *pts[i]) for i in range(n)])
    s, c = ss[0], cc[0]
    if kind == 'shape':
        q = r.choice(['What shape is this?', 'What shape is in the picture?', 'Which shape do you see?']) if n == 1 else r.choice([f'What shape is {c}?', f'Which shape is {c}?'])
        return img, q, (f'It is a {s}.' if n == 1 else f'The {s} is {c}.'), [s], f'I see a {c} {s}.'
    if kind == 'colour':
        return img, r.choice([f'What color is the {s}?', f'Which color does the {s} have?']), f'The {s} is {c}.', [c], f'I see a {c} {s}.'
    parts = [f'a {cc[i]} {ss[i]}' if cc[i] != 'orange' else f'an orange {ss[i]}' for i in order]
    return img, r.choice(['What do you see?', 'Describe this picture.', 'What is in this image?', 'Describe the image.']), \
        'I see ' + ' and '.join(parts) + '.', [x.split(' ', 1)[1] for x in parts], 'I name what I see from left to right.'


def png(img):
    raw = b''.join(b'\0' + row.tobytes() for row in img)

    def chunk(t, d):
        return struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
    h, w = img.shape[:2]
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', w, h, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(raw, 9)) + chunk(b'IEND', b'')


def patches(img):
    """[144, 588] uint8: row-major 14 x 14 patches, each channel, y, x"""
    p = img.reshape(12, 14, 12, 14, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(p).reshape(144, 588)
