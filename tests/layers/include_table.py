"""Who may include whom: the table of the architecture, and the checks that read every #include against it.

The table is also printed in HACKING.md; a test holds the two equal.
"""

import pathlib
import re

# Folder of src/ (and tools) -> folders whose headers it may include. Every folder may include itself, the standard library
# and halfbyte/status.h.
MAY_INCLUDE = {
    "base": [],
    "formats": ["base"],
    "tensor": ["formats", "base"],
    "kernels": ["tensor", "formats", "base"],
    "residue": ["kernels", "tensor", "formats", "base"],
    "io": ["tensor", "formats", "base"],
    "text": ["tensor", "base"],
    "decode": ["tensor", "base"],
    "model": ["io", "residue", "kernels", "tensor", "formats", "base"],
    "engine": ["model", "decode", "text", "residue", "kernels", "tensor", "formats", "base"],
    "chat": ["engine", "model", "decode", "text", "io", "tensor", "formats", "base"],
    "quantize": ["engine", "model", "decode", "text", "io", "residue", "kernels", "tensor", "formats", "base"],
    "eval": ["chat", "engine", "model", "decode", "text", "io", "residue", "kernels", "tensor", "formats", "base"],
    "server": ["chat", "engine", "model", "decode", "text", "base"],
    "train_ops": ["residue", "kernels", "tensor", "formats", "base"],
    "tools": ["server", "quantize", "eval", "chat", "engine", "model", "decode", "text", "io", "residue", "kernels", "tensor",
              "formats", "base"],
}

# Public header -> folders that may include it, besides tools. status.h and version.h are free.
PUBLIC_HEADERS = {
    "plan.h": ["model", "engine", "chat", "quantize", "eval", "server"],
    "generate.h": ["decode", "engine", "chat", "quantize", "eval", "server"],
    "model.h": ["model", "engine", "chat", "quantize", "eval", "server"],
    "engine.h": ["engine", "chat", "quantize", "eval", "server"],
    "message.h": ["text", "chat", "eval", "server"],
    "chat.h": ["chat", "eval", "server"],
}

# From outside a folder only these of its headers may be included; folders that are not listed hide nothing.
OPEN_HEADERS = {
    "kernels": ["kernels/api.h", "kernels/registry.h", "kernels/read_bandwidth.h", "kernels/cuda/ops.h",
                "kernels/cuda/kernel_set.h", "kernels/cuda/linear_table.h", "kernels/cuda/cold_linear.h", "kernels/cuda/work_sizes.h"],
}

# (including folder, included folder): implementations that may not lean on one another.
FORBIDDEN_SUBFOLDERS = [
    ("kernels/ref", "kernels/cpu"), ("kernels/ref", "kernels/cuda"), ("kernels/cpu", "kernels/cuda"),
    ("kernels/cuda", "kernels/cpu"),
]

# Third-party headers -> where they may stand. JSON is read in one place and written in .cpp files; no public header and no
# kernel knows it.
THIRD_PARTY = [
    (re.compile(r"^simdjson"), re.compile(r"^src/base/json\.cpp$")),
    (re.compile(r"^nlohmann/"), re.compile(r"^(src/(model|quantize|eval|server|text)|tools)/.*\.cpp$")),
    (re.compile(r"^(boost|openssl)/"), re.compile(r"^src/server/")),
    (re.compile(r"^(cuda|cublas|nccl|cooperative_groups)"), re.compile(r"^src/(kernels/cuda|engine/cuda)")),
    (re.compile(r"^CLI/"), re.compile(r"^tools/")),
    (re.compile(r"^(editline|histedit)"), re.compile(r"^tools/")),
    (re.compile(r"^pcre2"), re.compile(r"^src/(text/|io/name_pattern\.cpp$)")),
    (re.compile(r"^utf8proc"), re.compile(r"^src/text/")),
    (re.compile(r"^fmt/"), re.compile(r"^(src|tools)/")),
]

# Words that a folder's code may not contain (comments count: a comment that names a model explains one).
FORBIDDEN_WORDS = [
    (re.compile(r"^src/kernels/"), re.compile(r"qwen|llama|smollm|deepseek|mistral|gemma", re.IGNORECASE), "kernels never name a model"),
    (re.compile(r"^src/engine/"), re.compile(r"\bhttps?\b|\bjson\b|nlohmann|simdjson", re.IGNORECASE), "the engine knows neither HTTP nor JSON"),
    (re.compile(r"^include/"), re.compile(r"nlohmann|simdjson|boost::|JsonValue|ordered_json|cudaStream|__half\b"),
     "no JSON, HTTP or CUDA types in the public API"),
]

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def sources(root):
    """Relative paths of all C++ files of src, tools and include."""
    root = pathlib.Path(root)
    found = []
    for top in ("src", "tools", "include"):
        found += [p.relative_to(root).as_posix() for p in (root / top).rglob("*") if p.suffix in SUFFIXES]
    return sorted(found)


