"""An extension of Griffe, which reads docstrings for the site: examples become blocks of code."""

from __future__ import annotations

import re
from typing import Any, Final

from griffe import Extension, Object

_EXAMPLE: Final = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


class Examples(Extension):
    """Put fences around examples that stand in no section of their own."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class or function that was read."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
