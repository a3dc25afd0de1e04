"""Compares our `nemo`, `dolma` and `dclm` profiles with those programs on the texts of their own tests, and with what the tests assert.

Writes nothing: their texts are not ours to commit. Their tests run with their functions watched; every call on a text that one of
our rules answers is put to ours with the same limit. The assertions hold for their functions, or the test is named, so what agrees
with the calls agrees with the asserted numbers. Then all string literals of the test files, and the pages beside them, are measured
by both with the published limits. PROGRAM is the example `verdicts`; python and packages as profiles_nemo.py, profiles_dolma.py and
dclm.py say (NVIDIA-NeMo/Curator 1e2e4275e, dolma 1.2.1, mlfoundations/dclm 361714b), for DCLM also pytest.

    python tests/oracles/fixtures_agree.py nemo|dolma|dclm CHECKOUT PROGRAM
"""

import ast
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"  # tests that want a tokenizer shall fail at once
which, checkout, program = sys.argv[1:]
calls = []  # (test, text, ours, keeps): a step and whether it keeps the text, or a rule and its value
failed = {}
test = ""


def literals(*patterns):
    """All strings of Python files, without docstrings' share of doubt: whatever is a string is a text."""
    found = {}
    for path in sorted(p for pattern in patterns for p in glob.glob(f"{checkout}/{pattern}")):
        raw = open(path, encoding="utf-8").read()
        if not path.endswith(".py"):
            plain = re.sub(r"<[^>]*>", "", raw)  # of long pages the start: the other program takes a minute for one
            found |= dict.fromkeys([raw[:5000], plain[:5000], *[p for p in plain[:200000].split("\n\n") if len(p) > 200][:8]])
            continue
        for node in ast.walk(ast.parse(raw)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found[node.value] = None
    return list(found)


def ours(rows):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps({"text": text, "step": step}) + "\n" for text, step in rows)
        file.flush()
        out = subprocess.run([program, file.name, "step"], check=True, capture_output=True).stdout
    return [json.loads(line) for line in out.decode().split("\n") if line]


def same(a, b):
    return abs(a - b) <= 1e-12 * max(1.0, abs(b))


def run(name, function):
    global test
    test = name
    try:
        function()
    except (Exception, unittest.SkipTest) as error:  # a test may want a network or files
        failed[name] = f"{type(error).__name__}: {str(error)[:80]}"


def tell(kind, differences, texts, compared):
    print(f"{which}: {kind}: {texts} texts, {compared} compared, {len(differences)} differ")
    for name in sorted({d[0] for d in differences}):
        rows = [d for d in differences if d[0] == name]
        print(f"  {name}: {len(rows)}, such as {rows[0][1:]!r}")


