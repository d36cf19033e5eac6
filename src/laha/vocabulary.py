"""Text -> words with character offsets; words <-> ids."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

PADDING = 0
UNKNOWN = 1
RESERVED = 2  # ids below it are no words

# Scripts written without spaces: each character is a word, lest a sentence become one giant word.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3040-\u30ff\u31f0-\u31ff"  # radicals, kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\U00020000-\U0003ffff"  # Han, supplementary planes
)


def _combining_marks() -> str:
    """Return the combining marks as the inside of a regular expression's `[…]`."""
    # The basic plane only: beyond it the expression engine leaves its table and becomes ten times slower.
    return "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))


@cache  # building them takes as long as reading a hundred texts
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of plain texts, that of all texts, and that of what only the second reads right."""
    # `\w` leaves out combining marks, which would cut Hindi words and decomposed accents apart. The full pattern is
    # several times slower, so it reads only the texts that hold what it is for. A word begins with no mark: one that
    # follows no letter is a sign's, such as the invisible mark that colours an emoji.
    marks = _combining_marks()
    run = rf"(?=\w)(?:(?![{_UNSPACED}])[\w{marks}])+"
    full = rf"{run}(?:['’]{run})*|(?![{marks}])(?=\w)[{_UNSPACED}][{marks}]*"
    return re.compile(r"\w+(?:['’]\w+)*"), re.compile(full), re.compile(f"[{_UNSPACED}{marks}]")


class Tokenizer:
    """Find the words of a text: runs of letters, digits, marks and `_`; characters in scripts without spaces.

    >>> Tokenizer().words("It's Zoë's C3PO; 東京")
    ["it's", "zoë's", 'c3po', '東', '京']
    >>> list(Tokenizer().spans("Big cat"))
    [('big', 0, 3), ('cat', 4, 7)]
    """

    def words(self, text: str) -> list[str]:
        """Return the lower-cased words of a text."""
        lower = _lower(text)
        return _pattern(lower).findall(lower)

    def spans(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield each word of `words(text)` with the offsets of its first character and one past its last."""
        lower = _lower(text)
        for match in _pattern(lower).finditer(lower):
            yield match[0], match.start(), match.end()


def _pattern(text: str) -> re.Pattern[str]:
    plain, full, special = _patterns()
    return plain if text.isascii() or not special.search(text) else full


def _lower(text: str) -> str:
    """Lower-case without changing the length, so that offsets hold in the original text.

    >>> _lower("İZMİR"), len(_lower("İZMİR"))
    ('İzmİr', 5)
    """
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "İ".join(part.lower() for part in text.split("İ"))  # the only letter whose lower case is longer


@dataclass(frozen=True)
class WordIds:
    """The word ids of many documents, end to end: document i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]  # (documents + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, document: int) -> NDArray[np.int32]:
        return self.ids[self.offsets[document] : self.offsets[document + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of words of each document."""
        return np.diff(self.offsets)


class Vocabulary:
    """The words a model knows, by falling frequency; id 0 is padding, id 1 any unknown word.

    >>> vocabulary = Vocabulary.build([["a", "b", "a"], ["c", "a", "b"]], min_count=2)
    >>> vocabulary.words, vocabulary.encode([["a", "c"], ["b"]]).ids.tolist()
    (['a', 'b'], [2, 1, 3])
    """

    def __init__(self, words: Sequence[str]):
        self.words = list(words)
        self._ids = {word: number for number, word in enumerate(self.words, start=RESERVED)}

    def __len__(self) -> int:
        """Count the ids, the two reserved ones included."""
        return len(self.words) + RESERVED

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    @classmethod
    def build(cls, documents: Iterable[Sequence[str]], min_count: int = 1, max_words: int | None = None) -> Vocabulary:
        """Keep the words with at least `min_count` occurrences, at most `max_words` of them; ties by the alphabet."""
        counts: Counter[str] = Counter()
        for words in documents:
            counts.update(words)
        kept = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls([word for _, word in kept[:max_words]])

    def encode(self, documents: Iterable[Sequence[str]], max_words: int = sys.maxsize) -> WordIds:
        """Turn documents, each cut at `max_words`, into word ids."""
        get = self._ids.get
        pieces = [np.array([get(word, UNKNOWN) for word in words[:max_words]], dtype=np.int32) for words in documents]
        offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
        np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
        return WordIds(np.concatenate(pieces) if pieces else np.zeros(0, np.int32), offsets)
