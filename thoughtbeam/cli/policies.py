"""`thoughtbeam policies`: the search methods of the service, and what can be set on them."""

from __future__ import annotations

import argparse

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client
from thoughtbeam.errors import NotFoundError
from thoughtbeam.results import Policy, PolicyParameter


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "policies", help="list search methods and their parameters", description=__doc__, epilog=exits.SUMMARY
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", nargs="?", help="show the parameters of this one")
    add_json(parser)
    add_endpoint(parser)


def run(args: argparse.Namespace) -> int:
    from rich.markup import escape

    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document

    with open_client(args) as client:
        policies = client.policies()
    if args.name:
        policies = [p for p in policies if p.name == args.name] or _unknown(args.name, policies)
    if args.json:
        print(document(policies[0] if args.name else policies))
        return exits.OK
    console = terminal.output()
    if not policies:
        console.print("no decoder worker is connected, so no policy is known yet")
    elif args.name:
        _show(policies[0])
    else:
        for policy in policies:
            note = "  (needs a scorer)" if policy.needs_scores else ""
            console.print(f"[bold]{policy.name:<20}[/bold]{escape(policy.summary)}[dim]{note}[/dim]")
        console.print("[dim]thoughtbeam policies NAME shows what can be set[/dim]")
    return exits.OK


def _show(policy: Policy) -> None:
    from rich.markup import escape
    from rich.table import Table

    from thoughtbeam.cli import terminal

    console = terminal.output()
    console.print(f"[bold]{policy.name}[/bold]  {escape(policy.summary)}")
    console.print(f"[dim]{escape(policy.source)}{'; needs a scorer' if policy.needs_scores else ''}[/dim]")
    if not policy.parameters:
        console.print("nothing can be set on it")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    profiles = sorted({profile for p in policy.parameters for profile in p.defaults})
    for column in ("parameter", "symbol", "type", "allowed", *profiles, "meaning"):
        table.add_column(column, overflow="fold")
    for parameter in policy.parameters:
        table.add_row(
            parameter.name,
            parameter.symbol,
            parameter.type,
            allowed(parameter),
            *(_shown(parameter.defaults.get(profile)) for profile in profiles),
            f"{escape(parameter.description)} [dim]{escape(parameter.source)}[/dim]",
        )
    console.print(table)
    console.print(
        f"[dim]set it: thoughtbeam solve --policy {policy.name} -p {policy.parameters[0].name}=VALUE[/dim]"
    )


def allowed(parameter: PolicyParameter) -> str:
    """The range of a parameter, in words."""
    if parameter.choices:
        return " | ".join(parameter.choices)
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        return f"{low:.10g} to {high:.10g}"
    if low is not None:
        return f"at least {low:.10g}"
    return f"at most {high:.10g}" if high is not None else ""


def _shown(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(name: str, policies: list[Policy]) -> list[Policy]:
    known = ", ".join(p.name for p in policies) or "none: no decoder worker is connected"
    raise NotFoundError(f"there is no policy {name!r}; known are {known}", reason="UNKNOWN_POLICY")
