r"""The letter of a multiple-choice answer, in any dress: `\boxed{\text{B}}`, `(B)`, `B.`, `**Answer: D**`."""

from __future__ import annotations

import re

from decoder_worker.answers.boxes import boxes
from decoder_worker.answers.normal import FONT

# A capital, but not the pronoun; or one of a … j at the end of its clause: others are words and variables.
_CAPITAL = r"(?P<capital>(?!I\s+[a-z])[A-Z])(?![^\W_]|['’])"
_SMALL = r"(?P<small>[a-j])(?![^\W_]|['’])(?=\s*(?:[)\].,;:]|$))"
_LETTER = f"(?:{_CAPITAL}|{_SMALL})"
_MARKED = rf"[(\[]?\s*{_LETTER}\s*[)\]]?"
_FILLER = r"(?:(?i:option|choice|letter|answer|the|clearly|therefore|thus|indeed|likely|most|actually)\s+)*"

_NOT = r"(?<!(?i:not)\s)(?<!(?i:n['’]t)\s)"

_SAID = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rf"\b(?i:answer|choice|option)\b[^\n.;]{{0,40}}?(?:{_NOT}\b(?:is|be)\b|[:=])\s*{_FILLER}:?\s*{_MARKED}",
        rf"\b(?i:answer)\s+{_MARKED}\s*(?:[.,;]|$)",
        rf"(?i:<answer>)\s*{_MARKED}\s*(?i:</answer>)",
        rf"(?<![^\W_]){_MARKED}\s+is\s+(?:the\s+)?(?:correct|right|best|answer)\b",
    )
)
_ALONE = re.compile(rf"\W*(?:(?i:option|choice|answer)\W+(?:is\W+)?)?{_LETTER}(?:\W*|[).:\]].*)", re.DOTALL)
_ENDING = re.compile(r"(?<!\w)(?P<capital>[A-Z])(?P<small>)\W*\Z")
_BRACKETED = re.compile(r".*\( ?(?P<capital>[A-Z]) ?\)(?P<small>)", re.DOTALL)
# longer ones would be divided up among the patterns' own spaces in every way that there is
_SPACES = re.compile(r"\s{2,}")
_DRESS = re.compile(rf"{FONT}|[{{}}$*_`]|\\[()!\[\]]")
_BLANKS = re.compile(r"(?:[^\S\n]|\\[,;: ])+")


def choice(text: str) -> str | None:
    """The letter that a text ends up with, as a capital; None without any.

    It is the last one that is boxed or said to be the answer, else the one that the last line consists of,
    begins with or ends with, else the last one in brackets.
    """
    plain = _SPACES.sub(_one_space, _undressed(_boxes_as_statements(text)))
    said = [match for pattern in _SAID for match in pattern.finditer(plain)]
    if said:
        return _letter(max(said, key=lambda match: match.end()))
    last_line = next((line for line in reversed(plain.splitlines()) if line.strip()), "")
    found = _ALONE.fullmatch(last_line) or _ENDING.search(last_line) or _BRACKETED.match(plain)
    return _letter(found) if found else None


def _boxes_as_statements(text: str) -> str:
    """A boxed letter is said to be the answer; what else is boxed does not matter."""
    parts, position = [], 0
    for box in boxes(text):
        if box.start >= position:
            letter = _ALONE.fullmatch(_undressed(box.content))
            parts += [text[position : box.start], f"\nAnswer: {_letter(letter)}\n" if letter else " … "]
            position = box.end
    return "".join([*parts, text[position:]])


def _one_space(spaces: re.Match[str]) -> str:
    return "\n" if "\n" in spaces[0] else spaces[0][0]


def _undressed(text: str) -> str:
    return _BLANKS.sub(" ", _DRESS.sub("", text))


def _letter(match: re.Match[str]) -> str:
    return (match["capital"] or match["small"]).upper()
