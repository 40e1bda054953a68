"""`make faults`: docs/faults.md anew."""

from .page import PAGE, page

PAGE.write_text(page())
