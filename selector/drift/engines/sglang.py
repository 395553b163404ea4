"""SGLang: the functions that are registered under a name, and the classes that they build."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from selector.drift.chains import Body, run_chain
from selector.drift.constructors import constructors_of, read_assignments
from selector.drift.env import UNBOUND
from selector.drift.evaluating import (
    Probe,
    Worlds,
    answer_of,
    answering,
    ask,
    dynamic,
    make_worlds,
    position,
    read_class,
)
from selector.drift.factories import Product, choices_of, products_of
from selector.drift.guards import read_guards
from selector.drift.modules import Binding, Module, Modules, Scope, read_changes
from selector.drift.reading import (
    Answer,
    Attribute,
    Backend,
    ClassReading,
    EngineReading,
    Guard,
    Vocabulary,
)
from selector.drift.reading import Product as ProductReading
from selector.drift.terms import ClassTerm, External, FunctionTerm, Instance, Place, Unknown
from selector.drift.world import Frame, World, absolute
from selector.values import Finding, Position, Severity

__all__ = ["READER", "Sglang"]

REGISTRY = "sglang.srt.layers.attention.attention_registry"
DECORATOR = "register_attention_backend"
ARGUMENTS = "sglang.srt.server_args"
"""The module whose names, its own or imported, are the lists that flags take."""
CHOICES = "ATTENTION_BACKEND_CHOICES"
FLAGS = ("sglang.srt.arg_groups.fields.exec_", "sglang.srt.arg_groups.fields.spec", ARGUMENTS)
_FLAG = re.compile(r"^(--)?[a-z_-]*attention[_-]backend$")
_LIST = re.compile(r"ATTENTION_BACKENDS?(_CHOICES)?$")
DEFAULTS = ("sglang.srt.arg_groups.model_override_base.get_default_attn_backend",)
"""Functions that choose where no flag does; the second argument says whether it is for MLA."""
CHECKS = "sglang.srt.arg_groups.overrides"
CHECK = "register_post_process"
"""The decorator of functions that check the server's arguments, a view of which they are given."""
UTILITIES = "sglang.srt.utils.common"
CONTEXT = "sglang.srt.runtime_context"

ELSEWHERE = (
    "is_hip", "is_npu", "is_xpu", "is_hpu", "is_cpu", "is_musa", "is_mps", "is_sail",
    "is_host_cpu_arm64",
)  # fmt: skip
"""What a machine with a CUDA device answers no to."""
HERE = ("is_cuda", "is_cuda_alike")
MAJORS = "device_capability_majors"
"""The keyword with which a probe is made for major compute capabilities. The CUDA version that it
asks besides is supposed to be there."""

