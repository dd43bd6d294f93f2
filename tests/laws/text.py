#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Laws about text.   text.py SOURCE width|params|errors|heads|links|readmes|selftest|shrink

width   no line of code, scripts or documents is over 100 columns (rows of Markdown tables are free)
params  no function outside src/kern has more than 6 parameters
errors  a function of a room's header that may fail says how: in a comment of its paragraph, its
        section or the whole header
heads   every .c and .h file says in a comment, right after the SPDX line, what it holds
links   every document, source file or row of docs/reliability.md that is named exists
readmes a README that lists the files of its room in reading order names all of them: each .c file,
        and each header that no .c file of the same name goes with

exceptions.txt beside this file holds what breaks the first three still: law, count, file. A
count that is passed fails, and so does one that is no longer reached: `shrink` lowers the list
to what is there, and never raises it. `selftest` plants one violation of each law and expects the
law to find it.
"""
import os
import re
import subprocess
import sys
import tempfile
import textwrap

WIDE = 100
CODE = (".c", ".h", ".inc", ".py", ".sh", ".cmake", ".md", ".js", ".css", ".html")
NAMED = ("ROOMS", "TOUCH", "Makefile", "CMakeLists.txt")
# generated or measured text, whose lines are records
DATA = ("tests/fuzz/corpus/", "tests/data/", "models/demo/README.md")
LIST = "tests/laws/exceptions.txt"
# papers from before the repository: what they said is in docs/
PAPERS = r"\b(?:HOUSE|FORMATS|RELIABILITY|REVIEW|ARCHS|DEVICES|SPEC|PERF|STYLE_ANCHORS)"
GONE = re.compile(PAPERS + r"(?:\.md\b| +[A-Z]?\d+(?:\.\d+)*\b)")
PAGE = re.compile(r"(?<![\w/.*<{%-])((?:[\w-]+/)*[\w-]+\.md)\b")
SOURCE = re.compile(r"(?<![\w/.*<-])((?:[a-z_0-9]+/)+[a-z_0-9]+\.(?:c|h|inc))\b(?!\w)")
ROW = re.compile(r"docs/reliability\.md[ )\n*#/]*((?:[A-Z]\d+(?:, | and |,\s*\*?\s*)?)+)")


def tracked(root):
    """The text files that git knows; all files where there is no repository."""
    if os.path.exists(os.path.join(root, ".git")):
        names = subprocess.check_output(["git", "-C", root, "ls-files"], text=True).split("\n")
    else:
        names = [os.path.relpath(os.path.join(d, f), root)
                 for d, _, files in os.walk(root) for f in files]
    return sorted(n for n in names if n and os.path.isfile(os.path.join(root, n)))


def is_text(name):
    return (name.endswith(CODE) or os.path.basename(name) in NAMED
            or name.startswith("scripts/")) and not name.startswith(DATA)


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def too_wide(name, text):
    """Numbers of the lines that are too wide."""
    free = ("|",) if name.endswith(".md") else ()
    return [i for i, line in enumerate(text.split("\n"), 1)
            if len(line) > WIDE and not line.lstrip().startswith(free or ("\0",))]


def without_comments(text):
    keep = lambda m: re.sub(r"[^\n]", " ", m.group()) if m.group()[0] == "/" else \
        '"' + re.sub(r"[^\n]", " ", m.group()[1:-1]) + '"'
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', keep, text, flags=re.S)


def too_many_params(name, text):
    """Lines of function definitions with more than 6 parameters."""
    text, found = without_comments(text), []
    for m in re.finditer(r"^[A-Za-z_][\w \t*]*?\b(\w+)\(", text, re.M):
        depth, commas, i = 1, 0, m.end()
        while i < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[i], 0)
            commas += text[i] == "," and depth == 1
            i += 1
        if commas >= 6 and text[i:].lstrip()[:1] == "{":
            found.append(text.count("\n", 0, m.start()) + 1)
    return found


STATUS = re.compile(r"\b(?:[Ee]rrors?|(?:SL_)?(?:NOMEM|IO|FORMAT|UNSUPPORTED|NOTFOUND|REQUEST|"
                    r"LIMIT|BUSY|CANCELLED|TIMEOUT|INTERNAL|DEVICE))\b")


def without_errors(text):
    """Lines of functions that return a status and say nothing of it."""
    said = lambda part: any(STATUS.search(c) for c in re.findall(r"/\*.*?\*/", part, re.S))
    found, end = [], 0
    head = re.match(r"/\*.*?\*/\s*(/\*.*?\*/)?", text, re.S)
    if head and STATUS.search(head.group(1) or ""):
        return []
    for section in re.split(r"(?=^/\* ----)", text, flags=re.M):
        first = re.match(r"/\* ----.*?\*/", section, re.S)
        for part in re.split(r"\n[ \t]*\n", section):
            at = text.index(part, end) if part else end
            end = at + len(part)
            if not said(part) and not (first and STATUS.search(first.group())):
                found += [text.count("\n", 0, at + m.start()) + 1 for m in
                          re.finditer(r"^(?:SL_API )?sl_status\s+\w+\(", part, re.M)]
    return found


def without_head(text):
    """The line after the SPDX line (and after one for clang-format) must begin a comment."""
    lines = [line for line in text.split("\n")[:3] if "clang-format" not in line]
    return len(lines) < 2 or not lines[1].startswith("/* ")


def counted(root, law):
    """[(file, lines)] of the law's violations."""
    for name in tracked(root):
        if law == "width" and is_text(name):
            lines = too_wide(name, read(root, name))
        elif (law == "params" and name.endswith((".c", ".h"))
              and name.startswith(("src/", "tools/", "tests/")) and "/kern/" not in name):
            lines = too_many_params(name, read(root, name))
        elif (law == "errors" and name.endswith(".h") and name.startswith(("src/", "include/"))
              and "/kern/" not in name and not name.endswith(("_internal.h", "_list.h"))):
            lines = without_errors(read(root, name))
        else:
            continue
        if lines:
            yield name, lines


