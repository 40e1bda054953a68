"""The Python blocks of a page become modules whose lines are numbered as on the page."""

from __future__ import annotations

from doc_blocks import blocks, modules

PAGE = """# Title

```python
import os
from sys import path

print(os, path)
```

```sh
echo no Python
```

```python real-broker
print(os.sep)
```
"""


def test_python_blocks_are_found_with_their_lines() -> None:
    assert list(blocks(PAGE)) == [(3, ["import os", "from sys import path", "", "print(os, path)"]), (14, ["print(os.sep)"])]


def test_a_block_has_the_page_s_line_numbers_and_the_imports_before_it() -> None:
    (first, _), (second, text) = modules("x.md", PAGE)
    assert (first, second) == ("x_3", "x_14")
    lines = text.splitlines()
    assert lines[0] == "import os; from sys import path"
    assert PAGE.splitlines()[14] == lines[14] == "print(os.sep)"
    assert set(lines[1:14]) == {""}