def folder_of(path):
    """"kernels" for src/kernels/ref/x.cpp, "tools" for tools/run.cpp, "include" for the public headers."""
    parts = path.split("/")
    return parts[1] if parts[0] == "src" else parts[0]


def includes_of(root, path):
    """(quote, name) of each #include."""
    return INCLUDE.findall((pathlib.Path(root) / path).read_text(encoding="utf-8"))


def project_file(root, including, name):
    """Where an #include "..." lies, relative to the root; None if it is nowhere in the tree."""
    root = pathlib.Path(root)
    for base in ("src", "include", "tools", pathlib.Path(including).parent.as_posix()):
        if (root / base / name).is_file():
            return f"{base}/{name}"
    return None


def check_include(root, path, quote, name):
    """One line on what is wrong with an #include, or None."""
    folder = folder_of(path)
    if quote == "<":
        for header, allowed in THIRD_PARTY:
            if header.search(name) and not allowed.search(path):
                return f"{path}: <{name}> may stand only in {allowed.pattern}"
        return None
    target = project_file(root, path, name)
    if target is None:
        return None if name in GENERATED else f'{path}: "{name}" is not in the tree; write it from src/ or include/'
    if not (target.startswith(("src/", "include/")) and target.split("/", 1)[1] == name) and folder != "tools":
        return f'{path}: "{name}" should be written from src/ or include/'
    included = folder_of(target)
    if included == "include":
        header = target.rsplit("/", 1)[1]
        if folder not in ("include", "tools") and folder not in PUBLIC_HEADERS.get(header, [folder]):
            return f"{path}: {folder} may not include {name} (only {', '.join(PUBLIC_HEADERS[header])})"
        return None
    if folder == "include":
        return f'{path}: a public header may not include "{name}"'
    if included != folder and included not in MAY_INCLUDE.get(folder, []):
        allowed = ", ".join(MAY_INCLUDE.get(folder, [])) or "nothing else"
        return f"{path}: {folder} may not include {name} (only {allowed})"
    if included != folder and included in OPEN_HEADERS and name not in OPEN_HEADERS[included]:
        return f"{path}: from outside only {', '.join(OPEN_HEADERS[included])} may be included, found {name}"
    for source, other in FORBIDDEN_SUBFOLDERS:
        if path.startswith(f"src/{source}/") and target.startswith(f"src/{other}/"):
            return f"{path}: {source} may not include {name}"
    return None


# Written by the build, so not in the tree.
GENERATED = {"build_facts.h"}


def include_violations(root):
    violations = []
    for path in sources(root):
        folder = folder_of(path)
        if folder not in MAY_INCLUDE and folder != "include":
            violations.append(f"{path}: the folder {folder} is not in the include table (tests/layers/include_table.py)")
            continue
        violations += filter(None, (check_include(root, path, *include) for include in includes_of(root, path)))
    return violations


def word_violations(root):
    violations = []
    for path in sources(root):
        for where, word, rule in FORBIDDEN_WORDS:
            if not where.search(path):
                continue
            for number, line in enumerate((pathlib.Path(root) / path).read_text(encoding="utf-8").splitlines(), 1):
                if word.search(line):
                    violations.append(f"{path}:{number}: {rule}: {line.strip()}")
    return violations


def include_cycles(root):
    """Each cycle among the project's headers as "a -> b -> a"."""
    graph = {}
    for path in sources(root):
        targets = (project_file(root, path, name) for quote, name in includes_of(root, path) if quote == '"')
        graph[path] = [t for t in targets if t is not None]
    cycles, done = [], set()

    def visit(path, trail):
        if path in trail:
            cycles.append(" -> ".join(trail[trail.index(path):] + [path]))
            return
        if path in done:
            return
        for target in graph.get(path, []):
            visit(target, trail + [path])
        done.add(path)

    for path in graph:
        visit(path, [])
    return cycles


LIBRARY = re.compile(r"hb_library\(\s*(\w+)(.*?)\)", re.DOTALL)


def link_violations(root):
    """DEPS of the CMake libraries must be in the table too."""
    violations = []
    for file in sorted(pathlib.Path(root, "src").rglob("CMakeLists.txt")):
        for name, body in LIBRARY.findall(re.sub(r"#.*", "", file.read_text(encoding="utf-8"))):
            words, deps = body.split(), []
            if "DEPS" in words:
                deps = words[words.index("DEPS") + 1:]
                deps = deps[:next((i for i, w in enumerate(deps) if w.isupper()), len(deps))]
            folder = folder_of(file.relative_to(root).as_posix())
            for dep in deps:
                if dep not in (folder, "version") and dep not in MAY_INCLUDE.get(folder, []):
                    violations.append(f"{file.relative_to(root)}: hb_library({name}) may not link {dep}")
    return violations
