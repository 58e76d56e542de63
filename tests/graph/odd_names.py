"""Names that files have trouble with: 6,000 of them, always the same."""

import random

CHOSEN = r"""#MeToo # ~x ~ _ _:x _:1 _:b0 _:-a _:é <> <x> nan NaN null NULL None - 1 007 1e5 -0.0
inf true " "" "a a"b ' a,b , \ \t \N é 日本 🦊 http://x.org/a urn:x:y urn:betae:x urn:betae:%41
mailto:a@b a:b x:// % %41 head relation tail {} [] | ^ ` http://x.org/< http://[x // ?x $x ; . a.
@prefix @en "a"@en _:x. http://x/%zz HTTP://X/../a/./b http://é.org/ü http://x/a#b#c
_:0123456789abcdef0123456789abcdef""".split()  # noqa: SIM905
CHOSEN += [" ", "  ", "\t", "\n", "\r", "\r\n", " a", "a ", "_:a b", "http://x.org/a b"]
CHOSEN += ["a" * 200_000, "e\u0301"]
CHOSEN += ["\x00", "\x01", "\x1b[31m", "\x7f", "\x85", "\x9b", "\u2028", "\ufeff", "\ufeffa"]
CHOSEN += ["\u200b", "\u202e", "\ufffe", "\uffff", "\U0010ffff", "a\x0bb", "a\x0cb", "a\x1cb"]
CHARACTERS = (
    "\t\n\r \"'#~_<>,;:|\\/%@.?&=+-[]{}()^`$*!\x00\x01\x1b\x7f\x85\x9b\u2028\u2029\ufeff"
    "\u200b\u202eaAzZ09éß日🦊\ufffe\uffff\U0010ffff\ue000"
)
BEGINNINGS = ["", "", "", "http://x.org/", "urn:", "_:", "a:"]


def odd_names(number: int = 6000) -> list[str]:
    rng = random.Random(0)
    names = dict.fromkeys(CHOSEN)
    while len(names) < number:
        length = rng.choice([1, 1, 2, 2, 3, 4, 5, 8])
        names[rng.choice(BEGINNINGS) + "".join(rng.choices(CHARACTERS, k=length))] = None
    return list(names)
