"""The scenario of gangs whose controller withholds members."""

from builders.wait import eventually
from interop.command_line import shell
from interop.gang import Gang
from interop.observed_gangs import WAIT_SECONDS
from interop.sandbox import Sandbox
from interop.workload_kind import Withheld


async def explained(box: Sandbox) -> None:
    """`kubectl muster explain` says why a gang waits for members that its controller does not create, and what to set:
    for each setting of the controller that does this.
    """
    await box.nodes(box.size)
    for number, case in enumerate(box.kind.withheld):
        gang = await box.gang(f"withheld-{number}", change=case.change)
        await _says(box, gang, case)
        assert not box.running(gang), f"pods of {gang.name} run\n{box.described()}"
        await box.delete(gang)
        await box.gone(gang)


async def _says(box: Sandbox, gang: Gang, case: Withheld) -> None:
    found: list[str] = []

    async def said() -> bool:
        for each in box.coordinator_gangs(gang):
            answer = await shell(box.cluster, box.namespace, f"kubectl muster explain {each.id} -o json")
            found[:] = [answer]
            if case.says in answer and case.reason in each.reason:
                return True
        return False

    def expected() -> str:
        return f"explain says {case.says!r} {case.reason!r} of {gang.name}: {found}\n{box.described()}"

    await eventually(said, expected, seconds=WAIT_SECONDS)
