"""docker/Dockerfile, as far as its tests need it: stages, and what an image that is made of one has."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tests.compose.file import ROOT

DOCKERFILE = ROOT / "docker" / "Dockerfile"
INSTRUCTIONS = {"ARG", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "RUN", "USER", "WORKDIR"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name, its `--flags`, and the rest as it stands."""

    name: str
    flags: dict[str, str]
    rest: str


@dataclass(slots=True)
class Stage:
    """base: the stage or image that it starts from, arguments put in."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(slots=True)
class Image:
    """What a container of an image starts with. base: the image from outside that it is built on."""

    base: str
    environment: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    user: str = "root"
    workdir: str = "/"


def instructions(path: Path = DOCKERFILE) -> list[Instruction]:
    """All of a Dockerfile. Raises ValueError for an instruction that is not known here."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = []
    for line in filter(str.strip, joined.splitlines()):
        name, _, rest = line.partition(" ")
        if name not in INSTRUCTIONS or line != line.lstrip():
            raise ValueError(f"{path.name}: no instruction: {line}")
        flags = {}
        while match := re.match(r"\s*--([a-z]+)=(\S+)\s+", rest):
            flags[match[1]] = match[2]
            rest = rest[match.end() :]
        found.append(Instruction(name, flags, " ".join(rest.split())))
    return found


def stages(path: Path = DOCKERFILE) -> dict[str, Stage]:
    """The stages by name, in their order."""
    arguments: dict[str, str] = {}
    found: dict[str, Stage] = {}
    for instruction in instructions(path):
        if instruction.name == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", instruction.rest)
            assert match is not None, f"a stage without a name: {instruction.rest}"
            base = re.sub(r"\$\{(\w+)\}", lambda m: arguments[m[1]], match[1])
            found[match[2]] = Stage(match[2], base)
        elif found:
            list(found.values())[-1].instructions.append(instruction)
        else:
            assert instruction.name == "ARG", f"{instruction.name} before the first FROM"
            name, _, default = instruction.rest.partition("=")
            arguments[name] = default
    return found


def image(target: str) -> Image:
    """What a stage makes, with what it has from the stages below it."""
    known = stages()
    stage = known[target]
    made = image(stage.base) if stage.base in known else Image(stage.base)
    for instruction in stage.instructions:
        match instruction.name:
            case "ENV":
                made.environment |= dict(part.split("=", 1) for part in shlex.split(instruction.rest))
            case "ENTRYPOINT":
                made.entrypoint = json.loads(instruction.rest)
            case "USER":
                made.user = instruction.rest
            case "WORKDIR":
                made.workdir = instruction.rest
    return made
