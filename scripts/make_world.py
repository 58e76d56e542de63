"""Write the bundled graph ``world``: true facts about countries, with readable names.

The raw facts about capitals, regions, borders, languages and currencies come from the PyPI package
``countryinfo``, version 1.0.1 (MIT licence, by Porimol Chandro and contributors,
https://pypi.org/project/countryinfo/). It is not a dependency of betae, only of this script. What
it has stale or wrong is put right by ``world_facts/overrides.tsv``; everything else (members of
organisations, host countries, cities, language families, driving sides) was written by hand in
the other files of ``world_facts/``. The facts are meant as of the end of 2025 (the 2026 World Cup
hosts and Bulgaria's euro of January 2026 are in).

Run it from anywhere, in a virtual environment of its own (Python 3.11 or newer)::

    pip install countryinfo==1.0.1
    python scripts/make_world.py

It checks the facts, rewrites ``train.tsv``, ``valid.tsv`` and ``test.tsv`` in
``betae/datasets/world/`` (the same bytes on every run) and prints a table of counts.

How the facts are split:

* Facts are chosen in the order of a hash of the seed and the fact, about 10 % each for valid and
  test, but only where every entity and every relation still has a fact left in train.
* Facts that give each other away are chosen together: both directions of a border, and a capital
  with the ``city_in`` of the same city. A city has no other facts, so cities never leave train.
* ``HIDDEN_IN_EUROPE`` is chosen first: its ``located_in`` Europe facts are always hidden, so that
  "capitals of European countries that never hosted the World Cup" has hidden answers. The hosts
  of the World Cup themselves are never hidden, so that no known answer of it is false.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from countryinfo import CountryInfo
from countryinfo import __version__ as countryinfo_version

Fact = tuple[str, str, str]
Overrides = dict[tuple[str, str], list[str]]

COUNTRYINFO_VERSION = "1.0.1"
FACTS_DIR = Path(__file__).resolve().parent / "world_facts"
OUT_DIR = Path(__file__).resolve().parent.parent / "betae" / "datasets" / "world"

SEED = 0
SPLITS = ("train", "valid", "test")
HELD_OUT_SHARE = 0.1  # of all facts, for each of valid and test

# European countries that never hosted the World Cup and whose located_in fact is always hidden.
HIDDEN_IN_EUROPE = ("Austria", "Greece", "Ireland", "Norway", "Poland", "Portugal")

NOTHING = "-"
BORDER_CODE_ALIASES = {"KOS": "XKX"}

# What kind of thing the head and the tail of a relation are; a name is of one kind only.
KINDS = {
    "borders": ("country", "country"),
    "capital": ("country", "city"),
    "city_in": ("city", "country"),
    "currency": ("country", "currency"),
    "driving_side": ("country", "driving side"),
    "edition_of": ("event", "event"),
    "hosted": ("event", "country"),
    "in_subregion": ("country", "subregion"),
    "language_family": ("language", "language family"),
    "located_in": ("country", "continent"),
    "member_of": ("country", "organisation"),
    "official_language": ("country", "language"),
    "part_of": ("subregion", "continent"),
    "won_by": ("event", "country"),
}
# Relations in which every head of that kind has exactly one tail, and those with at most one.
EXACTLY_ONE_TAIL = ("city_in", "driving_side", "in_subregion", "located_in", "part_of")
AT_MOST_ONE_TAIL = ("capital", "edition_of", "language_family", "won_by")
# How many heads a (relation, tail) must have, and how many tails a (head, relation).
KNOWN_HEADS = {
    ("edition_of", "FIFA World Cup"): 23,
    ("edition_of", "Summer Olympics"): 30,
    ("located_in", "Africa"): 54,
    ("located_in", "Asia"): 49,
    ("located_in", "Europe"): 45,
    ("located_in", "North America"): 23,
    ("located_in", "Oceania"): 14,
    ("located_in", "South America"): 12,
    ("member_of", "European Union"): 27,
    ("member_of", "Eurozone"): 21,
    ("member_of", "G7"): 7,
    ("member_of", "NATO"): 32,
    ("member_of", "United Nations"): 193,
}
KNOWN_TAILS = {("FIFA World Cup", "hosted"): 19, ("Summer Olympics", "hosted"): 19}
# The heads of the first (relation, tail) are all among those of the second.
SUBSETS = (
    (("member_of", "Arab League"), ("member_of", "Organisation of Islamic Cooperation")),
    (("member_of", "African Union"), ("located_in", "Africa")),
    (("located_in", "Africa"), ("member_of", "African Union")),
    (("member_of", "Eurozone"), ("currency", "Euro")),
    (("member_of", "Eurozone"), ("member_of", "European Union")),
    (("member_of", "European Union"), ("member_of", "Council of Europe")),
    (("member_of", "G7"), ("member_of", "G20")),
    (("member_of", "Gulf Cooperation Council"), ("member_of", "Arab League")),
    (("member_of", "Nordic Council"), ("member_of", "Schengen Area")),
)
NAME = re.compile(r"\S(?:[^\t\n\"'`\u2018-\u201f]*\S)?")


def read_rows(name: str, columns: int) -> Iterator[list[str]]:
    """Yield the rows of a file of hand-written facts, without comments."""
    for line in (FACTS_DIR / name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            row = line.split("\t")
            assert len(row) == columns, f"{name}: expected {columns} columns: {line!r}"
            yield row


def values(cell: str) -> list[str]:
    """Split a cell that holds several values."""
    return [] if cell == NOTHING else cell.split("; ")


def read_overrides(countries: Iterable[str]) -> Overrides:
    """Return the corrections to countryinfo: (country, field) -> values."""
    overrides: Overrides = {}
    for country, field, cell, _reason in read_rows("overrides.tsv", 4):
        assert country in countries, f"overrides.tsv: unknown country {country}"
        assert (country, field) not in overrides, f"overrides.tsv: {country} {field} twice"
        overrides[country, field] = values(cell)
    return overrides


def country_facts() -> Iterator[Fact]:
    """Yield what countryinfo says about the countries, corrected by the overrides."""
    rows = list(read_rows("countries.tsv", 3))
    names = {code: name for name, code, _key in rows}
    languages = {code: name for code, name, _family in read_rows("languages.tsv", 3)}
    currencies = dict(read_rows("currencies.tsv", 2))
    subregions = {raw: (name, top) for raw, name, top in read_rows("subregions.tsv", 3)}
    overrides = read_overrides(names.values())
    raw: Mapping[str, Mapping[str, Any]] = CountryInfo.all()

    def corrected(country: str, field: str, known: list[str]) -> list[str]:
        new = overrides.pop((country, field), None)
        assert new is None or sorted(new) != sorted(known), f"idle override: {country} {field}"
        return known if new is None else new

    for country, _code, key in rows:
        info: Mapping[str, Any] = raw[key] if key != NOTHING else {}
        region = info.get("intermediateregion") or info.get("subregion") or ""
        capital = info.get("capital") or ""
        spoken = [languages.get(code, code) for code in info.get("languages", [])]
        money = [currencies.get(code, code) for code in info.get("currencies", [])]

        for name in corrected(country, "subregion", [region]):
            subregion, continent = subregions[name]
            yield country, "in_subregion", subregion
            yield country, "located_in", continent
        for name in corrected(country, "capital", [capital]):
            yield country, "capital", name
            yield name, "city_in", country
        for name in corrected(country, "language", spoken):
            assert name in languages.values(), f"{country}: unknown language {name}"
            yield country, "official_language", name
        for name in corrected(country, "currency", money):
            assert name in currencies.values(), f"{country}: unknown currency {name}"
            yield country, "currency", name

        codes = (BORDER_CODE_ALIASES.get(code, code) for code in info.get("borders", []))
        borders = {names[code] for code in codes if code in names}
        added = set(overrides.pop((country, "add_border"), []))
        dropped = set(overrides.pop((country, "drop_border"), []))
        assert dropped <= borders, f"{country}: no such border to drop: {dropped - borders}"
        assert not added & borders, f"{country}: border is there already: {added & borders}"
        for neighbour in borders - dropped | added:
            yield country, "borders", neighbour

    assert not overrides, f"overrides.tsv: unknown fields: {list(overrides)}"


def hand_written_facts() -> Iterator[Fact]:
    """Yield the facts that were written by hand."""
    for _raw, subregion, continent in read_rows("subregions.tsv", 3):
        yield subregion, "part_of", continent
    for country, cell in read_rows("cities.tsv", 2):
        for city in values(cell):
            yield city, "city_in", country
    for organisation, size, cell in read_rows("members.tsv", 3):
        members = values(cell)
        assert len(set(members)) == int(size), f"{organisation}: {len(set(members))} members"
        for country in members:
            yield country, "member_of", organisation
    for edition, series, hosts, winner in read_rows("events.tsv", 4):
        yield edition, "edition_of", series
        for country in values(hosts):
            yield edition, "hosted", country
            yield series, "hosted", country
        for country in values(winner):
            yield edition, "won_by", country
    countries = {country for country, _code, _key in read_rows("countries.tsv", 3)}
    left = {country for (country,) in read_rows("left_hand_traffic.tsv", 1)}
    assert left <= countries, f"left_hand_traffic.tsv: unknown countries: {left - countries}"
    for country in countries:
        yield country, "driving_side", f"{'left' if country in left else 'right'}-hand traffic"


def language_facts(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Yield the families of the languages that are official somewhere."""
    official = {tail for _head, relation, tail in facts if relation == "official_language"}
    for _code, language, family in read_rows("languages.tsv", 3):
        if language in official and family != NOTHING:
            yield language, "language_family", family


