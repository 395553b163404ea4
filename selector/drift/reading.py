"""What reading an engine gives: plain frozen data, which :mod:`msgspec` writes as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from selector.drift.modules import Modules
from selector.values import Finding, Position

__all__ = [
    "Answer",
    "Assigned",
    "Attribute",
    "Backend",
    "ClassReading",
    "Dynamic",
    "EngineReading",
    "Guard",
    "Method",
    "Need",
    "Operator",
    "Product",
    "Reader",
    "Vocabulary",
]


class Dynamic(msgspec.Struct, frozen=True):
    """Why something is not known from the code alone.

    Attributes:
        at: the expression on which it depends.
        expression: its text there.
        why: what stands in the way, as the rest of a sentence that begins with the expression.
    """

    at: Position
    expression: str
    why: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the code says: a value, or that it raises, or that it is dynamic.

    Attributes:
        value: JSON: numbers, texts, lists. A member of an enumeration is ``"Class.MEMBER"``, a
            dtype ``"torch.float16"``, a class its dotted path, an object ``"Class(field=1)"``.
            For a method that was asked with values, those that it accepts, or a mapping.
        raises: the exception that it certainly raises instead.
        dynamic: why the value is not known. ``value`` then says nothing.
        undecided: of a method that was asked with values, those whose answer is not known;
            ``value`` then holds those that are accepted all the same.
    """

    value: Any = None
    raises: str = ""
    dynamic: Dynamic | None = None
    undecided: tuple[Any, ...] = ()

    @property
    def known(self) -> bool:
        """Whether all of it is known."""
        return self.dynamic is None


