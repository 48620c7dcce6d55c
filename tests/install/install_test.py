#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Installs Linkspan into a scratch folder and uses it from there as other people's programs would.

Run by `meson test`, which says in the environment where the build is. Each check prints one line.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ["LINKSPAN_BUILD"])
PREFIX = os.environ["LINKSPAN_PREFIX"]
WITH_PROTOBUF = os.environ["LINKSPAN_WITH_PROTOBUF"] == "true"
WITH_COMPRESSION = os.environ["LINKSPAN_WITH_COMPRESSION"] == "true"
WITH_ASIO = os.environ["LINKSPAN_WITH_ASIO"] == "true"
KIND = os.environ["LINKSPAN_KIND"]

CXX = os.environ.get("CXX", "g++").split()
# Functions and objects, or type information, tables, guards and thunks, of something in namespace linkspan;
# and what protobuf's generated code calls the descriptors of our own .proto file.
OURS = re.compile(r"descriptor_table_linkspan_|_Z(?:T[ISVTCHW]|GV|T[hvc][0-9a-z_]+?_)?Z?N[KRO]{0,2}8linkspan")


def run(command, **kwargs):
    """Runs a command, shows its output only when it fails, and returns what it printed."""
    print("+", " ".join(str(part) for part in command), flush=True)
    done = subprocess.run([str(part) for part in command], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kwargs)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nFAILED with {done.returncode}: {command}")
    return done.stdout


def version():
    """The version that meson.build states."""
    return re.search(r"^\s*version: '([\d.]+)'", (ROOT / "meson.build").read_text(), re.M).group(1)


def pkg_config_environment(prefix, sysroot=None):
    """Lets pkg-config see the scratch installation first, and the system's packages after it."""
    folders = [str(folder) for folder in prefix.rglob("pkgconfig")]
    if not folders:
        sys.exit(f"no .pc file was installed below {prefix}")
    environment = dict(os.environ, PKG_CONFIG_PATH=":".join(folders))
    if sysroot:
        environment["PKG_CONFIG_SYSROOT_DIR"] = str(sysroot)
    return environment


def check_exports(library):
    """Nothing but Linkspan's own symbols leaves a shared library."""
    listing = run(["nm", "-D", "--defined-only", "--format=posix", library])
    names = [line.split()[0] for line in listing.splitlines() if line.strip()]
    foreign = [name for name in names if not OURS.match(name)]
    if foreign:
        sys.exit(f"{library.name} exports {len(foreign)} symbols that are not Linkspan's: {foreign[:10]}")
    if not names:
        sys.exit(f"{library.name} exports nothing: is LINKSPAN_API missing?")
    print(f"exports of {library.name}: {len(names)}, all ours")


def check_installed_headers(prefix):
    """Every public header was installed under its own name."""
    wanted = {p.relative_to(ROOT / "include") for p in (ROOT / "include").rglob("*.hpp")}
    found = {p.relative_to(prefix / "include") for p in (prefix / "include").rglob("*.hpp")}
    if wanted != found:
        sys.exit(f"installed headers differ: {sorted(map(str, wanted ^ found))}")
    print(f"headers: {len(found)} installed")


def compile_and_run(source, package, environment, scratch, static, *more):
    """Builds one program with g++ and pkg-config outside the tree, runs it, and returns its output."""
    flags = run(["pkg-config", "--cflags", "--libs", *(["--static"] if static else []), package],
                env=environment).split()
    program = scratch / f"{package}-{'static' if static else 'shared'}"
    run([*CXX, "-std=c++20", "-Wall", "-Wextra", "-Werror", source, *more, "-o", program, *flags],
        cwd=scratch)
    needed = run(["readelf", "-d", program])
    if ("liblinkspan" in needed) == static:
        sys.exit(f"{program.name} is linked {'against a shared' if static else 'without the shared'} library")
    lookup = ":".join({flag[2:] for flag in flags if flag.startswith("-L")})
    return run([program], env=dict(environment, LD_LIBRARY_PATH="" if static else lookup))


