# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""Shows for each rule of rules.py something that it refuses and something close that it lets pass."""

import pathlib
import shutil
import subprocess
import tempfile

import rules

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n// Copyright The Linkspan authors\n"
BANNER = "//\n// What it is.\n// Not for: that.\n// Cost: none.\n// Threads: any.\n"
BUFFER = "include/linkspan/buffer/x.hpp"
PRIVATE = "lib/loop/x.cpp"
TEST = "tests/loop/x.cpp"
LEAVE = "TO" + "DO"

# (rule, path, refused text, text that passes)
CASES = [
    (rules.include_direction, BUFFER, '#include "linkspan/loop/y.hpp"\n', '#include "linkspan/base/y.hpp"\n'),
    (rules.include_direction, BUFFER, "#include <linkspan/store/y.hpp>\n",
     '// #include "linkspan/store/y.hpp"\n'),
    (rules.include_direction, BUFFER, '#include "lib/buffer/y.hpp"\n', '#include "linkspan/buffer/y.hpp"\n'),
    (rules.include_direction, PRIVATE, '#include "../channel/y.hpp"\n', '#include "../base/y.hpp"\n'),
    (rules.include_direction, PRIVATE, '#include "lib/channel/y.hpp"\n', '#include "lib/loop/y.hpp"\n'),
    (rules.include_direction, PRIVATE, '#include "tests/y.hpp"\n', "#include <vector>\n"),
    (rules.include_direction, "lib/attic/x.cpp", "int x;\n", None),
    (rules.include_direction, "lib/transport/asio/x.cpp", '#include "linkspan/interop/y.hpp"\n',
     '#include "linkspan/interop/asio_reactor.hpp"\n'),
    (rules.asio_only_at_home, PRIVATE, "#include <asio.hpp>\n", "#include <atomic>\n"),
    (rules.asio_only_at_home, "lib/transport/uring/x.hpp", "#include <asio/post.hpp>\n",
     "#include <liburing.h>\n"),
    (rules.standard_before_asio, "tests/x.cpp", "#include <doctest/doctest.h>\n#include <asio.hpp>\n",
     "#include <version>\n\n#include <asio.hpp>\n"),
    (rules.standard_before_asio, "examples/x.cpp", "#include <asio/post.hpp>\n#include <vector>\n",
     '#include "linkspan/interop/asio.hpp"\n#include <asio/post.hpp>\n'),
    (rules.no_third_party_in_headers, BUFFER, "#include <liburing.h>\n", "#include <sys/uio.h>\n"),
    (rules.no_third_party_in_headers, BUFFER, "#include <google/protobuf/message.h>\n",
     "#include <vector>\n"),
    (rules.no_third_party_in_headers, BUFFER, '#include "fmt.h"\n', '#include "linkspan/base/y.hpp"\n'),
    (rules.file_size, BUFFER, "\n" * 331, "\n" * 330),
    (rules.file_size, PRIVATE, "\n" * 800, "\n" * 799),
    (rules.file_size, "tests/run", "#!/bin/sh\n" + "\n" * 800, "#!/bin/sh\n"),
    (rules.licence, PRIVATE, "int x;\n", LICENCE + "int x;\n"),
    (rules.licence, "x.py", LICENCE, "#!/usr/bin/env python3\n" + LICENCE.replace("//", "#")),
    (rules.licence, "lib/meson.build", "x = 1\n", LICENCE.replace("//", "#") + "x = 1\n"),
    (rules.licence, PRIVATE, LICENCE.replace("The Linkspan authors", "Somebody"), LICENCE),
    (rules.banner, BUFFER, LICENCE + "#pragma once\n", LICENCE + BANNER + "#pragma once\n"),
    (rules.banner, BUFFER, LICENCE + BANNER.replace("Not for", "Avoid for"), LICENCE + "\n" + BANNER),
    (rules.banner, BUFFER, LICENCE + BANNER.replace("Cost: none.", "Cost:"), LICENCE + BANNER),
    (rules.banner, BUFFER, LICENCE + BANNER.replace("// Threads", "//  Threads"), LICENCE + BANNER),
    (rules.banner, BUFFER, LICENCE + BANNER.replace("// What it is.\n", ""), LICENCE + BANNER),
    (rules.banner, BUFFER, LICENCE + "#pragma once\n" + BANNER, LICENCE + BANNER + "#pragma once\n"),
    (rules.copies_go_through_the_ledger, PRIVATE, "std::memcpy(a, b, n);\n", "// memcpy(a, b, n)\n"),
    (rules.copies_go_through_the_ledger, PRIVATE, "memmove (a, b, n);\n",
     "std::memcpy(a, b, n);  " + rules.MOVES_HANDLES + "\n"),
    (rules.copies_go_through_the_ledger, BUFFER, "std::copy(a, b, c);\n", "log(\"std::copy(a, b, c)\");\n"),
    (rules.copies_go_through_the_ledger, BUFFER, "std::ranges::copy(a, b);\n", "ledger.copy(a, b);\n"),
    (rules.white_space, "README.md", "a\tb\n", "a b\n"),
    (rules.white_space, PRIVATE, "int x; \n", "int x;\n"),
    (rules.white_space, PRIVATE, "int x;\r\n", "int x;\n"),
    (rules.white_space, PRIVATE, "int x;", "int x;\n"),
    (rules.white_space, PRIVATE, "int x;\n\n", "int x;\n"),
    (rules.line_length, PRIVATE, "x" * 111 + "\n", "x" * 110 + "\n"),
    (rules.no_namespace_called_asio, PRIVATE, "namespace linkspan::asio {}\n",
     "namespace linkspan::portable {}\n"),
    (rules.no_namespace_called_asio, PRIVATE, "namespace linkspan {\nstruct A {};\nnamespace asio {\n}\n}\n",
     "namespace linkspan {\nstruct A {};\n}\nnamespace asio {\n}\n"),
    (rules.no_namespace_called_asio, PRIVATE, "namespace linkspan {\nnamespace asio = ::asio;\n}\n",
     "namespace linkspan {\nnamespace net = ::asio;\n}\n"),
    (rules.no_namespace_called_asio, PRIVATE, "namespace linkspan {\nnamespace asio::detail {}\n}\n",
     "namespace {\n}\n"),
    (rules.banned_words, PRIVATE, "strcpy(a, b);\n", "my_strcpy_free(a, b);\n"),
    (rules.banned_words, PRIVATE, "sprintf(a, b);\n", "snprintf(a, n, b);\n"),
    (rules.banned_words, PRIVATE, "int x = rand();\n", "int x = brand();\n"),
    (rules.banned_words, TEST, "std::this_thread::sleep_for(1ms);\n", "// sleep_for would be wrong here\n"),
    (rules.banned_words, TEST, "usleep(1);\n", "loop.run_once();\n"),
    (rules.banned_words, PRIVATE, f"// {LEAVE}: later\n", "// Done.\n"),
]


