"""A GGUF as plain data that may be made wrong: read from a good file, changed, and written without any check."""
import dataclasses
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def number(fmt, value):
    return struct.pack("<" + fmt, value)


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return number("Q", len(raw)) + raw


def value_bytes(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        element, values = value
        return number("I", element) + number("Q", len(values)) + b"".join(value_bytes(element, v) for v in values)
    return number(FORMATS[kind], value)


@dataclasses.dataclass
class Tensor:
    name: bytes
    shape: list
    kind: int
    data: bytes
    offset: int = None  # None: where it belongs
    rank: int = None  # None: len(shape)

    def info(self, offset):
        return (
            text(self.name)
            + number("I", len(self.shape) if self.rank is None else self.rank)
            + b"".join(number("Q", dim) for dim in self.shape)
            + number("I", self.kind)
            + number("Q", offset if self.offset is None else self.offset)
        )


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def number(self, fmt):
        (value,) = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            return element, [self.value(element) for _ in range(count)]
        return self.number(FORMATS[kind])


class Gguf:
    """keys: list of [key, type, value]; a value of type bytes under a type other than STRING is written as it is."""

    def __init__(self, data):
        assert data[:4] == b"GGUF"
        reader = Reader(data)
        reader.at = 4
        self.magic = b"GGUF"
        self.version = reader.number("I")
        num_tensors, num_keys = reader.number("Q"), reader.number("Q")
        self.num_tensors = self.num_keys = None  # None: as many as there are
        self.alignment = 32
        self.keys = []
        for _ in range(num_keys):
            key, kind = reader.text().decode(), reader.number("I")
            self.keys.append([key, kind, reader.value(kind)])
        infos = []
        for _ in range(num_tensors):
            name, rank = reader.text(), reader.number("I")
            shape = [reader.number("Q") for _ in range(rank)]
            infos.append((name, shape, reader.number("I"), reader.number("Q")))
        start = -(-reader.at // 32) * 32
        ends = [offset for *_, offset in infos[1:]] + [len(data) - start]
        self.tensors = [
            Tensor(name, shape, kind, data[start + offset : start + end])
            for (name, shape, kind, offset), end in zip(infos, ends)
        ]

    def find(self, key):
        return next(entry for entry in self.keys if entry[0] == key)

    def set(self, key, kind, value):
        for entry in self.keys:
            if entry[0] == key:
                entry[1:] = [kind, value]
                return
        self.keys.append([key, kind, value])

    def remove(self, key):
        self.keys = [entry for entry in self.keys if entry[0] != key]

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name.encode())

    def sections(self):
        """Bytes of header, keys, tensor list with its padding, data."""
        header = self.magic + number("I", self.version)
        header += number("Q", len(self.tensors) if self.num_tensors is None else self.num_tensors)
        header += number("Q", len(self.keys) if self.num_keys is None else self.num_keys)
        keys = b""
        for key, kind, value in self.keys:
            raw = isinstance(value, bytes) and kind != STRING
            keys += text(key) + number("I", kind) + (value if raw else value_bytes(kind, value))
        infos, data = b"", b""
        for tensor in self.tensors:
            infos += tensor.info(len(data))
            data += tensor.data + bytes(-len(tensor.data) % self.alignment)
        infos += bytes(-(len(header) + len(keys) + len(infos)) % self.alignment)
        return header, keys, infos, data

    def bytes(self):
        return b"".join(self.sections())
