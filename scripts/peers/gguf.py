"""Reads a GGUF file: its metadata, and where its tensors lie. After the description in the ggml project's docs/gguf.md."""
import dataclasses
import math
import mmap
import struct

MAGIC = b"GGUF"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, F16, BF16 = 0, 1, 30
ELEMENT_BYTES = {F32: 4, F16: 2, BF16: 2}


@dataclasses.dataclass
class Tensor:
    shape: list   # outermost first, as other formats have it
    kind: int
    data: memoryview


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def string(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, count = self.take("I"), self.take("Q")
            if of in SCALARS:
                values = self.take(f"{count}{SCALARS[of]}")
                return list(values) if count != 1 else [values]
            return [self.value(of) for _ in range(count)]
        if kind not in SCALARS:
            raise ValueError(f"metadata of an unknown kind {kind}")
        return self.take(SCALARS[kind])


def read(path):
    """(metadata, name -> Tensor). Only tensors that are not quantised can be read; others raise."""
    with open(path, "rb") as source:
        data = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    cursor = Cursor(data)
    if data[:4] != MAGIC:
        raise ValueError(f"{path} is no GGUF file")
    cursor.at = 4
    _, tensor_count, pair_count = cursor.take("I"), cursor.take("Q"), cursor.take("Q")
    metadata = {}
    for _ in range(pair_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.take("I"))
    places = [place(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    begin = -(-cursor.at // alignment) * alignment
    view = memoryview(data)
    tensors = {}
    for name, shape, kind, offset in places:
        if kind not in ELEMENT_BYTES:
            raise ValueError(f"{name} has type {kind}, which is quantised")
        size = math.prod(shape) * ELEMENT_BYTES[kind]
        tensors[name] = Tensor(shape, kind, view[begin + offset:begin + offset + size])
    return metadata, tensors


def place(cursor):
    name, dimensions = cursor.string(), cursor.take("I")
    shape = [cursor.take("Q") for _ in range(dimensions)][::-1]
    return name, shape, cursor.take("I"), cursor.take("Q")
