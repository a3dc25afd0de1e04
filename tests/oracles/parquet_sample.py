"""Writes files of nine rows in three row groups, as pyarrow writes them, to curate/tests/data/archives/.

sample.parquet has the columns `content` and `url` (strings, one url absent), `id` (int64), `metadata` (struct), `tags` (list)
and `score` (double). codecs.parquet has the same string in every column: `text`, and one of each codec with its name.
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

rows = [
    {
        "id": i,
        "content": f"Text number {i}: " + "gr\u00fc\u00dfe " * i,
        "url": None if i == 4 else f"https://example.org/{i}",
        "metadata": {"lang": "de", "n": i},
        "tags": ["a", "b"][: i % 3],
        "score": i / 4,
    }
    for i in range(9)
]
folder = pathlib.Path(__file__).parents[2] / "curate/tests/data/archives"
pq.write_table(pa.Table.from_pylist(rows), folder / "sample.parquet", row_group_size=3, compression="snappy")

codecs = {"text": "NONE"} | {name: name.upper() for name in ["snappy", "gzip", "zstd", "lz4", "brotli"]}
texts = [f"Text number {i}: " + "gr\u00fc\u00dfe " * i for i in range(9)]
table = pa.table({name: texts for name in codecs})
pq.write_table(table, folder / "codecs.parquet", row_group_size=3, compression=codecs, use_dictionary=False)