def check_facts(facts: set[Fact]) -> None:
    """Check names, kinds, symmetry, consistency and known counts."""
    countries = {name for name, _code, _key in read_rows("countries.tsv", 3)}
    kinds = dict.fromkeys(countries, "country")
    tails: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    heads: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for head, relation, tail in sorted(facts):
        assert head != tail, f"{head} {relation} itself"
        tails[head, relation].add(tail)
        heads[relation, tail].add(head)
        for name, kind in zip((head, tail), KINDS[relation], strict=True):
            assert NAME.fullmatch(name), f"unclean name: {name!r}"
            assert kinds.setdefault(name, kind) == kind, f"{name}: both {kinds[name]} and {kind}"
    named_countries = {name for name, kind in kinds.items() if kind == "country"}
    assert named_countries == countries, f"unknown countries: {named_countries - countries}"

    for head, relation, tail in sorted(facts):
        if relation == "borders":
            assert (tail, "borders", head) in facts, f"{head} borders {tail}, but not back"
        if relation == "capital":
            assert (tail, "city_in", head) in facts, f"{tail} is no city in {head}"
        if relation == "in_subregion":
            same = tails[tail, "part_of"] == tails[head, "located_in"]
            assert same, f"{head} and {tail} are on different continents"

    for name, kind in kinds.items():
        for relation in EXACTLY_ONE_TAIL + AT_MOST_ONE_TAIL:
            if kind == KINDS[relation][0]:
                count = len(tails[name, relation])
                assert count <= 1, f"{name} {relation}: {count} facts"
                assert count or relation in AT_MOST_ONE_TAIL, f"{name} {relation}: no fact"

    for key, count in KNOWN_HEADS.items():
        assert len(heads[key]) == count, f"{key}: {len(heads[key])} instead of {count}"
    for key, count in KNOWN_TAILS.items():
        assert len(tails[key]) == count, f"{key}: {len(tails[key])} instead of {count}"
    for part, whole in SUBSETS:
        assert heads[part] <= heads[whole], f"{part} not in {whole}: {heads[part] - heads[whole]}"


