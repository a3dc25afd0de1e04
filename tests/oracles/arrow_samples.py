"""Writes curate/tests/data/arrow: Arrow files and streams of pyarrow 26.0.1 and datasets 5.2.0, and the rows in them.

`rows.json`: for each file its rows as Python objects (`to_pylist`, `Dataset.to_list`) in JSON; times, decimal numbers and bytes
are texts, in the forms of the `parquet` crate's JSON.

usage: arrow_samples.py
"""

import base64
import datetime
import decimal
import json
import pathlib
import shutil
import tempfile

import datasets
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

OUT = pathlib.Path(__file__).parents[2] / "curate/tests/data/arrow"
ROWS = 9


def rows():
    """The rows of curate/tests/data/archives/sample.parquet, in three batches."""
    return [
        {
            "id": i,
            "content": f"Text number {i}: " + "gr\u00fc\u00dfe " * i,
            "url": None if i == 4 else f"https://example.org/{i}",
            "metadata": {"lang": "de", "n": i},
            "tags": ["a", "b"][: i % 3],
            "score": i / 4,
        }
        for i in range(ROWS)
    ]


def kinds():
    """A column of each type that pyarrow writes."""
    n = 4
    start = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
    columns = {
        "text": pa.array([f"row {i}" for i in range(n)], pa.large_string()),
        "view": pa.array(["a", None, "a text longer than twelve bytes", "d"], pa.string_view()),
        "word": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "nothing": pa.nulls(n),
        "yes": pa.array([True, None, False, True]),
        "i8": pa.array([-128, 127, None, 0], pa.int8()),
        "u64": pa.array([0, 2**64 - 1, None, 1], pa.uint64()),
        "half": pa.array([0.5, None, -2.0, 1.0], pa.float16()),
        "single": pa.array([0.1, None, -2.5, 1e10], pa.float32()),
        "date": pa.array([datetime.date(1969, 12, 31), None, datetime.date(2024, 2, 29), datetime.date(2100, 1, 1)]),
        "millis": pa.array([start, None, start, start], pa.timestamp("ms")),
        "micros": pa.array([start, None, start, start], pa.timestamp("us", tz="UTC")),
        "time": pa.array([start.time(), None, datetime.time(), start.time()], pa.time64("us")),
        "price": pa.array([decimal.Decimal("-0.05"), None, decimal.Decimal("123.40"), decimal.Decimal("7.00")],
                          pa.decimal128(9, 2)),
        "bytes": pa.array([b"plain", None, b"\xff\x00\x01", b""], pa.binary()),
        "fixed": pa.array([b"abcd", None, b"efgh", b"ijkl"], pa.binary(4)),
        "pair": pa.array([[1, 2], None, [3, None], [4, 5]], pa.list_(pa.int16(), 2)),
        "many": pa.array([["a"], [], None, ["b", None]], pa.large_list(pa.string())),
        "seen": pa.array([[1], [], None, [2, None]], pa.list_view(pa.int32())),
        "nested": pa.array([{"a": {"b": [1]}, "c": "x"}, None, {"a": None, "c": "y"}, {"a": {"b": []}, "c": None}]),
        "pairs": pa.array([[("k", 1)], [], None, [("l", 2), ("m", None)]], pa.map_(pa.string(), pa.int32())),
    }
    return pa.table(columns)


def runs():
    """Runs and unions, which Parquet has not."""
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), pa.array(["a", None, "b"]))
    union = pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1, 0], pa.int8()), pa.array([0, 0, 1, 1, 2], pa.int32()),
        [pa.array([1, 2, 3]), pa.array(["x", "y"])])
    return pa.table({"text": [f"row {i}" for i in range(5)], "runs": ends, "either": union})


def plain(value):
    """As JSON has it: what the reader of Parquet writes for times, numbers and bytes."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, datetime.datetime):
        # the column with a zone has microseconds
        spec = "microseconds" if value.tzinfo else "milliseconds"
        return value.replace(tzinfo=None).isoformat(" ", spec) + " +00:00"
    if isinstance(value, datetime.time):
        return value.isoformat("microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value


def write_file(name, table, batch=3, **options):
    with pa.OSFile(str(OUT / name), "wb") as sink:
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table, max_chunksize=batch)


def write_stream(name, table, batch=3, **options):
    with pa.OSFile(str(OUT / name), "wb") as sink:
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table, max_chunksize=batch)


def write_deltas(name):
    """A stream whose dictionary grows, and one is replaced."""
    def batch(words):
        column = pa.DictionaryArray.from_arrays(pa.array(range(len(words)), pa.int8()), pa.array(words))
        return pa.record_batch([pa.array([f"about {w}" for w in words]), column], ["text", "word"])
    batches = [batch(["a"]), batch(["a", "b", "c"]), batch(["z", "y"])]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.OSFile(str(OUT / name), "wb") as sink:
        with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
            for one in batches:
                writer.write_batch(one)
    return pa.Table.from_batches(batches)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows())
    found = {}
    write_file("sample.arrow", table)
    write_stream("sample-stream.arrow", table)
    write_stream("sample-legacy.arrow", table, use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    pa.feather.write_feather(table, OUT / "sample-lz4.feather", compression="lz4", chunksize=3)
    pa.feather.write_feather(table, OUT / "sample-zstd.feather", compression="zstd", chunksize=3)
    for name in ["sample.arrow", "sample-stream.arrow", "sample-legacy.arrow", "sample-lz4.feather",
                 "sample-zstd.feather"]:
        found[name] = table.to_pylist()
    write_file("kinds.arrow", kinds(), batch=2)
    found["kinds.arrow"] = plain(kinds().to_pylist(maps_as_pydicts="strict"))
    same = kinds().drop_columns(["view", "seen", "half", "nothing", "u64", "pair"])
    pa.parquet.write_table(same, OUT / "kinds.parquet", compression="none", store_schema=False)
    write_stream("runs.arrow", runs(), batch=5)
    found["runs.arrow"] = runs().to_pylist()
    found["deltas.arrow"] = write_deltas("deltas.arrow").to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        data = datasets.Dataset.from_list(
            [{"text": row["content"], "label": i % 2} for i, row in enumerate(rows())],
            features=datasets.Features(
                {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}))
        data.save_to_disk(folder)
        (file,) = pathlib.Path(folder).glob("data-*.arrow")
        shutil.copy(file, OUT / "datasets.arrow")
        found["datasets.arrow"] = data.to_list()
    with open(OUT / "rows.json", "w") as out:
        json.dump(found, out, indent=0, ensure_ascii=True)
        out.write("\n")


if __name__ == "__main__":
    main()
