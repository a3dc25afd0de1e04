"""Documents as outside programs write them, and their words as outside programs read them.

    documents.py SPEECHES

SPEECHES is a JSONL file of public-domain speeches. Writes `book.epub`, `report.docx` and `report.odt` (pandoc) and
`tracked.docx` (python-docx, with revisions put in by hand) into `curate/tests/data/documents/`, and `words.json`: the
words of each in order, as pandoc reads them (tracked changes accepted, numbers of lists left out), of the book as
EbookLib and lxml do. Also `two_columns.pdf` (reportlab) and `story.pdf` (PyMuPDF), with running heads, page numbers and
words divided at line ends; their words are those of the texts that were set. And `paper.tar.xz`, LaTeX by pandoc.
"""

import copy
import io
import json
import pathlib
import re
import sys
import tarfile
import zipfile

import docx
import lxml.html
import pymupdf
import pypandoc
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from ebooklib import epub
from reportlab.lib.pagesizes import A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph

out = pathlib.Path(__file__).parents[2] / "curate/tests/data/documents"
texts = [json.loads(line)["text"] for line in open(sys.argv[1], encoding="utf-8")]
# pandoc would read these as marks
texts = [re.sub(r"[*_`^~\[\]<>|$\\#@]", " ", text) for text in texts]


def paragraphs(number, count):
    """Paragraphs of a speech, from its third on."""
    lines = [" ".join(line.split()) for line in texts[number].split("\n")]
    lines = [line for line in lines if len(line) > 60 and line[0].isalpha()]
    return lines[2 : 2 + count]


def chapter(title, number):
    a, b, c, d, e, f = paragraphs(number, 6)
    words = (a + " " + b).split()
    return f"""# {title}

{a}[^{number}]

## Of the *first* part

{b}

- {words[0]} {words[1]} {words[2]}
- {words[3]} {words[4]}
    1. {words[5]} {words[6]} {words[7]}
    2. {words[8]} {words[9]}
- {words[10]} {words[11]}

> {c}

| {words[12]} | {words[13]} | {words[14]} |
|------|------|------|
| {words[15]} | {words[16]} | {words[17]} |
| {words[18]} | {words[19]} | {words[20]} |

{d} **{words[21]}** and a caf\u00e9 & co.

    code {number}

{e}

[^{number}]: {f}

"""


MARKDOWN = """---
title: Speeches & words
author: [Harry Truman, Dwight Eisenhower]
lang: en-US
date: 2001-02-03
rights: public domain
---

""" + "".join(chapter(f"Chapter {i + 1}", i) for i in range(3))


def words(path):
    if path.suffix == ".epub":
        book = epub.read_epub(str(path))
        chapters = [book.get_item_with_id(name) for name, _ in book.spine]
        read = [
            lxml.html.fromstring(chapter.content).find(".//body").text_content()
            for chapter in chapters
            if not isinstance(chapter, epub.EpubNav)
        ]
        return re.findall(r"\w+", " ".join(read))
    read = pypandoc.convert_file(
        str(path), "plain", extra_args=["--standalone", "--wrap=none", "--track-changes=accept"]
    )
    read = re.sub(r"(?m)^\s*(- )?\d+\.\s", " ", read)
    return re.findall(r"\w+", read)


def steady(path):
    """The same archive with the same times in it on every day."""
    with zipfile.ZipFile(path) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for info, data in entries:
            fixed = zipfile.ZipInfo(info.filename, (2020, 1, 2, 3, 4, 6))
            fixed.compress_type = info.compress_type
            if info.filename.endswith((".opf", "core.xml", "meta.xml", ".ncx")):
                data = re.sub(rb"20(2[1-9]|3\d)-\d\d-\d\dT[\d:.]+(Z|[+-][\d:]+)?", b"2020-01-02T03:04:05Z", data)
                data = re.sub(rb"urn:uuid:[0-9a-f-]+", b"urn:uuid:00000000-0000-4000-8000-000000000000", data)
            archive.writestr(fixed, data)


def tracked(path):
    """A document with revisions: an inserted and a deleted run, a deleted mark between two paragraphs, a deleted row."""
    document = docx.Document()
    document.core_properties.author = "python-docx"
    document.core_properties.title = "Tracked"
    document.add_heading("Revised", 1)
    first, second, third = paragraphs(3, 3)

    def revision(kind, run):
        wrapper = OxmlElement(f"w:{kind}")
        wrapper.set(qn("w:id"), "1")
        wrapper.set(qn("w:author"), "a")
        wrapper.append(copy.deepcopy(run._r))
        run._r.getparent().replace(run._r, wrapper)
        if kind == "del":
            for text in wrapper.iter(qn("w:t")):
                text.tag = qn("w:delText")

    paragraph = document.add_paragraph(first)
    revision("del", paragraph.add_run(" Deleted words."))
    revision("ins", paragraph.add_run(" Inserted words."))
    joined = document.add_paragraph("A paragraph whose mark is deleted and")
    mark = joined._p.get_or_add_pPr()
    properties = OxmlElement("w:rPr")
    properties.append(OxmlElement("w:del"))
    mark.append(properties)
    document.add_paragraph(" its continuation. " + second)
    for item in ["one", "two"]:
        document.add_paragraph(item, style="List Bullet")
    for item in ["first", "second"]:
        document.add_paragraph(item, style="List Number")
    table = document.add_table(rows=2, cols=2)
    for row in range(2):
        for column in range(2):
            table.cell(row, column).text = f"cell {row} {column}"
    document.add_paragraph(third)
    document.sections[0].header.paragraphs[0].text = "Running head"
    document.save(path)


