"""Writes curate/tests/data/documents/encrypted: small PDFs in every way of encryption that qpdf writes, and their text.

`plain.pdf` is ReportLab's; pikepdf (qpdf) encrypts it with the empty user password, `locked.pdf` with another one.
`text.json`: for each file the words of each page as PDFium reads them, and its title.

usage: pdf_encrypted.py (reportlab 5.1.0, pikepdf 10.18.0, pypdfium2 5.15.2)
"""

import json
import pathlib

import pikepdf
import pypdfium2
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

OUT = pathlib.Path(__file__).parents[2] / "curate/tests/data/documents/encrypted"
PAGES = [
    ["The keeper of the light wrote down", "the height of the sea each evening."],
    ["On the third day (a Sunday) the lamp", "would not burn, and nobody knew why."],
    ["It was found that the oil was water."],
]


def plain(path):
    page = canvas.Canvas(str(path), pagesize=A4, invariant=True)
    page.setTitle("The light (a story)")
    page.setAuthor("M\u00e4rta \u0141")
    for lines in PAGES:
        page.setFont("Times-Roman", 12)
        for i, line in enumerate(lines):
            page.drawString(72, 700 - 15 * i, line)
        page.showPage()
    page.save()


def words(path):
    with pypdfium2.PdfDocument(path) as pdf:
        pages = [page.get_textpage().get_text_bounded().split() for page in pdf]
        return {"title": pdf.get_metadata_value("Title"), "pages": pages}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    plain(OUT / "plain.pdf")
    ways = {
        "rc4_40": (pikepdf.Encryption(user="", owner="owner", R=2, aes=False, metadata=False), False),
        "rc4_128": (pikepdf.Encryption(user="", owner="owner", R=3, aes=False, metadata=False), False),
        "aes_128": (pikepdf.Encryption(user="", owner="owner", R=4), False),
        "aes_128_packed": (pikepdf.Encryption(user="", owner="owner", R=4), True),
        "aes_256_r5": (pikepdf.Encryption(user="", owner="owner", R=5), False),
        "aes_256": (pikepdf.Encryption(user="", owner="owner", R=6), False),
        "aes_256_packed": (pikepdf.Encryption(user="", owner="owner", R=6), True),
        "locked": (pikepdf.Encryption(user="secret", owner="owner", R=6), False),
    }
    found = {"plain.pdf": words(OUT / "plain.pdf")}
    for name, (encryption, packs) in ways.items():
        mode = pikepdf.ObjectStreamMode.generate if packs else pikepdf.ObjectStreamMode.disable
        path = OUT / f"{name}.pdf"
        with pikepdf.open(OUT / "plain.pdf") as pdf:
            pdf.save(path, encryption=encryption, object_stream_mode=mode, deterministic_id=False, linearize=name == "aes_128")
        if name != "locked":
            found[path.name] = words(path)
    with open(OUT / "text.json", "w") as out:
        json.dump(found, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main()
