"""Valid contents made into rubbish: the same for the same random numbers."""

import io
import json
import os
import pathlib
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from typing import Any

# What readers stumble over, put between other bytes or in the place of a number or a value.
_TOKENS = [
    *(b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b"\r\n", b"\t", b"\x85", b"\x1b[2J"),
    *(text.encode() for text in ("\u2028", "５", "٣", "\U0001f600", "é", "\u202e")),
    *(b"0_5", b"00", b"-0", b"-1", b"+1", b" 1 ", b".5", b"5.", b"1e5", b"1e999", b"-1e999", b"nan", b"NaN", b"inf"),
    *(b"Infinity", b"0x10", b"1000000000", b"9" * 19, b"-9" + b"0" * 18, b"9" * 40, b"9" * 5000, b"1" + b"0" * 400),
    *(b"[" * 100_000, b'{"a":' * 100_000, b"[[1]]", b"[]", b"{}", b'""', b"null", b"true", b"false", b"'", b'"'),
    *(b"\\", b"\\u0000", b"\\ud800", b"%s", b"../../x", b"/", b"x" * 300, b"x" * 100_000, b"\n" * 100_000),
    *(b"[]," * 1_000_000, b" " * 1_000_000, b"#\n \n" * 20_000),
]
_VALUES = [
    *(None, True, False, 0, 1, -1, 10**9, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, 1.5, -0.0, 1e308, 5e-324),
    *("", "x", "a\nb", "a\0b", "\u2028", "５", "0_5", "\x1b[2J", "../x", "/", "1", "x" * 100_000),
    *([], [[]], [None], {}, {"": None}, {"a\nb": 1}, [0] * 1000),
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_WORDS = (b"0", b"1", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\0" * 8)
_BOMB = 1500 << 20  # bytes, unpacked


_DTYPES = ("<f4", "<f8", ">f4", "|O", "<i8", "<U9999999", "|V8", "<f2", "<c8", "M8[s]", "x", "|b1", "<U0", "|V0")
_SHAPES = [
    *("(2, 3)", "(4398046511104, 2)", "(-1, 4)", "(1000000000, 1)", "()", "(0, 4)", "(6,)", "(6, 0)", "(2.0, 3)"),
    *("(99999999999999999999999, 2)", "(" * 200 + ")" * 200, "(((", "None", "(True, 4)", "((1, 2), 3)", "('a',)"),
]


def changed(data: bytes, rng: random.Random) -> bytes:
    """The bytes after one to three changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        special = next((change for start, change in _SPECIAL if data.startswith(start)), None)
        change = special if special and rng.random() < 0.5 else rng.choice(_CHANGES)
        data = change(data, rng)
    return data


def _place(data: bytes, rng: random.Random) -> int:
    return rng.randint(0, len(data))


def _slice(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(len(data), start + int(rng.expovariate(1 / 16)) + 1)


def cut(data: bytes, rng: random.Random) -> bytes:
    """A beginning of the bytes, often one that ends with a line or a field."""
    ends = [match.end() for match in re.finditer(rb"[\n\t,:{}\[\]]", data[:100_000])]
    return data[: rng.choice(ends) if ends and rng.random() < 0.5 else rng.randrange(len(data) or 1)]


def _flip(data: bytes, rng: random.Random) -> bytes:
    flipped = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _insert(data: bytes, rng: random.Random) -> bytes:
    place = _place(data, rng)
    return data[:place] + rng.choice(_TOKENS) + data[place:]


def _replace(data: bytes, rng: random.Random) -> bytes:
    start, stop = _slice(data, rng)
    return data[:start] + rng.choice(_TOKENS) + data[stop:]


def _remove(data: bytes, rng: random.Random) -> bytes:
    start, stop = _slice(data, rng)
    return data[:start] + data[stop:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start, stop = _slice(data, rng)
    return data[:start] + data[start:stop] * rng.choice((2, 3, 100, 20_000)) + data[stop:]


def _swap(data: bytes, rng: random.Random) -> bytes:
    a, b, c = sorted(_place(data, rng) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _word(data: bytes, rng: random.Random) -> bytes:
    place, word = _place(data, rng), rng.choice(_WORDS)
    return data[:place] + word + data[place + len(word) :]


def _number(data: bytes, rng: random.Random) -> bytes:
    numbers = list(_NUMBER.finditer(data[:100_000]))
    if not numbers:
        return _insert(data, rng)
    start, stop = rng.choice(numbers).span()
    return data[:start] + rng.choice(_TOKENS) + data[stop:]


def _line(data: bytes, rng: random.Random) -> bytes:
    """Without a line, with one twice, or with one that has a field more or less."""
    lines = data.split(b"\n")
    i = rng.randrange(len(lines))
    fields = lines[i].split(b"\t")
    j = rng.randrange(len(fields))
    how = rng.choice(("remove", "repeat", "field", "token", "token"))
    if how in ("remove", "repeat"):
        lines[i : i + 1] = [] if how == "remove" else [lines[i]] * 2
    else:
        fields[j : j + 1] = [] if how == "field" else [rng.choice(_TOKENS)]
        lines[i] = b"\t".join(fields)
    return b"\n".join(lines)


def _all(data: bytes, rng: random.Random) -> bytes:
    return rng.choice((rng.choice(_TOKENS), rng.randbytes(rng.choice((1, 10, 1000))), b"{" + data, data + data))


def _json(data: bytes, rng: random.Random) -> bytes:
    """With another value, or without one, somewhere."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _replace(data, rng)
    places = list(_places(value))
    if not places:
        return json.dumps(rng.choice(_VALUES)).encode()
    holder, key = rng.choice(places)
    how = rng.random()
    if how < 0.2:
        del holder[key]
    elif how < 0.3 and isinstance(holder, dict):
        holder[rng.choice(("", "x", "kind", "format_version", "a\nb"))] = rng.choice(_VALUES)
    elif how < 0.4:
        holder[key] = [holder[key]] * rng.choice((1, 3, 1000))
    elif how < 0.5:
        other, name = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[name]))
    else:
        holder[key] = rng.choice(_VALUES)
    return json.dumps(value).encode()


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield value, key
        yield from _places(one)


