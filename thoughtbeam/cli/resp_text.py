"""Commands and replies of Redis as people write and read them; the layout is redis-cli's."""

from __future__ import annotations

from collections.abc import Iterator

from thoughtbeam.cli.resp import Failure, Pairs, Reply, Status

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "a": b"\a", "b": b"\b"}
_NAMED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"}


def split_command(line: str) -> list[bytes]:
    """Splits a line into arguments. "double" quotes know \\n, \\r, \\t, \\a, \\b, \\" and \\xHH, 'single'
    ones \\'.

    Raises ValueError for quotes that do not close, or that text follows.
    """
    arguments: list[bytes] = []
    rest = line.strip()
    while rest:
        quote = rest[0] if rest[0] in "\"'" else ""
        argument, rest = _quoted(rest[1:], quote) if quote else _bare(rest)
        if quote and rest and not rest[0].isspace():
            raise ValueError("a closing quote must be followed by a space")
        arguments.append(argument)
        rest = rest.lstrip()
    return arguments


def _bare(text: str) -> tuple[bytes, str]:
    end = next((i for i, c in enumerate(text) if c.isspace()), len(text))
    return text[:end].encode(), text[end:]


def _quoted(text: str, quote: str) -> tuple[bytes, str]:
    found = bytearray()
    i = 0
    while i < len(text):
        char = text[i]
        if char == quote:
            return bytes(found), text[i + 1 :]
        if char == "\\" and i + 1 < len(text) and (quote == '"' or text[i + 1] == "'"):
            i += 1
            code = text[i + 1 : i + 3]
            if text[i] == "x" and len(code) == 2 and all(c in "0123456789abcdefABCDEF" for c in code):
                found.append(int(code, 16))
                i += 2
            else:
                found += _ESCAPES.get(text[i], text[i].encode())
        else:
            found += char.encode()
        i += 1
    raise ValueError(f"a {quote} is not closed")


def reply_lines(reply: Reply) -> list[str]:
    """A reply as lines. Strings are quoted; bytes that are no readable text are escaped."""
    match reply:
        case None:
            return ["(nil)"]
        case Status(text):
            return [text]
        case Failure(text):
            return [f"(error) {text}"]
        case bool():
            return ["(true)" if reply else "(false)"]
        case int():
            return [f"(integer) {reply}"]
        case float():
            return [f"(double) {repr(reply).removesuffix('.0')}"]
        case bytes():
            return [quoted(reply)]
        case Pairs(items):
            if not items:
                return ["(empty hash)"]
            return _numbered([_pair(key, value) for key, value in items], "#")
        case list():
            return _numbered([reply_lines(item) for item in reply], ")") if reply else ["(empty array)"]


def quoted(value: bytes) -> str:
    """A string in double quotes, such that `split_command` gives it back."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return '"' + "".join(_escaped(value)) + '"'
    if all(c.isprintable() or c in _NAMED for c in text):
        return '"' + "".join(_NAMED.get(c, c) for c in text) + '"'
    return '"' + "".join(_escaped(value)) + '"'


def _escaped(value: bytes) -> Iterator[str]:
    for byte in value:
        char = chr(byte)
        if char in _NAMED:
            yield _NAMED[char]
        else:
            yield char if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"


def _pair(key: Reply, value: Reply) -> list[str]:
    (name,), lines = reply_lines(key), reply_lines(value)
    return [f"{name} => {lines[0]}"] if len(lines) == 1 else [f"{name} =>", *lines]


def _numbered(items: list[list[str]], mark: str) -> list[str]:
    width = len(str(len(items)))
    indent = " " * (width + 2)
    lines = []
    for number, item in enumerate(items, start=1):
        lines.append(f"{number:>{width}}{mark} {item[0]}")
        lines.extend(indent + line for line in item[1:])
    return lines
