"""The documentation's code runs, its names exist, and it covers all public names."""

import ast
import functools
import importlib.util
import json
import pathlib
import pkgutil
import re
import runpy
import shlex
import types

import documents
import processes
import pytest

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import checkpoint, embedding, optimizers, preflight
from estimator_emb.cli import main as main_lib

pytestmark = pytest.mark.any_version

REPOSITORY = documents.REPOSITORY
DOCS = REPOSITORY / "docs"


def run(*arguments):
    """Runs Python as a reader without a compiler would, and returns what it printed."""
    given = {"cwd": REPOSITORY, "status": 0, "ESTIMATOR_EMB_NATIVE": "0"}
    return processes.run_python(*arguments, **given).stdout


@pytest.mark.slow
def test_python_of_the_pages_runs(tmp_path):
    """Runs all pages in the same process, because importing TensorFlow takes most of the time.

    `documents.py` prints a line `<page>: <seconds> s` for each page that ran to its end.
    """
    pages = [
        page
        for page in documents.PAGES
        if documents.program_of(page) and not page.startswith(documents.LIBRARIES)
    ]
    assert {"README.md", "docs/recommender.md", "docs/preflight.md", "docs/pjrt.md"} <= set(pages)
    printed = run(documents.__file__, tmp_path, *pages)
    assert [line.split(":")[0] for line in printed.splitlines() if line.endswith(" s")] == pages


def test_every_fence_of_the_pages_ends_and_names_a_known_language():
    languages = set()
    for page in documents.PAGES:
        text = (REPOSITORY / page).read_text()
        languages |= {language for language, _, _ in documents.blocks(page)}
        assert text.count("```") == 2 * len(documents.blocks(page)), page
    assert languages <= {"", "diff", "python", "sh", "text"}


COMMANDS = json.loads((REPOSITORY / "tests" / "data" / "commands.json").read_text())
"""Start of a command in the pages -> why no test here runs it, or a dict of replacements for its
placeholders."""


def commands():
    """Yields (page, command) for each command. Continuation lines are joined."""
    for page in documents.PAGES:
        for language, code, _ in documents.blocks(page):
            if language == "sh":
                for line in code.replace("\\\n", " ").splitlines():
                    command = line.split("  #")[0].strip()
                    if command and not command.startswith("#"):
                        yield page, command


def rule_of(command):
    """Returns the entry of COMMANDS for a command, or None."""
    return next((rule for start, rule in COMMANDS.items() if command.startswith(start)), None)


def test_every_command_of_the_pages_is_run_or_commands_json_says_why_not():
    found = list(commands())
    assert len(found) > 15
    for page, command in found:
        assert rule_of(command), f"Say in commands.json how {command!r} of {page} is tested."
    assert [start for start in COMMANDS if not any(c.startswith(start) for _, c in found)] == []
    for _, command in found:
        for file in re.findall(r"(?:examples|benchmarks|tests)/[\w/]*(?:\.py)?", command):
            assert (REPOSITORY / file).exists(), command


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", [c for _, c in commands() if isinstance(rule_of(c), dict)])
def test_a_documented_command_runs(command, tmp_path, monkeypatch):
    for old, new in rule_of(command).items():
        assert old in command
        command = command.replace(old, new.replace("MODEL", str(tmp_path / "model")))
    _, subcommand, *arguments = shlex.split(command)
    # These run a program, which may change its process. So they get their own.
    if subcommand in ("run", "check"):
        run("-m", "estimator_emb", subcommand, *arguments)
    else:
        monkeypatch.chdir(REPOSITORY)
        assert main_lib.main([subcommand, *arguments]) == 0


def test_the_page_shows_the_diff_that_migrate_writes(tmp_path):
    page = "docs/migration.md"
    shown = next((code for language, code, _ in documents.blocks(page) if language == "diff"), "")
    assert shown, f"{page} shows no diff"
    before, after = (
        "".join(line[1:] or "\n" for line in shown.splitlines(keepends=True) if line[0] != other)
        for other in "+-"
    )
    program = tmp_path / "program.py"
    program.write_text(before)
    assert main_lib.main(["migrate", "--write", str(program)]) == 0
    assert program.read_text() == after


