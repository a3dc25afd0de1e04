"""Makes pages with certain main text, of kinds that public gold sets have few of.

    python3 extraction_pages.py DATA OUT [--seed 1] [--per-kind 40] [--golden FILE]

DATA as in extraction_scores.py, with `text/` and `langid/` beside. OUT gets `html-gold/gold-made.jsonl.zst` and
`webarchive/minicc/made.warc.gz`, so that `DATA:OUT` is a data directory of both for extraction_scores.py
and extraction_train.py. Needs lxml 6, fastwarc, zstandard.

Kinds: long, forum, repetitive, mathematical, tabular, non_latin. Every text stands in two sorts of pages:
  chrome     a page of the gold sets, whose main text is taken out and the new text put in its place, with the tag
             and class of its paragraphs, between what the site puts between them. Navigation, sidebars, cookie
             notices, related links, comments stay: they are no text, as the page's own gold says. Statements of
             the old text (JSON-LD, description) are replaced. The page keeps its host, and with it its fold.
  template   a page after the public templates of engines and generators (documentation, wikis, blogs, forums, plain
             files). The template counts as the host, so a fold never sees the template it is asked about.

Sources: computationalstylistics/100_english_novels (public domain), nltk_data's state_union and genesis (public
domain), movie_reviews (CC-BY-4.0) and UDHR (public domain); quickwit-oss/tantivy's 1,000 Wikipedia articles
(CC-BY-SA); mosaicml/llm-foundry's arXiv sample (Apache-2.0 repository, papers are their authors'); karpathy/char-rnn's
Shakespeare (public domain); pemistahl/lingua-rs' sentences (Leipzig Corpora, CC-BY-4.0). Contracts, songs'
arrangement and tables of numbers are generated here. The pages themselves are not redistributed, but for those of
--golden, which curate/tests/all/kinds.rs reads: a few small pages of each kind in templates, of texts whose licences
allow it (public domain, CC-BY, CC-BY-SA); their formulas stand between paragraphs of Wikipedia.
"""
import argparse, collections, html, io, json, os, random, re, sys, uuid, zlib
import lxml.html, zstandard
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import extraction_scores as scores
from extraction_templates import FORUMS, TEMPLATES

KINDS = ["long", "repetitive", "mathematical", "tabular", "non_latin"]
# lingua code, UDHR code
SCRIPTS = [
    ("zh", "cmn_hans"), ("ja", "jpn"), ("ko", "kor"), ("ar", "arb"), ("hi", "hin"), ("th", "tha"), ("ru", "rus"), ("he", "heb"),
    ("fa", "pes_1"), ("el", "ell_monotonic"), ("bn", "ben"), ("ta", "tam"), ("te", None), ("ka", "kat"), ("hy", "hye"),
    ("uk", "ukr"), ("bg", "bul"), ("ur", "urd"), ("mr", "mar"), ("gu", "guj"), (None, "khm"), (None, "mya"), (None, "amh"), (None, "lao"),
]


class Piece:
    """A piece of a text: `tag` is p, h2, pre, table, li or formula; `markup` its inside, `text` its gold."""

    def __init__(self, tag, text, markup=None):
        self.tag, self.text = tag, text
        self.markup = html.escape(text, quote=False) if markup is None else markup


def lines(path):
    with zstandard.ZstdDecompressor().stream_reader(open(path, "rb")) as stream:
        yield from (l.rstrip("\n") for l in io.TextIOWrapper(stream, "utf-8"))


