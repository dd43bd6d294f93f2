# SPDX-License-Identifier: Apache-2.0
"""What people install: the man page, the systemd unit and the Dockerfile say what the program and
the build know."""
import os
import re
import shutil
import subprocess

import e2e

T = e2e.Tally("packaging")


def need(name, cond, what=""):
    T.check(name, None if cond else (what or "not so"))


def text_of(*path):
    with open(os.path.join(e2e.ROOT, *path), encoding="utf-8") as f:
        return f.read()


def sluice_help(*args):
    code, out, _ = e2e.run([e2e.sluice(), *args])
    return out if isinstance(out, str) else out.decode()


def options(help_text):
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z0-9-]+)", help_text, re.M))


def man_page(tmp):
    page = sluice_help("--man")
    commands = [c for c in re.findall(r"^  (\w+) ", sluice_help("--help"), re.M) if c != "sluice"]
    need("commands", len(commands) >= 8, commands)
    for c in commands:
        part = page.split(f"\n.SS {c}\n", 1)
        need(f"man: {c}", len(part) == 2)
        body = part[-1].split("\n.SS ", 1)[0].replace("\\-", "-")
        for o in options(sluice_help(c, "--help")) - {"--help"}:
            need(f"man: {c} {o}", o in body)
    path = os.path.join(tmp, "sluice.1")
    with open(path, "w", encoding="utf-8") as f:
        f.write(page)
    for tool, args in (("man", ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", path]),
                       ("mandoc", ["-T", "lint", "-W", "error", path])):
        if shutil.which(tool):
            r = subprocess.run([tool, *args], capture_output=True,
                               text=True, env=dict(os.environ, MANPAGER="cat"))
            told = r.stderr if tool == "man" else r.stdout
            need(f"{tool} warns of nothing", not told.strip(), told[:300])
    need("no line is taken for a request",
         not [ln for ln in page.split("\n") if ln.startswith(".") and
                                                not re.match(r"\.(TH|SH|SS|B|I|PP|TP|nf|fi)( |$)",
                                                             ln)])


def setup(tmp):
    """Packages of this machine's architecture are what counts, whatever others lie beside them."""
    fake = os.path.join(tmp, "bin")
    os.mkdir(fake)
    for name, body in (("dpkg", "echo amd64"), ("dpkg-query", """
for p; do :; done
case $p in
libpcre2-dev) printf 'amd64 installed\\narm64 installed\\n' ;;
libutf8proc-dev) printf 'all installed\\n' ;;
libxxhash-dev) printf 'arm64 installed\\n' ;;
libedit-dev) printf 'amd64 config-files\\n' ;;
libcurl4-gnutls-dev) exit 1 ;;
*) printf 'amd64 installed\\n' ;;
esac""")):
        with open(os.path.join(fake, name), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + body + "\n")
        os.chmod(os.path.join(fake, name), 0o755)
    r = subprocess.run([os.path.join(e2e.ROOT, "scripts", "setup"), "--missing"],
                       capture_output=True, text=True,
                       env=dict(os.environ, PATH=fake + ":" + os.environ["PATH"]))
    gone = [p for p in r.stdout.split() if p.startswith("lib")]
    need("packages that are missing", r.returncode == 0 and
         gone == ["libxxhash-dev", "libedit-dev", "libcurl4-gnutls-dev"], r.stdout + r.stderr)


def unit(tmp, name, command, words=()):
    text = text_of("packaging", name)
    start = re.search(rf"^ExecStart=.*?(/\S+/sluice) {command} (.*)$",
                      text.replace("\\\n", ""), re.M)
    need(f"{name}: starts sluice {command}", start is not None)
    have = options(sluice_help(command, "--help"))
    given = set(re.findall(r"--[a-z-]+", start[2]))
    need(f"{name}: options", given and given <= have, start[2])
    for word in ("NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", *words):
        need(f"{name}: {word}", word in text)
    stop = int(re.search(r"TimeoutStopSec=(\d+)", text)[1])
    need(f"{name}: longer than the drain", stop > 30, stop)
    if shutil.which("systemd-analyze"):
        path = os.path.join(tmp, name.replace("@", "@1"))
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(start[1], e2e.sluice()).replace("/usr/bin/mpirun", "/bin/true"))
        r = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
        mine = [ln for ln in r.stderr.split("\n") if "sluice" in ln]
        need(f"{name}: systemd-analyze verify", not mine, mine)


