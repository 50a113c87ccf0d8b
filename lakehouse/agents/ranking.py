"""Ranking of documents by the words of a question: BM25, and BM25 with a local embedding.

The embedding is made of the catalog's own documents (latent semantic analysis): no model has to be
fetched, and nothing is known that the catalog does not say. Any other embedding can take its place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lakehouse.agents.words import abbreviates, words

Vectors = npt.NDArray[np.float64]
Embed = Callable[[Sequence[str]], Vectors]
"""Texts to vectors, one row a text."""
Learn = Callable[[Sequence[str]], Embed]
"""Makes an embedding of the texts that it will be asked about."""
Cut = Callable[[str], Sequence[str]]
ScoresByWord = Mapping[str, Mapping[str, float]]
"""Word -> key of a document -> what the word adds to its score."""

_K1, _B = 1.2, 0.6
_WORDS_KEPT = 5_000
_ABBREVIATION = 0.6
_DIMENSIONS = 48
_GRAMS = (3, 4, 5)
_TEXTS_LEARNT, _PARTS_LEARNT = 2_000, 20_000
_FAINT = 1e-9


@dataclass(frozen=True, slots=True)
class Document:
    """What is searched: weighted texts under a key.

    Attributes:
        key: what the texts are about.
        fields: (text, weight) pairs; words of names abbreviate words of questions.
    """

    key: str
    fields: tuple[tuple[str, float], ...]


class Bm25:
    """Scores of documents for a question (Robertson and Zaragoza, BM25 with weighted fields).

    Args:
        documents: what is searched.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._keys = [document.key for document in documents]
        self._postings: dict[str, dict[int, float]] = {}
        self._known: dict[str, Mapping[str, float]] = {}
        lengths = []
        for number, document in enumerate(documents):
            counts: Counter[str] = Counter()
            for text, weight in document.fields:
                for word in words(text):
                    counts[word] += weight  # type: ignore[assignment] # weights are fractions
            for word, count in counts.items():
                self._postings.setdefault(word, {})[number] = count
            lengths.append(sum(counts.values()))
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        self._norms = [_K1 * (1 - _B + _B * length / (mean or 1.0)) for length in lengths]

    def by_word(self, words: Sequence[str]) -> ScoresByWord:
        """Word of a question -> key -> what the word adds to the document's score."""
        return {word: self._of_word(word) for word in words}

    def _of_word(self, word: str) -> Mapping[str, float]:
        scores = self._known.get(word)
        if scores is None:
            by_number = self._scored(word)
            scores = {self._keys[number]: score for number, score in by_number.items()}
            if len(self._known) < _WORDS_KEPT:
                self._known[word] = scores
        return scores

    def _scored(self, word: str) -> dict[int, float]:
        """Scores of one word: the best of itself and of what abbreviates it."""
        scores: dict[int, float] = {}
        for term, postings in self._terms(word):
            share = 1.0 if term == word else _ABBREVIATION
            rarity = math.log(1 + (len(self._keys) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings.items():
                score = share * rarity * count * (_K1 + 1) / (count + self._norms[number])
                scores[number] = max(scores.get(number, 0.0), score)
        return scores

    def _terms(self, word: str) -> list[tuple[str, dict[int, float]]]:
        exact = self._postings.get(word)
        terms = [] if exact is None else [(word, exact)]
        if len(word) > 2:
            terms += [
                (term, postings)
                for term, postings in self._postings.items()
                if term != word and abbreviates(term, word)
            ]
        return terms


def character_grams(text: str) -> list[str]:
    """Three to five letters in a row, of each word with a mark at both of its ends."""
    marked = [f"<{word}>" for word in text.lower().split()]
    return [
        word[at : at + length]
        for word in marked
        for length in _GRAMS
        for at in range(len(word) - length + 1)
    ]


@dataclass
class LatentEmbedding:
    """Vectors of texts by latent semantic analysis: parts that come together are near.

    Attributes:
        cut: a text into its parts.
        parts: part -> column.
        rarity: weight of each column.
        projection: columns -> dimensions.
    """

    cut: Cut
    parts: Mapping[str, int]
    rarity: Vectors
    projection: Vectors = field(repr=False)

    @classmethod
    def of(cls, texts: Sequence[str], cut: Cut = character_grams) -> LatentEmbedding:
        """Learn from texts, from the first few thousand if there are more."""
        counted = [Counter(cut(text)) for text in texts[:_TEXTS_LEARNT]]
        present = Counter(part for parts in counted for part in parts)
        parts = {part: at for at, (part, _) in enumerate(present.most_common(_PARTS_LEARNT))}
        matrix = np.zeros((len(counted), len(parts)))
        for row, counts in enumerate(counted):
            for part, count in counts.items():
                if part in parts:
                    matrix[row, parts[part]] = 1 + math.log(count)
        shares = np.array([present[part] for part in parts], dtype=float)
        rarity = np.log((1 + len(counted)) / (1 + shares)) + 1
        matrix = _unit(matrix * rarity)
        # the singular vectors of parts from those of texts, of which there are fewer
        strength, left = np.linalg.eigh(matrix @ matrix.T)
        strongest = [at for at in np.argsort(-strength)[:_DIMENSIONS] if strength[at] > _FAINT]
        return cls(cut, parts, rarity, matrix.T @ left[:, strongest] / np.sqrt(strength[strongest]))

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text; zero for a text without known parts."""
        return _unit(np.array([self._projected(text) for text in texts]))

    def _projected(self, text: str) -> Vectors:
        """Of the few parts that a text has."""
        counted = [
            (self.parts[p], n) for p, n in Counter(self.cut(text)).items() if p in self.parts
        ]
        if not counted:
            return np.zeros(self.projection.shape[1])
        columns = np.array([column for column, _ in counted])
        weights = np.array([1 + math.log(count) for _, count in counted]) * self.rarity[columns]
        result: Vectors = weights / np.linalg.norm(weights) @ self.projection[columns]
        return result


class Ranking:
    """Documents by a question.

    Args:
        documents: what is searched.
        learn: makes the embedding that counts beside the words; None: words alone.

    Attributes:
        lexical: the ranking by words alone.
    """

    def __init__(self, documents: Sequence[Document], learn: Learn | None = None) -> None:
        self.lexical = Bm25(documents)
        self._keys = [document.key for document in documents]
        self._embed: Embed | None = None
        if learn is not None and documents:
            texts = [" ".join(text for text, _ in document.fields) for document in documents]
            self._embed = learn(texts)
            self._vectors = self._embed(texts)

    def scores(self, question: str, by_word: ScoresByWord | None = None) -> dict[str, float]:
        """Key -> score, the higher the nearer.

        Args:
            question: any text.
            by_word: what `lexical.by_word` gives for its words, where that is known already.
        """
        if by_word is None:
            by_word = self.lexical.by_word(words(question))
        by_key: dict[str, float] = {}
        for scores in by_word.values():
            for key, score in scores.items():
                by_key[key] = by_key.get(key, 0.0) + score
        if self._embed is None:
            return by_key
        similarities = self._vectors @ self._embed([question])[0]
        scale = max(by_key.values(), default=1.0)
        return {
            key: by_key.get(key, 0.0) + 0.5 * scale * max(0.0, float(similarity))
            for key, similarity in zip(self._keys, similarities, strict=True)
        }


def _unit(matrix: Vectors) -> Vectors:
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    result: Vectors = matrix / np.where(lengths == 0, 1.0, lengths)
    return result