def test_the_table_of_tested_versions_is_up_to_date():
    assert runpy.run_path(str(DOCS / "tested.py"))["text"]() == (DOCS / "tested.md").read_text()


def test_the_readme_is_the_first_page():
    """Calls the hook of MkDocs, which gets a page's text, and returns the text to show."""
    page_of = runpy.run_path(str(DOCS / "first_page.py"))["on_page_markdown"]
    index, other = (
        types.SimpleNamespace(file=types.SimpleNamespace(src_uri=name))
        for name in ("index.md", "tpu.md")
    )
    # The site has no pages of source files, so it shows the text without the link.
    assert page_of("[`x.py`](../estimator_emb/x.py)", page=other) == "`x.py`"
    page = page_of("text", page=index)
    assert page.startswith("# estimator_emb\n")
    targets = re.findall(r"\]\(([^)#]+)", page)
    assert len(targets) > 20 and all((DOCS / target).is_file() for target in targets)


def test_pictures_of_the_docs_equal_the_output_of_their_script():
    for draw in runpy.run_path(str(DOCS / "pictures.py"))["PICTURES"]:
        assert (DOCS / f"{draw.__name__}.svg").read_text() == draw()


def test_every_formula_of_an_optimizer_is_drawn():
    rendered = runpy.run_path(str(DOCS / "formulas.py"))["rendered"]
    for one in optimizers.PARAMETERS:
        text = importlib.import_module(one.__module__).__doc__
        formulas, drawn = re.findall(r"^    .*\S", text, re.M), rendered(text)
        # A row for each formula. No indented text is left.
        assert drawn.count("<mtr>") == len(formulas) > 0 and "\n    " not in drawn, one


def test_a_formula_becomes_mathml():
    rendered = runpy.run_path(str(DOCS / "formulas.py"))["rendered"]
    assert rendered("    w <- -w - g^2 / sqrt(a')        x=True\n") == (
        '<div class="formula"><math display="block"><mtable displaystyle="true"><mtr>'
        "<mtd><mi>w</mi></mtd><mtd><mo>←</mo></mtd><mtd><mo>−</mo><mi>w</mi><mo>−</mo><mfrac>"
        "<mrow><msup><mrow><mi>g</mi></mrow><mrow><mn>2</mn></mrow></msup></mrow>"
        "<mrow><msqrt><mi>a′</mi></msqrt></mrow></mfrac></mtd><mtd><mtext>x=True</mtext></mtd>"
        "</mtr></mtable></math></div>\n"
    )


