"""Conversations as tokens by transformers' `apply_chat_template(return_assistant_tokens_mask=True)`: byte-level BPE with ChatML's special
tokens, and a vocabulary of words with a mark in front of each as SentencePiece's, each under three templates; and byte-level BPE in which
the white space before an answer is cut otherwise than at the end of a text, under a template with such headers as Llama 3's. No answer ends with a
character of several tokens, of which transformers would mark the first alone. Writes tests/data/chat_masks.json. transformers 4.57.6 or 5.24, jinja2.

    python tests/oracles/chat_masks.py
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXTS = [
    "The quick brown fox jumps over the lazy dog. Hello there, how are you today?",
    "I am fine, thank you. The capital of France is Paris. User: Assistant: system user assistant",
    "Übung macht den Meister. naïve café 日本語のテキスト. 1 + 2 = 3, 10 * 10 = 100.",
] * 4

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# white space around blocks is trimmed, and answers are trimmed as well
INDENTED = """{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] | trim + ' [/INST]' }}
    {%- elif message['role'] == 'system' %}
        {{- '<<SYS>>' + message['content'] + '<</SYS>>' }}
    {%- else %}
        {%- generation -%}
        {{ ' ' + message['content'] | trim + eos_token }}
        {%- endgeneration -%}
    {%- endif %}
{%- endfor %}"""
# answers begin and end within words of the vocabulary
GLUED = (
    "{% for message in messages %}{{ message['role'] + ':' }}{% if message['role'] == 'assistant' %}{% generation %}"
    "{{ message['content'] }}{% endgeneration %}{% else %}{{ message['content'] }}{% endif %}{{ 's;' }}{% endfor %}"
)

# two line feeds are one token at the end of a text, and two before a letter
HEADERS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '\n\n' }}{% endgeneration %}{% else %}{{ message['content'] + '\n\n' }}"
    "{% endif %}{{ 'End' }}{% endfor %}"
)

CONVERSATIONS = [
    [("user", "Hello there"), ("assistant", "I am fine, thank you.")],
    [
        ("system", "Be brief."),
        ("user", "How are you today? "),
        ("assistant", " Fine. \n"),
        ("user", "1 + 2"),
        ("assistant", "1 + 2 = 3"),
    ],
    [("user", "日本語"), ("assistant", "naïve 🙂 café Übung"), ("user", "dog"), ("assistant", "fox")],
    [("user", "<|im_end|> in a text"), ("assistant", "the <|im_start|> mark")],
]


def byte_level(texts=TEXTS):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer, "<|endoftext|>", "<|endoftext|>"


def marked_words():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    # bytes are ordinary tokens
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(data)), "<s>", "</s>"


def main():
    out = []
    three = [("chatml", CHATML), ("indented", INDENTED), ("glued", GLUED)]
    lines = byte_level([text + "\n\n" for text in TEXTS])
    for (tokenizer, bos, eos), templates in [(byte_level(), three), (marked_words(), three), (lines, [("headers", HEADERS)])]:
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
        cases = []
        for name, template in templates:
            for talk in CONVERSATIONS:
                messages = [{"role": role, "content": content} for role, content in talk]
                settings = dict(chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
                found = fast.apply_chat_template(messages, tokenize=True, **settings)
                text = fast.apply_chat_template(messages, tokenize=False, chat_template=template)
                cases.append(
                    {
                        "template": name,
                        "messages": messages,
                        "text": text,
                        "ids": found["input_ids"],
                        "mask": "".join(str(bit) for bit in found["assistant_masks"]),
                    }
                )
        out.append({"tokenizer": json.loads(tokenizer.to_str()), "bos": bos, "eos": eos, "cases": cases})
    whole = {"templates": {"chatml": CHATML, "indented": INDENTED, "glued": GLUED, "headers": HEADERS}, "sets": out}
    path = pathlib.Path(__file__).parents[1] / "data/chat_masks.json"
    path.write_text(json.dumps(whole, ensure_ascii=False) + "\n")


main()