def units(facts: set[Fact]) -> list[frozenset[Fact]]:
    """Return the facts that may be hidden, in groups that stay together, in order of drawing."""
    groups = set()
    for head, relation, tail in facts:
        if (head, relation) == ("FIFA World Cup", "hosted"):
            continue
        group = {(head, relation, tail)}
        if relation == "borders":
            group.add((tail, relation, head))
        elif relation == "capital":
            group.add((tail, "city_in", head))
        elif relation == "city_in" and (tail, "capital", head) in facts:
            group.add((tail, "capital", head))
        groups.add(frozenset(group))

    def draw_order(group: frozenset[Fact]) -> tuple[bool, bytes]:
        head, relation, tail = min(group)
        forced = relation == "located_in" and head in HIDDEN_IN_EUROPE
        return not forced, hashlib.sha256(f"{SEED}|{head}|{relation}|{tail}".encode()).digest()

    return sorted(groups, key=draw_order)


def split_facts(facts: set[Fact]) -> dict[str, set[Fact]]:
    """Split the facts into train, valid and test as the module's docstring says."""
    left = Counter(name for fact in facts for name in fact)
    quota = int(HELD_OUT_SHARE * len(facts))
    split: dict[str, set[Fact]] = {"train": set(facts), "valid": set(), "test": set()}
    for group in units(facts):
        target = min(("valid", "test"), key=lambda name: len(split[name]))
        used = Counter(name for fact in group for name in fact)
        fits = len(split[target]) + len(group) <= quota
        if fits and all(left[name] > count for name, count in used.items()):
            left -= used
            split["train"] -= group
            split[target] |= group
    return split


