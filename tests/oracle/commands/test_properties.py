"""The list of what must hold is whole."""

from oracle.commands.shared import EXIT_PASS
from oracle.properties import PROPERTIES


def test_properties_lists_every_property_with_its_question(run):
    status, output, _ = run("properties")
    assert status == EXIT_PASS
    text = " ".join(output.split())
    for prop in PROPERTIES:
        assert f"{prop.name} {prop.question}" in text
