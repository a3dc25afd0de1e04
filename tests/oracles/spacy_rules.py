"""Writes curate/src/text/words/spacy.tsv.zst: how spaCy's blank tokenizers of 39 languages differ from its default one.

Needs spacy 3.8 and zstandard. Lines, fields between tabs:

    set NAME BASE RANGES       a set of characters: those of BASE (A letters, L lower, U upper case, or -) and hexadecimal ranges
    language CODE
    prefix|suffix|infix xx|en  the rules are those of that language
    prefix|suffix|infix BEHIND BODY AHEAD   one rule, in spaCy's order. BEHIND: names of sets of the characters before it, `^` the start; BODY: a
                               regular expression with `<NAME>` for a set; AHEAD: `+NAME` or `!NAME`, the character after it is or is not
                               in the set, or `!` and a regular expression that does not match there; spaces between several
    match FIRST REGEX          a word that matches and begins with the character FIRST, in lower or upper case, or any word if that is empty, is kept whole
    without WORD...            special cases of every language that this one lacks
    special PIECES             a special case; U+001F between its pieces

    python tests/oracles/spacy_rules.py > curate/src/text/words/spacy.tsv.zst
"""

import re
import sys
from re import _constants as c
from re import _parser as parser

import spacy
import zstandard
from spacy.lang import char_classes

CODES = "am ar bg ca da de el es fa fi fo fr ga grc hsb hu id it ky la lb lij lt mk ms nb nl pl pt ro ru sl sr sv ti tl tr tt uk".split()
MAX = 0x110000
CATEGORY = {c.CATEGORY_DIGIT: re.compile(r"\d"), c.CATEGORY_WORD: re.compile(r"\w"), c.CATEGORY_SPACE: re.compile(r"\s")}
CATEGORY = {k: frozenset(i for i in range(MAX) if p.match(chr(i))) for k, p in CATEGORY.items()}


def members(pattern):
    return frozenset(i for i in range(MAX) if pattern.match(chr(i)))


BASES = {k: members(re.compile(f"[{v}]")) for k, v in [("A", char_classes.ALPHA), ("L", char_classes.ALPHA_LOWER), ("U", char_classes.ALPHA_UPPER)]}
names = {}  # set to name
set_lines = []


def ranges(chars):
    out = []
    for i in sorted(chars):
        if out and out[-1][1] + 1 == i:
            out[-1][1] = i
        else:
            out.append([i, i])
    return ",".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in out)


def name_of(chars):
    chars = frozenset(chars)
    if chars not in names:
        base = next((k for k in "ALU" if BASES[k] <= chars), "-")
        names[chars] = str(len(names))
        set_lines.append(f"set\t{names[chars]}\t{base}\t{ranges(chars - BASES.get(base, frozenset()))}")
    return names[chars]


def chars_of(item):
    op, value = item
    if op is c.LITERAL:
        return {value}
    if op is c.NOT_LITERAL:
        return set(range(MAX)) - {value}
    if op is c.ANY:
        return set(range(MAX)) - {10}
    if op is c.CATEGORY:
        return CATEGORY[value]
    assert op is c.IN, item
    out, negated = set(), False
    for op, v in value:
        if op is c.NEGATE:
            negated = True
        elif op is c.LITERAL:
            out.add(v)
        elif op is c.RANGE:
            out.update(range(v[0], v[1] + 1))
        else:
            out |= CATEGORY[v]
    return set(range(MAX)) - out if negated else out


def literal(code):
    char = chr(code)
    return char if char.isalnum() else f"\\x{{{code:x}}}"


def regex(items):
    return "".join(map(regex_of, items))


def regex_of(item):
    op, value = item
    if op is c.LITERAL:
        return literal(value)
    if op in (c.IN, c.NOT_LITERAL, c.ANY):
        return f"<{name_of(chars_of(item))}>"
    if op is c.BRANCH:
        return "(?:" + "|".join(map(regex, value[1])) + ")"
    if op is c.SUBPATTERN:
        return "(?:" + regex(value[3]) + ")"
    if op is c.AT:
        return {c.AT_BEGINNING: "^", c.AT_END: "$"}[value]
    assert op is c.MAX_REPEAT, item
    low, high, inner = value
    times = {(0, 1): "?", (0, c.MAXREPEAT): "*", (1, c.MAXREPEAT): "+"}.get((low, high)) or f"{{{low},{'' if high is c.MAXREPEAT else high}}}"
    return "(?:" + regex(inner) + ")" + times


def flat(items):
    """Without groups around a whole."""
    items = list(items)
    while len(items) == 1 and items[0][0] is c.SUBPATTERN:
        items = list(items[0][1][3])
    return items