RUNNER = "runner"
"""How the argument of a registered function is told, whatever it is called there."""
VIEW = "server_args"
"""How the argument of a check is told."""
HEAD_SIZES = (32, 64, 72, 80, 96, 112, 128, 160, 192, 256, 512, 576)
PAGE_SIZES = (1, 16, 32, 64, 128, 256, 512)
KV_CACHE_DTYPES = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}
"""As ``--kv-cache-dtype`` spells it → as torch does."""
FLAG_DTYPES = ("auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "nvfp4")

VOCABULARY = Vocabulary(
    arguments={
        f"{RUNNER}.use_mla_backend": ("mla", None),
        f"{RUNNER}.page_size": ("block_size", None),
        f"{RUNNER}.kv_cache_dtype": ("kv_cache_dtype", None),
        f"{RUNNER}.dtype": ("dtype", None),
        f"{RUNNER}.sliding_window_size": ("sliding_window", 128),
        f"{RUNNER}.model_config.head_dim": ("head_size", None),
        f"{RUNNER}.model_config.is_encoder_decoder": ("attn_type", None),
        f"{VIEW}.page_size": ("block_size", None),
        f"{VIEW}.kv_cache_dtype": ("kv_cache_dtype", None),
    },
    foreign=("aiter", "amx", "ascend", "hip", "intel", "musa", "npu", "rocm", "wave", "xpu"),
)

_WANTED = re.compile(r"^(supports_|needs_|allow_|folds_|uses?_|is_|extend_)")


def _probe(values: Mapping[Any, Any] | Sequence[Any]) -> Probe:
    made = values if isinstance(values, Mapping) else {one: one for one in values}
    return Probe(tuple((one, _giver(value)) for one, value in made.items()))


def _giver(value: Any) -> Callable[[World], Any]:
    return lambda world: value


def _dtypes(names: Mapping[str, str]) -> Probe:
    nowhere = Place("", 1, 1)
    return _probe({one: External(f"torch.{name}", nowhere) for one, name in names.items()})


PROBES = {
    "use_mla_backend": _probe((False, True)),
    "page_size": _probe(PAGE_SIZES),
    "kv_cache_dtype": _dtypes(KV_CACHE_DTYPES),
    "dtype": _dtypes({name: name for name in ("float16", "bfloat16", "float32")}),
    "sliding_window_size": _probe((None, 128)),
    "model_config.head_dim": _probe(HEAD_SIZES),
    "model_config.is_encoder_decoder": _probe({None: False, "encoder_decoder": True}),
}
CHECK_PROBES = {"page_size": _probe(PAGE_SIZES), "kv_cache_dtype": _probe(FLAG_DTYPES)}


def _suppose(modules: Modules, capability: str) -> Mapping[str, Callable[[World], Any]]:
    """A CUDA device with this compute capability; nothing else is supposed."""
    pair = tuple(int(part) for part in capability.split("."))

    def depending(value: Any) -> Callable[[World], Any]:
        def give(world: World) -> Any:
            world.used_capability = True
            return answering(value)

        return give

    always = {**dict.fromkeys(HERE, True), **dict.fromkeys(ELSEWHERE, False)}
    supposed = {name: _giver(answering(value)) for name, value in always.items()}
    supposed["get_device_capability"] = depending(pair)
    supposed["get_device_sm"] = depending(10 * pair[0] + pair[1])
    supposed["is_sm120"] = depending(pair == (12, 0))
    supposed["is_sm121"] = depending(pair == (12, 1))
    supposed |= {name: depending(pair[0] in majors) for name, majors in _majors(modules).items()}
    homes = (UTILITIES, UTILITIES.rpartition(".")[0])
    return {
        **{f"{home}.{name}": give for home in homes for name, give in supposed.items()},
        f"{CONTEXT}.get_platform": _platform,
        "torch.cuda.get_device_capability": depending(pair),
        "torch.cuda.is_available": _giver(answering(True)),
        "torch.version.hip": _giver(None),
    }


def _majors(modules: Modules) -> dict[str, list[int]]:
    """The probes that are made for major compute capabilities, and those."""
    module = modules.get(UTILITIES)
    found: dict[str, list[int]] = {}
    for name, bindings in module.scope.names.items() if module is not None else ():
        for node in ast.walk(bindings[0].node) if len(bindings) == 1 else ():
            match node:
                case ast.keyword(arg=arg, value=ast.List(elts=parts)) if arg == MAJORS:
                    known = [one.value for one in parts if isinstance(one, ast.Constant)]
                    if isinstance(bindings[0].node, ast.Assign) and len(known) == len(parts):
                        found[name] = [one for one in known if isinstance(one, int)]
    return found


def _platform(world: World) -> Any:
    """``get_platform``: an object with the answers of the probes that its module maps it to."""
    place = Place("", 1, 1)
    cls = world.by_path(f"{CONTEXT}.PlatformContext", place)
    fields: dict[str, Any] = {}
    for table in ("_PLATFORM_PROBES", "_PLATFORM_VALUES"):
        facts = world.by_path(f"{CONTEXT}.{table}", place)
        for fact, name in facts.items() if isinstance(facts, dict) else ():
            give = world.supposed.get(f"{UTILITIES}.{name}")
            probe = give(world) if give is not None else None
            why = "is not supposed of a machine"
            open_fact = Unknown(place, f"get_platform().{fact}", why)
            fields[fact] = probe.outer.names["value"] if probe is not None else open_fact
    world.used_capability = True
    return answering(Instance(cls, fields)) if isinstance(cls, ClassTerm) else cls


class Sglang:
    """The reader of SGLang."""

    name = "sglang"
    package = "sglang"

    def read(self, modules: Modules, capabilities: Sequence[str]) -> EngineReading:
        """The registered functions, the classes that they build, and the lists of names."""
        worlds = make_worlds(modules, capabilities, lambda one: _suppose(modules, one))
        lists = (*_read_lists(worlds, modules), *_read_defaults(worlds))
        backends = _read_registry(worlds, modules, lists)
        return EngineReading(
            self.name,
            modules.source.version,
            modules.source.label,
            "cuda",
            tuple(capabilities),
            backends,
            (),
            modules.count,
            tuple(sorted(set(modules.findings))),
            VOCABULARY,
            lists=lists,
        )


READER = Sglang()


def _read_registry(
    worlds: Worlds, modules: Modules, lists: Sequence[Attribute]
) -> tuple[Backend, ...]:
    module = modules.get(REGISTRY)
    if module is None:
        modules.report_missing(REGISTRY, "backends")
        return ()
    found: dict[str, Backend] = {}
    for name, at, function in _registered(worlds.first, modules, module):
        if name in found:
            why = f"registers {name} again, in the place of {found[name].registered}"
            _tell(modules, at, why)
        found[name] = _read_backend(worlds, module, name, at, function)
    listed = next((one for one in lists if one.name == CHOICES), None)
    if listed is None or listed.answer is None or listed.answer.dynamic is not None:
        return tuple(found.values())
    for name in found.keys() - set(listed.answer.value):
        _tell(modules, found[name].at, f"registers {name}, which {CHOICES} does not list")
    for name in listed.answer.value:
        if name not in found:
            why = f"is listed in {CHOICES}, and no function is registered for it"
            found[name] = Backend(name, _place_in(listed, modules, name), "", problem=why)
            words = f"{CHOICES} lists {name}, and no function is registered for it"
            _tell(modules, found[name].at, words, Severity.NOTE)
    return tuple(found.values())


def _tell(modules: Modules, at: Position, why: str, severity: Severity = Severity.WARNING) -> None:
    modules.findings.append(Finding(at.file, at.line, at.column, "DRF108", severity, why))


def _place_in(listed: Attribute, modules: Modules, name: str) -> Any:
    """Where a list names a backend."""
    module = modules.get(listed.defined_in)
    for node in ast.walk(module.tree) if module is not None else ():
        if isinstance(node, ast.Constant) and node.value == name and node.lineno >= listed.at.line:
            return position(Place.of(module, node))  # type: ignore[arg-type]
    return listed.at


def _registered(
    world: World, modules: Modules, module: Module
) -> Iterator[tuple[str, Any, FunctionTerm | Unknown]]:
    """The names under which functions are registered, with the function."""
    bindings = [one for found in module.scope.names.values() for one in found]
    for binding in sorted(bindings, key=lambda one: one.node.lineno):
        for decorator in getattr(binding.node, "decorator_list", ()):
            match decorator:
                case ast.Call(func=func, args=[given]) if _last(func) == DECORATOR:
                    function = _bound(world, module, binding)
                    if function is UNBOUND:
                        continue  # under a test that does not hold on the machine
                    at = position(Place.of(module, decorator))
                    name = ask(world, _evaluation(world, given, module))
                    if isinstance(name, str):
                        yield name, at, function
                    else:
                        _tell(modules, at, "registers a name that is not known from the code alone")
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Call(func=func)) if _last(func) == DECORATOR:
                at = position(Place.of(module, node))
                _tell(modules, at, "registers a function in a call, which is not read")


