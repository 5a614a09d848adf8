"""What belongs to a kernel's .cu file, by the names that files have here, and its older versions, from git."""
import dataclasses
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_OP = re.compile(r"^ISOBAR_KERNEL\((\w+), \w+\)", re.MULTILINE)


class NoKernel(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A .cu file and what belongs to it. Paths begin at the root."""
    source: str  # kernels/gelu.cu
    header: str | None  # its contract
    ops: tuple  # that the contract declares
    tests: str | None  # tests/kernels/gelu.cc
    twin: tuple  # the same ops on a CPU: kernels/gelu_cpu.cc

    @property
    def name(self):
        return self.source.removeprefix("kernels/")


def first_file(root, paths):
    return next((path for path in paths if (root / path).is_file()), None)


def kernel_of(source, root=ROOT):
    """A file without a contract of its own, as kernels/attention/head_48.cu, has that of its folder."""
    path = pathlib.PurePosixPath(source)
    folder, stem, of = path.parent, path.stem, path.parent.name
    header = first_file(root, [f"{folder}/{stem}.h", f"{folder}/{of}.h"])
    tests = first_file(root, [f"tests/kernels/{name}.cc" for name in (stem, f"{of}_{stem}", of)])
    twin = first_file(root, [f"{folder}/{stem}_cpu.cc", f"{folder}/{of}_cpu.cc"])
    ops = tuple(_OP.findall((root / header).read_text(encoding="utf-8"))) if header else ()
    others = sorted(path.relative_to(root).as_posix() for path in (root / folder).glob("*_cpu.cc"))
    in_folder_of_its_own = folder != pathlib.PurePosixPath("kernels") and ops
    return Kernel(source, header, ops, tests, (twin,) if twin else tuple(others) if in_folder_of_its_own else ())


def find(name, root=ROOT):
    """The Kernel of a path, or of the name of a file or of an op; NoKernel with a sentence where there is none."""
    sources = sorted((root / "kernels").rglob("*.cu"))
    if name.endswith(".cu"):
        anywhere = [path for path in sources if path.name == name]
        for path in (pathlib.Path(name), root / name, root / "kernels" / name, *anywhere):
            if path.is_file() and path.resolve().is_relative_to((root / "kernels").resolve()):
                return kernel_of(path.resolve().relative_to(root.resolve()).as_posix(), root)
        raise NoKernel(f"there is no {name} in kernels/")
    kernels = [kernel_of(path.relative_to(root).as_posix(), root) for path in sources]
    named = [one for one in kernels if pathlib.PurePosixPath(one.source).stem == name]
    of_contract = [one for one in kernels if one.header and name in one.ops
                   and pathlib.PurePosixPath(one.source).stem == pathlib.PurePosixPath(one.header).stem]
    if found := named or of_contract:
        return found[0]
    ops = sorted({op for one in kernels for op in one.ops})
    raise NoKernel(f"there is no kernel '{name}'; give a file of kernels/, as gelu.cu, or one of the ops "
                   f"{', '.join(ops)}")


def closure(root, paths):
    """{path: text} of files and of all that they include from the project, in a tree of sources."""
    found, left = {}, list(paths)
    while left:
        path = left.pop()
        if path not in found and (root / path).is_file():
            found[path] = (root / path).read_text(encoding="utf-8")
            left += _INCLUDE.findall(found[path])
    return found


# ---- older versions -------------------------------------------------------------------------------------------------


def git(root, *words):
    """What git prints; None where it fails, or there is none."""
    try:
        run = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None


@dataclasses.dataclass(frozen=True)
class Commit:
    """Older sources, and how they are called."""
    name: str
    words: str


def titled(root, commit):
    """ "1a2b3c4" and the commit's title, cut short"""
    short, title = git(root, "log", "-1", "--format=%h%x00%s", commit).split("\0")
    return short, title if len(title) <= 50 else title[:49].rstrip() + "…"


def named_commit(root, name):
    """The Commit that a user names; None where there is none."""
    if git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") is None:
        return None
    short, title = titled(root, name)
    return Commit(name, f"{short} ({title})")


def older_commit(root, paths):
    """The Commit to compare with: HEAD where one of the files differs from it, else the one before the last that
    changed any. None without such a commit, as for new files."""
    if git(root, "rev-parse", "--verify", "--quiet", "HEAD") is None:
        return None
    if git(root, "diff", "--quiet", "HEAD", "--", *paths) is None:
        return Commit("HEAD", f"{titled(root, 'HEAD')[0]} (HEAD)")
    last = git(root, "log", "-1", "--format=%H", "--", *paths)
    before = git(root, "rev-parse", "--verify", "--quiet", f"{last}^") if last else None
    return Commit(before, f"{titled(root, before)[0]} (before “{titled(root, last)[1]}”)") if before else None


def extract(root, commit, folder):
    """Writes kernels/ as it was at a commit; whether there was one."""
    archive = subprocess.Popen(["git", "archive", commit, "kernels"], cwd=root, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    written = subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, stderr=subprocess.DEVNULL, check=False)
    archive.stdout.close()
    return archive.wait() == 0 and written.returncode == 0

