"""The signature table and the stubs say what the header and the modules say."""

import ast
import ctypes
import re
import unittest

from common import HEADER, ROOT
from iouring_engine import _signatures

SCALARS = {
    "void": None,
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
}
CALLBACKS = {"wal_replay_fn": _signatures.REPLAY}


def header_text():
    """The header without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
    return re.sub(r"//[^\n]*|^#[^\n]*", " ", text, flags=re.M)


def type_of(declaration):
    """The ctypes type of a C declaration such as `const void *key`, for an argument, a field or a result."""
    words = re.sub(r"\b(const|struct)\b", " ", declaration)
    stars = words.count("*")
    base = re.findall(r"\w+", words)[0]
    if stars == 0:
        if base.endswith("_fn"):
            return CALLBACKS.get(base, ctypes.c_void_p)
        return _signatures.STRUCTURES.get(base) or SCALARS[base]
    if base == "char" and stars == 1:
        return ctypes.c_char_p
    if stars == 2:
        return ctypes.POINTER(ctypes.c_void_p)
    inner = _signatures.STRUCTURES.get(base) or SCALARS.get(base)
    return ctypes.POINTER(inner) if inner else ctypes.c_void_p


def prototypes():
    found = {}
    for result, name, arguments in re.findall(r"([\w ]+[ *]+)\b(\w+)\(([^()]*)\)\s*;", header_text()):
        parts = [part for part in arguments.split(",") if part.strip() not in ("", "void")]
        found[name] = (type_of(result), [type_of(part) for part in parts])
    return found


def structures():
    found = {}
    for body, name in re.findall(r"typedef struct \w* ?\{([^{}]*)\} (\w+);", header_text()):
        fields = [line.strip() for line in body.split(";") if line.strip()]
        found[name] = [(re.findall(r"\w+", field)[-1], type_of(field)) for field in fields]
    return found


class Signatures(unittest.TestCase):
    def test_functions_are_those_of_the_header(self):
        declared = prototypes()
        self.assertGreater(len(declared), 30, "the header was not understood")
        for name, (result, arguments) in _signatures.FUNCTIONS.items():
            with self.subTest(function=name):
                self.assertIn(name, declared)
                self.assertEqual(declared[name][0], result)
                self.assertEqual(declared[name][1], arguments, "arguments")

    def test_every_store_and_log_function_is_in_the_table(self):
        # A view would hand out memory that Python can't guard; the rest of the transport is for C.
        left_out = {"engine_get_view", "ioe_set_log"}
        declared = {n for n in prototypes() if n.startswith(("engine_", "wal_", "ioe_"))}
        declared = {n for n in declared if not n.endswith("_release") or n == "wal_release"}
        self.assertEqual(declared - set(_signatures.FUNCTIONS) - left_out, set())

    def test_structures_are_those_of_the_header(self):
        declared = structures()
        for name, structure in _signatures.STRUCTURES.items():
            with self.subTest(structure=name):
                self.assertIn(name, declared)
                self.assertEqual(declared[name], structure._fields_)

    def test_the_comparison_finds_a_difference(self):
        self.assertEqual(type_of("const void *key"), ctypes.c_void_p)
        self.assertEqual(type_of("size_t *len"), ctypes.POINTER(ctypes.c_size_t))
        self.assertEqual(type_of("struct engine_t **out"), ctypes.POINTER(ctypes.c_void_p))
        self.assertNotEqual(type_of("uint64_t x"), type_of("uint32_t x"))


class Stubs(unittest.TestCase):
    def names(self, path):
        """Public names of a module and its classes, as `name` and `Class.name`."""
        found = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            if isinstance(node, ast.ClassDef):
                found.add(node.name)
                found |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
                for n in node.body:
                    if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name):
                        found.add(f"{node.name}.{n.targets[0].id}")
        return {n for n in found if not re.search(r"(^|\.)_[^_]", n) and not n.endswith(("__del__", "__str__"))}

    def test_stubs_have_the_names_of_the_modules(self):
        package = ROOT / "python" / "iouring_engine"
        self.assertTrue((package / "py.typed").exists())
        for module in ("errors", "store", "wal"):
            with self.subTest(module=module):
                real = self.names(package / f"{module}.py")
                stub = self.names(package / f"{module}.pyi") - {"Event", "Recovery"}
                self.assertEqual(real, stub)


if __name__ == "__main__":
    unittest.main()
