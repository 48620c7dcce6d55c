# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The rules that tidy.py checks. Each takes a file's path and text and yields (line number, message)."""

import collections
import re

CPP = (".hpp", ".cpp", ".h", ".c")
ROOMS = ("base", "buffer", "loop", "transport", "channel", "codec", "marshal", "store", "interop")
VERSION_HEADER = "include/linkspan/base/version.hpp"
LICENCE = ("SPDX-License-Identifier: Apache-2.0", "Copyright The Linkspan authors")
LINES_MAX = 800
HEADER_LINES_MAX = 330
COLUMNS_MAX = 110
FUZZ_CORPUS = "tests/fuzz/corpus/"  # inputs, which are bytes and not text
ASIO_TRANSPORT = "lib/transport/asio/"
ASIO_REACTOR = "include/linkspan/interop/asio_reactor.hpp"  # what that shares with users' own contexts
MOVES_HANDLES = "// tidy: moves handles, not bytes"


class Finding(collections.namedtuple("Finding", "file line rule message")):
    """One place where a rule is broken."""

    def __str__(self):
        return f"{self.file}:{self.line}: {self.rule}: {self.message}"


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
    re.S)


def code_only(text, keep_strings=False):
    """The text with comments, and string literals too, blanked; line numbers stay what they were."""
    def blank(match):
        token = match.group(0)
        if keep_strings and not token.startswith(("//", "/*")):
            return token
        return re.sub(r"[^\n]", " ", token)
    return TOKEN.sub(blank, text)


def matches(pattern, code):
    """Yields (line number, matched text) for each match in a text."""
    for match in re.finditer(pattern, code):
        yield code.count("\n", 0, match.start()) + 1, match.group(0)


def is_public_header(path):
    return path.startswith("include/linkspan/") and path.endswith(".hpp")


def is_library(path):
    return path.startswith(("include/linkspan/", "lib/")) and path.endswith(CPP)


def is_script(path, text):
    return path.endswith((".py", ".sh")) or path.startswith(".ci/") or text.startswith("#!")


def room_of(path):
    """The room that a path of include/linkspan/ or lib/ belongs to, or None."""
    match = re.match(r"(?:include/linkspan|lib)/(\w+)/", path)
    return match.group(1) if match else None


def includes(path, text):
    """Yields (line number, bracket, target): targets of our own are spelled as paths from the root."""
    folder = path.rpartition("/")[0]
    code = code_only(text, keep_strings=True)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(<[^>]+>|"[^"]+")', code, re.M):
        line, name = code.count("\n", 0, match.start()) + 1, match.group(1)[1:-1]
        first, bracket = name.split("/")[0], match.group(1)[0]
        if first == "linkspan":
            target = "include/" + name
        elif first in ("lib", "tests", "examples", "perf"):
            target = name
        elif bracket == '"' and first in ROOMS:
            target = "lib/" + name
        elif bracket == '"':
            parts = (folder.split("/") if folder else [])
            for part in name.split("/"):
                if part == "..":
                    parts = parts[:-1]
                elif part != ".":
                    parts = parts + [part]
            target = "/".join(parts)
        else:
            target = name
        yield line, bracket, target


def include_direction(path, text):
    """A room includes only itself and the rooms before it; a public header never includes lib/. The asio
    transport is the library's own user of interop."""
    room = room_of(path)
    if not is_library(path) or room is None:
        return
    if room not in ROOMS:
        yield 1, f"'{room}' is not one of the rooms {', '.join(ROOMS)}"
        return
    for line, _, target in includes(path, text):
        other = "transport" if target == ASIO_REACTOR and path.startswith(ASIO_TRANSPORT) else room_of(target)
        if path.startswith("include/") and target.startswith("lib/"):
            yield line, f"a public header includes the private {target}"
        elif other in ROOMS and ROOMS.index(other) > ROOMS.index(room):
            yield line, f"{room} includes {target}, but {other} comes after {room}"
        elif target.startswith(("tests/", "examples/", "perf/")):
            yield line, f"the library includes {target}"


def asio_only_at_home(path, text):
    """Only interop and lib/transport/asio include Asio."""
    allowed = ("include/linkspan/interop/", "lib/interop/", ASIO_TRANSPORT, "tests/", "examples/",
               "perf/")
    if not path.endswith(CPP) or path.startswith(allowed):
        return
    for line, _, target in includes(path, text):
        if target == "asio.hpp" or target.startswith(("asio/", "boost/asio")):
            yield line, f"includes {target} outside interop and lib/transport/asio"


