"""One spelling for answers: LaTeX dress, units and typography taken off, the mathematics left alone."""

from __future__ import annotations

import re

_TYPOGRAPHY = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "÷": "/",
        "π": r"\pi ",
        "∞": r"\infty ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∅": r"\emptyset ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "±": r"\pm ",
        "²": "^2",
        "³": "^3",
        "½": r"\frac{1}{2}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "％": "%",
        "°": "",
        "€": "",
        "£": "",
        "¥": "",
        "\u200b": "",
        "\xa0": " ",
        "\u2009": " ",
        "\u202f": " ",
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
    }
)

# commands that set text, or letters in another font
FONT = (
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|mathrm|mathbf|mathit|mathsf|mathtt"
    r"|operatorname|mbox|hbox|emph|boldsymbol|bm)\s*\{"
)

_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\s+", " "),
        (r"\\(?:left|right)(?![a-zA-Z])(?:\s*\.)?", ""),
        (r"\\[bB]igg?[lrm]?(?![a-zA-Z])", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])", ""),
        (FONT, r"\\text{"),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\frac\s*(\d)", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\{,\}", ","),
        (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z])", " "),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])", ""),
        (r"\\%", "%"),
        (r"\\?\$", ""),
        (r"\\leq(?:slant)?(?![a-zA-Z])", r"\\le"),
        (r"\\geq(?:slant)?(?![a-zA-Z])", r"\\ge"),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        # longer runs of spaces would be divided up in every way that there is
        (r"\s+", " "),
        (r"\s*,?\s*\\text\{\s*,?\s*(?:and|or|,)\s*\}\s*", ", "),
        (r"\s*,?\s+(?:and|or)\s+", ", "),
        (r"\s+", " "),
    )
)

_WHOLE_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_DELIMITERS = (("**", "**"), (r"\(", r"\)"), (r"\[", r"\]"))
_CLOSING = " .,;"

_TEXT_UNIT = re.compile(r"\s*/?\s*(?:\\text\{([^{}]*)\}|%)(?:\s*\^\s*(?:\{-?\d\}|\d))?$")
# two letters may also be a product of variables
_WORD_UNIT = re.compile(
    r"(?<=[\d)}])\s+((?:[a-zA-Z]{3,}|cm|mm|km|kg|mg|ml|mL|ft|mi|lb|oz|hr|in|sq)(?:[ /][a-zA-Z]+)*)\.?"
    r"(?:\s*\^\s*(?:\{-?\d\}|\d))?$"
)
_MOST_UNITS = 10  # one after the other
# words that change what a number before them means
_NO_UNITS = frozenset(
    """hundred thousand million billion trillion dozen pi mod sqrt times choose over base or and if for is are
    more less than least most not to sin cos tan log ln exp e i""".split()  # noqa: SIM905
)


def normalise(answer: str) -> str:
    """The answer in one spelling: same text, same answer. Case and the order of its parts are kept."""
    text = answer.translate(_TYPOGRAPHY)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(_CLOSING)
    for opening, closing in _DELIMITERS:
        text = text.removeprefix(opening).removesuffix(closing).strip().rstrip(_CLOSING)
    if whole := _WHOLE_TEXT.fullmatch(text):
        text = whole[1].strip()
    return text


def without_unit(text: str) -> str:
    """A normalised answer without the unit at its end: `35 \\text{ cm}^2`, `12 miles per hour`, `28%`."""
    for _ in range(_MOST_UNITS):
        unit = _TEXT_UNIT.search(text) or _WORD_UNIT.search(text)
        if unit is None or unit.start() == 0:
            break
        words = re.findall(r"[a-z]+", (unit[1] or "").lower())
        if _NO_UNITS.intersection(words):
            break
        text = text[: unit.start()]
    return text
