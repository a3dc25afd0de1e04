"""Writes curate/tests/data/profiles/nemo.json.zst: the figures of NeMo Curator's heuristic filters for awkward pages.

Needs a checkout of NVIDIA-NeMo/Curator (1e2e4275e), regex, loguru, zstandard. Only the filter modules are imported: the packages
above them pull in Ray. A set there orders n-grams by a random seed; here it keeps the order of the text.

    python tests/oracles/profiles_nemo.py CURATOR TEXTS > curate/tests/data/profiles/nemo.json.zst
"""

import importlib.util
import sys
import types

from profiles_pages import pages, write

root = sys.argv[1] + "/nemo_curator/stages/text/"


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, root + path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class DocumentFilter:
    def __init__(self):
        self._sentences = self._paragraphs = self._ngrams = None


for name in ("nemo_curator", "nemo_curator.stages", "nemo_curator.stages.text", "nemo_curator.stages.text.filters", "nemo_curator.stages.text.utils"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["nemo_curator.stages.text.filters.doc_filter"] = types.SimpleNamespace(DocumentFilter=DocumentFilter)
load("nemo_curator.stages.text.utils.constants", "utils/constants.py")
load("nemo_curator.stages.text.utils.text_utils", "utils/text_utils.py")
s = load("strings", "filters/heuristic/string.py")
r = load("repetition", "filters/heuristic/repetition/repetition.py")
r.set = dict.fromkeys

FIGURES = {
    "max_non_alpha_numeric_ratio": s.NonAlphaNumericFilter(),
    "max_symbol_to_word_ratio": s.SymbolsToWordsFilter(),
    "max_number_ratio": s.NumbersFilter(),
    "max_url_ratio": s.UrlsFilter(),
    "max_white_space_ratio": s.WhiteSpaceFilter(),
    "max_parentheses_ratio": s.ParenthesesFilter(),
    "max_boilerplate_ratio": s.BoilerPlateStringFilter(),
    "min_distinct_line_ratio": r.RepeatedLinesFilter(),
    "min_distinct_paragraph_ratio": r.RepeatedParagraphsFilter(),
    "min_distinct_line_char_ratio": r.RepeatedLinesByCharFilter(),
    "min_distinct_paragraph_char_ratio": r.RepeatedParagraphsByCharFilter(),
    "min_words": s.WordCountFilter(),
    "max_no_end_mark_ratio": s.PunctuationFilter(),
    "min_alphabetic_word_ratio": s.WordsWithoutAlphabetsFilter(),
    "min_common_words": s.CommonEnglishWordsFilter(stop_at_false=False),
    "min_mean_word_length": s.MeanWordLengthFilter(),
    "max_word_length": s.LongWordFilter(),
    "max_ellipsis_ratio": s.EllipsisFilter(),
    **{f"max_top_{n}_gram_ratio": r.RepeatingTopNGramsFilter(n, m) for n, m in ((2, 0.2), (3, 0.18), (4, 0.16))},
    **{f"max_duplicated_{n}_gram_ratio": r.RepeatingDuplicateNGramsFilter(n, (20 - n) / 100) for n in range(5, 11)},
    "max_bullet_ratio": s.BulletsFilter(),
    "max_pornographic_urls": s.PornographicUrlsFilter(),
}

rows = []
for text in pages(sys.argv[2], 400):
    if not text.split():
        continue
    row = {"input": text, "figures": {}, "drops": []}
    for name, rule in FIGURES.items():
        score = rule.score_document(text)
        row["figures"][name] = score
        if not rule.keep_document(score):
            row["drops"].append(name)
    rows.append(row)
write(rows)
