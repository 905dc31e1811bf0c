"""The source files of the tree, for the checks in this folder."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def source_files(suffixes):
    """Paths relative to the root: what git tracks or would track, or every file where there is no git."""
    try:
        out = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"],
                             check=True, capture_output=True).stdout.decode("utf-8")
        names = [name for name in out.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                 if not path.relative_to(ROOT).parts[0].startswith(("build", "."))]
    return sorted({pathlib.PurePosixPath(name) for name in names
                   if name.endswith(tuple(suffixes)) and (ROOT / name).is_file()})