def _npy(data: bytes, rng: random.Random) -> bytes:
    """With another header: huge, negative or odd shapes, other types, and text that is no Python."""
    kind, shape = rng.choice(_DTYPES), rng.choice(_SHAPES)
    order = rng.choice(("False", "True", "1", "'x'"))
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n"
    header = rng.choice((header, header[: rng.randrange(len(header))], header + "'''", "x" * 60_000, "9" * 5000, "é\0"))
    version = rng.choice((b"\x01\0", b"\x02\0", b"\x03\0", b"\x09\0"))
    text = header.encode()
    return data[:6] + version + len(text).to_bytes(2 if version == b"\x01\0" else 4, "little") + text + data[128:]


def _zip(data: bytes, rng: random.Random) -> bytes:
    """With a member that is changed, packed otherwise, missing, there twice, or far larger than the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old:
            members = [(info.filename, old.read(info)) for info in old.infolist()]
    except Exception:  # A file that was changed before: zipfile, zlib and struct have some ten errors for it.
        return _flip(data, rng)
    if not members:
        return _flip(data, rng)
    i = rng.randrange(len(members))
    how, (name, value) = rng.randrange(6), members[i]
    members[i : i + 1] = [
        [(name, changed(value, rng))],
        [(name, _npy(value, rng))],
        [],
        [(name, value)] * 2,
        [(f"{name}x", value)],
        [(name, value)],
    ][how]
    packed = io.BytesIO()
    kind = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(packed, "w", kind) as new:
        for name, value in members:
            new.writestr(name, value)
        if rng.random() < 0.02:
            # What unpacks to zeros.
            info = zipfile.ZipInfo(name + "z")
            info.compress_type = zipfile.ZIP_DEFLATED
            with new.open(info, "w", force_zip64=True) as stream:
                for _ in range(_BOMB >> 24):
                    stream.write(bytes(1 << 24))
    return packed.getvalue()


_CHANGES: list[Callable[[bytes, random.Random], bytes]] = [
    *(cut, cut, _flip, _flip, _insert, _replace, _replace, _remove, _repeat, _swap, _word, _number, _number, _line),
    *(_line, _all, _json),
]
_SPECIAL = ((b"\x93NUMPY", _npy), (b"PK", _zip), (b"{", _json))


def put_instead(path: pathlib.Path, rng: random.Random, is_stream: bool) -> str:
    """Puts something else in the place of a file, and says what; nothing that a reader of streams may wait for."""
    whole = path.read_bytes()
    path.unlink()
    places = ["nothing", "folder", "dangling link", "link to itself", "zeros", "null", "link"]
    what = rng.choice(places if is_stream else [*places, "pipe"])
    if what == "folder":
        path.mkdir()
        (path / "x").write_bytes(b"x")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        path.with_name("elsewhere").write_bytes(whole)
        path.symlink_to("elsewhere")
    elif what != "nothing":
        targets = {"link to itself": path.name, "zeros": "/dev/zero", "null": "/dev/null"}
        path.symlink_to(targets.get(what, "nowhere"))
    return what


def copied(whole: pathlib.Path, folder: pathlib.Path) -> None:
    """Makes the folder again, as `whole`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