class Texts:
    """The licensed texts by kind."""

    def __init__(self, data, rng):
        at = lambda name: os.path.join(data, name)
        self.rng = rng
        load = lambda name: [json.loads(l) for l in lines(at(name))]
        self.novels = [self.paragraphs(r["text"]) for r in load("text/english-novels-shared.jsonl.zst")]
        speeches = load("text/state_union.jsonl.zst")
        self.speeches = [[" ".join(p.split()) for p in re.split(r"\n\s*\n", r["text"]) if p.strip()] for r in speeches]
        self.genesis = next(r["text"].splitlines() for r in load("text/genesis.jsonl.zst") if "kjv" in r["id"])
        self.wiki = load("text/wikipedia-1000.json.zst")
        self.papers = [r["text"] for r in load("text/arxiv-sample.jsonl.zst") if r["text"].count("$") > 250]
        self.reviews = [" ".join(r["text"].split()) for r in load("text/movie_reviews-shared.jsonl.zst")]
        self.verse = [l for l in lines(at("text/tinyshakespeare.txt.zst")) if len(l) > 20 and not l.endswith(":")]
        self.sentences, self.words, self.rights = collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list)
        for line in lines(at("langid/lingua-testdata-shared.tsv.zst")):
            code, sort, text = line.split("\t", 2)
            (self.sentences if sort == "sentences" else self.words)[code].append(text)
        for line in lines(at("langid/udhr2-shared.tsv.zst")):
            code, text = line.split("\t", 1)
            self.rights[code].append(text)

    @staticmethod
    def paragraphs(text):
        return [" ".join(l.split()) for l in text.splitlines() if l.strip()]

    def article(self):
        """Paragraphs of an encyclopedia's article, with its title."""
        while True:
            row = self.rng.choice(self.wiki)
            found = self.paragraphs(row["body"])[1:]
            if sum(len(p.split()) for p in found) > 60:
                return row["title"], found

    def prose(self, most):
        """Running text of a book or a speech, up to so many words."""
        rng = self.rng
        source = rng.choice(self.novels) if rng.random() < 0.7 else rng.choice(self.speeches)
        start = rng.randrange(max(1, len(source) // 2))
        found, count = [], 0
        for p in source[start:]:
            if count >= most:
                break
            found.append(p)
            count += len(p.split())
        return found

    def long(self):
        rng = self.rng
        most = int(3000 * 7 ** rng.random())
        pieces = []
        for i, p in enumerate(self.prose(most)):
            is_title = len(p) < 40 and p.upper() == p and re.search("[A-Z]", p)
            if is_title or (i % 60 == 0 and rng.random() < 0.5):
                pieces.append(Piece("h2", p if is_title else f"Chapter {i // 60 + 1}"))
                if is_title:
                    continue
            pieces.append(Piece("p", p))
        return "en", "A book", pieces

    def repetitive(self):
        rng = self.rng
        sort = rng.randrange(3)
        if sort == 0:
            parties = rng.choice([("Seller", "Buyer"), ("Landlord", "Tenant"), ("Licensor", "Licensee"), ("Lender", "Borrower")])
            things = ["the Equipment", "the Premises", "the Software", "the Loan", "the Goods", "the Records", "the Deposit", "the Account"]
            acts = ["deliver", "return", "insure", "inspect", "maintain", "replace", "describe in writing", "keep available"]
            days = [7, 10, 14, 21, 30, 45, 60, 90]
            pieces = []
            for n in range(rng.randrange(25, 90)):
                who, whom = rng.sample(parties, 2)
                if n % 12 == 0:
                    pieces.append(Piece("h2", f"Article {n // 12 + 1}. Duties of the {who}"))
                pieces.append(Piece("p", f"{n // 12 + 1}.{n % 12 + 1} The {who} shall {rng.choice(acts)} {rng.choice(things)} within "
                                    f"{rng.choice(days)} days after written notice by the {whom}, and if the {who} fails to do so, the {whom} may "
                                    f"terminate this Agreement with respect to {rng.choice(things)} without further liability."))
            return "en", "Agreement", pieces
        if sort == 1:
            start = rng.randrange(len(self.verse) - 400)
            chorus = self.verse[start : start + 4]
            pieces, at = [], start + 4
            for n in range(rng.randrange(6, 16)):
                stanza = self.verse[at : at + 4]
                at += 4
                for part in (stanza, chorus):
                    pieces.append(Piece("p", "\n".join(part), "<br>\n".join(html.escape(l, quote=False) for l in part)))
            return "en", "A song", pieces
        start = rng.randrange(max(1, len(self.genesis) - 300))
        verses = self.paragraphs("\n".join(self.genesis[start : start + 30]))
        names = [w for w, _ in zip(self.rng.sample(self.wiki, 40), range(40))]
        pieces = []
        for n, row in enumerate(names[: rng.randrange(20, 40)]):
            age = rng.randrange(30, 200)
            pieces.append(Piece("p", f"And {row['title']} lived {age} years, and begat {names[n - 1]['title']}: and all the days of "
                                f"{row['title']} were {age + rng.randrange(100, 800)} years, and he died."))
        return "en", "Generations", [Piece("p", v) for v in verses[:5]] + pieces

    def mathematical(self):
        rng = self.rng
        paper = rng.choice(self.papers)
        notation = rng.randrange(5)
        pieces = []
        start = rng.randrange(max(1, len(paper) - 25000))
        paper = paper[paper.find("\n\n", start) :]
        for part in re.split(r"\n\s*\n", paper):
            part = re.sub(r"(?<!\\)%.*", "", part)
            shown = re.search(r"\\begin\{(equation|align|eqnarray)\*?\}(.*?)\\end\{\1\*?\}", part, re.S)
            blocks = [(part, False)] if not shown else [(part[: shown.start()], False), (shown.group(2), True), (part[shown.end() :], False)]
            for text, is_formula in blocks:
                piece = formula(text, notation) if is_formula else paragraph(text, notation)
                if piece is not None:
                    pieces.append(piece)
            if sum(len(p.text.split()) for p in pieces) > rng.randrange(500, 2500):
                break
        return "en", "On a theorem", pieces

    def tabular(self):
        rng = self.rng
        pieces = []
        title, intro = self.article()
        for n in range(rng.randrange(1, 4)):
            pieces.append(Piece("p", intro[n % len(intro)]))
            if rng.random() < 0.6:
                rows = [["Name", "Year", "Description"]]
                for row in rng.sample(self.wiki, rng.randrange(8, 45)):
                    year = re.search(r"\b(1[5-9]|20)\d\d\b", row["body"])
                    first = next((p for p in self.paragraphs(row["body"])[1:] if len(p) > 20), row["title"])
                    rows.append([row["title"], year.group() if year else "-", first.split(". ")[0][:120]])
            else:
                head = rng.sample(["Height", "Weight", "Price", "Rate", "Points", "Population", "Area", "Speed", "Depth"], rng.randrange(3, 7))
                rows = [["Name"] + head]
                for row in rng.sample(self.wiki, rng.randrange(10, 60)):
                    rows.append([row["title"]] + [f"{rng.random() * 10 ** rng.randrange(1, 5):.{rng.randrange(3)}f}" for _ in head])
            cells = lambda row, tag: "<tr>" + "".join(f"<{tag}>{html.escape(c, quote=False)}</{tag}>" for c in row) + "</tr>\n"
            markup = "<thead>" + cells(rows[0], "th") + "</thead>\n<tbody>" + "".join(cells(r, "td") for r in rows[1:]) + "</tbody>"
            pieces.append(Piece("table", "\n".join(" | ".join(r) for r in rows), markup))
        pieces += [Piece("p", p) for p in intro[:3]] if rng.random() < 0.5 else []
        return "en", title, pieces

    def non_latin(self):
        rng = self.rng
        lingua, udhr = rng.choice(SCRIPTS)
        if udhr and (lingua is None or rng.random() < 0.5):
            paragraphs = self.rights[udhr]
        else:
            joint = "" if lingua in ("zh", "ja", "th") else " "
            some = rng.sample(self.sentences[lingua], min(len(self.sentences[lingua]), rng.randrange(20, 90)))
            paragraphs, at = [], 0
            while at < len(some):
                step = rng.randrange(2, 7)
                paragraphs.append(joint.join(some[at : at + step]))
                at += step
        code = lingua or {"khm": "km", "mya": "my", "amh": "am", "lao": "lo"}[udhr]
        return code, paragraphs[0][:60], [Piece("p", " ".join(p.split())) for p in paragraphs]

    def posts(self):
        """Title and posts of a thread."""
        rng = self.rng
        found = []
        title, article = self.article()
        for n in range(rng.randrange(3, 14)):
            sort = rng.random()
            if sort < 0.35:
                review = rng.choice(self.reviews).split(" . ")
                at = rng.randrange(max(1, len(review) - 3))
                found.append([" . ".join(review[at : at + rng.randrange(1, 6)])])
            elif sort < 0.7:
                found.append([" ".join(rng.sample(self.sentences["en"], rng.randrange(1, 5)))])
            else:
                found.append(article[: rng.randrange(1, 3)])
        return "en", title, found

    def menu(self, language, count):
        """Short texts for navigation."""
        known = self.words.get(language) or self.words["en"]
        return [w.strip().capitalize() for w in self.rng.sample(known, min(count, len(known)))]


def tex_markup(tex, notation, shown):
    """A formula as MathJax reads it, as MathJax 2 left it, and as KaTeX, LaTeXML and MediaWiki wrote it; and its text."""
    plain = html.escape(tex, quote=False)
    named = html.escape(tex)
    if notation == 0:
        return (f"\\[{plain}\\]", f"\\[{tex}\\]") if shown else (f"\\({plain}\\)", f"\\({tex}\\)")
    dollars = f"$${tex}$$" if shown else f"${tex}$"
    if notation == 1:
        mode = "; mode=display" if shown else ""
        return f'<span class="MathJax_Preview"></span><script type="math/tex{mode}">{tex}</script>', dollars
    symbols = "".join(f"<mi>{c}</mi>" for c in re.findall(r"[A-Za-z0-9]", tex)[:12])
    if notation == 2:
        inner = (f'<span class="katex"><span class="katex-mathml"><math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mrow>{symbols}</mrow>'
                 f'<annotation encoding="application/x-tex">{plain}</annotation></semantics></math></span>'
                 f'<span class="katex-html" aria-hidden="true"><span class="base"><span class="mord">x</span></span></span></span>')
        return (f'<span class="katex-display">{inner}</span>' if shown else inner), dollars
    if notation == 3:
        return f'<math class="ltx_Math" alttext="{named}" display="{"block" if shown else "inline"}"><mrow>{symbols}</mrow></math>', dollars
    return (f'<span class="mwe-math-element"><span class="mwe-math-mathml-{"display" if shown else "inline"} mwe-math-mathml-a11y" style="display: none;">'
            f'<math alttext="{{\\displaystyle {named}}}"><semantics><mrow>{symbols}</mrow><annotation encoding="application/x-tex">{{\\displaystyle {plain}}}'
            f'</annotation></semantics></math></span><img class="mwe-math-fallback-image-inline" src="/f.svg" alt="{named}"></span>'), dollars


def formula(tex, notation):
    tex = " ".join(re.sub(r"\\label\{[^}]*\}|\\nonumber|\\notag", "", tex).split()).rstrip("\\ &")
    if not tex or "$" in tex or len(tex) > 400 or "\\begin" in tex:
        return None
    markup, text = tex_markup(tex.replace("&", ""), notation, True)
    return Piece("formula", text, markup)


def paragraph(source, notation):
    """A paragraph of a paper: formulas stay, commands of the text go."""
    head = re.match(r"\s*\\(sub)*section\*?\{([^{}]*)\}", source)
    source = re.sub(r"\\(cite|citep|citet|label|ref|eqref|footnote|vspace|hspace|url)\s*(\[[^\]]*\])*\{[^{}]*\}", "", source)
    source = re.sub(r"\\(sub)*section\*?\{[^{}]*\}", "", source)
    source = re.sub(r"\\(emph|textit|textbf|text|mbox|textrm)\{([^{}]*)\}", r"\2", source)
    parts = re.split(r"(?<!\\)\$([^$]+)\$", source)
    markup, text = [], []
    for i, part in enumerate(parts):
        if i % 2:
            tex = " ".join(part.split())
            m, t = tex_markup(tex, notation, False)
        else:
            if re.search(r"\\(begin|end|item|includegraphics|newcommand|def)\b", part):
                return None
            t = re.sub(r"\\[a-zA-Z]+\*?|[{}~\\]", " ", part.replace("``", '"').replace("''", '"'))
            t = re.sub(r"\s+", " ", t)
            m = html.escape(t, quote=False)
        markup.append(m)
        text.append(t)
    joined = "".join(text).strip()
    if head and len(joined.split()) < 3:
        return Piece("h2", head.group(2)) if head.group(2).strip() and "$" not in head.group(2) else None
    return Piece("p", joined, "".join(markup).strip()) if len(joined.split()) >= 6 else None


BLOCKS = ("p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "blockquote", "pre", "figcaption", "td", "th", "dd", "dt", "div", "span", "section")


def grams(tokens):
    return list(zip(tokens, tokens[1:], tokens[2:], tokens[3:]))


def own_text(element):
    """Text of the element if no block is inside, else what stands right inside of it."""
    if any(isinstance(e.tag, str) and e.tag in BLOCKS and e.tag != "span" for e in element.iterdescendants()):
        return " ".join([element.text or ""] + [e.tail or "" for e in element])
    return element.text_content()


class Chrome:
    """A page of the gold sets without its main text."""

    def __init__(self, row, body):
        self.row = row
        self.body = body.decode("utf-8")  # pages in other charsets are left out
        self.gold = set(grams(scores.words(scores.gold_text(row))))
        if len(self.gold) < 100:
            raise ValueError("short")
        self.root = self.parse()

    def parse(self):
        return lxml.html.document_fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", self.body))

    def hits(self, root):
        """Elements whose text is of the gold, without those inside of another."""
        found = []
        for e in root.iter(*BLOCKS):
            tokens = scores.words(own_text(e))
            if len(tokens) < 6:
                continue
            g = grams(tokens)
            if sum(x in self.gold for x in g) >= 0.6 * len(g):
                found.append((e, len(tokens)))
        return found

    def with_text(self, title, pieces, rng):
        """The page with another text, or None where that cannot be done cleanly."""
        root = self.parse()
        body = root.find("body")
        if body is None:
            return None
        hits = self.hits(body)
        groups = collections.Counter()
        for e, n in hits:
            if e.tag in ("p", "div"):
                groups[e.getparent(), e.tag, e.get("class")] += n
        if not groups:
            return None
        (parent, tag, name), most = groups.most_common(1)[0]
        if most < 0.5 * sum(n for _, n in hits):
            return None
        places = [e for e, _ in hits if e.getparent() is parent and e.tag == tag and e.get("class") == name]
        old_title = scores.squeeze(self.row.get("title") or "")
        for e in root.iter("h1", "title"):
            if e.tag == "title" or (old_title and scores.squeeze(e.text_content()) == old_title):
                for child in list(e):
                    e.remove(child)
                e.text = title
        made = []
        for p in pieces:
            name_of = f' class="{html.escape(name)}"' if name else ""
            inner = {"p": f"<{tag}{name_of}>{p.markup}</{tag}>", "formula": f"<{tag}{name_of}>{p.markup}</{tag}>",
                     "table": f"<table>{p.markup}</table>"}.get(p.tag, f"<{p.tag}>{p.markup}</{p.tag}>")
            element = lxml.html.fragment_fromstring(inner)
            element.tail = "\n"
            made.append(element)
        for n, place in enumerate(places):
            for element in made[n * len(made) // len(places) : (n + 1) * len(made) // len(places)]:
                place.addprevious(element)
        for e, _ in hits:
            if e.getparent() is not None and not any(m is x for m in e.iter() for x in made):
                e.drop_tree()
        for e in list(root.iter("script")):
            if "ld+json" in (e.get("type") or ""):
                e.getparent().remove(e)
        for e in root.iter("meta"):
            key = (e.get("name") or e.get("property") or "").lower()
            if key.endswith("description"):
                e.set("content", pieces[0].text[:150])
            if key.endswith("title"):
                e.set("content", title)
        rest = grams(scores.words(" ".join(body.itertext())))
        kept = set(g for p in pieces for g in grams(scores.words(p.text)))
        left = sum(g in self.gold and g not in kept for g in rest)
        if left > 0.05 * len(self.gold):
            return None
        return "<!doctype html>" + lxml.html.tostring(root, encoding="unicode")


def chromes(data):
    """Pages of the gold sets whose main text is fully known, one per host."""
    rows = [r for r in scores.gold_rows(data) if scores.gold_text(r) and r["source"] != "hhursev/recipe-scrapers"]
    rows = [r for r in rows if r.get("page_type", "article") in ("article", "documentation") and r.get("gold_containment", 1) >= 0.9]
    seen, found = set(), []
    for row, body in scores.pages(data, rows):
        host = ".".join((urlsplit(row["url"]).hostname or "").split(".")[-2:])
        if host in seen or len(body) > 600_000:
            continue
        try:
            found.append(Chrome(row, body))
            seen.add(host)
        except (ValueError, UnicodeDecodeError, lxml.etree.ParserError):
            continue
    return sorted(found, key=lambda c: zlib.crc32(c.row["url"].encode()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("out")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--golden")
    ap.add_argument("--per-kind", type=int, default=40, help="pages in chrome of the gold sets for each kind")
    a = ap.parse_args()
    rng = random.Random(a.seed)
    texts = Texts(a.data, rng)
    made = []
    if a.golden:
        write_golden(a.golden, texts, rng)
        return

    def add(kind, url, page, gold, title, template):
        made.append(({"url": url, "source": f"made/{kind}", "gold_kind": "made", "gold_text": gold, "title": title, "template": template}, page))

    hosts = chromes(a.data)
    at = {kind: 0 for kind in KINDS}
    for n, chrome in enumerate(hosts):
        kind = KINDS[n % len(KINDS)]
        if at[kind] >= a.per_kind:
            continue
        _, title, pieces = getattr(texts, kind)()
        page = chrome.with_text(title, pieces, rng) if pieces else None
        if page is None:
            continue
        at[kind] += 1
        add(kind, chrome.row["url"] + f"#made-{kind}", page, "\n".join(p.text for p in pieces), title, "chrome")
    print("pages in chrome of gold sets:", at, "of", len(hosts), "hosts")
    for name, template in TEMPLATES.items():
        for kind in KINDS:
            language, title, pieces = getattr(texts, kind)()
            if not pieces:
                continue
            page = template(language, title, pieces, texts.menu(language, 40), rng)
            add(kind, f"https://{name}.made/{kind}", page, "\n".join(p.text for p in pieces), title, name)
    for name, forum in FORUMS.items():
        for n in range(3):
            language, title, posts = texts.posts()
            page = forum(language, title, posts, texts.menu(language, 40), rng)
            add("forum", f"https://{name}.made/{n}", page, "\n".join("\n".join(p) for p in posts), title, name)
    write(a.out, made)
    print(collections.Counter(r["source"] for r, _ in made))


FORMULAS = ["E = mc^2", r"\int_0^\infty e^{-x^2} dx = \frac{\sqrt{\pi}}{2}", r"a_{n+1} = a_n + a_{n-1}", r"\sum_{k=1}^n k = \frac{n(n+1)}{2}",
            r"e^{i\pi} + 1 = 0", r"\nabla \cdot \mathbf{B} = 0", r"P(A|B) = \frac{P(B|A) P(A)}{P(B)}", r"x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}"]


def formulas_between(texts, rng):
    """Paragraphs of articles with formulas inside and between."""
    notation, pieces = rng.randrange(5), []
    for _ in range(3):
        for p in texts.article()[1][:3]:
            markup, text = tex_markup(rng.choice(FORMULAS), notation, False)
            pieces.append(Piece("p", f"{p} So {text} holds.", f"{html.escape(p, quote=False)} So {markup} holds."))
            markup, text = tex_markup(rng.choice(FORMULAS), notation, True)
            pieces.append(Piece("formula", text, markup))
    return "en", "On a theorem", pieces


def write_golden(path, texts, rng):
    rows = []
    for kind in KINDS:
        for name in rng.sample(sorted(TEMPLATES), 6):
            language, title, pieces = formulas_between(texts, rng) if kind == "mathematical" else getattr(texts, kind)()
            if kind == "long":
                pieces = pieces[: next((i for i in range(len(pieces)) if sum(len(p.text.split()) for p in pieces[:i]) > 3000), len(pieces))]
            page = TEMPLATES[name](language, title, pieces, texts.menu(language, 40), rng)
            rows.append({"kind": kind, "template": name, "html": page, "text": "\n".join(p.text for p in pieces)})
    for name in sorted(FORUMS):
        language, title, posts = texts.posts()
        page = FORUMS[name](language, title, posts[:5], texts.menu(language, 40), rng)
        rows.append({"kind": "forum", "template": name, "html": page, "text": "\n".join("\n".join(p) for p in posts[:5])})
    with zstandard.open(path, "wt", cctx=zstandard.ZstdCompressor(19), encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write(out, made):
    import gzip

    for folder in ("html-gold", "webarchive/minicc"):
        os.makedirs(os.path.join(out, folder), exist_ok=True)
    archive = os.path.join(out, "webarchive/minicc/made.warc.gz")
    with gzip.open(archive, "wb", 6) as f, zstandard.open(os.path.join(out, "html-gold/gold-made.jsonl.zst"), "wt", encoding="utf-8") as gold:
        for n, (row, page) in enumerate(made):
            row["record_id"] = f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, row['url'] + str(n))}>"
            body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page.encode()
            head = (f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: {row['record_id']}\r\nWARC-Target-URI: {row['url']}\r\n"
                    f"WARC-Date: 2026-11-28T00:00:00Z\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: {len(body)}\r\n\r\n")
            f.write(head.encode() + body + b"\r\n\r\n")
            gold.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