def nemo():
    sys.argv = ["", checkout, ""]
    sys.modules["profiles_pages"] = types.SimpleNamespace(pages=lambda *a: [], write=lambda rows: None)
    sys.path.insert(0, __file__.rsplit("/", 1)[0])
    import profiles_nemo as theirs

    names = {type(f).__name__: n for n, f in theirs.FIGURES.items() if "gram" not in n}
    second = {"min_words": "max_words", "min_mean_word_length": "max_mean_word_length"}
    every = [*theirs.FIGURES, *second.values()]
    alone = set()

    def limits(rule):
        """The one filter alone, with its limits."""
        kind, held = type(rule).__name__, vars(rule)
        on = {}
        values = [v for k, v in held.items() if k == "_cutoff" or k.startswith(("_min_", "_max_")) and k != "_max_ratio"]
        if kind == "RepeatingTopNGramsFilter":
            on = {f"max_top_{rule._n}_gram_ratio": values[0]}
        elif kind == "RepeatingDuplicateNGramsFilter":
            on = {f"max_duplicated_{rule._n}_gram_ratio": values[0]}
        elif kind in names:
            on = dict(zip([names[kind], second.get(names[kind])], values or [0.0], strict=False))
        if not on or not set(on) <= set(every) or held.get("_url_regex", theirs.s.regex_url) is not theirs.s.regex_url:
            alone.add(kind)
            return None
        on = {k: v if v != float("inf") else 1e300 for k, v in on.items()}
        return {"nemo": {"limits": {k: on.get(k, False) for k in every}}}

    class ScoreFilter:
        def __init__(self, rule, **_):
            self.rule = rule

        def process(self, texts):
            kept = []
            for text in texts:
                keeps = bool(self.rule.keep_document(self.rule.score_document(text)))
                kept += [text] * keeps
                mine = limits(self.rule)
                if mine:
                    calls.append((f"{test} {type(self.rule).__name__}", text, mine, keeps))
            return kept

    scope = {**vars(theirs.s), **vars(theirs.r), "ScoreFilter": ScoreFilter, "list_to_dataset": lambda texts, **_: texts, "pytest": types.SimpleNamespace(mark=types.SimpleNamespace(skip=lambda **_: lambda f: f)), "re": re,
             "regex_url": theirs.s.regex_url, "pd": types.SimpleNamespace(DataFrame=lambda d: d["text"], Series=list), "DocumentBatch": lambda data, **_: data, "all_equal": lambda a, b: list(a) == list(b)}
    path = "tests/stages/text/modules/test_filters.py"
    tree = ast.parse(open(f"{checkout}/{path}").read())
    tree.body = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TestHeuristicFilters"]
    exec(compile(tree, path, "exec"), scope)
    tests = scope["TestHeuristicFilters"]
    for name in vars(tests):
        if name.startswith("test_"):
            run(name, getattr(tests(), name))

    for kind in alone:
        failed[kind] = "called with parameters that no rule of ours has"
    texts = [t for t in literals("tests/stages/text/*/test_*.py", "tests/stages/text/*/*/test_*.py") if t.split()]
    found, compared = [], 0
    for text, mine in zip(texts, ours([(t, {"nemo": {}}) for t in texts]), strict=True):
        drops = set()
        for name, rule in theirs.FIGURES.items():
            score = rule.score_document(text)
            drops |= set() if rule.keep_document(score) else {name, second.get(name, name)}
            compared += 1
            if not same(mine["figures"][f"nemo.{name}"], score):
                found.append((name, text[:80], mine["figures"][f"nemo.{name}"], score))
        verdict = mine["verdict"]
        compared += 1
        if (verdict is True) != (not drops) or verdict is not True and verdict[0].split(".")[1] not in drops:
            found.append(("verdict", text[:80], verdict, sorted(drops)))
    tell("string literals", found, len(texts), compared)


