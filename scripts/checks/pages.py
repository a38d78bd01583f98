"""What pages promise to readers; prints each page that does not keep it.

    pages.py PUMICE
"""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from pathlib import Path

README_WORDS = 700
# In the sidebar, without the pages of checks, decisions and the course, which their tables have.
SIDEBAR_ENTRIES = 75
GROUPS, COMMANDS_OF_A_GROUP = range(3, 7), 8
QUESTIONS = 12
# Registries that have pumice. When a name is published, it comes into this set, and pages may say so.
PUBLISHED: set[str] = set()
NAMES = {
    "PyPI": r"pip3? install (?:--\S+ )*pumice\b(?![-_])",
    "crates.io": r"cargo install (?:--\S+ )*pumice\b|cargo add pumice-verbs\s*(?:#.*)?$",
    "Debian": r"apt(?:-get)? install (?:-\S+ )*pumice\b(?![-_])",
    "Docker Hub": r"docker (?:run|pull) (?:-\S+ )*pumice(?:-rdma)?/",
}
# A published archive to download is a name here as well: "releases".
OF_A_RELEASE = r"\[Download the \w+\]|releases/download|actions/pumice@v|raw/v\d"
# Recipes whose first lines do not yet say how long they take and what they need.
WITHOUT_TIME = {"fault-plans.md", "world.md", "personalities.md", "trace.md", "checks/README.md", "sweep-findings.md", "checks/found.md"}
# Pages of these parts are looked up, and not worked through.
LOOKED_UP = ("reference/", "decisions/", "checks/", "course/")
# Pages without a command that the test of documents runs, and why.
WITHOUT_COMMAND = {
    "README.md": "the table of contents",
    "SUMMARY.md": "the sidebar",
    "ci.md": "scripts/checks/ci.sh runs its blocks",
    "comparison.md": "a table about other devices",
    "congestion.md": "its example is built by cargo test, and device/tests/dcqcn runs the scenarios",
    "crates.md": "scripts/accept/cargo-install runs its commands",
    "deploy/compose/README.md": "scripts/accept/cluster runs its steps",
    "deploy/kind/README.md": "scripts/accept/cluster runs its steps",
    "deploy/kubernetes/README.md": "scripts/checks/kubernetes.sh runs its steps",
    "deploy/mpi/README.md": "scripts/checks/workplaces.sh runs its commands",
    "determinism.md": "a table of guarantees",
    "editors.md": "scripts/checks/workplaces.sh runs its files",
    "packages.md": "a list of crates, for those who change the source",
    "performance.md": "measurements need an idle machine",
    "platforms.md": "its commands build for minutes, on other processors",
    "quick-start/kind.md": "scripts/accept/quick-starts runs its steps",
    "rdma_rxe.md": "its laboratory boots a kernel",
    "rooms.md": "a table, for those who change the source",
    "rust.md": "verbs/tests compiles its blocks",
    "sweep-findings.md": "what was found once",
    "threat-model.md": "tests are named beside each promise",
    "tutorials/real-peers.md": "its laboratory boots a kernel",
    "world.md": "tests/cli_world.rs runs its commands",
}
DOCS = Path("docs")
faults: list[str] = []


def must(is_so: bool, sentence: str) -> None:
    if not is_so:
        faults.append(sentence)


def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub and mdBook make them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """Links of a page within the repository: the file, and the heading."""
    found = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text())
    return [(Path(posixpath.normpath(page.parent / path)) if path else page, name) for path, name in found]


def lengths() -> None:
    words = len(Path("README.md").read_text().split())
    must(words <= README_WORDS, f"README.md has {words} words, {README_WORDS} are the most")


def sidebar() -> None:
    summary = (DOCS / "SUMMARY.md").read_text()
    entries = re.findall(r"^- \[", summary, re.M)
    must(len(entries) <= SIDEBAR_ENTRIES, f"the sidebar has {len(entries)} entries, {SIDEBAR_ENTRIES} are the most")
    for part in ["checks", "decisions"]:
        pages = re.findall(rf"^( *)- \[[^\]]*\]\({part}/(?!README)[^)]*\)", summary, re.M)
        must(pages != [] and all(pages), f"pages of {part} stand beside their table in SUMMARY.md: indent them")
    book = (DOCS / "book.toml").read_text()
    must("[output.html.fold]\nenable = true" in book and "sidebar.css" in book, "book.toml does not fold the sidebar")


