"""The character encoder."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from apical.data.text import ALPHABET, LENGTH, VOCABULARY, decode, encode, normalise


def test_text_is_read_from_its_end():
    codes = encode("ab c")
    assert codes.shape == (LENGTH,)
    assert codes[:4].tolist() == [ALPHABET.index("c") + 1, 0, 2, 1]
    assert not codes[4:].any()


def test_only_the_last_characters_of_a_long_text_count():
    assert np.array_equal(encode("x" * 10 + "a" * LENGTH), encode("a" * LENGTH))


def test_upper_case_is_lowered_and_both_spellings_are_one_letter():
    assert np.array_equal(encode("ŞTIINŢĂ"), encode("știință"))
    assert np.array_equal(encode("s\u0326t\u0327"), encode("șț"))
    assert encode("ș")[0] == ALPHABET.index("ș") + 1


def test_the_alphabet_is_the_paper_s_without_its_second_hyphen():
    assert ALPHABET.startswith("abcdefghijklmnopqrstuvwxyzăîâșțABC")
    assert "Z" not in ALPHABET
    assert len(set(ALPHABET)) == len(ALPHABET) == VOCABULARY - 1 < 256


@given(st.text())
def test_decoding_gives_the_known_characters_back(text):
    shown = "".join(c if c in ALPHABET else " " for c in normalise(text)[-LENGTH:])
    assert decode(encode(text)) == shown.strip()