def check_split(facts: set[Fact], split: dict[str, set[Fact]]) -> None:
    """Check that the split is a partition, keeps all names in train and hides what it should."""
    assert sum(map(len, split.values())) == len(facts), "the splits overlap"
    assert set().union(*split.values()) == facts, "the splits miss facts"
    names = {name for fact in facts for name in fact}
    assert {name for fact in split["train"] for name in fact} == names, "a name is not in train"
    for name, part in split.items():
        for head, relation, tail in part:
            if relation == "borders":
                assert (tail, relation, head) in part, f"{name}: {head} - {tail} is torn apart"
            if relation == "capital":
                assert (tail, "city_in", head) in part, f"{name}: {tail} is torn apart"
    for country in HIDDEN_IN_EUROPE:
        known = {relation for head, relation, _tail in split["train"] if head == country}
        assert (country, "located_in", "Europe") in facts, f"{country} is not in Europe"
        assert ("FIFA World Cup", "hosted", country) not in facts, f"{country} was a host"
        assert "located_in" not in known, f"{country}: its continent is not hidden"
        assert "capital" in known, f"{country}: its capital is hidden"


def print_counts(split: dict[str, set[Fact]]) -> None:
    """Print the number of facts for each relation and split."""
    counts = {name: Counter(fact[1] for fact in split[name]) for name in SPLITS}
    print(f"{'relation':<18}" + "".join(f"{name:>7}" for name in (*SPLITS, "all")))
    for relation in sorted(KINDS):
        row = [counts[name][relation] for name in SPLITS]
        print(f"{relation:<18}" + "".join(f"{count:>7}" for count in (*row, sum(row))))
    row = [len(split[name]) for name in SPLITS]
    print(f"{'all':<18}" + "".join(f"{count:>7}" for count in (*row, sum(row))))
    entities = {name for part in split.values() for head, _, tail in part for name in (head, tail)}
    print(f"{len(entities)} entities, {len(KINDS)} relations")


def main() -> None:
    """Gather, check, split and write the facts."""
    assert countryinfo_version == COUNTRYINFO_VERSION, f"countryinfo {countryinfo_version}"
    facts = {*country_facts(), *hand_written_facts()}
    facts |= set(language_facts(facts))
    check_facts(facts)
    split = split_facts(facts)
    check_split(facts, split)
    OUT_DIR.mkdir(parents=True, exist_ok=True)
    for name in SPLITS:
        lines = sorted("\t".join(fact) + "\n" for fact in split[name])
        (OUT_DIR / f"{name}.tsv").write_text("".join(lines), encoding="utf-8", newline="\n")
    print_counts(split)


if __name__ == "__main__":
    main()
