"""Named character references of HTML (WHATWG, section 13.5), from Python's standard library.

    python3 html_entities.py > curate/src/text/entities.txt

One a line, sorted by bytes: name with its semicolon if it has one, then its code points in hex.
"""
import html.entities

for name in sorted(html.entities.html5, key=str.encode):
    print(name, *(f"{ord(c):x}" for c in html.entities.html5[name]))
