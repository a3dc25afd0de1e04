"""Writes curate/tests/data/documents/sample.zim with libzim: pages, a redirect, a text and a picture."""

import pathlib

from libzim.writer import Creator, Hint, Item, StringProvider

out = pathlib.Path(__file__).parents[2] / "curate/tests/data/documents/sample.zim"
PAGES = {
    "A_page": ("A page", "text/html", "<html><head><title>A page</title></head><body><h1>A page</h1><p>The first page of a wiki "
               "has some sentences, which are long enough to be its main text.</p><p>It has a second paragraph too, with a "
               "caf\u00e9 and an end.</p></body></html>"),
    "B_page": ("B page", "text/html", "<html><body><p>" + "The second page is longer than the first. " * 20 + "</p></body></html>"),
    "notes.txt": ("Notes", "text/plain", "plain text is no page"),
    "x.png": ("", "image/png", "\u0089PNG"),
}


class Page(Item):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def get_path(self):
        return self.path

    def get_title(self):
        return PAGES[self.path][0]

    def get_mimetype(self):
        return PAGES[self.path][1]

    def get_contentprovider(self):
        return StringProvider(PAGES[self.path][2])

    def get_hints(self):
        return {Hint.FRONT_ARTICLE: True}


out.unlink(missing_ok=True)
creator = Creator(str(out)).config_indexing(False, "eng").set_mainpath("A_page")
with creator:
    for path in PAGES:
        creator.add_item(Page(path))
    creator.add_redirection("Old", "Old name", "A_page", {Hint.FRONT_ARTICLE: True})
    creator.add_metadata("Title", "Sample")
    creator.add_metadata("Language", "eng")
    creator.add_metadata("Source", "https://example.org/")
