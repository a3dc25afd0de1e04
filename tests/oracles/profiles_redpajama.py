"""Writes curate/tests/data/profiles/redpajama.json.zst: RedPajama-v2's rule-based signals for awkward pages.

Needs a checkout of togethercomputer/RedPajama-Data (6d2cee9), msgspec, nltk 3.8.1 (later ones count
marks as parts of words), numpy, scipy, zstandard.

    python tests/oracles/profiles_redpajama.py REDPAJAMA TEXTS > curate/tests/data/profiles/redpajama.json.zst
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, sys.argv[1] + "/app/src")
sys.dont_write_bytecode = True
from core.document import Document
from core.quality_signals import content, lines, natural_language, repetitions
from profiles_pages import pages, write

folder = Path(tempfile.mkdtemp())
(folder / "en.txt").write_text("batman\nuse cookies\nof the people\nwashington\n")
en = dict(language="en", bad_words_dir=folder, bad_urls_dir=folder)
signals = [content.RPS_Doc_LDNOOBW_Words(**en), content.RPS_Doc_Lorem_Ipsum(), content.RPS_Doc_Curly_Bracket(), content.RPS_Doc_Stop_Word_Fraction(**en)]
signals += natural_language.register_natural_language_callables() + repetitions.register_repetitions_callables() + lines.register_lines_callables()
rows = []
for text in pages(sys.argv[2], 300):
    document = Document(text, domain=None, precompute_ngrams=True)
    found = {}
    for signal in signals:
        spans = [[a, b, None if s is None else float(s)] for a, b, s in signal(document)]
        # the spans of lines are the same for all
        found[signal.field_name] = spans if signal.field_name == "rps_lines_num_words" else [s for _, _, s in spans]
    rows.append({"input": text, "signals": found})
write(rows)
