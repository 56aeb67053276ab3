"""Count the places where tests depend on private names of the product or of each other's helpers.

    python -m tools.private_access            # totals for each area
    python -m tools.private_access --list     # each place

Three kinds are counted: reading an attribute (`object._name`, where `object` is not `self` or
`cls`), importing a private name, and replacing one by its name as text (`setattr(object, "_name",
...)`, `"hourmark_x.module._name"`). A name counts if this repository defines it, so that names such
as `os._exit` and `KafkaError._TRANSPORT` do not. Planted faults replace parts of the product in order
to show that a checker finds them; their places are counted separately.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
# Folders whose private names count, besides the tests' own.
PRODUCT: Final = (
    "core",
    "native",
    "producer",
    "delivery_service",
    "mirror",
    "etl",
    "declare",
    "infra",
    "evaluate",
    "verify",
    "reading",
)
_PRIVATE: Final = re.compile(r"_[A-Za-z]\w*")
_DOTTED: Final = re.compile(r"hourmark\w*(?:\.\w+)*\.(_[A-Za-z]\w*)(?:\.\w+)*")
_BY_NAME: Final = {"setattr", "getattr", "delattr", "hasattr", "object"}
_PLANTED: Final = re.compile(r"(^|_)mutants|^planted")
# Methods of `NamedTuple`, which are public: the underscore keeps them apart from field names.
_OF_TUPLES: Final = {"_replace", "_asdict", "_fields", "_make"}


@dataclass(frozen=True, slots=True)
class PrivateAccess:
    """One place where a test uses a private name."""

    path: str
    line: int
    name: str
    kind: str
    """`attribute`, `import` or `patch`."""

    @property
    def is_planted(self) -> bool:
        """Whether the place belongs to a planted fault."""
        return _PLANTED.search(Path(self.path).stem) is not None

    @property
    def area(self) -> str:
        """The folder below `tests` that holds the file, two levels deep for unit tests."""
        parts = Path(self.path).parts[1:-1]
        return "/".join(parts[:2] if parts[:1] == ("unit",) else parts[:1])


def private_names(trees: Iterable[ast.AST]) -> set[str]:
    """Return the names with one leading underscore that the modules in `trees` define."""
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    found.add(node.name)
                case ast.Name(ctx=ast.Store()):
                    found.add(node.id)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                    found.add(node.attr)
    return {name for name in found if _PRIVATE.fullmatch(name)} - _OF_TUPLES


def accesses(path: str, tree: ast.AST, names: set[str]) -> Iterator[PrivateAccess]:
    """Yield the places in `tree` that use one of `names` from outside; `path` is only reported.

    A class may use its own private names of any instance, such as one that it copies.
    """
    own = {
        id(node)
        for of in ast.walk(tree)
        if isinstance(of, ast.ClassDef) and (defined := private_names([of]))
        for node in ast.walk(of)
        if isinstance(node, ast.Attribute) and node.attr in defined
    }
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute() if id(node) in own:
                pass
            case ast.Attribute(attr=name) if name in names:
                yield PrivateAccess(path, node.lineno, ast.unparse(node), "attribute")
            case ast.ImportFrom():
                for alias in node.names:
                    if alias.name in names:
                        yield PrivateAccess(path, node.lineno, alias.name, "import")
            case ast.Constant(value=str(text)) if found := _DOTTED.fullmatch(text):
                if found[1] in names:
                    yield PrivateAccess(path, node.lineno, text, "patch")
            case ast.Call(func=called, args=[_, ast.Constant(value=str(name)), *_]) if (
                name in names and _last(called) in _BY_NAME
            ):
                yield PrivateAccess(
                    path, node.lineno, ast.unparse(node.args[0]) + f".{name}", "patch"
                )


def _last(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def all_accesses(root: Path = ROOT) -> list[PrivateAccess]:
    """Return the places in all tests below `root`, by path and line."""
    tests = {path: ast.parse(path.read_text()) for path in sorted((root / "tests").rglob("*.py"))}
    product = [
        ast.parse(path.read_text()) for folder in PRODUCT for path in (root / folder).rglob("*.py")
    ]
    names = private_names([*product, *tests.values()])
    found = [
        access
        for path, tree in tests.items()
        for access in accesses(str(path.relative_to(root)), tree, names)
    ]
    return sorted(found, key=lambda access: (access.path, access.line, access.name))


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print each place")
    asked = parser.parse_args()
    found = all_accesses()
    if asked.list:
        for place in found:
            print(f"{place.path}:{place.line}: {place.kind} {place.name}")
    for planted in (False, True):
        of_kind = [place for place in found if place.is_planted is planted]
        print(f"{'planted faults' if planted else 'tests'}: {len(of_kind)}")
        for area, count in sorted(Counter(place.area for place in of_kind).items()):
            print(f"  {area}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