def standard_before_asio(path, text):
    """Asio 1.22 allocates otherwise where no header of libstdc++ was included before it, and two sources that
    decide differently must not be in one program."""
    if not path.endswith(CPP) or path.startswith("perf/peers/"):
        return
    for line, bracket, target in includes(path, text):
        standard = bracket == "<" and re.fullmatch(r"[a-z_0-9]+", target)
        if standard or target.startswith(("include/linkspan/", "tests/")):
            return
        if target == "asio.hpp" or target.startswith("asio/"):
            yield line, f"includes {target} before anything of the standard library: <version> goes first"
            return


def no_third_party_in_headers(path, text):
    """Public headers include the standard library and Linkspan; interop and marshal/protobuf* may do more."""
    exempt = ("include/linkspan/interop/", "include/linkspan/marshal/protobuf")
    if not is_public_header(path) or path.startswith(exempt):
        return
    for line, bracket, target in includes(path, text):
        standard = bracket == "<" and re.fullmatch(r"[a-z_0-9]+", target)
        system = bracket == "<" and re.fullmatch(r"(sys|netinet|arpa|linux|net)/\w+\.h|[a-z]+\.h", target)
        ours = target.startswith("include/linkspan/") and target.endswith(".hpp")
        if not standard and not (system and target != "liburing.h") and not ours:
            yield line, f"a public header includes {target}"


def file_size(path, text):
    """Source files and scripts stay under 800 lines, public headers within 330."""
    if not path.endswith(CPP + (".py", ".sh")) and not is_script(path, text):
        return
    lines = text.count("\n")
    if is_public_header(path) and lines > HEADER_LINES_MAX:
        yield 1, f"{lines} lines; a public header has at most {HEADER_LINES_MAX}: one concept a header"
    elif lines >= LINES_MAX:
        yield 1, f"{lines} lines; a file stays under {LINES_MAX}"


def licence(path, text):
    """Files begin with the SPDX line and the copyright line, in the comment style of their language."""
    lines = text.split("\n")
    if path.endswith(CPP + (".proto",)):
        sign = "// "
    elif is_script(path, text) or path.rpartition("/")[2] in ("meson.build", "meson_options.txt") \
            or path.endswith((".wrap", ".yml")):
        sign = "# "
        if lines[0].startswith("#!"):
            lines = lines[1:]
    else:
        return
    for number, expected in enumerate(LICENCE):
        if number >= len(lines) or lines[number] != sign + expected:
            yield number + 1, f"expected the line '{sign}{expected}'"
            return


def banner(path, text):
    """A public header says what it is, then Not for, Cost and Threads, right after its licence lines."""
    if not is_public_header(path):
        return
    lines = text.split("\n")[2:]
    while lines and lines[0].strip() in ("", "//"):
        lines = lines[1:]
    block = []
    for line in lines:
        if not line.startswith("//"):
            break
        block.append(line)
    marks = ("// Not for:", "// Cost:", "// Threads:")
    if not block or block[0].startswith(marks) or len(block[0]) < 8:
        yield 3, "the banner does not begin with what the header is"
    for mark in marks:
        if not any(line.startswith(mark + " ") and len(line) > len(mark) + 3 for line in block):
            yield 3, f"the banner has no line '{mark} ...'"


def copies_go_through_the_ledger(path, text):
    """Bytes are copied in buffer/copy_ledger and nowhere else, so that the ledger counts all of them. What a
    simulated kernel copies is not the library's, as what the system's copies is not."""
    allowed = ("lib/buffer/copy_ledger", "include/linkspan/buffer/copy_ledger.hpp", "lib/transport/sim/")
    if not is_library(path) or path.startswith(allowed):
        return
    lines = text.split("\n")
    pattern = (r"\b(?:__builtin_)?(?:w?memcpy|w?memmove|mempcpy|bcopy)\s*\("
               r"|\bstd\s*::\s*(?:ranges\s*::\s*)?(?:uninitialized_)?copy(?:_n|_backward)?\s*\(")
    for line, found in matches(pattern, code_only(text)):
        if not lines[line - 1].rstrip().endswith(MOVES_HANDLES):
            yield line, (f"{found.rstrip('( ')} outside the copy ledger; where it moves handles, end the "
                         f"line with '{MOVES_HANDLES}'")