def rules_of(pattern):
    """(behind, body, ahead) of each alternative."""
    items = flat(parser.parse(pattern))
    if len(items) == 1 and items[0][0] is c.BRANCH and any(any(i[0] in (c.ASSERT, c.ASSERT_NOT) for i in b) for b in items[0][1][1]):
        alternatives = [list(b) for b in items[0][1][1]]
    else:
        alternatives = [items]
    for items in alternatives:
        behind = ahead = ""
        if items and items[0][0] is c.ASSERT and items[0][1][0] == -1:
            for item in flat(items[0][1][1]):
                behind += "^" if item == (c.AT, c.AT_BEGINNING) else name_of(chars_of(item)) + "."
            items = items[1:]
        aheads = []
        while items and items[-1][0] in (c.ASSERT, c.ASSERT_NOT):
            op, (direction, inner) = items[-1]
            assert direction == 1, pattern
            inner = flat(inner)
            if len(inner) == 1 and inner[0][0] in (c.IN, c.LITERAL, c.NOT_LITERAL):
                ahead = ("+" if op is c.ASSERT else "!") + name_of(chars_of(inner[0]))
            elif op is c.ASSERT:  # a currency's sign or name: one of its first characters will do
                firsts = set()
                for branch in inner[0][1][1]:
                    first = list(branch)[0]
                    firsts |= chars_of(first)
                ahead = "+" + name_of(firsts)
            else:
                ahead = "!" + "(?:" + regex(inner) + ")"
            aheads.insert(0, ahead)
            items = items[:-1]
        ahead = " ".join(aheads)
        bodies = [items]
        body = flat(items)
        if ahead and len(body) == 1 and body[0][0] is c.BRANCH:
            bodies = [list(b) for b in body[0][1][1]]
        for items in bodies:
            yield behind, regex(items), ahead


def whole_words(pattern):
    """(first character or nothing, expression) of the alternatives of a pattern, those with the same first character together."""
    items = list(parser.parse(pattern.pattern))
    fold = "(?i)" if pattern.flags & re.I else ""
    alternatives = [items]
    if len(items) == 2 and items[0] == (c.AT, c.AT_BEGINNING) and items[1][0] is c.BRANCH:
        alternatives = [list(a) for a in items[1][1][1]]
    groups = {}
    for alternative in alternatives:
        first = [""]
        if len(alternatives) > 1 and alternative[0][0] in (c.LITERAL, c.IN):
            chars = chars_of(alternative[0])
            if len(chars) <= 8:
                first = sorted({chr(char).lower() for char in chars})
        for char in first:
            groups.setdefault(char, []).append(regex(alternative))
    return [(char, f"{fold}(?:{'|'.join(found)})") for char, found in sorted(groups.items())]


def affixes(code):
    d = spacy.blank(code).Defaults
    return [list(d.prefixes or []), list(d.suffixes or []), list(d.infixes or [])]


def pieces(entry):
    return [p.get("ORTH", p.get(65)) or next(iter(p.values())) for p in entry]



def main():
    known = {"xx": affixes("xx"), "en": affixes("en")}
    base_rules = spacy.blank("xx").tokenizer.rules
    base = {k: pieces(v) for k, v in base_rules.items()}
    lines = []
    for code in CODES:
        lines.append(f"language\t{code}")
        for kind, number, own in zip(["prefix", "suffix", "infix"], range(3), affixes(code)):
            same = next((k for k in ("xx", "en") if known[k][number] == own), None)
            if same:
                lines.append(f"{kind}\t{same}")
                continue
            for pattern in filter(str.strip, own):  # spaCy leaves out empty ones
                for rule in rules_of(pattern):
                    lines.append("\t".join([kind, *rule]))
        tokenizer = spacy.blank(code).tokenizer
        if tokenizer.token_match:
            for first, expression in whole_words(tokenizer.token_match.__self__):
                lines.append(f"match\t{first}\t{expression}")
        rules = {k: pieces(v) for k, v in tokenizer.rules.items()}
        missing = [k for k in base if k not in rules]
        if missing:
            lines.append("without\t" + "\t".join(k.replace("\t", "\\t").replace("\n", "\\n") for k in missing))
        for word, parts in rules.items():
            if base.get(word) != parts and "".join(parts) == word:
                if any(char.isspace() for char in word):  # such are never one run of a text
                    continue
                lines.append("special\t" + "\x1f".join(parts))
            elif base.get(word) != parts:
                print(code, repr(word), parts, file=sys.stderr)
    text = "\n".join(set_lines + lines)
    print(len(text), "bytes,", len(set_lines), "sets", file=sys.stderr)
    sys.stdout.buffer.write(zstandard.ZstdCompressor(level=22).compress(text.encode()))


if __name__ == "__main__":
    main()