def exceptions(root):
    known = {}
    if os.path.exists(os.path.join(root, LIST)):
        for line in read(root, LIST).split("\n"):
            if line and not line.startswith("#"):
                law, n, name = line.split()
                known[law, name] = int(n)
    return known


def law_counted(root, law):
    known, bad = exceptions(root), []
    there = dict(counted(root, law))
    for name, lines in there.items():
        most = known.get((law, name), 0)
        if len(lines) > most:
            where = " ".join(str(i) for i in lines[:20])
            bad.append(f"{name}: {law}: {len(lines)}, at most {most}; lines {where}")
    low = [name for (one, name), n in known.items() if one == law and len(there.get(name, [])) < n]
    if low:
        bad.append(f"{law}: {LIST} can be lowered (text.py . shrink): {' '.join(low)}")
    return bad


def law_heads(root):
    return [f"{name}: no sentence at its head says what it holds" for name in tracked(root)
            if name.endswith((".c", ".h")) and name.startswith(("src/", "tools/", "tests/",
                                                                "include/", "docs/"))
            and without_head(read(root, name))]


def law_links(root):
    files = tracked(root)
    here, bases = set(files), {os.path.basename(f) for f in files}
    rows = set(re.findall(r"\b([A-Z]\d+)\b", read(root, "docs/reliability.md"))
               if "docs/reliability.md" in here else [])
    bad = []
    for name in files:
        if not is_text(name) and not name.endswith(".cc") or name == "tests/laws/text.py":
            continue
        text = read(root, name)
        line = lambda m: f"{name}:{text.count(chr(10), 0, m.start()) + 1}: "
        bad += [line(m) + f"{m.group()} is not in the tree" for m in GONE.finditer(text)]
        for m in ROW.finditer(text):
            bad += [line(m) + f"docs/reliability.md has no row {r}"
                    for r in re.findall(r"[A-Z]\d+", m.group(1)) if r not in rows]
        if not name.startswith(("src/", "include/", "tools/", "docs/", "README", "CONTRIBUTING")):
            continue
        folder = os.path.dirname(name)
        for m in PAGE.finditer(text):
            ways = {m.group(1), os.path.normpath(os.path.join(folder, m.group(1))),
                    "src/" + m.group(1), "docs/" + m.group(1)}
            if not ways & here and not ("/" not in m.group(1) and m.group(1) in bases):
                bad.append(line(m) + f"{m.group(1)} is not in the tree")
        if name.endswith((".c", ".h", ".inc", ".md")):
            for m in SOURCE.finditer(text):
                start = text.rfind("\n", 0, m.start()) + 1
                if text[start:].lstrip().startswith("#"):
                    continue
                ends = "/" + m.group(1)
                if not any(("/" + f).endswith(ends) for f in here):
                    bad.append(line(m) + f"{m.group(1)} is not in the tree")
    return bad