def groups(pumice: str) -> None:
    shown = subprocess.run([pumice, "--help"], text=True, capture_output=True, check=True).stdout
    found = {name: re.findall(r"^  ([a-z]+) ", text, re.M) for name, text in re.findall(r"^([A-Z][^\n:]*):\n((?:  .*\n)+)", shown, re.M)}
    found.pop("Options", None)
    must(len(found) in GROUPS, f"pumice --help has {len(found)} groups: {list(found)}")
    for name, commands in found.items():
        must(0 < len(commands) <= COMMANDS_OF_A_GROUP, f"the group {name!r} of pumice --help has {len(commands)} commands")


def names() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py", "*.sh", "*.yml"], text=True, capture_output=True, check=True).stdout.split()
    for file in listed:
        if file in ("CHANGELOG.md", "scripts/checks/pages.py") or not Path(file).is_file():
            continue
        text = Path(file).read_text()
        for registry, pattern in NAMES.items():
            for found in re.findall(pattern, text, re.M) if registry not in PUBLISHED else []:
                faults.append(f"{file}: {found!r}: {registry} does not have pumice yet; say what works from a checkout or a file")


def downloads() -> None:
    """A page that sends its reader to a release says that there is none, as long as that is so."""
    for page in [Path("README.md"), Path("verbs/python/README.md"), *sorted(DOCS.rglob("*.md"))]:
        text = page.read_text()
        if re.search(OF_A_RELEASE, text) and "releases" not in PUBLISHED:
            must("is no release" in " ".join(text.split()), f"{page} downloads from a release: say that there is no release yet, and what to do")


def questions() -> None:
    """README, a page of questions, an answer."""
    start = {(page, name) for page, name in links(Path("README.md")) if page == DOCS / "faq.md"}
    must(start != set(), "README.md does not lead to docs/faq.md")
    section = (DOCS / "faq.md").read_text().partition("## Questions of beginners")[2]
    answered = re.findall(r"^\| \[[^\]]+\]\(([^)#]+)#([^)]+)\)", section, re.M)
    must(len(answered) >= QUESTIONS, f"docs/faq.md has {len(answered)} questions of beginners, {QUESTIONS} are the least")
    for page, name in answered:
        must(name in anchors(DOCS / page), f"docs/faq.md: {page} has no answer {name}")


def headings() -> None:
    """Links of README, and of pages that no book shows."""
    for page in [Path("README.md"), Path("CONTRIBUTING.md"), Path("ARCHITECTURE.md"), *Path("verbs").glob("*/README.md")]:
        for target, name in links(page):
            must(target.exists(), f"{page}: there is no {target}")
            if name and target.suffix == ".md" and target.exists():
                must(name in anchors(target), f"{page}: {target} has no heading {name}")


def recipes() -> None:
    guides = (DOCS / "SUMMARY.md").read_text().partition("# Reference")[0]
    for name in re.findall(r"\]\(([^)]+\.md)\)", guides.partition("\n# Quick starts")[2]):
        if name in WITHOUT_TIME or name.startswith(LOOKED_UP):
            continue
        first = (DOCS / name).read_text().partition("\n")[2].strip().partition("\n")[0]
        must(re.match(r"\*(?:\d+ minutes|An? minute\b)[^*]*; \S", first) is not None, f"docs/{name}: say first how long it takes and what it needs: {first!r}")


def commands() -> None:
    for page in sorted(DOCS.rglob("*.md")):
        name = str(page.relative_to(DOCS))
        blocks = re.findall(r"(<!--[^>]*-->\n)?```sh\n", page.read_text())
        runs = any("not run" not in remark for remark in blocks)
        if name.startswith(("reference/", "decisions/", "checks/")):
            continue
        must(runs or WITHOUT_COMMAND.get(name), f"docs/{name}: no command that the test of documents runs: give it one, or say why not in {sys.argv[0]}")
        must(not (runs and WITHOUT_COMMAND.get(name)), f"docs/{name} has a command that is run: remove it from the list in {sys.argv[0]}")


def main() -> None:
    lengths()
    sidebar()
    groups(sys.argv[1])
    names()
    downloads()
    questions()
    headings()
    recipes()
    commands()
    print("\n".join(faults) if faults else "README, sidebar, help, names, questions, recipes and commands are as promised")
    sys.exit(bool(faults))


main()
