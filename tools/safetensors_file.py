"""safetensors files of PyTorch tensors, F32, F64 and I32: u64 length of the header, the header as JSON, the bytes.
Written by hand in the order given, because the order of the usual library varies and generated files should not.
"""
import json

import torch

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def save(tensors, path, **metadata):
    """Writes {name: tensor}; metadata values that are no strings are written as JSON."""
    header, blobs, end = {}, [], 0
    if metadata:
        header["__metadata__"] = {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}
    for name, tensor in tensors.items():
        blobs.append(tensor.contiguous().numpy().tobytes())
        begin, end = end, end + len(blobs[-1])
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def load(path):
    """{name: tensor}, each in memory of its own."""
    tensors = {}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            tensor = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
            assert file.readinto(tensor.numpy().reshape(-1).view("u1")) == end - begin, f"{path} ends within {name}"
            tensors[name] = tensor
    return tensors