def _evaluation(world: World, node: ast.expr, module: Module) -> Callable[[Frame], Any]:
    return lambda _: world.evaluate(node, Frame(module))


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _bound(world: World, module: Module, binding: Binding) -> Any:
    """The function of one ``def``, whatever else has its name."""
    scope = Scope({binding.name: [binding]})
    return ask(world, lambda _: world.bound(scope, binding.name, Frame(module), None))


def _read_backend(
    worlds: Worlds, module: Module, name: str, at: Any, function: FunctionTerm | Unknown
) -> Backend:
    if not isinstance(function, FunctionTerm) or not isinstance(function.node, ast.FunctionDef):
        return Backend(name, at, "", problem=_problem(function))
    registered = f"{module.name}.{function.name}"
    factory = Body(registered, module, function.node, None, function.outer)
    if not factory.parameters:
        return Backend(name, at, registered, problem="takes no runner")
    made = products_of(worlds, factory)
    known = [one for one in made if one.cls]
    products = tuple(ProductReading(one.way, _read_product(worlds, one)) for one in known)
    guards = [*_checks(worlds, name), *_guards(worlds, factory, None)]
    for one in products:
        guards += [guard for guard in one.cls.guards if guard not in guards]
    problem = "; ".join(_problem(one.doubt) for one in made if one.doubt is not None)
    if not products:
        return Backend(name, at, registered, problem=problem or "builds no class on this platform")
    usual = products[-1].cls  # the others are singled out by a test
    impl = msgspec.structs.replace(usual, attributes={}, guards=tuple(guards))
    cls = msgspec.structs.replace(usual, assigned=(), guards=())
    return Backend(name, at, registered, cls, impl, None, "", problem, "", products)


