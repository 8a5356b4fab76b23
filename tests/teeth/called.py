"""What a chapter was examined with, so that only an edit of that makes its row old.

Its own cells, the data that it reads, and of `src` the functions that it called, each by what it
says: comments, docstrings and places do not count. What stands in a module outside its functions
(constants, fields of classes) counts as one more, for every module of which something was called.
"""

import ast
from functools import cache

from dependencies import code_of, data, digest, hashed


def own_key(path, root):
    """Changes with a chapter's cells and with the data beside it and in its records."""
    source = code_of(path)
    return digest(source, *hashed(data(source, path, root), root))


def called_by(codes, root):
    """{"src/part/module.py:name": what it says} of the functions of `src` among code objects."""
    found = {}
    for code in codes:
        if "/src/" in code.co_filename and code.co_filename.startswith(f"{root}/"):
            file = code.co_filename.removeprefix(f"{root}/")
            now = parts_of(root / file)
            for name in ("", code.co_qualname.split(".<locals>")[0]):
                if name in now:
                    found[f"{file}:{name}"] = now[name]
    return dict(sorted(found.items()))


def edited(result, path, root):
    """What has changed since a chapter was examined: "cells or data", names of functions."""
    if "called" not in result:
        return ["examined before functions were kept"]
    found = [] if result["key"] == own_key(path, root) else ["cells or data"]
    for place, before in result["called"].items():
        file, name = place.split(":")
        if parts_of(root / file).get(name) != before:
            found.append(place)
    return found


@cache
def parts_of(path):
    """{name of a function or method: what it says; "": what stands outside of them}."""
    if not path.exists():
        return {}
    found, outside = {}, []

    def visit(body, prefix):
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    found[prefix + node.name] = digest(said(node))
                case ast.ClassDef():
                    heads = [*node.bases, *node.keywords, *node.decorator_list]
                    outside.extend([node.name, *map(ast.dump, heads)])
                    visit(node.body, f"{prefix}{node.name}.")
                case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    outside.append(said(node))

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found | {"": digest(*outside)}


def said(node):
    """A function or statement as text, without docstrings and places."""
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(each):
            each.body[0] = ast.Pass()
    return ast.dump(node)
