"""The licences of the crates that are linked into the program, as one text."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TITLE = "The program turnwheel contains these crates. Each is followed by its licence; equal texts stand once.\n"
LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|UNLICENSE)", re.IGNORECASE)


def linked_crates():
    """The crates of other authors that the program's own crates link, by name. Macros and tests are not linked."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--features", "dist", "--filter-platform", "x86_64-unknown-linux-gnu"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"package: `cargo metadata` failed:\n{found.stderr}")
    metadata = json.loads(found.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    links = {node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])] for node in metadata["resolve"]["nodes"]}
    seen, left = set(), [metadata["resolve"]["root"]]
    while left:
        package = packages[left.pop()]
        is_macro = any("proc-macro" in target["kind"] for target in package["targets"])
        if package["id"] not in seen and not is_macro:
            seen.add(package["id"])
            left += links[package["id"]]
    crates = [packages[package] for package in seen if packages[package]["source"]]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def licence_texts(crate):
    folder = Path(crate["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if LICENCE_FILE.match(path.name) and path.is_file())
    return [path.read_text(errors="replace").strip() for path in files]


def missing(crate):
    authors = ", ".join(crate["authors"]) or "see its repository"
    return f"Its package has no licence file. Authors: {authors}."


def notices():
    parts, first_use = [TITLE], {}
    for crate in linked_crates():
        name = f"{crate['name']} {crate['version']}"
        parts.append(f"{'=' * 80}\n{name}, {crate['license'] or 'licence in its files'}, {crate['repository'] or 'crates.io'}\n")
        for text in licence_texts(crate) or [missing(crate)]:
            known = first_use.setdefault(text, name)
            parts.append(text + "\n" if known == name else f"The same text as for {known}.\n")
    return "\n".join(parts)
