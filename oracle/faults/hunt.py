"""Plants a fault, runs the harness on it, and tells what caught it and on how small a case."""

from dataclasses import dataclass

from oracle.check import Checker, CheckSettings
from oracle.errors import FaultNotCaught
from oracle.faults.registry import Fault
from oracle.scenario import Scenario


@dataclass(frozen=True)
class Catch:
    """How a fault was caught.

    Attributes:
        fault: The fault.
        property_name: The first property that failed.
        mode: The mode it failed in.
        num_cases: Cases checked until then.
        message: What the harness said, on the smallest case.
        scenario: The smallest case found; None where only the run as a whole showed it.
    """

    fault: Fault
    property_name: str
    mode: str
    num_cases: int
    message: str
    scenario: Scenario | None

    @property
    def size(self) -> str:
        """The smallest case in words."""
        if self.scenario is None:
            return "the whole run"
        requests = self.scenario.requests
        num_prompt_tokens = sum(len(request.prompt_token_ids) for request in requests)
        num_output_tokens = sum(request.max_tokens for request in requests)
        return f"{len(requests)} requests, {num_prompt_tokens} + {num_output_tokens} tokens"


def hunt(fault: Fault, check_settings: CheckSettings) -> Catch:
    """Plants a fault and checks cases until a property fails.

    Args:
        fault: What to plant.
        check_settings: What to check; its `stop_at_failure` should be set.

    Raises:
        FaultNotCaught: Every case passed.
    """
    with fault.planted():
        checker = Checker(check_settings)
        cells = checker.run()
    for cell in cells:
        if cell.failure is not None:
            return Catch(
                fault,
                cell.property_name,
                cell.mode,
                checker.num_cases,
                cell.failure.message,
                cell.failure.scenario,
            )
    message = f"fault {fault.name} ({fault.bug}) passed {checker.num_cases} cases unseen"
    raise FaultNotCaught(message, fault=fault.name, num_cases=checker.num_cases)
