#!/usr/bin/env python3
"""bench/compare_table.py FOLDER ROUNDS: medians of ours-N.json and peers-N.json side by side; writes FOLDER/compare.json.
Of the peers "ggml" has weights in the order llama.cpp repacks them to, "stored" as the file has them, "dnnl" is oneDNN."""
import json
import statistics
import sys

folder, rounds = sys.argv[1], int(sys.argv[2])


def medians(kind):
    values = {}
    for i in range(rounds):
        for row in json.load(open(f'{folder}/{kind}-{i}.json'))['rows']:
            values.setdefault((row['name'], row['unit']), []).append(row['value'])
    return {key: statistics.median(list_) for key, list_ in values.items()}


ours = {(name.split('/', 2)[2], unit): value for (name, unit), value in medians('ours').items() if name.startswith('ops/')}
rows = []
for (name, unit), value in medians('peers').items():
    peer, product = name.split('/', 1)
    mine = ours[product, unit]
    rows.append({'name': product, 'value': mine, 'unit': unit, 'baseline': peer, 'of': value, 'ratio': mine / value})
json.dump({'command': 'compare_llama_cpp', 'rows': rows}, open(f'{folder}/compare.json', 'w'), indent=1)
print('| product | ours | ggml | ratio | ggml, as stored | ratio | oneDNN | ratio |\n|---|---|---|---|---|---|---|---|')
for product in dict.fromkeys(row['name'] for row in rows):
    of = {row['baseline']: row for row in rows if row['name'] == product}
    mine = next(iter(of.values()))
    cells = [f"{of[p]['of']:.1f} | {of[p]['ratio']:.2f}" if p in of else ' | ' for p in ('ggml', 'stored', 'dnnl')]
    print(f"| {product} | {mine['value']:.1f} {mine['unit']} | {' | '.join(cells)} |")