def refuses_format():
    """True when clang-format, with our settings, refuses badly formatted code and takes it when mended."""
    if not shutil.which("clang-format"):
        print("self-test: clang-format is not installed, not shown")
        return True
    root = pathlib.Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(root / ".clang-format", scratch)
        source = pathlib.Path(scratch, "x.cpp")
        verdicts = []
        for text in ("int  f( ){return 1;}\n", "int f() {\n  return 1;\n}\n"):
            source.write_text(text, encoding="utf-8")
            command = ["clang-format", "--dry-run", "-Werror", str(source)]
            verdicts.append(subprocess.run(command, capture_output=True, check=False).returncode)
    return verdicts[0] != 0 and verdicts[1] == 0


def main():
    failures = []
    for rule, path, refused, passing in CASES:
        if not list(rule(path, refused)):
            failures.append(f"{rule.__name__} lets pass in {path}: {refused[:60]!r}")
        if passing is not None and list(rule(path, passing)):
            failures.append(f"{rule.__name__} refuses in {path}: {passing[:60]!r}")
    shown = {rule for rule, *_ in CASES}
    failures += [f"{rule.__name__} has no case" for rule in rules.RULES if rule not in shown]

    build = "project('linkspan',\n  version: '1.2.3')\n"
    header = "".join(f"#define LINKSPAN_VERSION_{part} {number}\n"
                     for part, number in (("MAJOR", 1), ("MINOR", 2), ("PATCH", 3)))
    if rules.version_agrees(build, header):
        failures.append("version_agrees refuses equal versions")
    for old, new in (("PATCH 3", "PATCH 4"), ("#define LINKSPAN_VERSION_MINOR 2\n", "")):
        if not rules.version_agrees(build, header.replace(old, new)):
            failures.append("version_agrees lets pass different versions")
    sources = {"a.cpp": "first\nsecond\n"}
    for block, refused in (("// a.cpp\nsecond\n", False), ("// a.cpp\nthird\n", True),
                           ("// b.cpp\nsecond\n", True), ("second\n", True)):
        readme = f"```cpp\n{block}```\n"
        if bool(list(rules.docs_show_real_code("README.md", readme, sources.get))) != refused:
            failures.append(f"docs_show_real_code is wrong about {readme!r}")
    if not refuses_format():
        failures.append("format does not tell bad formatting from good")

    for failure in failures:
        print("self-test:", failure)
    print(f"self-test: {len(CASES)} pairs, {len(failures)} failures")
    return 1 if failures else 0