def plain(text):
    """Characters that reportlab's and PyMuPDF's own fonts have, without hyphens: at a line's end none tells of which
    kind it is."""
    text = re.sub(r"(?<=\w)-(?=\w)", " ", text)
    return text.replace("\u2019", "'").encode("ascii", "ignore").decode()


def two_columns(path):
    """Justified text in two columns with a head and a page number; long words are divided."""
    speech = [plain(p) for number in (1, 2) for p in paragraphs(number, 22)]

    def edges(page, document):
        page.setFont("Times-Italic", 9)
        page.drawString(40, 560, "Annual Messages" if document.page % 2 else "To the Congress")
        page.drawCentredString(A5[0] / 2, 25, str(document.page))

    frames = [Frame(35 + 180 * i, 50, 170, 490, id=str(i)) for i in range(2)]
    document = BaseDocTemplate(str(path), pagesize=A5, title="Two columns", author="Harry Truman", invariant=1)
    document.addPageTemplates(PageTemplate(frames=frames, onPage=edges))
    style = ParagraphStyle(
        "body", fontName="Times-Roman", fontSize=10, leading=12, alignment=4, firstLineIndent=12,
        hyphenationLang="en_US", embeddedHyphenation=1,
    )
    document.build([Paragraph(p.replace("&", "&amp;"), style) for p in speech])
    return re.findall(r"\w+", " ".join(speech))


def story(path):
    """HTML that PyMuPDF sets: headings and paragraphs, with fonts in the file."""
    texts = [plain(p) for p in paragraphs(2, 14)]
    html = "<h1>A story</h1>" + "".join(f"<p>{p.replace('&', '&amp;')}</p>" for p in texts)
    writer = pymupdf.DocumentWriter(str(path))
    set_text = pymupdf.Story(html)
    more, page = 1, 0
    while more:
        page += 1
        device = writer.begin_page(pymupdf.paper_rect("a5"))
        more, _ = set_text.place(pymupdf.Rect(40, 50, 380, 540))
        set_text.draw(device)
        writer.end_page()
    writer.close()
    document = pymupdf.open(path)
    for number, page in enumerate(document):
        page.insert_text((40, 30), "Running head of a story", fontsize=8)
        page.insert_text((200, 575), f"- {number + 1} -", fontsize=8)
    document.subset_fonts()
    bytes = document.tobytes(garbage=4, deflate=True, no_new_id=True)
    document.close()
    path.write_bytes(bytes)
    return re.findall(r"\w+", "A story " + " ".join(texts))


def paper(path):
    """LaTeX that pandoc writes, without notes, as an archive of two files."""
    markdown = re.sub(r"\[\^\d\](: .*)?", "", MARKDOWN)
    tex = pypandoc.convert_text(markdown, "latex", "markdown", extra_args=["--standalone", "--wrap=none"])
    head, body = tex.split("\\maketitle", 1)
    body, end = body.split("\\end{document}", 1)
    files = {
        "main.tex": head + "\\maketitle % the title\n\\input{parts/body}\n\\end{document}" + end,
        "parts/body.tex": body,
    }
    with tarfile.open(path, "w:xz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    read = pypandoc.convert_text(body, "plain", "latex", extra_args=["--wrap=none"])
    read = re.sub(r"(?m)^\s*(- )?\d+\.\s", " ", read)
    return re.findall(r"\w+", "Speeches words " + read)


out.mkdir(exist_ok=True)
for name in ["book.epub", "report.docx", "report.odt"]:
    extra = ["--split-level=1"] if name.endswith("epub") else []
    pypandoc.convert_text(MARKDOWN, name.split(".")[1], "markdown", outputfile=str(out / name), extra_args=extra)
tracked(out / "tracked.docx")
found = {}
for name in ["book.epub", "report.docx", "report.odt", "tracked.docx"]:
    steady(out / name)
    found[name] = words(out / name)
found["paper.tar.xz"] = paper(out / "paper.tar.xz")
found["two_columns.pdf"] = two_columns(out / "two_columns.pdf")
found["story.pdf"] = story(out / "story.pdf")
with open(out / "words.json", "w", encoding="utf-8") as file:
    json.dump(found, file, ensure_ascii=False)
    file.write("\n")
