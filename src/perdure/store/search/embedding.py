"""Static word vectors: the meaning of a text as the weighted mean of its words' vectors, without a model call.

The weights are those in the `wordllama` package (MIT). They are read directly, because its own loader wants to reach
the network. Optional: `pip install 'perdure[recall]'`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

# Increment with every change of the vectors: stores then make theirs again.
VERSION = 2
DIMENSIONS = 256
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
# A vector of more words than this means nothing in particular, so longer texts are cut into passages.
_PASSAGE_CHARS = 600
_PASSAGE_STEP = 450
_MAX_PASSAGES = 24
_SCALE = 127.0
# 20 MB; identifiers and numbers are words, too, so texts bring ever new ones.
_MAX_CACHED_WORDS = 20_000
_MAX_WORD_CHARS = 40
# Frequent words add little. The vocabulary lists bytes first, then pieces by how early they were merged, which is about
# how frequent they are: the piece of rank r makes up about 0.1 / r of all text, and counts half if that is this share.
_FIRST_PIECE = 259
_PIECE_SHARE = 0.1
_HALF_SHARE = 1e-4


class WordVectors:
    """Embeds texts; every vector has length 1."""

    def __init__(self, vectors: Vectors, tokenizer: Any) -> None:
        import numpy as np

        ranks = np.maximum(1, np.arange(len(vectors)) - _FIRST_PIECE + 1).astype(np.float32)
        self._weights = vectors * (_HALF_SHARE / (_HALF_SHARE + _PIECE_SHARE / ranks))[:, None]
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._rows: dict[str | bytes, int] = {}
        # Memory is used only as words are added.
        self._words: Vectors = np.empty((_MAX_CACHED_WORDS, DIMENSIONS), dtype=np.float32)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per text; zero for a text without words."""
        import numpy as np

        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for row, encoded in enumerate(self._tokenizer.encode_batch(list(texts), add_special_tokens=False)):
            if encoded.ids:
                ids = np.clip(np.array(encoded.ids), 0, len(self._weights) - 1)
                vectors[row] = self._weights[ids].sum(axis=0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        result: Vectors = vectors / lengths
        return result

    def embed_words(self, words: Sequence[str | bytes]) -> Vectors:
        """Return one vector per word, text or ASCII bytes, as inside a sentence; those of recent words are cached."""
        with self._lock:
            missing = [w for w in dict.fromkeys(words) if w not in self._rows]
            if len(self._rows) + len(missing) > _MAX_CACHED_WORDS:
                self._rows, missing = {}, list(dict.fromkeys(words))
            if len(missing) > _MAX_CACHED_WORDS:
                return self.embed(list(map(_in_sentence, words)))
            first = len(self._rows)
            self._words[first : first + len(missing)] = self.embed(list(map(_in_sentence, missing)))
            self._rows.update(zip(missing, range(first, first + len(missing)), strict=True))
            result: Vectors = self._words[[self._rows[w] for w in words]]
        return result


def _in_sentence(word: str | bytes) -> str:
    """Return a word with a space before it: the vocabulary distinguishes beginnings of words from other pieces."""
    return f" {word.decode() if isinstance(word, bytes) else word}"[:_MAX_WORD_CHARS]


# Two threads must not import numpy at the same time.
_LOADING = threading.Lock()


def load_word_vectors() -> WordVectors | None:
    """Load the vectors; None where the extra `recall` is not installed or its files are not where they are expected."""
    with _LOADING:
        return _load()


@lru_cache(maxsize=1)
def _load() -> WordVectors | None:
    folder = _package_folder()
    if folder is None:
        return None
    if not import_libraries():
        return None
    import numpy as np
    from tokenizers import Tokenizer

    data = (folder / _WEIGHTS).read_bytes()
    # The safetensors format: the header's size, the header as JSON, then the tensors.
    size = int.from_bytes(data[:8], "little")
    (tensor,) = (t for name, t in json.loads(data[8 : 8 + size]).items() if name != "__metadata__")
    if tensor["dtype"] != "F16" or tensor["shape"][1] != DIMENSIONS:
        return None
    start, end = tensor["data_offsets"]
    weights = np.frombuffer(data[8 + size + start : 8 + size + end], dtype=np.float16).reshape(tensor["shape"])
    tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return WordVectors(weights.astype(np.float32), tokenizer)


def import_libraries() -> bool:
    """Import what the vectors need; False where it cannot be."""
    try:
        import numpy  # noqa: F401  # only whether it is there
        import tokenizers  # noqa: F401  # only whether it is there
    except ImportError:
        return False
    return True


def is_available() -> bool:
    """Return whether the extra `recall` is installed, without loading anything."""
    return _package_folder() is not None


def _package_folder() -> Path | None:
    if any(find_spec(name) is None for name in ("numpy", "tokenizers", "wordllama")):
        return None
    spec = find_spec("wordllama")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in map(Path, folders or ()):
        if (folder / _WEIGHTS).is_file() and (folder / _TOKENIZER).is_file():
            return folder
    return None


def split_passages(text: str) -> list[str]:
    """Cut a text into overlapping passages; a short one is a single passage."""
    if len(text) <= _PASSAGE_CHARS * 1.3:
        return [text]
    starts = range(0, max(1, len(text) - _PASSAGE_CHARS // 3), _PASSAGE_STEP)
    return [text[s : s + _PASSAGE_CHARS] for s in starts][:_MAX_PASSAGES]


def pack_vectors(vectors: Vectors) -> bytes:
    """Store each number in a byte, a quarter of its size."""
    import numpy as np

    return np.round(vectors * _SCALE).astype(np.int8).tobytes()


def unpack_vectors(data: bytes) -> Vectors:
    import numpy as np

    usable = len(data) - len(data) % DIMENSIONS
    vectors: Vectors = np.frombuffer(data[:usable], dtype=np.int8).reshape(-1, DIMENSIONS).astype(np.float32) / _SCALE
    return vectors
