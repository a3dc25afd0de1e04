"""Random pieces of public-domain speeches: the texts of the goldens of decontamination."""
import json
import random


def pieces_of(path):
    """A function that cuts so many words out of the texts of a JSONL file, at a place that `random` chooses."""
    words = " ".join(json.loads(l)["text"] for l in open(path, encoding="utf-8")).split()

    def piece(length):
        at = random.randrange(len(words) - length)
        return " ".join(words[at : at + length])

    return piece
