"""One spelling for answers: LaTeX dress, units and typography taken off, the mathematics left alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from decoder_worker.answers.boxes import boxes

_TYPOGRAPHY = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "÷": "/",
        "∕": "/",
        "⁄": "/",
        "π": r"\pi ",
        "∞": r"\infty ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∅": r"\emptyset ",
        "∈": r"\in ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "±": r"\pm ",
        "⟨": "(",
        "⟩": ")",
        "°": r"^\circ ",
        "\u200b": "",
    }
)
_VULGAR = {
    ord(char): r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", char).split("⁄"))
    for char in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}
_RAISED = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿ]+")
_LOWERED = re.compile("[₀-₉]+")

# commands that set text, or letters in another font
FONT = (
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textnormal|mathrm|mathbf|mathit|mathsf|mathtt"
    r"|operatorname|mbox|hbox|emph|boldsymbol|bm|underline)\s*\{"
)

_DEGREE = r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])"
_CONSTANT = r"(?:[^a-zA-Z=<>\\]|\\(?:frac|sqrt|pi|ln|log|cdot|times)(?![a-zA-Z]))+"

_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!,?\d)")

_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\s+", " "),
        (r"\\(?:left|right)(?![a-zA-Z])(?:\s*\.)?", ""),
        (r"\\[bB]igg?[lrm]?(?![a-zA-Z])", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])", ""),
        (r"\\(?:large|Large|LARGE|huge|Huge|small|normalsize|checkmark)(?![a-zA-Z])", ""),
        (r"\\tag\*?\s*\{[^{}]*\}", ""),
        (r"\\(?:text)?color\s*\{[^{}]*\}\s*(\{)?", lambda m: r"\text{" if m[1] else ""),
        # a letter in bold is a vector, upright it may be a unit
        (r"\\(?:mathbf|mathit|boldsymbol|bm)\s*\{\s*([a-zA-Z])\s*\}", r"\1"),
        (r"\{\s*\\(?:rm|bf|it)\s+", r"\\text{"),
        (FONT, r"\\text{"),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\frac\s*(\d)", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
        (r"(\\[dt]?binom)\s*(\d)\s*(\d)", r"\1{\2}{\3}"),
        # {,} between digits is no comma of a list: it separates thousands, or decimals as in German
        (r"(?<![\d.])0\{,\}(?=\d)", "0."),
        (r"(?<=\d)(?:\{,\}|,\\!|\\,|')(?=\d{3}(?!\d))", ""),
        (r"(?<=\d)\{,\}(?=\d)", "."),
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z])", " "),
        (
            rf"(\\(?:sin|cos|tan|cot|sec|csc)(?:\^\{{?-?\d\}}?)?\s*[({{]?\s*)(\d+(?:\.\d+)?)\s*(?:{_DEGREE})",
            r"\1\\frac{\2\\pi}{180}",
        ),
        (_DEGREE, ""),
        (r"\\%", "%"),
        (r"^\s*(?:US|USD|EUR|GBP|Rs\.?)\s*(?=[\d\\$])", ""),
        (r"\\?\$|[€£¥₹₽₩¢]|\\(?:pounds|euro|yen)(?![a-zA-Z])", ""),
        (r"\\text\{\s*\}", ""),
        (r"\s+", " "),
        # one spelling for roots, powers, π
        (r"(?:√|(?<![a-zA-Z])\\?sqrt)\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"√\s*(\d+(?:\.\d+)?|[a-zA-Z])", r"\\sqrt{\1}"),
        (r"√", r"\\sqrt"),
        (r"\\sqrt\s*(\d)", r"\\sqrt{\1}"),
        (r"(?<=[\w)}])\*\*(?=[\w({\\-])", "^"),
        (r"(?<![\\a-zA-Z])(pi|sin|cos|tan|ln|log|exp)(?![a-zA-Z])", r"\\\1 "),
        # 0.(3) and 0.333… are 0.\overline{3}
        (r"(\.\d*)\\(?:bar|dot)\s*\{(\d+)\}", r"\1\\overline{\2}"),
        (r"((?<![\d.])\d+\.\d*)\((\d+)\)$", r"\1\\overline{\2}"),
        (
            r"(\.\d{0,20}?)(?:(\d)\2{2,20}|(\d{2,6}?)\3{1,9})\s*(?:\.{3}|\\[lc]?dots(?![a-zA-Z]))",
            lambda m: rf"{m[1]}\overline{{{m[2] or m[3]}}}",
        ),
        # numbers of German spelling that are nothing else: 1.234,5 and 1.000.000; 3,5 is two numbers
        (
            r"^\s*-?\d{1,3}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})\s*$",
            lambda m: m[0].replace(".", "").replace(",", "."),
        ),
        # what is only said about the answer: its name, that it is rounded
        (
            r"^\s*(?:(?:m\s*)?\\angle\s*\{?\s*[A-Z]{1,3}\s*\}?|\[[A-Z]{2,}\]|\\text\{[^{}]*\}"
            r"|[A-Za-z]{3,}(?: [a-z]+)*)\s*=(?=\s*\S)",
            "",
        ),
        (r"^\s*\\approx(?![a-zA-Z])", ""),
        (rf"^({_CONSTANT})\\approx(?![a-zA-Z]).*$", r"\1"),
        (r"^\s*[a-zA-Z]\s*\\equiv(?![a-zA-Z])(?=.*mod)", ""),
        (
            r"\s*\(?\s*(?:\\[bp]?mod(?![a-zA-Z])|\\text\{\s*\(?\s*mod\s*\}?|(?<![\\a-zA-Z])mod(?![a-zA-Z]))"
            r"\s*\{?\s*(\d+)[\s)}]*(?:\\text\{\s*\)\s*\})?",
            r" \\mod \1",
        ),
        (r"(?<=\d)\s*\^?\s*\{?\s*(?:\\text\{\s*)?(?:st|nd|rd|th)(?:\s*\})*\s*$", ""),
        (r"\\langle(?![a-zA-Z])", "("),
        (r"\\rangle(?![a-zA-Z])", ")"),
        (r"\\[lr]?vert(?![a-zA-Z])", "|"),
        (r"\\\{\s*\\\}", r"\\emptyset"),
        (r"\\leq(?:slant)?(?![a-zA-Z])", r"\\le"),
        (r"\\geq(?:slant)?(?![a-zA-Z])", r"\\ge"),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        # longer runs of spaces would be divided up in every way that there is
        (r"\s+", " "),
        (r"\s*,?\s*\\text\{\s*,?\s*(?:and|or|,)\s*\}\s*", ", "),
        (r"\s*,?\s+(?:and|or)\s+", ", "),
        # in a list with spaces the commas without are those of thousands
        (r"^.*\d, .*$", lambda m: _THOUSANDS.sub(lambda n: n[0].replace(",", ""), m[0])),
        (r"\s+", " "),
    )
)

_DELIMITERS = (("**", "**"), (r"\(", r"\)"), (r"\[", r"\]"))
_CLOSING = " .,;"

_TEXT_UNIT = re.compile(
    r"\s*(?:/|\\cdot)?\s*(?:\\text\{((?:[^{}]|\{[^{}]*\})*)\}|%)(?:\s*\^\s*(?:\{-?\d\}|\d))?$"
)
# two letters may also be a product of variables
_WORD_UNIT = re.compile(
    r"(?:(?<=[\d)}])|(?<=\\pi))\s+"
    r"((?:[a-zA-Z]{3,}|cm|mm|km|kg|mg|ml|mL|ft|mi|lb|oz|hr|in|sq)(?:[ /][a-zA-Z]+)*)\.?"
    r"(?:\s*\^\s*(?:\{-?\d\}|\d))?$"
)
_MOST_UNITS = 10  # one after the other
# words that change what a number before them means; and those that do so alone, but not in `25 units squared`
_NO_UNITS = frozenset(
    """hundred thousand million billion trillion dozen hundreds thousands millions billions trillions
    dozens lakh crore halves thirds fifths sixths eighths tenths hundredths thousandths factorial pi mod
    sqrt times choose over base or and if for is are more less than least most not to sin cos tan cot
    arcsin arccos arctan sinh cosh tanh log ln exp e i""".split()  # noqa: SIM905
)
_NO_UNITS_ALONE = frozenset("half third fifth sixth eighth tenth squared cubed odd even prime".split())  # noqa: SIM905
# what follows one of these is part of the answer: nothing that is measured ends in them
_UNFINISHED = re.compile(
    r"(?:[=<>,;:+\-*^_(|]|\\(?:in|cup|cap|to|rightarrow|le|ge|ne|approx|equiv|subset|subseteq|mid))$"
)


def normalise(answer: str) -> str:
    """The answer in one spelling: same text, same answer. Case and the order of its parts are kept."""
    text = _RAISED.sub(lambda m: f"^{{{_plain(m[0])}}}", answer.translate(_VULGAR))
    text = _LOWERED.sub(lambda m: f"_{{{_plain(m[0])}}}", text.replace("º", "°"))
    text = _plain(text).translate(_TYPOGRAPHY)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(_CLOSING)
    for opening, closing in _DELIMITERS:
        text = text.removeprefix(opening).removesuffix(closing).strip().rstrip(_CLOSING)
    return _inside_of_text(_inside_of_text(text))


def _plain(text: str) -> str:
    """Digits and letters of every width and script as ordinary ones, every space as one."""
    return unicodedata.normalize("NFKC", text)


def _inside_of_text(text: str) -> str:
    r"""The answer without a `\text{…}` or `\boxed{…}` around all of it."""
    if text.startswith((r"\text{", r"\boxed{")):
        as_box = r"\boxed{" + text.partition("{")[2]
        if (first := boxes(as_box)[:1]) and (first[0].start, first[0].end) == (0, len(as_box)):
            return first[0].content.strip()
    return text


def without_unit(text: str) -> str:
    """A normalised answer without the unit at its end: `35 \\text{ cm}^2`, `12 miles per hour`, `28%`."""
    for _ in range(_MOST_UNITS):
        unit = _TEXT_UNIT.search(text) or _WORD_UNIT.search(text)
        if unit is None:
            break
        measured = text[: unit.start()].rstrip()
        words = re.findall(r"[a-z]+", (unit[1] or "").lower())
        changes = _NO_UNITS.intersection(words) or (len(words) == 1 and words[0] in _NO_UNITS_ALONE)
        if not measured or _UNFINISHED.search(measured) or changes:
            break
        text = measured
    return text