class Attribute(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capability that a class states or inherits, or an argument that a guard refuses, or a list.

    Attributes:
        name: of the attribute, method, argument, list or flag.
        kind: of a class: ``attribute``, ``method`` or ``property``; of a guard: ``argument``; of
            an engine: ``list``, ``flag`` or ``choice``.
        defined_in: the class of the hierarchy that defines it, or the function or module, dotted;
            empty: not known.
        at: where that is.
        answer: what it says on all architectures alike; ``None``: see ``by_capability``.
        by_capability: what it says on each.
        asked: the values that a method was asked with.
    """

    name: str
    kind: str
    defined_in: str
    at: Position
    answer: Answer | None = None
    by_capability: dict[str, Answer] = {}
    asked: tuple[Any, ...] = ()

    @property
    def known(self) -> bool:
        """Whether what it says is known on every architecture."""
        return all(answer.known for answer in self.answers().values())

    def answers(self) -> dict[str, Answer]:
        """The answers by capability; under ``""`` where all are alike."""
        return {"": self.answer} if self.answer is not None else self.by_capability


class Assigned(msgspec.Struct, frozen=True):
    """A constructor sets an attribute on the object, so the class's value is not the last word.

    Attributes:
        name: of the attribute.
        by: the class whose constructor does it, dotted.
        at: where.
        expression: what is assigned.
    """

    name: str
    by: str
    at: Position
    expression: str


class Guard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A constructor, or a function that runs before one, refuses something.

    Attributes:
        by: the class whose constructor does it, or the function, dotted.
        at: the ``raise``.
        exception: the class that is raised.
        message: the constant parts of its text.
        tests: the conditions around it, as written; all must hold.
        arguments: those of the first function that the tests read, also by way of ``self``.
        refuses: for each argument that was asked, the values that are certainly refused; of
            ``capability``, the architectures, whatever else is given.
        in_constructor: whether a constructor does it.
    """

    by: str
    at: Position
    exception: str
    message: str
    tests: tuple[str, ...]
    arguments: tuple[str, ...]
    refuses: tuple[Attribute, ...] = ()
    in_constructor: bool = True


class Need(msgspec.Struct, frozen=True):
    """A method reads an attribute of its object.

    Attributes:
        name: of the attribute.
        at: where it is read.
    """

    name: str
    at: Position


class Method(msgspec.Struct, frozen=True, omit_defaults=True):
    """A method that does the work of a path.

    Attributes:
        name: of the method.
        defined_in: the class of the hierarchy that has it, dotted.
        at: where.
        abstract: whether it is marked abstract.
        raises: the exception that it raises and does nothing else; empty: it does more.
        missing: what it reads of its object that no class of the hierarchy sets (others may).
    """

    name: str
    defined_in: str
    at: Position
    abstract: bool = False
    raises: str = ""
    missing: tuple[Need, ...] = ()


class ClassReading(msgspec.Struct, frozen=True):
    """A class as it was read.

    Attributes:
        path: dotted.
        at: where it is defined.
        mro: it and its ancestors in order, dotted; ancestors outside the source by their path.
        attributes: by name.
        assigned: attributes that a constructor sets on the object.
        guards: what its constructors refuse.
        methods: those that do the work, by name.
        unread: arguments that its constructors take and that none of its classes reads.
    """

    path: str
    at: Position
    mro: tuple[str, ...]
    attributes: dict[str, Attribute]
    assigned: tuple[Assigned, ...] = ()
    guards: tuple[Guard, ...] = ()
    methods: dict[str, Method] = {}
    unread: tuple[Need, ...] = ()


class Product(msgspec.Struct, frozen=True):
    """A class that a registered function builds.

    Attributes:
        tests: those that lead to it, as written.
        cls: the class, with what it and the function refuse on this way.
    """

    tests: tuple[str, ...]
    cls: ClassReading


class Backend(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backend of the engine's registry.

    Attributes:
        name: in the registry.
        at: its line there.
        registered: the class path that it registers; empty: none.
        cls: the backend class; ``None``: it could not be read, ``problem`` says why.
        impl, builder: the classes that run it and that make its metadata.
        problem, impl_problem, builder_problem: why a class is missing.
        products: where a function is registered, all classes that it builds; ``cls`` is the
            last of them, and ``impl`` the same with what is refused on every way.
    """

    name: str
    at: Position
    registered: str
    cls: ClassReading | None = None
    impl: ClassReading | None = None
    builder: ClassReading | None = None
    problem: str = ""
    impl_problem: str = ""
    builder_problem: str = ""
    products: tuple[Product, ...] = ()

    def classes(self) -> dict[str, ClassReading]:
        """The classes that were read, by role: ``backend``, ``impl``, ``builder``."""
        roles = {"backend": self.cls, "impl": self.impl, "builder": self.builder}
        return {role: cls for role, cls in roles.items() if cls is not None}


class Operator(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function, or the class that plans one, whose code declares what it can do.

    Manifests name it, dotted, under an entry's ``sources:``.

    Attributes:
        name: dotted.
        at: where it is defined.
        accepts: the compute capabilities of its own list; ``None``: it has none.
        backends: backend → the capabilities on which it is chosen; empty: it has no choice.
        enforced: whether a call elsewhere is refused; else the list only says so.
        refuses: the capabilities on which it certainly raises, whatever else it is given, and
            where; ``None``: not looked for.
        features: what it declares besides, by name.
        attention: whether it belongs to attention.
    """

    name: str
    at: Position
    accepts: Answer | None = None
    backends: dict[str, Answer] = {}
    enforced: bool = False
    refuses: dict[str, Position] | None = None
    features: dict[str, Answer] = {}
    attention: bool = False

    def answers(self) -> tuple[Answer, ...]:
        """Everything that it declares."""
        own = () if self.accepts is None else (self.accepts,)
        return (*own, *self.backends.values(), *self.features.values())


class Vocabulary(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an engine's classes say what a manifest has fields for; what is empty is not compared.

    Attributes:
        kinds: field → the attribute that says it of all its layers: ``mla``, ``sparse``.
        values: field → the method that was asked with its values.
        lists: field → the list that the method of a base class looks into.
        features: field → the attribute that says whether it is supported, and a value that asks
            for it.
        combinations: method that was asked with several values at once → their fields.
        capability: the attribute that says which architectures are.
        arguments: argument of a constructor → the field, and the value that any argument which
            is not ``None`` stands for; ``None``: the argument is the value.
        threshold: the attribute of a builder that says how long a query counts as a decode.
        dense_prefill: the attribute of an implementation that says whether it has one.
        dense_method: the method that computes it.
        prefill_suffix: what a manifest puts behind the names of backends that only compute the
            prefill of latent attention.
        foreign: other platforms than the one that is supposed, as names of backends, modules and
            classes begin or continue with them.
    """

    kinds: dict[str, str] = {}
    values: dict[str, str] = {}
    lists: dict[str, str] = {}
    features: dict[str, tuple[str, Any]] = {}
    combinations: dict[str, tuple[str, ...]] = {}
    capability: str = ""
    arguments: dict[str, tuple[str, Any]] = {}
    threshold: str = ""
    dense_prefill: str = ""
    dense_method: str = ""
    prefill_suffix: str = ""
    foreign: tuple[str, ...] = ()


class EngineReading(msgspec.Struct, frozen=True):
    """What a source says.

    Attributes:
        engine: the reader's name.
        version: as the source states it; empty: it does not.
        source: what was read, as it was given.
        capabilities: the architectures that were supposed, one by one.
        platform: the platform that was supposed.
        backends: the attention backends, in the registry's order.
        prefill: backends that only compute the prefill of latent attention.
        modules: how many modules were read.
        findings: what could not be read.
        vocabulary: where its classes say what a manifest has fields for.
        operators: what declares its own capabilities, without a registry.
        library: the distribution that entries name for which an operator is asked.
        lists: the engine's lists of backend names: what a flag takes, what a mode can use, which
            ones it chooses from by itself.
    """

    engine: str
    version: str
    source: str
    platform: str
    capabilities: tuple[str, ...]
    backends: tuple[Backend, ...]
    prefill: tuple[Backend, ...]
    modules: int
    findings: tuple[Finding, ...]
    vocabulary: Vocabulary = Vocabulary()
    operators: tuple[Operator, ...] = ()
    library: str = ""
    lists: tuple[Attribute, ...] = ()

    def named(self) -> dict[str, Backend]:
        """All backends by the names that a manifest gives them."""
        suffix = self.vocabulary.prefill_suffix
        prefill = {f"{one.name}{suffix}": one for one in self.prefill}
        return {one.name: one for one in self.backends} | prefill

    def counts(self) -> dict[str, int]:
        """How many attributes of all classes are ``known`` and how many ``dynamic``."""
        said = [answer.known for one in self.operators for answer in one.answers()]
        said += [
            attribute.known
            for backend in (*self.backends, *self.prefill)
            for cls in backend.classes().values()
            for attribute in cls.attributes.values()
        ]
        return {"known": sum(said), "dynamic": len(said) - sum(said)}


class Reader(Protocol):
    """Reads one engine. A module of :mod:`selector.drift.engines` holds one as ``READER``.

    Attributes:
        name: of the engine, as manifests are named after it: ``vllm``.
        package: the top-level package that is read.
    """

    name: str
    package: str

    def read(self, modules: Modules, capabilities: Sequence[str]) -> EngineReading:
        """What the source says on each of these architectures. Never raises on what it reads."""
        ...


Locate = Callable[[Any], Any]
"""World → the class that is meant there."""
