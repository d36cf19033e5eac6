"""Text -> words with offsets that hold in the text as given, in every script; words <-> ids."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laha.vocabulary import PADDING, RESERVED, UNKNOWN, Tokenizer, Vocabulary, _lower, _patterns

words = Tokenizer().words
any_text = st.text(st.characters(codec="utf-8"))
# Letters that break naive tokenizers, often enough beside each other.
hard_text = st.text("aZ0_ '’.-İıΣßé\u0301\u0903\u094dहिन東京カはทัยក្มა한\u200d\ufe0f❤", max_size=12)


# Words and their places


@given(any_text | hard_text)
def test_every_offset_holds_in_the_text_as_given(text):
    spans = list(Tokenizer().spans(text))
    for word, start, end in spans:
        assert len(word) == end - start > 0
        assert word == _lower(text)[start:end]
        # Σ has another lower case at a word's end than alone, so the text's own letters are compared caseless.
        assert word.casefold() == text[start:end].casefold()
    assert [word for word, _, _ in spans] == words(text)
    ends = [0, *(end for _, _, end in spans)]
    assert all(start >= end for (_, start, _), end in zip(spans, ends, strict=False)), "words never overlap"


@given(any_text | hard_text)
def test_no_letter_or_digit_is_lost(text):
    kept = {place for _, start, end in Tokenizer().spans(text) for place in range(start, end)}
    assert [character for place, character in enumerate(text) if character.isalnum() and place not in kept] == []


@given(any_text | hard_text)
def test_the_fast_pattern_reads_what_the_full_one_reads(text):
    plain, full, special = _patterns()
    if not special.search(text):
        assert plain.findall(text) == full.findall(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t…!", []),
        ("The C3PO_x, v2.0", ["the", "c3po_x", "v2", "0"]),
        ("don't rock’n’roll", ["don't", "rock’n’roll"]),
        ("'quoted' ’tis dogs' a''b", ["quoted", "tis", "dogs", "a", "b"]),
        ("Ünïcode STRASSE Straße", ["ünïcode", "strasse", "straße"]),
        ("ΟΔΟΣ ΣΑΣ", ["οδος", "σας"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("e\u0301te\u0301 nai\u0308ve", ["e\u0301te\u0301", "nai\u0308ve"]),
        ("한국어 тест العربية", ["한국어", "тест", "العربية"]),
        ("I ❤\ufe0f you", ["i", "you"]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("人々は。", ["人", "々", "は"]),
        ("か\u3099く", ["か\u3099", "く"]),
        ("ภาษาไทย", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),
        ("วันนี้", ["วั", "น", "นี้"]),
        ("ខ្មែរ", ["ខ្", "មែ", "រ"]),
        ("GPT4で書く", ["gpt4", "で", "書", "く"]),
    ],
)
def test_scripts_without_spaces_become_characters_with_their_marks(text, expected):
    assert words(text) == expected


@given(st.text("漢字かなカナไทยລາວ", min_size=1))
def test_a_sentence_without_spaces_is_no_giant_word(text):
    assert words(text) == list(text)


def test_a_lower_case_that_is_longer_is_left_alone():
    assert list(Tokenizer().spans("İZMİR’de x")) == [("İzmİr’de", 0, 8), ("x", 9, 10)]
    assert words("İ ΟΔΟΣ")[1:] == words("ΟΔΟΣ"), "one such letter changes no other word"


def test_no_character_changes_the_length():
    for code in range(sys.maxunicode + 1):
        assert len(_lower(chr(code))) == 1


# Words and their ids


def test_the_vocabulary_is_ordered_by_falling_count_and_ties_by_the_alphabet():
    assert Vocabulary.build([["b", "c", "a"], ["c", "d"]]).words == ["c", "a", "b", "d"]


def test_rare_words_are_left_out():
    assert Vocabulary.build([["a", "b"], ["a"]], min_count=2).words == ["a"]


def test_no_more_words_than_asked_for():
    assert Vocabulary.build([["a", "b", "c", "c"]], max_words=2).words == ["c", "a"]
    assert Vocabulary.build([["a"]], max_words=0).words == []


def test_ids_begin_after_padding_and_the_unknown_word():
    vocabulary = Vocabulary(["a", "b"])
    assert (PADDING, UNKNOWN, RESERVED, len(vocabulary)) == (0, 1, 2, 4)
    assert "a" in vocabulary
    assert "z" not in vocabulary
    assert vocabulary.encode([["b", "z", "a"]])[0].tolist() == [3, UNKNOWN, 2]


def test_documents_are_cut_and_lie_end_to_end():
    ids = Vocabulary(["a", "b"]).encode([["a", "b", "a"], [], ["b"]], max_words=2)
    assert [ids[document].tolist() for document in range(len(ids))] == [[2, 3], [], [3]]
    assert ids.lengths.tolist() == [2, 0, 1]
    assert (ids.ids.dtype, ids.offsets.dtype) == (np.int32, np.int64)


def test_nothing_in_nothing_out():
    vocabulary = Vocabulary.build([])
    ids = vocabulary.encode([])
    assert (vocabulary.words, len(vocabulary), len(ids), ids.ids.tolist()) == ([], RESERVED, 0, [])


@given(st.lists(st.lists(st.sampled_from("abcde"))), st.integers(1, 3), st.integers(0, 6))
def test_encoding_undone_gives_the_known_words(documents, min_count, max_words):
    vocabulary = Vocabulary.build(documents, min_count)
    ids = vocabulary.encode(documents, max_words)
    back = [["?" if i == UNKNOWN else vocabulary.words[i - RESERVED] for i in ids[d]] for d in range(len(ids))]
    assert back == [[word if word in vocabulary else "?" for word in given[:max_words]] for given in documents]
