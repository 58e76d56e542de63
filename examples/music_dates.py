"""Albums of a period that someone probably produced, though the data do not say so.

python examples/music_dates.py music.ttl.gz "Jimmy Jam and Terry Lewis" 1986 2006

It writes music_dates.png and music_labels.tsv, and keeps the rules in music_rules.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import betae

file, producer, first, last = sys.argv[1:]
graph = betae.read(file)
# In this file, names are a property of its own: make them the labels.
names = graph.values("name").select("entity", "value").unique("entity")
names.write_csv("music_labels.tsv", separator="\t", include_header=False, quote_style="never")
graph = betae.read(file, labels="music_labels.tsv")
rules = Path("music_rules")
run = betae.Run.open(rules) if rules.exists() else betae.mine(graph, rules)

period = f"date(?X) >= {first}-01-01 & date(?X) < {last}-01-01"
question = f'?X . Album(?X) & producer(?X, "{producer}") & {period}'
albums = run.answer(question, k=100, threshold=0.01, explain=True)
print(albums)
best = next(album for album in albums if album.status == "predicted")
print(next(step.evidence for step in best.why.sources if step.status == "missing"))

dates = dict(graph.values("date").select("entity", "value").iter_rows())
figure = Figure(figsize=(8, 3.5), layout="constrained")
axes = figure.subplots()
for row, album in enumerate(sorted(albums, key=lambda album: dates[album.entity])):
    is_known, date = album.status == "known", dates[album.entity]
    axes.scatter(date, row, color="tab:blue" if is_known else "tab:orange")
    text = album.label if is_known else f"{album.label}: {album.probability:.0%}"
    axes.annotate(f"  {text}", (date, row), va="center")
axes.set_yticks([])
axes.margins(x=0.3)
axes.set_title(f"{producer}: blue is in the data, orange predicted", loc="left")
axes.spines[["top", "right", "left"]].set_visible(False)
figure.savefig("music_dates.png")
