from __future__ import annotations

from gemmetry.domain.files import LONGEST_NAME, Names, Numbers, encodable, short_name


def test_names_are_numbered_shortened_and_stay_different():
    numbers: Numbers[str] = Numbers()
    assert [numbers[x] for x in "abacb"] == [0, 1, 0, 2, 1]
    assert list(numbers) == ["a", "b", "c"]
    names = Names()
    long = "k" * 1_000_000
    assert [names[long + "1"], names[long + "2"], names[long + "1"], names["k"]] == [0, 1, 0, 2]
    assert all(len(name) < LONGEST_NAME + 100 for name in names)
    assert next(iter(names)).startswith("kkk")
    assert "1000001 characters" in next(iter(names))
    assert short_name("short") == "short"


def test_halves_of_surrogate_pairs_cannot_be_written():
    for text in ("plain", "é𝕏", ""):
        assert encodable(text) is text
    assert encodable("a\ud800b\udfff").encode() == "a\ufffdb\ufffd".encode()
