"""Pages and pictures are laid out by templates beside the packages that draw them: how are these read?"""

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


@cache
def templates_of(*packages: str) -> Environment:
    """Gives the templates in the folders `templates` of packages.

    No value becomes markup, a name that has no value is an error, and a line with a statement alone leaves no trace.

    Args:
        packages: Their names; of two templates of one name that of the earlier package counts.
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
