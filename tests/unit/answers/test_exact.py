"""Exact numbers, and that no text can make reading one slow."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.answers.exact import exact_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("--7", 7),
        ("1,234,567.5", Fraction("1234567.5")),
        ("(1+2)*3", 9),
        ("1+2*3", 7),
        ("8/2/2", 2),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("2^{-2}", Fraction(1, 4)),
        ("2^3^2", 512),
        (r"\frac{1+1}{2^{2}}", Fraction(1, 2)),
        (r"\frac{\frac{1}{2}}{3}", Fraction(1, 6)),
        (r"6 \div 4", Fraction(3, 2)),
        ("1 1/2", Fraction(3, 2)),
        (r".\overline{9}", 1),
        ("1e-3", Fraction(1, 1000)),
    ],
)
def test_value(text: str, value: Fraction) -> None:
    assert exact_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1,2",
        "1,23",
        "0,123",
        "1 2",
        "1 3/2",
        "2(3)",
        "1/0",
        "0^0",
        "0^{-1}",
        "2^{0.5}",
        "4^{1/2}",
        "(1",
        "1)",
        "1+",
        r"\frac{1}",
        r"\pi",
        "1..2",
        "1e9999",
        "∞",
        "5^{5^{5^{5^5}}}",
        "9^9^9^9",
        "2^{100000000000}",
        "(" * 100 + "1" + ")" * 100,
        "9" * 201,
    ],
)
def test_no_value(text: str) -> None:
    started = time.monotonic()
    assert exact_number(text) is None
    assert time.monotonic() - started < 60


@given(st.text(alphabet=r"0123456789.,+-*/^(){} \fracdiovetms", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert isinstance(exact_number(text), Fraction | None)