def law_readmes(root):
    files, bad = tracked(root), []
    for readme in (f for f in files if re.fullmatch(r"src/\w+/README\.md", f)):
        text = read(root, readme)
        if "files in reading order" not in text.lower():
            continue
        named = set(re.findall(r"`(?:\w+/)?(\w+\.[ch])`", text))
        here = [f for f in files if f.startswith(os.path.dirname(readme) + "/")]
        for f in here:
            name = os.path.basename(f)
            with_c = name.endswith(".h") and f[:-1] + "c" in here
            if name.endswith((".c", ".h")) and name not in named and not with_c:
                bad.append(f"{readme}: {f} is not in its list of files")
    return bad


LAWS = {"width": lambda r: law_counted(r, "width"), "params": lambda r: law_counted(r, "params"),
        "errors": lambda r: law_counted(r, "errors"),
        "heads": law_heads, "links": law_links, "readmes": law_readmes}


def shrink(root):
    known, now = exceptions(root), {}
    for law in ("width", "params", "errors"):
        for name, lines in counted(root, law):
            if (law, name) in known or "--begin" in sys.argv:
                now[law, name] = min(len(lines), known.get((law, name), len(lines)))
    with open(os.path.join(root, LIST), "w") as f:
        f.write("# What still breaks a law of text.py: law, count, file. It may only shrink.\n")
        f.writelines(f"{law} {n} {name}\n" for (law, name), n in sorted(now.items()))


GOOD = ("/* SPDX */\n/* A file that breaks no law. */\nint f(int a, int b, int c, int d, int e, "
        "int g)\n{\n}\n")
PLANTS = [
    ("width", "src/kv/a.c", GOOD + "/* " + "x" * 98 + " */\n"),
    ("width", "docs/a.md", "word " * 21 + "\n"),
    ("params", "src/kv/a.c", GOOD.replace("int a", "int z, void (*a)(int, int)")),
    ("errors", "src/kv/a.h", "/* SPDX */\n/* A. */\n\n/* B. */\nsl_status f(int a);\n"),
    ("heads", "src/kv/a.c", GOOD.replace("/* A file that breaks no law. */\n", "#include <a.h>\n")),
    ("links", "src/kv/a.c", GOOD.replace("no law", "HOUSE 5.2")),
    ("links", "src/kv/a.c", GOOD.replace("no law", "docs/no.md")),
    ("links", "src/kv/a.c", GOOD.replace("no law", "kv/nowhere.c")),
    ("links", "tests/a.c", GOOD.replace("no law", "docs/reliability.md Z9")),
    ("readmes", "src/io/README.md", "# io: files in reading order\n\n`c.c`\n"),
]


def selftest():
    bad = []
    for law, name, text in [(law, "src/kv/a.c", GOOD) for law in LAWS] + PLANTS:
        with tempfile.TemporaryDirectory() as root:
            for at, what in (("docs/reliability.md", "| K1 | |\n"), ("src/io/b.c", GOOD),
                             ("src/io/b.h", GOOD), (name, text)):
                os.makedirs(os.path.dirname(os.path.join(root, at)), exist_ok=True)
                with open(os.path.join(root, at), "w") as f:
                    f.write(what)
            found = LAWS[law](root)
            if bool(found) == (text == GOOD):
                bad.append(f"{law}: {found or 'not found'}: {textwrap.shorten(text, 80)}")
    with tempfile.TemporaryDirectory() as root: # a count that is passed, one that is not reached
        os.makedirs(os.path.join(root, "tests/laws"))
        for n, most in ((2, 1), (1, 0), (1, 2)):
            with open(os.path.join(root, "a.md"), "w") as f:
                f.write(("x" * 101 + "\n") * n)
            with open(os.path.join(root, LIST), "w") as f:
                f.write(f"width {most} a.md\n")
            if not LAWS["width"](root):
                bad.append(f"width: {n} where the list says {most} was not found")
    return bad


def main():
    root, law = os.path.abspath(sys.argv[1]), sys.argv[2]
    if law == "shrink":
        return shrink(root)
    bad = selftest() if law == "selftest" else LAWS[law](root)
    print("\n".join(bad) if bad else f"{law}: ok")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