def _problem(value: Any) -> str:
    if isinstance(value, Unknown):
        return f"{value.place.path}:{value.place.line}: {value.text} {value.why}"
    return "is no function that is read"


def _read_product(worlds: Worlds, product: Product) -> ClassReading:
    def locate(world: World) -> Any:
        return world.by_path(product.cls, Place("", 1, 1))

    reading = read_class(worlds, locate, _WANTED, {})
    constructors = constructors_of(worlds.first, locate(worlds.first))
    assigned = [one for body in constructors for one in read_assignments(body, _WANTED)]
    guards = tuple(_guards(worlds, product.chain[0], product))
    return msgspec.structs.replace(reading, assigned=tuple(assigned), guards=guards)


def _guards(worlds: Worlds, factory: Body, product: Product | None) -> list[Guard]:
    """What the registered function refuses, and the constructors of the class on one way."""
    argument = factory.parameters[0]
    probes = {f"{argument}.{name}": probe for name, probe in PROBES.items()}

    def chain(world: World) -> list[Body]:
        if product is None:
            return [factory]
        run = constructors_of(world, world.by_path(product.cls, Place("", 1, 1)))
        for first in run[:1]:
            way = (product.call, product.tests, product.certain)
            run[0] = msgspec.structs.replace(first, call=way[0], tests=way[1], certain=way[2])
        return [*product.chain, *run]

    return [_renamed(guard, argument, RUNNER) for guard in read_guards(worlds, chain, probes)]


def _checks(worlds: Worlds, name: str) -> Iterator[Guard]:
    """What checks of the server's arguments refuse because this backend is chosen for decodes."""
    module = worlds.first.modules.get(CHECKS)
    for bindings in module.scope.names.values() if module is not None else ():
        function = bindings[-1].node
        if module is None or not isinstance(function, ast.FunctionDef):
            continue
        named = {node.value for node in ast.walk(function) if isinstance(node, ast.Constant)}
        if name not in named or CHECK not in map(_last, function.decorator_list):
            continue
        body = Body(f"{module.name}.{function.name}", module, function)
        for view in body.parameters[:1]:
            probes = {f"{view}.{field}": probe for field, probe in CHECK_PROBES.items()}
            chain = _alone(body)
            always = {guard.at for guard in read_guards(worlds, chain, {}, _chosen(view, ""))}
            for guard in read_guards(worlds, chain, probes, _chosen(view, name)):
                if guard.at not in always:
                    yield _renamed(guard, view, VIEW)


def _alone(body: Body) -> Callable[[World], list[Body]]:
    return lambda world: [body]


def _chosen(view: str, name: str) -> dict[str, str]:
    """A backend is chosen for decodes, and prefills have another."""
    fields = ("attention_backend", "decode_attention_backend")
    return {f"{view}.prefill_attention_backend": "", **{f"{view}.{one}": name for one in fields}}


