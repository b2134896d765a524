import inspect

import pytest

from oracle.engines import faulty_choices, faulty_steps
from oracle.engines.faulty_choices import with_parameters
from oracle.engines.faulty_engine import FAULTS
from oracle.engines.messages import EngineRequest
from oracle.engines.teaching_engine import TeachingEngine
from oracle.engines.teaching_sampler import Sample


def fault_classes(module):
    """The faulty engines that a module defines."""
    return {
        value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, TeachingEngine)
    } - {TeachingEngine}


@pytest.mark.parametrize("module", [faulty_choices, faulty_steps])
def test_every_faulty_class_is_a_fault_by_name(module):
    assert fault_classes(module) == {fault.engine for fault in FAULTS.values() if fault.engine in fault_classes(module)}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_replaces_methods_of_the_teaching_engine_and_adds_none(name):
    methods = {key for key, value in vars(FAULTS[name].engine).items() if inspect.isfunction(value)} - {"__init__"}
    assert methods
    assert methods <= set(vars(TeachingEngine))


def test_with_parameters_leaves_the_sample_as_it_is():
    sample = Sample(EngineRequest("r", (1,), 2), {"min_tokens": 2, "top_k": 3}, 0, 0, [1, 5], 1)
    changed = with_parameters(sample, min_tokens=0)
    assert changed.parameters == {"min_tokens": 0, "top_k": 3}
    assert sample.parameters["min_tokens"] == 2
    assert changed.output_token_ids == [5]