def white_space(path, text):
    """No tabs, no white space at line ends, no carriage returns, one newline at the end."""
    if path == "LICENSE" or path.startswith(FUZZ_CORPUS):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "white space at the end of the line"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield text.count("\n") + 1, "the file ends with exactly one newline"


def line_length(path, text):
    """Lines of code, scripts and build files have at most 110 columns."""
    named = path.rpartition("/")[2] in ("meson.build", "meson_options.txt")
    if not (path.endswith(CPP + (".proto",)) or named or is_script(path, text)):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > COLUMNS_MAX and "https://" not in line:
            yield number, f"{len(line)} columns, at most {COLUMNS_MAX}"


def no_namespace_called_asio(path, text):
    """No namespace called asio inside ours: there, `asio::` would no longer mean Asio."""
    if not path.endswith(CPP):
        return
    code = code_only(text)
    open_names = []
    pattern = r"\bnamespace\s+(?:\[\[.*?\]\]\s*)?((?:\w+\s*::\s*)*\w+)?\s*(\{|=)|[{}]"
    for match in re.finditer(pattern, code):
        token, line = match.group(0), code.count("\n", 0, match.start()) + 1
        if token == "}":
            if open_names:
                open_names.pop()
            continue
        names = re.split(r"\s*::\s*", match.group(1) or "")
        within = [name for group in open_names for name in group]
        nested = within + names[:-1]
        if ("linkspan" in nested and names[-1] == "asio") or ("linkspan" in within and "asio" in names):
            yield line, "a namespace called asio inside linkspan; choose another name"
        if token.endswith("{"):
            open_names.append(names if token != "{" else [])


def banned_words(path, text):
    """Functions with a better replacement, sleeping in tests, and work left for later."""
    if not path.endswith(CPP):
        return
    code = code_only(text)
    banned = {r"\b(?:strcpy|strcat|sprintf|vsprintf|gets)\s*\(": "has no bound",
              r"\b(?:s?rand|random)\s*\(\s*\)|\bsrand\s*\(": "cannot be repeated; take a seeded generator",
              r"\busing\s+namespace\s+std\b": "brings in names that nobody asked for"}
    if path.startswith("tests/"):
        banned[r"\b(?:sleep_for|sleep_until|usleep|nanosleep)\b"] = "waits for a guess; wait for the event"
    for pattern, reason in banned.items():
        for line, found in matches(pattern, code):
            yield line, f"{found.strip()} {reason}"
    for line, found in matches(r"\b(?:TODO|FIXME)\b", text):
        yield line, f"{found}: finish it, or write down the limit where users see it"


def docs_show_real_code(name, text, read):
    """A block of C++ in README or docs names the file that it stands in, word for word."""
    for match in re.finditer(r"^```cpp\n(.*?)^```$", text, re.M | re.S):
        line = text.count("\n", 0, match.start()) + 1
        first, _, shown = match.group(1).partition("\n")
        source = read(first.removeprefix("// ")) if first.startswith("// ") else None
        if source is None:
            yield Finding(name, line, "docs-show-real-code",
                          "the block's first line is not a comment that names a file of the tree")
        elif shown not in source:
            yield Finding(name, line, "docs-show-real-code",
                          f"this is not what stands in {first[3:]}")


def version_agrees(build_text, header_text):
    """version.hpp states the version that meson.build states."""
    project = re.search(r"^\s*version: '(\d+)\.(\d+)\.(\d+)'", build_text, re.M)
    stated = [re.search(rf"^#define LINKSPAN_VERSION_{part} (\d+)$", header_text, re.M)
              for part in ("MAJOR", "MINOR", "PATCH")]
    numbers = [match.group(1) if match else "none" for match in stated]
    if not project or list(project.groups()) != numbers:
        wanted = ".".join(project.groups()) if project else "none"
        return [Finding(VERSION_HEADER, 1, "version-agrees",
                        f"states {'.'.join(numbers)}, meson.build states {wanted}")]
    return []


RULES = (include_direction, asio_only_at_home, standard_before_asio, no_third_party_in_headers, file_size,
         licence, banner, copies_go_through_the_ledger, white_space, line_length, no_namespace_called_asio,
         banned_words)


def check(path, text):
    """All findings in one file."""
    return [Finding(path, line, rule.__name__.replace("_", "-"), message)
            for rule in RULES for line, message in rule(path, text)]
