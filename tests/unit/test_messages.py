"""Every user-facing error has one form: `Cannot <do>: <why>. <What to do>.`"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import fedaux

PACKAGE = Path(fedaux.__file__).parent
BASE = "FedauxError"
OF_TYPER = ("BadParameter", "UsageError")  # which add the usage of the command

# what a reader can do, as the first word of a sentence
DO = (
    "Add|Ask|Begin|Call|Change|Check|Choose|Compare|Continue|"
    "Convert|Correct|Declare|Delete|Derive|Export|Fill|Fix|Give|"
    "Install|Leave|Look|Lower|Make|Move|Name|Place|Please|Put|"
    "Raise|Read|Replace|Restore|Return|Run|Save|Set|Start|Take|"
    "Tune|Use|Wait|Write"
)
FORM = re.compile(rf"Cannot .+?: .+[.?}}] ({DO})\b.*[.}}]", re.DOTALL)

# messages made elsewhere, which their makers' own rows check
PASSED_ON = {
    "str(unknown_name(key, value, allowed))",
    "str(unknown_name('method', name, [*METHODS, 'module:attribute']))",
    "str(unknown_name('keyword', key, keywords))",
    "str(unknown_name('preset', name, PRESETS))",
    "str(unknown_name(f'key of [{table}]', key, names))",
    "str(error)",  # of a method, from `import_attribute`
    "message",  # of `require`, and of an image that cannot be read
    "_unknown_key(prefix + key, [prefix + name for name in hints], known)",
    "' '.join(self.problems)",  # of a dry run
    "needs_head",  # of a method's hooks
}


def trees() -> dict[str, ast.Module]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {
        str(file.relative_to(PACKAGE)): ast.parse(file.read_text("utf-8"))
        for file in files
    }


def error_classes(modules: dict[str, ast.Module]) -> set[str]:
    """The names of `FedauxError` and of all classes derived from it."""
    classes = [
        node
        for tree in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    found = {BASE}
    size = 0
    while size < len(found):
        size = len(found)
        for node in classes:
            if found & {getattr(base, "id", "") for base in node.bases}:
                found.add(node.name)
    return found


def template(node: ast.expr) -> str | None:
    """A message with {} for its values, or None for one made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "{}"
            for part in node.values
        )
    return None


def messages() -> Iterator[tuple[str, str | None, str]]:
    """(file and line, template, source) of each error's message."""
    modules = trees()
    classes = error_classes(modules)
    for file, tree in modules.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            position = {"require": 1}.get(name, 0)
            if (
                name not in {*classes, "require", *OF_TYPER}
                or len(node.args) <= position
            ):
                continue
            message = node.args[position]
            yield f"{file}:{node.lineno}", template(message), ast.unparse(message)


def test_every_error_says_what_failed_why_and_what_to_do():
    rows = list(messages())
    wrong = [
        f"{place}: {text}"
        for place, text, source in rows
        if (source not in PASSED_ON if text is None else not FORM.fullmatch(text))
    ]
    assert len(rows) > 400
    assert not wrong, "\n".join(wrong)


def test_no_error_needs_a_semicolon():
    """A semicolon hides a second sentence, or a "because"."""
    allowed = {"delimiter"}
    found = [
        f"{place}: {text}"
        for place, text, _ in messages()
        if text and ";" in text and not any(word in text for word in allowed)
    ]
    assert not found, "\n".join(found)


def test_the_form_can_fail():
    assert not FORM.fullmatch("there is no file {}")
    assert not FORM.fullmatch("Cannot read {}: there is no such file.")
    assert FORM.fullmatch("Cannot read {}: there is no such file. Name another one.")
