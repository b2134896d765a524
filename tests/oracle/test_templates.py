"""Templates are found by their packages, let no value act as markup, and miss no value in silence."""

import pytest
from jinja2 import TemplateNotFound, UndefinedError

from oracle.templates import templates_of


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two packages that both have a template, and each one of its own."""
    for name, other in (("first_drawn", "one"), ("second_drawn", "two")):
        folder = tmp_path / name / "templates"
        folder.mkdir(parents=True)
        (folder / "both.svg").write_text("{% for word in words %}\n  <b>{{ word }}</b>\n  {% endfor %}\nend\n")
        (folder / f"{other}.svg").write_text(name)
    (tmp_path / "second_drawn" / "templates" / "both.svg").write_text("second")
    monkeypatch.syspath_prepend(tmp_path)
    return "first_drawn", "second_drawn"


def test_templates_of_an_earlier_package_count_first(packages):
    templates = templates_of(*packages)
    assert [templates.get_template(name).render() for name in ("one.svg", "two.svg")] == list(packages)
    assert templates_of(*reversed(packages)).get_template("both.svg").render() == "second"
    with pytest.raises(TemplateNotFound):
        templates_of("first_drawn").get_template("two.svg")


def test_values_are_text_and_statements_leave_no_line(packages):
    rendered = templates_of(*packages).get_template("both.svg").render(words=["a < b", "<script>"])
    assert rendered == "  <b>a &lt; b</b>\n  <b>&lt;script&gt;</b>\nend\n"


def test_name_without_a_value_is_an_error(packages):
    with pytest.raises(UndefinedError, match="words"):
        templates_of(*packages).get_template("both.svg").render()
