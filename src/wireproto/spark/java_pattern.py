r"""Translates Java's regular expressions to Python's, for subscribePattern.

It translates what both have under different notations. What Python does not have is refused by name: a pattern that chose other topics than
it does under Java would lose them without an error.

    | Java                        | here                                   |
    |-----------------------------|----------------------------------------|
    | (?<name>…) \k<name>         | (?P<name>…) (?P=name)                  |
    | \p{Alpha} \P{Alpha} \h \R   | classes of ASCII, as Java's are        |
    | \Q…\E                       | escaped                                |
    | \z \Z                       | the end; the end or before a last line's end |
    | \x{41} \0101 \e \cA         | the character                          |
    | [a[bc]] [a&&b] \G \X (?x)   | refused                                |

Topic names are ASCII without spaces or line ends, so `\d`, `\w` and case mean the same with re.ASCII. This module only translates and
compiles; it matches nothing itself.
"""

from __future__ import annotations

import re
from functools import cache

from ..errors import OptionError

CLASSES = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f", "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
    "L": "a-zA-Z", "Lu": "A-Z", "Ll": "a-z", "N": "0-9", "Nd": "0-9",
    "IsAlphabetic": "a-zA-Z", "IsDigit": "0-9", "IsLowercase": "a-z", "IsUppercase": "A-Z",
    "javaLowerCase": "a-z", "javaUpperCase": "A-Z",
}  # fmt: skip
"""Those of Java's named classes that have a meaning in ASCII, with their characters."""
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])")
_NAMED = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_PROPERTY = re.compile(r"([pP])(?:\{(?:Is(?=L[ul]?\}|Nd?\}))?(\w+)\}|([LN]))")
_CODES = tuple(
    (re.compile(form), base)
    for form, base in ((r"x\{([0-9a-fA-F]+)\}", 16), (r"x([0-9a-fA-F]{2})", 16), (r"u([0-9a-fA-F]{4})", 16), (r"0([0-3]?[0-7]{1,2})", 8))
)
_SIGNS = {"e": r"\x1b", "A": r"\A", "z": r"\Z", "Z": r"(?=\n?\Z)", "R": r"(?:\r\n|[\n-\r])"}
_SAME = set("tnrfa") | set("dDsSwWbB") | set("123456789")


@cache
def java_pattern(text: str) -> re.Pattern[str]:
    """Translate and compile the pattern; `search` finds what Java's `Matcher.find` does in a topic's name.

    Raises:
        OptionError: it is no pattern, or uses something that Python's patterns do not have.
    """
    try:
        return re.compile(_Translation(text).whole(), re.ASCII)
    except (re.error, OverflowError) as why:
        raise OptionError(f"option subscribePattern is {text!r}: {why}") from why


class _Translation:
    """The translation of one pattern, from left to right: `at` is the position in `text`, `out` what is translated so far."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.out = text, 0, ""

    def whole(self) -> str:
        """Translate the whole pattern."""
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == "\\":
                self.out += self.escape(inside=False)
            elif sign == "[":
                self.out += self.set()
            elif sign == "(" and self.text.startswith("(?", self.at):
                self.group()
            else:
                self.out += sign
                self.at += 1
        return self.out

    def refuse(self, what: str) -> OptionError:
        """Build the error for a feature that Python does not have."""
        return self.bad(f"{what} of Java's patterns is not offered here; write it otherwise")

    def bad(self, why: str) -> OptionError:
        """Build the error for text that is no Java pattern."""
        return OptionError(f"option subscribePattern is {self.text!r}: {why}")

    def group(self) -> None:
        """Translate the beginning of a group with a question mark."""
        named, flags = _NAMED.match(self.text, self.at), _FLAGS.match(self.text, self.at)
        if named:
            self.out += f"(?P<{named[1]}>"
            self.at = named.end()
        elif flags:
            if set(flags[1] + (flags[2] or "")) - set("ims-"):
                raise self.refuse(f"the flag group {flags[0]}")
            if flags[3] == ")" and (flags[2] or self.at):
                raise self.refuse("a flag in the middle")
            self.out += flags[0]
            self.at = flags.end()
        elif self.text.startswith(("(?P", "(?(", "(?#"), self.at):
            raise self.bad(f"{self.text[self.at : self.at + 3]} is no group of Java's patterns")
        else:
            self.out += "(?"
            self.at += 2

    def set(self) -> str:
        """Translate a class in brackets."""
        found, self.at = "[", self.at + 1
        if self.text.startswith("^", self.at):
            found, self.at = found + "^", self.at + 1
        first = True
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign == "]" and not first:
                self.at += 1
                return found + "]"
            if sign == "[":
                raise self.refuse("a class within a class")
            if self.text.startswith("&&", self.at):
                raise self.refuse("an intersection of classes (&&)")
            first = False
            if sign == "\\":
                found += self.escape(inside=True)
            else:
                found += "\\" + sign if sign in "]~|" or self.text.startswith("--", self.at) else sign
                self.at += 1
        raise self.bad("a class [ is not closed")

    def escape(self, *, inside: bool) -> str:
        """Translate an escape; `inside`: within a class in brackets."""
        rest = self.text[self.at + 1 :]
        sign = rest[:1]
        if sign == "Q":
            quoted, _, _ = rest[1:].partition("\\E")
            self.at += 2 + len(quoted) + (2 if "\\E" in rest else 0)
            return re.escape(quoted)
        prop = _PROPERTY.match(rest)
        if prop:
            return self.of_class(prop, inside)
        if sign == "k" and not inside:
            name = re.match(r"k<([a-zA-Z][a-zA-Z0-9]*)>", rest)
            if name:
                self.at += 1 + name.end()
                return f"(?P={name[1]})"
        for form, base in _CODES:
            code = form.match(rest)
            if code:
                self.at += 1 + code.end()
                return re.escape(chr(int(code[1], base)))
        self.at += 2
        if sign == "c" and len(rest) > 1:
            self.at += 1
            return re.escape(chr(ord(rest[1]) ^ 64))
        if sign == "h":
            return r" \t\xa0" if inside else r"[ \t\xa0]"
        if sign in _SIGNS and not (inside and sign != "e"):
            return _SIGNS[sign]
        if sign in _SAME and not (inside and sign in "bB123456789"):
            return "\\" + sign
        if not sign:
            raise self.bad("it ends in a backslash")
        if sign.isalnum():
            raise self.refuse(f"the escape \\{sign}")
        return re.escape(sign)

    def of_class(self, prop: re.Match[str], inside: bool) -> str:
        """Translate a class given by its name."""
        name = prop[2] or prop[3]
        if name not in CLASSES:
            raise self.refuse(f"the class \\{prop[0]}")
        self.at += 1 + prop.end()
        if prop[1] == "p":
            return CLASSES[name] if inside else f"[{CLASSES[name]}]"
        if inside:
            raise self.refuse(f"the class \\{prop[0]} within a class")
        return f"[^{CLASSES[name]}]"
