"""Characters as small numbers, as the paper's character-level network reads them."""

import unicodedata

import numpy as np
from numpy.typing import NDArray

LENGTH = 5000
ALPHABET = "abcdefghijklmnopqrstuvwxyzăîâșțABCDEFGHIJKLMNOPQRSTUVWXYĂÎÂȘȚ0123456789-,;.!?:'\"/\\|_@#$%^&*~`+=<>()[]{}"
"""Character k of the alphabet has code k + 1; 0 is every other character, the space included, and the end of a text."""
VOCABULARY = len(ALPHABET) + 1

# Romanian is written with a comma below (ș, ț) and, in older fonts, with a cedilla (ş, ţ): one letter, one code.
_ONE_SPELLING = str.maketrans("şţŞŢ", "șțȘȚ")


def _table() -> NDArray[np.uint8]:
    table = np.zeros(max(map(ord, ALPHABET)) + 2, np.uint8)
    for code, character in enumerate(ALPHABET, start=1):
        table[ord(character)] = code
    return table


_CODES = _table()


def normalise(text: str) -> str:
    """Composed characters, one spelling of ș and ț, lower case."""
    return unicodedata.normalize("NFC", text).translate(_ONE_SPELLING).lower()


def encode(text: str, *, length: int = LENGTH) -> NDArray[np.uint8]:
    """Codes of the last `length` characters, read from the END: code 0 is the text's last character; zeros follow."""
    tail = normalise(text)[-length:]
    points = np.frombuffer(tail.encode("utf-32-le", "surrogatepass"), "<u4")[::-1]
    codes = np.zeros(length, np.uint8)
    codes[: len(points)] = _CODES[np.minimum(points, len(_CODES) - 1)]
    return codes


def decode(codes: NDArray[np.uint8]) -> str:
    """The text that the codes stand for, in reading order, with a space for every unknown character."""
    characters = " " + ALPHABET
    return "".join(characters[c] for c in codes[::-1]).strip()
