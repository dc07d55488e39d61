#!/usr/bin/env python3
"""scripts/docs.py: checks the documents of the repository. A line has at most 140 columns; what a link
leads to exists, its heading too; a file, a test or an identifier that a document names in backquotes
exists: in the sources, so that a name that changes there changes here. scripts/lint.sh docs calls it."""
import fnmatch
import pathlib
import re
import subprocess
import sys

COLUMNS = 140
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(\./)?[\w.-]*[a-z][\w.-]*(/[\w.-]+)*\.(c|h|py|sh|md|in)")
# A test, or another name of several words: of them `*` stands for any letters.
NAME = re.compile(r"[a-z0-9]+(_[a-z0-9*]+)+|[a-z0-9]+(-[a-z0-9*]+)+")


def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.splitlines()


def anchors(path):
    """The headings of a document, as GitHub makes anchors of them."""
    found = set()
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            text = line.lstrip("#").strip().lower()
            found.add("#" + re.sub(r"[^\w -]", "", text).replace(" ", "-"))
    return found


def links(path):
    for target, anchor in LINK.findall(path.read_text()):
        if ":" in target:
            continue
        to = path.parent / target if target else path
        if not to.exists():
            yield f"the link {target} leads nowhere"
        elif anchor and anchor not in anchors(to):
            yield f"{target} has no heading {anchor}"


def words(files):
    """What the sources call things; the runners of tests show `test_a_name` as `a_name` or `a-name`."""
    found = set(re.findall(r"[\w-]+", "\n".join(files)))
    for f in files:
        if not f.endswith(".md") and "/corpus/" not in f and pathlib.Path(f).is_file():
            found.update(re.findall(r"[\w-]+", pathlib.Path(f).read_text(errors="replace")))
    found |= {w.removeprefix("test_") for w in found}
    return found | {w.replace("_", "-") for w in found}


def names(path, known, files):
    for text in CODE.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.S)):
        last = text.rsplit("/", 1)[-1].removesuffix("()")
        if "NAME" in text or text.startswith(".runfs/"):
            continue
        if FILE.fullmatch(text):
            if not any(f.endswith("/" + text.removeprefix("./")) for f in (f"/{f}" for f in files)):
                yield f"there is no {text}"
        elif NAME.fullmatch(last):
            name = last.removeprefix("runfs_")
            if name not in known and not ("*" in name and fnmatch.filter(known, name)):
                yield f"no source knows {text}"


def main():
    files = git("ls-files", "--cached", "--others", "--exclude-standard")
    documents = [pathlib.Path(f) for f in files if re.fullmatch(r"(docs/)?[\w.-]+\.md", f) and pathlib.Path(f).is_file()]
    known = words(files)
    wrong = []
    for path in documents:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > COLUMNS:
                wrong.append(f"{path}:{number}: {len(line)} columns, more than {COLUMNS}")
        wrong += [f"{path}: {what}" for what in (*links(path), *names(path, known, files))]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
