"""Writes curate/tests/data/archives/sample.parquet: nine rows in three row groups, as pyarrow writes them.

Columns: `content` and `url` (strings, one url absent), `id` (int64), `metadata` (struct), `tags` (list), `score` (double).
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
path = pathlib.Path(__file__).parents[2] / "curate/tests/data/archives/sample.parquet"
pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3, compression="snappy")
