"""Event files of TensorBoard.

    tensorboard_events.py OUT             writes OUT/metrics.jsonl and OUT/events.tfevents: the same numbers as a run writes them and
                                          as TensorBoard's own record writer does
    tensorboard_events.py EVENTS METRICS  finds what TensorBoard's EventAccumulator reads in the folder EVENTS, exported by
                                          `millrace export --to tensorboard`, equal to the numbers of the file METRICS

Needs tensorboard 2.21.0, protobuf 7.36.2, numpy.
"""

import json
import math
import sys

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

# the time of the file's last change, which the test sets
END = 1_700_000_000.0

# steps take times that binary fractions hold, so that sums are exact
STEPS = [
    {"step": 1, "loss": 6.25, "grad_norm": 1.5, "lr": 1e-4, "tokens": 4096, "step_s": 0.5, "mfu": None},
    {"step": 2, "loss": 5.123456789, "grad_norm": 0.1, "lr": 2e-4, "tokens": 8192, "step_s": 0.25, "mfu": 0.375},
    {"step": 2, "valid_loss": 5.5, "valid_samples": 8},
    {"step": 2, "set": "news", "valid_loss": 5.75, "valid_samples": 8},
    {"step": 3, "checkpoint_step": 2, "checkpoint_failed": "no room"},
    {"step": 300, "loss": None, "grad_norm": None, "lr": 3e-4, "tokens": 1228800, "step_s": 2, "stall_s": 0.125,
     "mfu": 0.5, "routing": {"max_load": 1.25}},
    {"step": 301, "loss": 1e-30, "grad_norm": 1e30, "lr": 0.0, "tokens": 123456789012, "step_s": 1, "mfu": None},
]
NOT_FINITE = ("loss", "grad_norm", "valid_loss")


def numbers(line):
    """Names and numbers of a line, as pipelines/docs/watch.md has them."""
    end = f"/{line['set']}" if "set" in line else ""
    for name, value in line.items():
        if name in ("step", "set", "checkpoint_step", "checkpoint_failed"):
            continue
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}{end}", number) for inner, number in value.items())
        elif value is not None:
            yield name + end, value
        elif name in NOT_FINITE:
            yield name + end, math.nan


def kept(lines):
    """Lines with numbers."""
    return [line for line in lines if "loss" in line or "valid_loss" in line]


def make(out):
    with open(f"{out}/metrics.jsonl", "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in STEPS)
    seconds = [line.get("step_s", 0) + line.get("stall_s", 0) for line in kept(STEPS)]
    at = END - sum(seconds)
    with open(f"{out}/events.tfevents", "wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=at, file_version="brain.Event:2").SerializeToString())
        for line, spent in zip(kept(STEPS), seconds):
            at += spent
            event = Event(wall_time=at, step=line["step"])
            for name, number in numbers(line):
                event.summary.value.add(tag=name, simple_value=number)
            writer.write(event.SerializeToString())


def check(events, metrics):
    found = EventAccumulator(events, size_guidance={"scalars": 0})
    found.Reload()
    want = {}
    with open(metrics) as file:
        for line in kept(map(json.loads, file)):
            for name, number in numbers(line):
                want.setdefault(name, []).append((line["step"], number))
    assert set(found.Tags()["scalars"]) == set(want), (found.Tags()["scalars"], set(want))
    count = 0
    for name, points in want.items():
        got = [(event.step, event.value) for event in found.Scalars(name)]
        assert len(got) == len(points), (name, len(got), len(points))
        for (step, value), (want_step, want_value) in zip(got, points):
            same = np.float32(value) == np.float32(want_value) or math.isnan(value) and math.isnan(want_value)
            assert step == want_step and same, (name, step, value, want_step, want_value)
        count += len(got)
    print(f"{len(want)} tags, {count} numbers equal")


if __name__ == "__main__":
    make(sys.argv[1]) if len(sys.argv) == 2 else check(*sys.argv[1:])
