"""The .hbg container of the golden files (tests/golden/README.md). Little-endian, no padding:

    "HBG1", uint32 count, then per array: uint16 name bytes, name (UTF-8), uint8 dtype tag, uint8 rank, uint64 dims, data.
"""

import struct

import numpy as np

DTYPES = {1: np.uint8, 2: np.int8, 3: np.uint16, 4: np.int16, 5: np.uint32, 6: np.int32, 7: np.uint64, 8: np.int64,
          9: np.float32, 10: np.float64}
TAGS = {np.dtype(t): tag for tag, t in DTYPES.items()}
TEXT = 11  # rank 1, UTF-8 bytes


class Writer:
    """Arrays in the order in which they are added; names are paths like "nvfp4/k80/w_codes"."""

    def __init__(self):
        self._items, self._names = [], set()

    def add(self, name, value):
        if name in self._names:
            raise ValueError(f"golden array '{name}' added twice")
        self._names.add(name)
        if isinstance(value, str):
            data, tag, dims = value.encode(), TEXT, (len(value.encode()),)
        else:
            a = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
            if a.dtype.kind == "f":
                a = np.where(np.isnan(a), a.dtype.type(np.nan), a)      # machines differ in the bits of a NaN
            data, tag, dims = a.astype(a.dtype.newbyteorder("<")).tobytes(), TAGS[a.dtype], a.shape
        encoded = name.encode()
        self._items.append(struct.pack("<H", len(encoded)) + encoded + struct.pack("<BB", tag, len(dims)) +
                           struct.pack(f"<{len(dims)}Q", *dims) + data)

    def save(self, path):
        with open(path, "wb") as f:
            f.write(b"HBG1" + struct.pack("<I", len(self._items)) + b"".join(self._items))


def load(path):
    """{name: array or str} in file order."""
    with open(path, "rb") as f:
        raw = f.read()
    if raw[:4] != b"HBG1":
        raise ValueError(f"{path}: not a golden file: starts with {raw[:4]!r}, expected b'HBG1'")
    (count,), at, out = struct.unpack_from("<I", raw, 4), 8, {}
    for _ in range(count):
        (n,) = struct.unpack_from("<H", raw, at)
        name = raw[at + 2:at + 2 + n].decode()
        tag, rank = struct.unpack_from("<BB", raw, at + 2 + n)
        at += 4 + n
        dims = struct.unpack_from(f"<{rank}Q", raw, at)
        at += 8 * rank
        size = int(np.prod(dims, dtype=np.int64)) * (1 if tag == TEXT else np.dtype(DTYPES[tag]).itemsize)
        data = raw[at:at + size]
        at += size
        out[name] = data.decode() if tag == TEXT else np.frombuffer(data, np.dtype(DTYPES[tag]).newbyteorder("<")).reshape(dims)
    if at != len(raw):
        raise ValueError(f"{path}: {len(raw) - at} bytes behind the last array")
    return out
