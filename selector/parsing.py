"""The small forms of the language: tree → tests, sets, conditions, first matches.

A :class:`Parser` never raises on a bad form: it reports a finding and returns something harmless,
so that one reading shows every mistake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from selector.document import Document, Mapping, Sequence
from selector.domains import ANY, EMPTY, Domain, Value
from selector.errors import AttnselError, UnknownFieldError
from selector.fields import (
    BATCH_FIELDS,
    BUILTIN,
    LONGEST_VERSION,
    REQUEST_FIELDS,
    UNSET,
    Field,
    Vocabulary,
    capability_text,
    close_matches,
    parse_capability,
    parse_capability_set,
)
from selector.rules import Allowed, Bound, Constraint, FirstMatch, Rule, Test, When
from selector.scalars import cut, read_plain
from selector.values import Code, Position

__all__ = ["UNKNOWN", "Parser", "locate", "vocabulary_of"]

KINDS = ("mla", "sparse")
"""Fields that an entry states beside ``accepts``, for both phases and once."""

UNKNOWN = "unknown"
"""What a column may say of a field: that nobody knows it."""

WORDS = ("any", "any_of", "same", UNKNOWN)
"""What neither a field nor one of its values can be called."""

_MOST_KEYS = 50
"""How many unknown keys of one mapping are looked at for what was meant."""

MOST_ITEMS, MOST_RANGES = 1024, 64
"""Bounds on one list of values: honest lists are short, and the algebra of long ones is slow."""


def locate(tree: Any, path: tuple[str | int, ...], at_key: bool = False) -> Position:
    """Where ``path`` stands in a positioned tree: its value, or its key."""
    where: Position = tree.position
    node = tree
    for i, step in enumerate(path):
        if isinstance(node, Mapping) and step in node:
            last = i == len(path) - 1
            where = node.keys_at[str(step)] if last and at_key else node.values_at[str(step)]
        elif isinstance(node, Sequence) and isinstance(step, int):
            where = node.items_at[step]
        else:
            break
        node = node[step]
    return where


def vocabulary_of(document: Document) -> Vocabulary:
    """The built-in fields and those that the manifest declares or derives."""
    tree = document.tree
    assert tree is not None
    extra: list[Field] = []
    taken = {word for field in BUILTIN for word in (field.name, *field.aliases)}
    for section in ("fields", "derive", "facts", "measures"):
        declared = tree.get(section, {})
        for name, raw in declared.items():
            at = declared.keys_at[name]
            if name in taken or name in WORDS:
                what = "is a word of the language" if name in WORDS else "already exists"
                document.report("CAP015", at, f'field "{name}" {what}', "rename it")
                continue
            field = _declared(section, name, raw)
            for alias in sorted(taken & {*field.aliases}):
                at = locate(raw, ("aliases", field.aliases.index(alias)))
                document.report("CAP015", at, f'"{alias}" is a field already', "choose another")
            taken |= {name, *field.aliases}
            _refuse_words(document, section, raw)
            if not _is_version(section, raw):
                extra.append(field)
    return Vocabulary(extra)


def _refuse_words(document: Document, section: str, raw: Mapping) -> None:
    """Reports values that rules could not be asked about: ``any`` always means every value."""
    stated: list[tuple[Any, Position]] = []
    if section == "fields" and "values" in raw:
        stated = [*zip(raw["values"], raw["values"].items_at, strict=True)]
    elif section == "derive":
        stated = [(rule["value"], rule.values_at["value"]) for rule in raw["first_match"]]
    for value, at in stated:
        if value in WORDS:
            document.report("CAP015", at, f'value "{value}" is a word of the language', "rename it")


def _is_version(section: str, raw: Mapping) -> bool:
    """Whether a fact is a version: compared by ``requires``, and not by any predicate."""
    return section == "facts" and raw["type"] == "version"


def _declared(section: str, name: str, raw: Mapping) -> Field:
    about = raw.get("description", "")
    if section == "fields":
        off: Value | None = None
        symbols = [*raw.get("symbols", ())]
        if raw["role"] == "feature":
            off = UNSET if raw["type"] in ("integer", "name") else False
            symbols += [UNSET] if off == UNSET and UNSET not in symbols else []
        return Field(
            name,
            raw["type"],
            raw["role"],
            about,
            values=tuple(raw.get("values", ())),
            off=off,
            low=raw.get("low", 0),
            symbols=tuple(symbols),
            aliases=tuple(raw.get("aliases", ())),
            of_model=raw.get("of_model", False),
        )
    if section == "facts":
        return Field(name, "boolean", "context", about)
    if section == "measures":
        return Field(name, "integer", "context", "Size of the batch.")
    values = [rule["value"] for rule in raw["first_match"]]
    if all(isinstance(v, bool) for v in values):
        return Field(name, "boolean", "context", about)
    names = tuple(dict.fromkeys(v for v in values if isinstance(v, str)))
    if all(isinstance(v, str) for v in values):
        return Field(name, "name", "context", about, values=names)
    return Field(name, "integer", "context", about, symbols=names)


_LEAST_ARCH = 50
"""From here on a whole number is an architecture without its point, such as 90 for 9.0."""


def _capability_meant(text: str) -> str:
    if text.isdecimal() and len(text) < 3 and text.isascii() and int(text) < _LEAST_ARCH:
        return f'write "{int(text)}.0", or {int(text)}.x for the whole major'
    try:
        return f'write "{capability_text(parse_capability(text.replace(",", ".")))}"'
    except AttnselError:
        return "write one of these"


def _is_quoted(text: str, kind: str) -> bool:
    """Whether text would be a value of a field, were it not in quotes."""
    meant = read_plain(text)
    if isinstance(meant, bool):
        return kind in ("boolean", "presence")
    return isinstance(meant, int) and kind == "integer"


class Parser:
    """Reads the forms that hold field names and values, checking both against a vocabulary."""

    def __init__(self, document: Document, words: Vocabulary) -> None:
        assert document.tree is not None
        self.document = document
        self.words = words
        facts = document.tree.get("facts", {})
        self.versions = {name for name, raw in facts.items() if _is_version("facts", raw)}
        self.changing = REQUEST_FIELDS.union(document.tree.get("measures", {}))
        self.of_request = self.changing | BATCH_FIELDS
        self.bounds: dict[str, list[Position]] = {}
        self.names: set[str] = set()
        self._accepted: dict[int, dict[str, FirstMatch[Test]]] = {}
        self._fields: dict[tuple[str, Position, Position], FirstMatch[Test]] = {}
        self._lists: dict[tuple[int, str], Allowed] = {}

    def knows(self, name: str, at: Position) -> bool:
        """Whether ``name`` is a field; reports it when not."""
        if name in self.words:
            self.names.add(name)
            return True
        if self.document.full:  # looking for what was meant costs time
            return False
        if name in self.versions:
            message, fix = f'"{name}" is a version and no field', "ask for it under `requires`"
            self.document.report("CAP010", at, message, f'{fix}, as in ">=1.2"')
            return False
        try:
            known = self.words.field(name)  # an alias: accepted on input, not in manifests
            message, fix = f'"{name}" is an alias', f"write {known.name}"
        except UnknownFieldError as error:
            message, _, fix = str(error).partition("; ")
        self.document.report("CAP010", at, message, fix or "declare it under `fields`")
        return False

    def misspells(self, name: str, stated: Iterable[Iterable[str]]) -> bool:
        """Whether one of some keys is no field, but an alias of ``name`` or nearest to it."""
        unknown = [key for keys in stated for key in keys if key not in self.words]
        return any(
            key in self.words.fields[name].aliases
            or close_matches(key, self.words.fields) == [name]
            for key in unknown[:_MOST_KEYS]
        )

    def knows_backend(self, name: str, entries: Collection[str], at: Position) -> bool:
        """Whether ``name`` is an entry; reports it when not."""
        if name in entries:
            return True
        near = close_matches(name, entries)
        fix = f"did you mean {near[0]}?" if near else "define it under `backends`"
        self.document.report("CAP013", at, f'no entry is called "{cut(name)}"', fix)
        return False

    def is_specifier(self, text: object) -> bool:
        """Whether ``text`` is a PEP 440 version specifier."""
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        if not isinstance(text, str) or len(text) > LONGEST_VERSION:
            return False
        try:
            return bool(str(SpecifierSet(text)))
        except InvalidSpecifier:
            return False

    def when(self, raw: Mapping, key: str = "when") -> When:
        """The condition under ``key``; always, when there is none."""
        return When(tuple(self._tests(raw.get(key, {}), "any_of" if key == "require" else "")))

    def _tests(self, raw: Any, beside: str = "") -> Iterator[Test]:
        """The tests of a condition; ``beside`` is a key that is none."""
        for name, stated in raw.items():
            if name != beside and self.knows(name, raw.keys_at[name]):
                at = raw.values_at[name]
                allowed = self.allowed(self.words.fields[name], stated, at)
                yield Test(name, allowed, raw.keys_at[name])

    def constraint(self, raw: Mapping, code: str = "") -> Constraint:
        """A constraint or space rule."""
        require = raw.get("require", {})
        if raw.get("code") in set(Code):
            at = raw.values_at["code"]
            self.document.report(
                "CAP011", at, f"code {raw['code']} is the resolver's own", "rename it"
            )
        if not raw.get("when") and not require:
            message = "this rule has no condition, so it refuses everything"
            fix = "say in `when` what must never occur"
            self.document.report("CAP016", raw.position, message, fix)
        return Constraint(
            when=self.when(raw),
            require=self.when(raw, "require"),
            any_of=tuple(When(tuple(self._tests(w))) for w in require.get("any_of", ())),
            code=raw.get("code", code),
            reason=raw["reason"],
            position=raw.position,
            source=raw.get("source", ""),
        )

    def accepts(self, raw: Any) -> dict[str, FirstMatch[Test]]:
        """Field → the sets that an entry accepts, by first match.

        What several entries share by an anchor, or both phases of one, is read once.
        """
        if id(raw) in self._accepted:
            return self._accepted[id(raw)]
        found: dict[str, FirstMatch[Test]] = {}
        if isinstance(raw, Mapping):
            self._accepted[id(raw)] = found
        for name, stated in raw.items():
            if not self.knows(name, raw.keys_at[name]):
                continue
            if name in KINDS:
                message, fix = f"{name} is stated by the entry itself", "remove it here"
                self.document.report("CAP010", raw.keys_at[name], message, fix)
                continue
            place = (name, raw.keys_at[name], raw.values_at[name])
            if place not in self._fields:
                self._fields[place] = self._sets(*place, stated)
            found[name] = self._fields[place]
        return found

    def _sets(self, name: str, key_at: Position, at: Position, stated: Any) -> FirstMatch[Test]:
        field = self.words.fields[name]
        if isinstance(stated, Mapping) and "cases" in stated:
            return self._cases(field, stated["cases"])
        test = Test(name, self.allowed(field, stated, at), key_at)
        return FirstMatch((Rule(When(), test, key_at),))

    def _cases(self, field: Field, raw: Sequence) -> FirstMatch[Test]:
        self._ends_unconditionally(raw)
        return FirstMatch(
            tuple(
                Rule(
                    self.when(case),
                    Test(
                        field.name,
                        self.allowed(field, case["allow"], case.values_at["allow"]),
                        case.position,
                    ),
                    case.position,
                    case.get("reason", ""),
                    case.get("source", ""),
                )
                for case in raw
            )
        )

    def exactly(
        self, name: str, value: Value | None, at: Position, why: str = ""
    ) -> FirstMatch[Test]:
        """Only ``value`` is accepted for the field ``name``."""
        domain = EMPTY if value is None else Domain.of(value)
        return FirstMatch((Rule(When(), Test(name, Allowed(domain), at), at, why),))

    def first_match(self, raw: Sequence, key: str, source: str = "") -> FirstMatch[Any]:
        """Rules whose result stands under ``key``; the last must have no condition."""
        self._ends_unconditionally(raw)
        rules = (
            Rule(self.when(r), r[key], r.position, r.get("reason", ""), r.get("source", ""))
            for r in raw
        )
        return FirstMatch(tuple(rules), source)

    def _ends_unconditionally(self, raw: Sequence) -> None:
        if raw and raw[-1].get("when"):
            self.document.report(
                "CAP016",
                raw[-1].position,
                "the last rule has a condition, so some requests have no answer",
                "end with a rule that has no `when`",
            )
        for rule in raw[:-1]:
            if not rule.get("when"):
                self.document.report(
                    "CAP016",
                    rule.position,
                    "this rule always holds, so those after it never do",
                    "move it to the end or give it a `when`",
                )

    def allowed(self, field: Field, raw: Any, at: Position) -> Allowed:
        """The set of values that a predicate admits."""
        if raw == "any":
            return Allowed(ANY)
        if isinstance(raw, Sequence):
            key = (id(raw), field.name)  # the tree is kept: no other node has this id
            if key not in self._lists:
                self._lists[key] = self._listed(field, raw)
            return self._lists[key]
        if isinstance(raw, Mapping):
            return self._range(field, raw)
        return Allowed(self.check_value(field.name, raw, at))

    def _listed(self, field: Field, raw: Sequence) -> Allowed:
        ranges = sum(isinstance(item, Mapping) for item in raw)
        for count, most, what in (
            (len(raw), MOST_ITEMS, "items"),
            (ranges, MOST_RANGES, "ranges"),
        ):
            if count > most:
                message = f"{count:,} {what} in one list; at most {most:,} are read"
                self.document.report("CAP006", raw.position, message, "write fewer, or a range")
                return Allowed(EMPTY)
        parts = [self.allowed(field, x, p) for x, p in zip(raw, raw.items_at, strict=True)]
        fixed = Domain.union(part.fixed for part in parts)
        return Allowed(fixed, tuple(b for part in parts for b in part.bounds))

    def _range(self, field: Field, raw: Mapping) -> Allowed:
        extra = EMPTY
        for name, at in zip(raw.get("or", ()), getattr(raw.get("or"), "items_at", ()), strict=True):
            extra = extra | self.check_value(field.name, name, at)
        step = raw.get("multiple_of", 1)
        if field.type != "integer":
            message = f"{field.name} is not a number and has no range"
            self.document.report("CAP011", raw.position, message, "list its values")
            return Allowed(extra)
        ends = {k: raw.get(k) for k in ("min", "max")}
        for key, end in ends.items():
            if isinstance(end, Mapping):
                ends[key] = end["field"]
                self._check_bound(end)
        low, high = ends["min"], ends["max"]
        if isinstance(low, str) or isinstance(high, str):
            return Allowed(extra, (Bound(low, high, step),))
        if not set(raw) & {"min", "max", "multiple_of"}:
            return Allowed(extra)
        domain = Domain.between(low, high, step)
        if (domain & Domain.between(field.low, None)).is_empty():
            self.document.report(
                "CAP011", raw.position, "no number is in this range", "write [] for never"
            )
        return Allowed(domain | extra)

    def _check_bound(self, raw: Mapping) -> None:
        name, at = raw["field"], raw.values_at["field"]
        if not self.knows(name, at):
            return
        self.bounds.setdefault(name, []).append(at)
        if self.words.fields[name].type != "integer":
            self.refuse_bounds({name})

    def refuse_bounds(self, names: Collection[str]) -> None:
        """Reports every bound that is taken from one of these fields."""
        for name in self.bounds.keys() & names:
            for at in self.bounds[name]:
                message = f"{name} is not a number that is fixed with the layer"
                self.document.report("CAP010", at, message, "bound by a field such as index_topk")

    def check_value(self, name: str, raw: Value, at: Position) -> Domain:
        """The set that one value stands for; reports a value the field cannot have."""
        field = self.words.fields[name]
        if isinstance(raw, str) and raw in field.symbols:
            return Domain.of(raw)
        if field.type == "capability" and isinstance(raw, str):
            try:
                capabilities = parse_capability_set(raw)
                if capabilities.is_empty():
                    message = f'no capability is in "{raw}"'
                    self.document.report("CAP011", at, message, "write [] for never")
                return capabilities
            except AttnselError as error:
                self.document.report("CAP011", at, str(error), _capability_meant(raw))
                return EMPTY
        kind = {"integer": int, "boolean": bool, "presence": bool, "name": str}.get(field.type)
        right = kind is not None and type(raw) is kind
        if right and isinstance(raw, str) and field.values and raw not in field.values:
            right = False
        if right and isinstance(raw, int) and not isinstance(raw, bool) and raw < field.low:
            right = False
        if not right:
            self._report_value(field, raw, at)
            return EMPTY
        return Domain.of(raw)

    def _report_value(self, field: Field, raw: Value, at: Position) -> None:
        choices = [*field.values, *field.symbols]
        near = close_matches(str(raw), choices)
        wants = {
            "integer": f"a whole number of at least {field.low}",
            "boolean": "true or false",
            "presence": "true or false",
            "capability": 'a capability such as "9.0"',
            "name": ", ".join(choices[:12]) or "a name",
        }[field.type]
        fix = f"did you mean {near[0]}?" if near else f"write {wants}"
        shown = str(raw).lower() if isinstance(raw, bool) else cut(str(raw))
        if isinstance(raw, str) and not near and _is_quoted(raw, field.type):
            shown, fix = f'"{raw}"', f"write {raw} without quotes"
        if field.type == "capability":
            fix = _capability_meant(str(raw))
        self.document.report("CAP011", at, f"{shown} is not a value of {field.name}", fix)
