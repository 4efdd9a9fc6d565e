"""Generated parts of a written page: what is between two markers is replaced, the rest stays as written. Pure."""

import re


class NoMarkers(ValueError):
    """The page has no place for what is to be put there."""


def with_part(page: str, name: str, part: str) -> str:
    """The page with `part` between `<!-- NAME: begin … -->` and `<!-- NAME: end -->`.

    Raises:
        NoMarkers: the page lacks the pair.
    """
    pattern = re.compile(rf"(<!-- {re.escape(name)}: begin[^>]*-->\n).*?(<!-- {re.escape(name)}: end -->)", re.DOTALL)
    if not pattern.search(page):
        raise NoMarkers(f"the page has no pair of markers for {name!r}")
    return pattern.sub(lambda found: f"{found[1]}{part.rstrip()}\n{found[2]}", page)
