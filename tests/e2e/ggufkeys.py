# SPDX-License-Identifier: Apache-2.0
"""The metadata of a GGUF file: read(path) gives {key: (type, value)}; write(src, dst, changes)
copies a file with other keys: changes {key: (type, value)}, None as a value takes the key away.
Arrays: (ARR, (type, list))."""
import struct

from badgguf import ARR, FMT, STR, string, value


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def num(self, fmt):
        v = struct.unpack_from("<" + fmt, self.data, self.at)[0]
        self.at += struct.calcsize(fmt)
        return v

    def text(self):
        n = self.num("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8", "surrogateescape")

    def value(self, t):
        if t == STR:
            return self.text()
        if t == ARR:
            et, n = self.num("I"), self.num("Q")
            return et, [self.value(et) for _ in range(n)]
        return self.num(FMT[t])


def _split(data):
    """keys, the number of tensors, where the tensors' descriptions begin and end"""
    r = _Reader(data)
    assert data[:4] == b"GGUF" and struct.unpack_from("<I", data, 4)[0] == 3
    r.at = 8
    n_tensor, n_kv = r.num("Q"), r.num("Q")
    keys = {}
    for _ in range(n_kv):
        k = r.text()
        t = r.num("I")
        keys[k] = (t, r.value(t))
    begin = r.at
    for _ in range(n_tensor):
        r.text()
        n_dim = r.num("I")
        r.at += 8 * n_dim + 12
    return keys, n_tensor, begin, r.at


def read(path):
    return _split(open(path, "rb").read())[0]


def write(src, dst, changes):
    data = open(src, "rb").read()
    keys, n_tensor, begin, end = _split(data)
    keys.update(changes)
    keys = {k: v for k, v in keys.items() if v is not None}
    align = keys.get("general.alignment", (0, 32))[1]
    out = b"GGUF" + struct.pack("<IQQ", 3, n_tensor, len(keys))
    out += b"".join(string(k.encode("utf-8", "surrogateescape"))
                    + struct.pack("<I", t) + value(t, v)
                    for k, (t, v) in keys.items())
    out += data[begin:end]
    with open(dst, "wb") as f:
        f.write(out + b"\0" * (-len(out) % align) + data[end + -end % align:])
    return dst