def dolma():
    import nltk

    nltk.data.find = lambda *a, **k: None
    sys.argv = ["", ""]
    sys.modules["profiles_pages"] = types.SimpleNamespace(pages=lambda *a: [], write=lambda rows: None)
    sys.path.insert(0, __file__.rsplit("/", 1)[0])
    from dolma.taggers import c4, gopher
    from dolma.taggers.repetitions import repetitions_taggers as repetitions
    bad_words = c4.NAUGHTY_WORDS, c4.NAUGHTY_PHRASES
    import profiles_dolma as theirs

    c4.NAUGHTY_WORDS, c4.NAUGHTY_PHRASES = bad_words
    names = {"doc_max_score_repetition": "max_repetition_times", "doc_max_length_repetition": "max_repetition_chars", "doc_frac_repetition": "max_repetition_ratio"}

    def figures(spans):
        return theirs.figures(spans) | {names[s.type]: s.score for s in spans if s.type in names}

    def watch(tagger, step):
        plain = tagger.predict

        def predict(self, doc):
            result = plain(self, doc)
            if "c4" in step:
                calls.append((test, doc.text, step, theirs.mixed(doc.text, result.spans)))
            else:
                calls.extend((test, doc.text, step, pair) for pair in figures(result.spans).items())
            return result

        tagger.predict = predict

    v1, v2 = {"dolma": {"gopher": "v1", "repetitions": True}}, {"dolma": {"gopher": "v2", "repetitions": True}}
    page = {"c4": {"profile": "dolma"}}
    taggers = [(gopher.GopherTagger, v1), (gopher.GopherTaggerV2, v2), (repetitions.RepetitionsTagger, v1), (c4.FasterC4Tagger, page)]
    for tagger, step in taggers:
        watch(tagger, step)
    sys.path.insert(0, checkout)
    for name in ("test_gopher", "test_c4", "test_repetitions"):
        for suite in unittest.defaultTestLoader.loadTestsFromName(f"tests.python.{name}"):
            for case in suite if isinstance(suite, unittest.TestSuite) else [suite]:
                run(case.id().split(".", 2)[2], case.debug)

    from dolma.core.data_types import Document

    c4.NAUGHTY_WORDS, c4.NAUGHTY_PHRASES = set(), set()
    texts = [t for t in literals("tests/python/test_*.py") if t.strip()]
    asserted = calls[:]
    for text in texts:
        for tagger, step in taggers:
            run(f"{tagger.__name__} of a literal", lambda: tagger().predict(Document(source="s", version="v", id="1", text=text)))
    literal = calls[len(asserted):]
    calls[:] = asserted
    judge("string literals", literal)


def dclm():
    sys.path.insert(0, checkout)
    from baselines.mappers.filters import content_filters as rule
    import tests.baselines.mappers.filters.test_content_filters as suite

    off = {"remove_urls": False, "min_words": 0, "max_words": 10**9, "min_mean_word_length": 0.0, "max_mean_word_length": 1e6, "max_symbol_ratio": 1e6, "max_bullet_ratio": 1.0, "max_ellipsis_ratio": 1.0,
           "max_non_alphabetic_ratio": 1.0, "min_stop_words": 0, "repetition": False, "edit_lines": False, "max_removed_ratio": 1.0}
    parts = {"line": ("dup_line_frac", "dup_line_char_frac"), "paragraph": ("dup_para_frac", "dup_para_char_frac")}

    def step(name, args):
        """The same rule with the same limit here: a step, or with a fixed limit there a figure and the limit."""
        if name == "page_length_filter" and args["length_type"] == "word" and args.get("ignore_punctuation"):
            return {"dclm": off | {"min_words": max(0, args["min_length"]), "max_words": int(min(args["max_length"], 10**9))}}
        if name == "word_length_filter":
            return {"dclm": off | {"min_mean_word_length": args["min_length"], "max_mean_word_length": min(args["max_length"], 1e6)}}
        one = {"symbol_ratio_filter": ("max_symbol_ratio", "max_symbol_to_word_ratio"), "bullet_count_filter": ("max_bullet_ratio", "max_bullet_start_ratio"),
               "ellipsis_count_filter": ("max_ellipsis_ratio", "max_ellipsis_end_ratio"), "alphabetic_word_ratio_filter": ("max_non_alphabetic_ratio", "max_ratio")}
        if name in one:
            return {"dclm": off | {one[name][0]: args[one[name][1]]}}
        if name == "stop_word_filter" and not args["count_unique"] and not args.get("stop_words"):
            return {"dclm": off | {"min_stop_words": args["min_stop_word"]}}
        if name == "massive_web_repetition_filters":
            return {"dclm": off | {"repetition": True}}
        if name == "repetition_filter":
            part = args["granularity"]
            figure = parts[part][bool(args["count_characters"])] if part in parts else f"top_{part}_gram" if part < 5 else f"duplicated_{part}_grams"
            return {"dclm": off | {"repetition": True}}, f"dclm.{figure}", args["max_fraction"]
        return None

    import inspect

    def watch(name):
        plain = getattr(rule, name)

        def call(*args, **kwargs):
            result = plain(*args, **kwargs)
            bound = inspect.signature(plain).bind(*args, **kwargs)
            bound.apply_defaults()
            mine = step(name, bound.arguments)
            if mine:
                calls.append((f"{test} {name}", bound.arguments["page"]["text"], mine, bool(result)))
            return result

        return call

    watched = ["page_length_filter", "word_length_filter", "symbol_ratio_filter", "bullet_count_filter", "ellipsis_count_filter", "alphabetic_word_ratio_filter", "stop_word_filter", "massive_web_repetition_filters", "repetition_filter"]
    wrapped = {name: watch(name) for name in watched}
    for name in watched:
        setattr(suite, name, wrapped[name])
    for name in dir(suite):
        if name.startswith("test_"):
            run(name, getattr(suite, name))

    texts = literals("tests/baselines/mappers/*/test_*.py", "tests/baselines/mappers/test_*.py", "tests/baselines/mappers/enrichers/enricher_test_files/*.html")
    asserted = calls[:]
    for text in texts:
        page, cache = {"text": text}, {}
        run("literal", lambda: wrapped["page_length_filter"](dict(page), length_type="word", min_length=50, max_length=100000, ignore_punctuation=True))
        run("literal", lambda: wrapped["word_length_filter"](dict(page), min_length=3, max_length=10))
        run("literal", lambda: wrapped["symbol_ratio_filter"](dict(page), max_symbol_to_word_ratio=0.1))
        run("literal", lambda: wrapped["bullet_count_filter"](dict(page), max_bullet_start_ratio=0.9))
        run("literal", lambda: wrapped["ellipsis_count_filter"](dict(page), max_ellipsis_end_ratio=0.3))
        run("literal", lambda: wrapped["alphabetic_word_ratio_filter"](dict(page), max_ratio=0.2))
        run("literal", lambda: wrapped["stop_word_filter"](dict(page), count_unique=False, min_stop_word=2))
        run("literal", lambda: wrapped["massive_web_repetition_filters"](dict(page)))
        for part in ("line", "paragraph", *range(2, 11)):
            for counted in (False, True) if part in parts else (True,):
                run("literal", lambda: wrapped["repetition_filter"](dict(page), part, max_fraction=0.05, count_characters=counted, cache=cache))
    literal = calls[len(asserted):]
    calls[:] = asserted
    judge("string literals", literal)


