"""JSON as Python reads and writes it: python tests/oracles/python_json.py > curate/tests/data/python_json.json

Needs Python 3.11 alone. `kept` is the text that our reader and writer should make of `text`: the numbers as they were written,
without white space. Here it is known that Python reads the same from both; `dumps` is what Python writes of it.
`refused` are texts that `json.loads` does not take.
"""
import json, math, sys

TEXTS = [
    ('{"a": NaN}', '{"a":NaN}'),
    ('[NaN, Infinity, -Infinity, 1, -1.5]', '[NaN,Infinity,-Infinity,1,-1.5]'),
    ('{"text": "NaN, Infinity: -Infinity", "n": NaN}', '{"text":"NaN, Infinity: -Infinity","n":NaN}'),
    ('{"deep": {"er": [[{"est": [NaN, {"x": Infinity}]}]]}}', '{"deep":{"er":[[{"est":[NaN,{"x":Infinity}]}]]}}'),
    ('{"NaN": "NaN", "Infinity": Infinity}', '{"NaN":"NaN","Infinity":Infinity}'),
    ('{"quote": "a \\"NaN\\" \\\\", "n": -Infinity}', '{"quote":"a \\"NaN\\" \\\\","n":-Infinity}'),
    ('[1e999, -1e999, 1E+400, 12.5e1000]', '[1e999,-1e999,1E+400,12.5e1000]'),
    ('\t[ NaN ,\r\n Infinity ]\n', '[NaN,Infinity]'),
    ('NaN', 'NaN'),
    ('-Infinity', '-Infinity'),
    ('[0e999, 1e-999]', '[0.0,0.0]'),
    ('{"\ufdd0": 1, "n": NaN}', '{"\ufdd0":1,"n":NaN}'),
    ('["caf\u00e9 NaN \u6f22", NaN, "\\ud83d\\ude00"]', '["caf\u00e9 NaN \u6f22",NaN,"\U0001f600"]'),
    ('[%s]' % ("9" * 400), '[%s]' % ("9" * 400)),
    ('{"id": 123456789012345678901234567890, "n": [-9223372036854775809, 18446744073709551616, 1.5]}',
     '{"id":123456789012345678901234567890,"n":[-9223372036854775809,18446744073709551616,1.5]}'),
    ('[-9223372036854775808, 18446744073709551615]', '[-9223372036854775808,18446744073709551615]'),
    ('[NaN, null, true, false, "", [], {}]', '[NaN,null,true,false,"",[],{}]'),
]
REFUSED = [
    "[nan]", "[NAN]", "[+NaN]", "[-NaN]", "[inf]", "[+Infinity]", "[--Infinity]", "[Infinity1]", "[NaNNaN]", "[NaN NaN]",
    "{NaN: 1}", "{Infinity: NaN}", "[1.e999]", "[.1e999]", "[01e999]", "[1e]", "[1e999.]", "[NaN", "[NaN,]", "[Infinit]", "[- Infinity]",
    "[018446744073709551616]", "[+18446744073709551616]", "[18446744073709551616a]", "{18446744073709551616: 1}",
]


def same(a, b):
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def dumps(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


cases = []
for text, kept in TEXTS:
    assert same(json.loads(text), json.loads(kept)), text
    assert same(json.loads(dumps(json.loads(text))), json.loads(text)), text
    cases.append({"text": text, "kept": kept, "dumps": dumps(json.loads(text))})
for text in REFUSED:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        continue
    sys.exit(f"{text} is read")
made = {"made_by": "tests/oracles/python_json.py", "python": sys.version.split()[0], "cases": cases, "refused": REFUSED}
print(json.dumps(made, indent=1))