def check_programs(environment, scratch, static):
    """The consumer programs build, run, and report the version that was built."""
    output = compile_and_run(HERE / "consumer/consumer.cpp", "linkspan", environment, scratch, static)
    if f"linkspan {version()}" not in output:
        sys.exit(f"the program reported: {output}")
    if WITH_PROTOBUF:
        compile_and_run(HERE / "consumer/protobuf_consumer.cpp", "linkspan-protobuf", environment, scratch,
                        static)
        # A .proto file that imports ours.
        flags = run(["pkg-config", "--cflags-only-I", "linkspan-protobuf"], env=environment).split()
        run(["protoc", f"--proto_path={HERE / 'consumer'}", *flags, "--cpp_out=.", "chunk.proto"],
            cwd=scratch)
        compile_and_run(HERE / "consumer/payload_consumer.cpp", "linkspan-protobuf", environment, scratch,
                        static, "-I.", "-Wno-unused-parameter", "chunk.pb.cc")
    if WITH_COMPRESSION:
        compile_and_run(HERE / "consumer/compression_consumer.cpp", "linkspan-compression", environment,
                        scratch, static)
    if WITH_ASIO:
        compile_and_run(HERE / "consumer/asio_consumer.cpp", "linkspan-asio", environment, scratch, static)
    print(f"programs: {'static' if static else 'shared'} passed")


def check_shared(scratch):
    """The shared library of this build, installed below a destination folder."""
    destination = scratch / "shared"
    run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", destination])
    prefix = destination / PREFIX.lstrip("/")
    check_installed_headers(prefix)
    libraries = sorted(p for p in prefix.rglob("liblinkspan*.so.*") if not p.is_symlink())
    if len(libraries) != 1 + WITH_PROTOBUF + WITH_COMPRESSION:
        sys.exit(f"installed shared libraries: {libraries}")
    for library in libraries:
        check_exports(library)
    check_programs(pkg_config_environment(prefix, destination), scratch, static=False)


def check_subproject_and_static(scratch):
    """Linkspan as a subproject of another Meson project, linked statically, and then installed from there."""
    project, build, prefix = scratch / "project", scratch / "project-build", scratch / "static"
    shutil.copytree(HERE / "consumer", project)
    (project / "subprojects").mkdir()
    (project / "subprojects/linkspan").symlink_to(ROOT, target_is_directory=True)
    run(["meson", "setup", build, project, "--prefix", prefix, "--buildtype=plain", "-Doptimization=0",
         "-Ddefault_library=static",
         *(f"-D{project}{feature}={'enabled' if there else 'disabled'}"
           for feature, there in (("protobuf", WITH_PROTOBUF), ("compression", WITH_COMPRESSION))
           for project in ("", "linkspan:"))])
    targets = run(["meson", "introspect", "--targets", build])
    if "test-base" in targets:
        sys.exit("as a subproject, Linkspan must not build its tests")
    run(["ninja", "-C", build])
    output = run([build / "consumer"])
    if f"linkspan {version()}" not in output:
        sys.exit(f"the subproject's program reported: {output}")
    print("subproject: passed")
    run(["meson", "install", "-C", build, "--no-rebuild", "--quiet"])
    check_installed_headers(prefix)
    check_programs(pkg_config_environment(prefix), scratch, static=True)


def main():
    if WITH_PROTOBUF and not (HERE / "consumer/protobuf_consumer.cpp").exists():
        sys.exit("linkspan-protobuf is built, but consumer/protobuf_consumer.cpp does not exist to use it")
    with tempfile.TemporaryDirectory(prefix="linkspan-install-") as name:
        scratch = pathlib.Path(name)
        if KIND in ("shared", "both"):
            check_shared(scratch)
        check_subproject_and_static(scratch)


if __name__ == "__main__":
    main()