def judge(kind, asked):
    found = []
    answers = ours([(text, step[0] if isinstance(step, tuple) else step) for _, text, step, _ in asked])
    for (name, text, step, theirs), mine in zip(asked, answers, strict=True):
        if isinstance(theirs, dict):  # what C4's rules leave of a page
            said = {"text": mine["text"]} if mine["verdict"] is True else {"c4": mine["verdict"][0].removeprefix("c4.").replace("curly_bracket", "curly_brace")}
            agree = said == theirs
        elif isinstance(theirs, tuple):  # a figure
            said = mine["figures"].get("dolma." + theirs[0], mine["verdict"])
            agree = not isinstance(said, (list, bool)) and same(said, theirs[1])
            name += " " + theirs[0]
        elif isinstance(step, tuple):  # a figure of ours against their limit
            said = mine["figures"].get(step[1])
            # there is no figure of a page without words, which is dropped, and of a single line or too few words for an n-gram
            keeps = (mine["verdict"] is True or mine["verdict"][0] != "dclm.min_words") if said is None else said <= step[2]
            agree = keeps == theirs
            said = (said, mine["verdict"], step[1:])
        else:
            said = mine["verdict"]
            agree = (said is True) == theirs
        if not agree:
            name = name if text.split() else f"no-words, {name}"
            found.append((name, text[:80], said, theirs))
    tell(kind, found, len({text for _, text, _, _ in asked}), len(asked))


{"nemo": nemo, "dolma": dolma, "dclm": dclm}[which]()
judge("calls of the tests", calls)
for name, error in failed.items():
    print(f"  not compared: {name}: {error}")
