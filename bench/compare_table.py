#!/usr/bin/env python3
"""bench/compare_table.py FOLDER ROUNDS: the medians of ours-N.json and peers-N.json side by side; writes FOLDER/compare.json."""
import json
import statistics
import sys

folder, rounds = sys.argv[1], int(sys.argv[2])


def medians(kind):
    values = {}
    for i in range(rounds):
        for row in json.load(open(f'{folder}/{kind}-{i}.json'))['rows']:
            values.setdefault(row['name'], []).append((row['value'], row['unit']))
    return {name: (statistics.median(v for v, _ in list_), list_[0][1]) for name, list_ in values.items()}


ours, peers = medians('ours'), medians('peers')
rows = []
for name, (value, unit) in peers.items():
    peer, product = name.split('/', 1)
    mine = [v for n, (v, u) in ours.items() if n.startswith('ops/') and n.split('/', 2)[2] == product and u == unit]
    if mine:
        rows.append({'name': product, 'value': mine[0], 'unit': unit, 'baseline': peer, 'of': value, 'ratio': mine[0] / value})
json.dump({'rows': rows, 'ours': ours, 'peers': peers}, open(f'{folder}/compare.json', 'w'), indent=1)
print('| product | ours | peer | unit | ratio |\n|---|---|---|---|---|')
for row in rows:
    print(f"| {row['name']} | {row['value']:.1f} | {row['baseline']} {row['of']:.1f} | {row['unit']} | {row['ratio']:.2f} |")