def pair():
    """The engine and the servers that attach to it meet at one socket, as one user."""
    group, front = (text_of("packaging", f"sluice-{n}@.service") for n in ("group", "front"))
    socket = [re.search(rf"{o} unix:(\S+)", t)[1] for o, t in (("--listen", group),
                                                              ("--attach", front))]
    need("units: one socket", socket[0] == socket[1], socket)
    for word in ("User=sluice", "RuntimeDirectory=" + os.path.basename(os.path.dirname(socket[0])),
                 "RuntimeDirectoryPreserve=yes", "Restart=always"):
        need(f"units: {word}", word in group and word in front)


def docker():
    text = text_of("packaging", "Dockerfile").replace("\\\n", " ")
    setup = text_of("scripts", "setup")
    known = set(re.search(r'^required="(.*)"', setup, re.M)[1].split()) | set(
        re.search(r'^optional="(.*)"', setup, re.M)[1].split())
    build, run = [set(m.split()) for m in re.findall(r"--no-install-recommends ([^&\n]*)", text)]
    need("docker: build packages", build - {"git"} <= known, build - known)
    need("docker: all that is required",
         set(re.search(r'^required="(.*)"', setup, re.M)[1].split()) <= build)
    for dev, lib in (("libmicrohttpd-dev", "libmicrohttpd12"),
                     ("libgnutls28-dev", "libgnutls30"), ("libsqlite3-dev", "libsqlite3-0"),
                     ("libpcre2-dev", "libpcre2-8-0"),
                     ("libutf8proc-dev", "libutf8proc2"), ("libxxhash-dev", "libxxhash0")):
        need(f"docker: {lib}", (dev in build) == (lib in run))
    cmake = text_of("CMakeLists.txt") + "".join(text_of(
        "cmake", f) for f in os.listdir(os.path.join(e2e.ROOT, "cmake")) if f.endswith(".cmake"))
    for opt in re.findall(r"-D(SL_\w+)=", text):
        need(f"docker: {opt}", opt in cmake)
    entry = re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1]
    need("docker: options",
         set(re.findall(r"--[a-z-]+", entry)) <= options(sluice_help("serve", "--help")), entry)
    need("docker: not root", re.search(r"^USER (?!root)\w+", text, re.M) is not None)


def cluster():
    """Every option of sluice and every option of a launcher that the scripts for clusters give."""
    have = options(sluice_help("serve", "--help")) | options(sluice_help("engine", "--help"))
    mpi_and_slurm = {"--mpi", "--cpu-bind", "--kill-on-bad-exit", "--allow-run-as-root", "--host",
                     "--map-by", "--bind-to", "--mca", "--pid"}
    for name in ("slurm.sbatch", "slurm-attach.sbatch", "ranks.sh", "lws.yaml", "lws-attach.yaml",
                 "mpijob.yaml"):
        text = text_of("scripts", "cluster", *name.split("/"))
        body = "\n".join(ln for ln in text.split("\n") if not ln.lstrip().startswith("#"))
        start = max(body.find(w) for w in ("sluice serve", "- sluice\n", "sluice-ranks leader",
                                             "sluice-ranks engine"))
        need(f"{name}: starts sluice", start >= 0)
        given = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", body[start:]))
        need(f"{name}: options", given <= have | mpi_and_slurm, given - have - mpi_and_slurm)
        if name.endswith((".sh", ".sbatch")):
            path = os.path.join(e2e.ROOT, "scripts", "cluster", name)
            r = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
            need(f"{name}: shell", r.returncode == 0, r.stderr)
        if "attach" in name:
            sockets = set(re.findall(r"[\w$/]+/engine\.sock", body))
            need(f"{name}: one socket", len(sockets) == 1, sockets)


with e2e.scratch() as tmp_dir:
    man_page(tmp_dir)
    setup(tmp_dir)
    unit(tmp_dir, "sluice.service", "serve", ["ExecReload=/bin/kill -HUP $MAINPID"])
    unit(tmp_dir, "sluice-group@.service", "engine")
    unit(tmp_dir, "sluice-front@.service", "serve", ["ExecReload=/bin/kill -HUP $MAINPID"])
pair()
docker()
cluster()
T.exit()
