"""Asks every policy of the service the same question, all at once, and compares what each of them needed.

python examples/compare_policies.py [QUESTION]
"""

import asyncio
import sys

from thoughtbeam import ApiError, AsyncClient

QUESTION = "Start with 871 and work modulo 1000. a) +723 b) *7 c) -543. Report the value after c."


async def ask(client: AsyncClient, question: str, policy: str) -> str:
    """One line about one policy."""
    try:
        result = await client.solve(question, policy=policy, answer_mode="integer")
    except ApiError as error:  # for example NO_SCORER: the others can still answer
        return f"{policy:<18}{error}"
    usage, counts = result.usage, result.counts
    return f"{policy:<18}{result.text or '-':>8}{usage.generated:>10} tokens{counts.nodes:>6} traces"


async def main() -> None:
    question = sys.argv[1] if len(sys.argv) > 1 else QUESTION
    async with AsyncClient() as client:
        names = [policy.name for policy in await client.policies()]
        for line in await asyncio.gather(*(ask(client, question, name) for name in names)):
            print(line)


if __name__ == "__main__":
    asyncio.run(main())