def _renamed(guard: Guard, argument: str, name: str) -> Guard:
    """The same guard, its argument called otherwise."""
    if argument == name:
        return guard
    first = re.compile(rf"^{re.escape(argument)}\b")
    names = tuple(first.sub(name, one) for one in guard.arguments)
    refuses = tuple(
        msgspec.structs.replace(one, name=first.sub(name, one.name)) for one in guard.refuses
    )
    return msgspec.structs.replace(guard, arguments=names, refuses=refuses)


def _read_lists(worlds: Worlds, modules: Modules) -> Iterator[Attribute]:
    """The lists of names that the server's arguments have, and the flags that take one."""
    world = worlds.first
    if (arguments := modules.get(ARGUMENTS)) is not None:
        for name, bindings in arguments.scope.names.items():
            if _LIST.search(name):
                yield _read_list(world, modules, arguments, name, bindings[-1])
    for path in FLAGS:
        if (module := modules.get(path)) is None:
            continue
        for flag, node, given in _flags(module.tree):
            value = ask(world, _evaluation(world, given, module))
            place = Place.of(module, node)
            yield Attribute(flag, "flag", module.name, position(place), answer_of(value, place))


def _read_list(
    world: World, modules: Modules, module: Module, name: str, binding: Binding
) -> Attribute:
    home, original = module, name
    if isinstance(binding.node, ast.ImportFrom) and binding.alias is not None:
        home = modules.get(absolute(module, binding.node)) or module
        original = binding.alias.name
        binding = home.scope.names.get(original, [binding])[-1]
    place = Place.of(home, binding.node)
    value = ask(world, lambda _: world.global_name(home, original, place))
    if isinstance(value, Unknown) and not _is_changed(home, original):
        scope = Scope({original: [binding]})
        value = ask(world, lambda _: world.bound(scope, original, Frame(home), None))
    return Attribute(name, "list", home.name, position(place), answer_of(value, place))


def _is_changed(module: Module, name: str) -> bool:
    """Whether the module itself changes a list, not only a function for plug-ins to call."""
    if len(module.scope.names.get(name, ())) != 1:
        return True
    outside = [one for one in module.tree.body if not isinstance(one, ast.FunctionDef)]
    changed = read_changes(ast.Module(outside, []))[0]
    return name in changed


def _flags(tree: ast.Module) -> Iterator[tuple[str, ast.AST, ast.expr]]:
    """Flags that choose an attention backend, and the expression of their choices."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=within) if _FLAG.match(name):
                flag = f"--{name.replace('_', '-')}"
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=flag)]):
                within = node
                if not isinstance(flag, str) or not _FLAG.match(flag):
                    continue
            case _:
                continue
        for one in ast.walk(within):
            if isinstance(one, ast.keyword) and one.arg == "choices":
                yield flag, node, one.value


def _read_defaults(worlds: Worlds) -> Iterator[Attribute]:
    """The names that a function can choose where no flag does, for MLA and for other layers."""
    for path in DEFAULTS:
        function = ask(worlds.first, _path(worlds.first, path))
        if not isinstance(function, FunctionTerm) or not isinstance(function.node, ast.FunctionDef):
            continue
        body = Body(path, function.module, function.node, None, function.outer)
        at = position(function.place)
        for mla in (False, True) if len(body.parameters) > 1 else ():
            said: dict[str, Answer] = {}
            for capability, world in worlds.by_capability.items():
                names = choices_of(run_chain(world, [body], {body.parameters[1]: mla}))
                said[capability] = _choice(names, body.module)
            kind = "MLA" if mla else "other layers"
            yield Attribute(f"default for {kind}", "choice", path, at, None, said)


def _choice(names: Sequence[str | ast.expr], module: Module) -> Answer:
    """The names that are chosen from; undecided what is no name."""
    known = [one for one in names if isinstance(one, str)]
    open_too = [one for one in names if isinstance(one, ast.expr)]
    if not open_too:
        return Answer(known)
    why = Unknown(Place.of(module, open_too[0]), open_too[0], "is no name that is written there")
    return Answer(known, "", dynamic(why), tuple(ast.unparse(one) for one in open_too))


def _path(world: World, path: str) -> Callable[[Frame], Any]:
    return lambda _: world.by_path(path, Place("", 1, 1))
