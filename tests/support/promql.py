"""A parser for the part of PromQL that our alerts and dashboards use, so that they are read and not searched for words.

Raises QueryError for what it does not know: a query that only Prometheus could read is not checked at all. Finds every
selector with its matchers, and every label that an aggregation or a match between series names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "topk", "quantile"})
FUNCTIONS = frozenset({"rate", "increase", "histogram_quantile", "vector", "time", "clamp_min", "absent"})
OF_COUNTERS = frozenset({"rate", "increase"})
OPERATORS = (
    ("or",), ("and", "unless"), ("==", "!=", "<=", ">=", "<", ">"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
"""Weakest first."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<duration>\d+(?:ms|s|m|h|d|w)\b|\$__rate_interval|\$__interval|\$__range)
    |(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<sign>=~|!~|!=|==|<=|>=|[-+*/%<>=(){}\[\],]))""",
    re.VERBOSE,
)


class QueryError(Exception):
    """A query that cannot be read."""


@dataclass(frozen=True)
class Selector:
    """A figure that is asked for."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, text."""
    function: str | None
    """The function around its range; None: asked for as it is."""


@dataclass
class Query:
    """What a query asks for."""

    selectors: list[Selector] = field(default_factory=list)
    labels: list[tuple[str, tuple[Selector, ...]]] = field(default_factory=list)
    """Labels that results are grouped or matched by, each with the selectors that it must be of."""


def parse(text: str) -> Query:
    """Read a whole query; raises QueryError."""
    parser = _Parser(text)
    parser.expression(0)
    parser.expect_end()
    return parser.query


class _Parser:
    def __init__(self, text: str) -> None:
        self.query = Query()
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _peek(self) -> str | None:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else None

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise QueryError(f"ends too early: {self._text}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, text: str) -> bool:
        if self._peek() == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        kind, found = self._next()
        if found != text:
            raise QueryError(f"{text} is missing before {kind} {found}: {self._text}")

    def _word(self) -> str:
        kind, found = self._next()
        if kind != "word":
            raise QueryError(f"a name is missing before {found}: {self._text}")
        return found

    def expect_end(self) -> None:
        if self._peek() is not None:
            raise QueryError(f"{self._peek()} is too much: {self._text}")

    # --- grammar ------------------------------------------------------------------------------------------------------

    def expression(self, level: int) -> None:
        if level == len(OPERATORS):
            self._operand()
            return
        begin = len(self.query.selectors)
        self.expression(level + 1)
        while self._peek() in OPERATORS[level]:
            self._next()
            matched: list[str] = []
            while self._peek() in ("on", "ignoring", "group_left", "group_right"):
                self._next()
                matched += self._names() if self._peek() == "(" else []
            self.expression(level + 1)
            self._group(matched, begin)

    def _operand(self) -> None:
        if self._take("-"):
            self._operand()
            return
        if self._take("("):
            self.expression(0)
            self._expect(")")
            return
        kind, found = self._next()
        if kind == "number":
            return
        if kind != "word":
            raise QueryError(f"{found} stands where a value should: {self._text}")
        if found in AGGREGATIONS:
            self._aggregation()
        elif self._peek() == "(":
            self._call(found)
        else:
            self._selector(found, None)

    def _aggregation(self) -> None:
        begin = len(self.query.selectors)
        names = self._names() if self._take("by") or self._take("without") else []
        self._arguments()
        if self._take("by") or self._take("without"):
            names += self._names()
        self._group(names, begin)

    def _call(self, function: str) -> None:
        if function not in FUNCTIONS:
            raise QueryError(f"function {function} is not known here: {self._text}")
        if function not in OF_COUNTERS:
            self._arguments()
            return
        self._expect("(")
        self._selector(self._word(), function)
        self._expect(")")

    def _arguments(self) -> None:
        self._expect("(")
        while self._peek() != ")":
            self.expression(0)
            if not self._take(","):
                break
        self._expect(")")

    def _selector(self, name: str, function: str | None) -> None:
        matchers = []
        if self._take("{"):
            while self._peek() != "}":
                label = self._word()
                _, operator = self._next()
                kind, text = self._next()
                if operator not in ("=", "!=", "=~", "!~") or kind != "string":
                    raise QueryError(f"{label} is not matched by a text: {self._text}")
                matchers.append((label, operator, text[1:-1]))
                if not self._take(","):
                    break
            self._expect("}")
        if self._peek() == "[":
            self._expect("[")
            if self._next()[0] != "duration":
                raise QueryError(f"a range needs a duration: {self._text}")
            self._expect("]")
        elif function is not None:
            raise QueryError(f"{function} needs a range: {self._text}")
        self.query.selectors.append(Selector(name, tuple(matchers), function))

    def _names(self) -> list[str]:
        self._expect("(")
        found = []
        while self._peek() != ")":
            found.append(self._word())
            if not self._take(","):
                break
        self._expect(")")
        return found

    def _group(self, names: list[str], begin: int) -> None:
        below = tuple(self.query.selectors[begin:])
        self.query.labels += [(name, below) for name in names]


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise QueryError(f"cannot be read from {text[at : at + 20]!r} on: {text}")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found
