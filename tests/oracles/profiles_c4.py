"""Writes curate/tests/data/profiles/c4.json.zst: pages as the code that made C4 cleans them, and as DCLM takes addresses out.

Needs text/c4_utils.py of tensorflow-datasets 4.9.4, a checkout of mlfoundations/dclm (361714b) with what
its modules import, spacy 3.8, zstandard. Sentences are spaCy's instead of NLTK's; TensorFlow is not needed for clean_page.

    PYTHONPATH=DCLM python tests/oracles/profiles_c4.py C4_UTILS DCLM TEXTS > curate/tests/data/profiles/c4.json.zst
"""

import sys
import types

import spacy
from profiles_pages import ODD, pages, write

tfds = "tensorflow_datasets"
for name in ("absl", "absl.logging", tfds, tfds + ".core", tfds + ".core.utils", tfds + ".core.utils.lazy_imports_utils", tfds + ".public_api", "c4_utils"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["absl"].logging = sys.modules["absl.logging"]
sys.modules[tfds].public_api = sys.modules[tfds + ".public_api"]
sys.modules[tfds + ".core.utils.lazy_imports_utils"].tensorflow = types.SimpleNamespace(compat=types.SimpleNamespace(as_text=str))
spec = sys.modules["c4_utils"].__dict__
exec(compile(open(sys.argv[1]).read(), "c4_utils", "exec"), spec)
nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
spec["_get_sentences"] = lambda line: [s for s in (s.text.strip() for s in nlp(line).sents) if s]
clean = spec["get_clean_page_fn"]()
spec["get_counter_inc_fn"] = lambda namespace: lambda counter, amt=1: None
bad = spec["get_badwords_filter_fn"]({"en": ["batman", "use cookies", "of the people", "washington", "it"], "zh": ["\u4f60", "sm"]})
from baselines.mappers.modifiers import url_removal_modifier

remove = url_removal_modifier(sys.argv[2] + "/baselines/mappers/iana_tlds.txt")
ODD += [
    "in time see  https://www.example.com/a?b=c#d, or mail a.b@example.org. End.In", "http://10.0.0.1:80/x 1.2.3.4.5 999.1.1.1 x1.2.3.4 1.2.3", "xhttp://1.2.3.4/ and xhttps://a.b.co.uk/(x)",
    "go.to.it.now.or.be.it", "a" * 300 + ".com tail", "\u3000\u2003 spaced.example.com", "caf\u00e9.com e.com\u00e9 e.com_x", "ftp://files.example.net;next", "1.1.1.1", ".com", "a..com", "x.xn--p1ai y",
    "one.two three.org\n\n\nfour.net", "U.S.A. e.g. i.e. no.1 a.m.", "\u212ay.com starts",
]
rows = []
for i, text in enumerate(pages(sys.argv[3], 500)):
    if i % 3 == 0 and text:
        text = ["in ", "com", "The ", "Is it so? ", "\u017fee ", "\u212ay "][i % 6] + text
    reasons = []
    found = list(clean(spec["PageFeatures"](text=text), counter_inc_fn=lambda c, amt=1: reasons.append(c)))
    row = {"input": text, "google": found[0].text if found else {"drop": reasons[-1]}}
    row["bad"] = [not bad(spec["PageFeatures"](text=text, language=lang)) for lang in ("en", "zh")]
    page = remove({"text": text})
    row["urls"] = page[0]["text"] if page else None
    rows.append(row)
write(rows)
