"""Finds the classes of the user's program by name, in every process and every driver.

The main program cannot be imported in a slot, so its classes travel by value: each driver makes other class objects. An
object that outlives its driver, in state or in flight, must be of the class of the program that runs now. So pickles of
data refer to such a class by its key, "<module>:<qualified name>", and never contain it. A slot's module `__main__` is
the user's program: pickles that the user's own code makes refer to its classes there.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from penstock.common.program.failures import Fault, summary

MAIN = "__main__"
DEFINITION_BYTES_MAX = 1 << 20
"""The largest definition that is sent of a class that no function refers to: state may still have objects of it."""
NOT_DEFINED = "the program does not define it"
_LOOKUP_ERRORS = (ImportError, AttributeError)


class MissingClass(Fault):
    """Signals a pickled object of a class that is not there: neither in the program nor in a module."""


class NoSuchClass(AttributeError):
    """Signals a key that no class of the program has. `class_name` is its qualified name."""

    def __init__(self, class_name: str, why: str) -> None:
        super().__init__(f"{class_name} of the main program: {why}")
        self.class_name = class_name
        self.why = why


@dataclass
class _Program:
    """Holds the classes that are known in this process, by key. `definitions`: pickles of further ones; `unsent`: why
    a class of the program has no definition here.
    """

    main: types.ModuleType | None = None
    classes: dict[str, type] = field(default_factory=dict)
    definitions: dict[str, bytes] = field(default_factory=dict)
    unsent: dict[str, str] = field(default_factory=dict)
    # A class that another thread is just loading has a name already, but not all of its attributes.
    lock: Any = field(default_factory=threading.RLock)


_program = _Program()


class _ProgramModule(types.ModuleType):
    """Represents the user's program in a slot. Its classes are loaded when something asks for them."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            try:
                return program_class(f"{MAIN}:{name}")
            except NoSuchClass:
                pass
        raise AttributeError(f"the main program has no class {name!r}")


def key_of(kind: type) -> str:
    """Return the key of a class, which no other class of the program has.

    Args:
        kind: The class.

    Returns:
        Its module and its qualified name.
    """
    return f"{kind.__module__}:{kind.__qualname__}"


def program_class(key: str) -> type:
    """Return a class of the program that runs now. Pickles of data call this function by its name.

    Args:
        key: The key of the class.

    Returns:
        The class.

    Raises:
        NoSuchClass: The program has no such class.
    """
    with _program.lock:
        found = _in_main(key) or _program.classes.get(key)
        if found is None and key in _program.definitions:
            found = pickle.loads(_program.definitions.pop(key))
        if found is None:
            raise NoSuchClass(key.partition(":")[2], _program.unsent.get(key, NOT_DEFINED))
        return found


def register_class(key: str, make: Any, arguments: tuple[Any, ...]) -> type:
    """Make a class without its attributes, and note it. Pickles of the program call this function by its name.

    Args:
        key: The key of the class.
        make: Makes it.
        arguments: What `make` gets.

    Returns:
        The class.
    """
    with _program.lock:
        kind: type = make(*arguments)
        _program.classes[key] = kind
        main = sys.modules.get(MAIN)
        module, _, name = key.partition(":")
        kind.__qualname__ = name  # cloudpickle makes nested classes without it
        if isinstance(main, _ProgramModule) and module == MAIN and "." not in name:
            setattr(main, name, kind)  # found by pickle at once, without __getattr__
        return kind


def note_classes(classes: Mapping[str, type]) -> None:
    """Note the classes that a driver ships, so that objects of local ones come back as theirs.

    Args:
        classes: The classes by their keys.
    """
    with _program.lock:
        _program.classes.update(classes)


def begin_program(definitions: Mapping[str, bytes], unsent: Mapping[str, str]) -> None:
    """Take the definitions of a generation, whose pickle is loaded next.

    Classes that are known stay, because other slots of this process use them.

    Args:
        definitions: Pickles of classes that nothing in the job's graph refers to.
        unsent: Keys of classes that cannot be sent, with the reason.
    """
    with _program.lock:
        _program.definitions = dict(definitions)
        _program.unsent = dict(unsent)


def become_program() -> None:
    """Let this process have the user's program as its main module. A slot calls it; what was there stays alive."""
    module = _ProgramModule(MAIN)
    module.__dict__["_before"] = sys.modules.get(MAIN)
    sys.modules[MAIN] = module


def remember_main() -> None:
    """Note the main module as the user's program: `penstock run` puts its own one back when the program has ended."""
    _program.main = sys.modules.get(MAIN)


def main_classes() -> dict[str, type]:
    """Return the classes that the main program defines in its module and in their classes, by their keys."""
    main = _program.main or sys.modules.get(MAIN)
    if main is None or isinstance(main, _ProgramModule):
        return {}
    found: dict[str, type] = {}
    for kind in _classes_in(main, set()):
        key = key_of(kind)
        if key not in found or is_current(kind):
            found[key] = kind
    return found


def _classes_in(holder: Any, seen: set[type]) -> Iterable[type]:
    for value in list(vars(holder).values()):
        if isinstance(value, type) and value.__module__ == MAIN and value not in seen:
            seen.add(value)
            yield value
            yield from _classes_in(value, seen)


def _in_main(key: str) -> type | None:
    """Return the class that the main program of this driver has under a key."""
    module, _, name = key.partition(":")
    found: Any = _program.main or sys.modules.get(MAIN)
    if module != MAIN or found is None or isinstance(found, _ProgramModule):
        return None
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and key_of(found) == key else None


def is_current(kind: type) -> bool:
    """Return whether the main program has this class under its name, and has not defined it again since.

    Args:
        kind: The class.

    Returns:
        True if it has.
    """
    return _in_main(key_of(kind)) is kind


# ---- pickles of data ------------------------------------------------------------------------------------------------


class _DataPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles data. Functions go by value, and so do classes that are none of the program's."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type):
            key = key_of(value)
            if (_in_main(key) or _program.classes.get(key)) is value:
                return program_class, (key,)
        return super().reducer_override(value)


def pickled_data(value: Any) -> bytes:
    """Pickle an object that plain pickle refuses: local classes and functions may be in it.

    Args:
        value: The object.

    Returns:
        The pickle (protocol 5).
    """
    file = io.BytesIO()
    _DataPickler(file, protocol=5).dump(value)
    return file.getvalue()


class _Finding(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except _LOOKUP_ERRORS as error:
            why = _program.unsent.get(f"{module}:{name}", NOT_DEFINED) if module == MAIN else summary(error)
            raise _Found(class_name(module, name), why) from None


class _Found(Exception):
    """Signals a class that is not there, in the middle of an object."""


def class_name(module: str, name: str) -> str:
    """Return the name of a class, for messages.

    Args:
        module: Its module.
        name: Its qualified name.

    Returns:
        The name; that of a class of the main program has no module.
    """
    return f"{name} of the main program" if module == MAIN else f"{module}.{name}"


def missing_class(data: bytes) -> tuple[str, str] | None:
    """Return the first class that a pickle needs and that is not there, and why; None if all are there.

    Args:
        data: The pickle.

    Returns:
        The class as messages name it, and the reason.
    """
    try:
        _Finding(io.BytesIO(data)).load()
    except _Found as found:
        name, why = found.args
        return name, why
    except NoSuchClass as error:
        return class_name(MAIN, error.class_name), error.why
    except Exception:  # what the user's class raises
        return None
    return None