def anchors(path):
    """Returns the anchors of a page's headings, formed as the site and code hosts form them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    }


def test_links_of_pages_resolve():
    seen = 0
    for page in documents.PAGES:
        path = REPOSITORY / page
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            file, _, anchor = target.partition("#")
            found = path.parent / file if file else path
            assert found.exists(), (page, target)
            seen += 1
            if anchor.startswith(("estimator_emb.", "feature_columns.")):
                assert f"::: {anchor}\n" in found.read_text(), (page, target)
            elif anchor:
                assert anchor in anchors(found), (page, target)
    assert seen > 40


def test_the_reference_has_every_public_name():
    pages = [path.read_text() for path in [*DOCS.glob("api/*.md"), DOCS / "optimizers.md"]]
    directives = set(re.findall(r"^::: ([\w.]+)$", "\n".join(pages), re.M))
    headings = set(re.findall(r"^#+ (\w+)$", (DOCS / "api/estimator.md").read_text(), re.M))
    classes = set(re.findall(r"^        - (\w+)$", "\n".join(pages), re.M))
    for module, prefix in (
        (ee, "estimator_emb"),
        (fc, "feature_columns"),
        (embedding, "estimator_emb.embedding"),
        (preflight, "estimator_emb.preflight"),
        (ee.errors, "estimator_emb.errors"),
    ):
        for name in module.__all__:
            documented = {name} & (headings | classes) or {f"{prefix}.{name}"} & directives
            assert documented or name in ("errors", "experimental", "export"), (
                f"Neither docs/api/ nor docs/optimizers.md describes {prefix}.{name}"
            )
    assert set(ee.export.__all__) <= headings
    assert set(ee.experimental.__all__) <= headings
    public = set(checkpoint.__all__) - {"HELPER_PREFIX"}
    assert {f"estimator_emb.checkpoint.{name}" for name in public} <= directives
    for name in directives:
        pkgutil.resolve_name(name)


OPTIMIZER_FILES = pathlib.Path(optimizers.__file__).parent.glob("*.py")
OPTIMIZERS = sorted(path.stem for path in OPTIMIZER_FILES if not path.stem.startswith("_"))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_section_matches_its_module(name):
    """Reads the page's table: optimizer, class, class of `embedding`, number of slots."""
    index, *sections = re.split(r"^## ", (DOCS / "optimizers.md").read_text(), flags=re.M)
    directive = f"::: estimator_emb.optimizers.{name}\n"
    section = next((section for section in sections if directive in section), None)
    assert section, f"docs/optimizers.md has no section with the line {directive!r}"
    module = importlib.import_module(f"estimator_emb.optimizers.{name}")
    assert re.search(r"^    .*(<-|=) ", module.__doc__, re.M), "no formula"
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    listed = re.findall(r"^        - (\w+)$", section, re.M)
    assert listed == [one.__name__ for one in classes]
    title = section.partition("\n")[0]
    begin = f"| [{title}](#{title.lower()}) |"
    row = next((line for line in index.splitlines() if line.startswith(begin)), None)
    assert row, f"The table of docs/optimizers.md has no row that begins with {begin!r}"
    cells = [cell.strip().strip("`") for cell in row.strip("|").split("|")]
    assert [cell for cell in cells[1:3] if cell] == listed
    assert int(cells[3].split(",")[0]) == len(classes[0].slots)


@functools.cache
def messages():
    """Returns the strings in the package's code, with … for each formatted value."""
    found = []
    for folder in ("estimator_emb", "feature_columns"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (getattr(part, "value", "…") for part in node.values)
                    found.append("".join(one if isinstance(one, str) else "…" for one in parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


@pytest.mark.slow
def test_errors_page_quotes_existing_messages():
    text = re.sub(r"%[sdr]|\{+\w*\}+", "…", "\n".join(messages()))
    listed = re.findall(r"^\| `([^`]+)` \|", (DOCS / "errors.md").read_text(), re.M)
    assert len(listed) > 35
    assert [message for message in listed if message not in text] == []


@pytest.mark.slow
def test_no_page_or_message_installs_this_package_from_a_package_index():
    """Prevents commands that fail or install a stranger's package: no package index has ours."""
    pages = [(REPOSITORY / page).read_text() for page in documents.PAGES if "changelog" not in page]
    assert not re.findall(r".*estimator-emb\[.*", "\n".join([*messages(), *pages]))


FOUND_BY = {
    "fully_connected": "legacy_names/#tfcontriblayers",
    "SIGHUP": "differences/",
    "legacy.Optimizer": "optimizers/#kerass-legacyoptimizer",
    "DNNClassifier": "legacy_names/#tfestimator",
}
"""What readers search for -> the beginning of a place that the search must find."""


def test_the_site_builds(tmp_path):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install -e '.[docs]'")
    run("-m", "mkdocs", "build", "--strict", "-f", ".mkdocs.yml", "--site-dir", tmp_path)
    assert "<msqrt>" in (tmp_path / "optimizers" / "index.html").read_text()
    assert "For anyone with a program" in (tmp_path / "index.html").read_text()
    search = json.loads((tmp_path / "search" / "search_index.json").read_text())

    def words_of(text):
        return set(re.split(search["config"]["separator"], re.sub(r"<[^>]+>", " ", text).lower()))

    for words, place in FOUND_BY.items():
        found = [
            section["location"]
            for section in search["docs"]
            if words_of(words) <= words_of(f"{section['title']} {section['text']}")
        ]
        assert any(location.startswith(place) for location in found), (words, found)
