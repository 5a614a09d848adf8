#!/usr/bin/env python3
"""Makes tests/golden/stores.tar.gz: small NetCDF files and Zarr stores that other programs write, and the numbers that
they hold. tests/data/files/stored_arrays_test.cc reads them; nobody needs these packages to run it.

    pip install numpy zarr xarray netCDF4 numcodecs scipy    (made with zarr 3.1.6, xarray 2026.9, netCDF4 1.7.5)
    python3 tools/make_stores.py                             writes tests/golden/stores.tar.gz
    python3 tools/make_stores.py --out FILE                  writes somewhere else

In the archive: FILE or STORE, and expected/FILE/ARRAY.npy, the numbers as fp64.
"""
import argparse
import gzip
import io
import pathlib
import tarfile
import tempfile
import warnings

import netCDF4
import numcodecs
import numpy as np
import scipy.io
import xarray
import zarr
from zarr.codecs import (BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec)

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
SHAPE, CHUNK = (5, 7, 9), (2, 3, 4)  # no chunk divides an axis


def numbers(dtype, shape=SHAPE, seed=1):
    """Neighbours differ on every axis; the numbers use the whole width of the type, as far as fp64 holds them."""
    dtype = np.dtype(dtype)
    draw = np.random.default_rng(seed)
    if dtype.kind == "f":
        return (draw.standard_normal(shape) * 100).astype(dtype)
    limits = np.iinfo(dtype)
    return draw.integers(max(limits.min, -2**52), min(limits.max, 2**52), shape, dtype.newbyteorder("="),
                         endpoint=True).astype(dtype)


def expect(folder, file, arrays):
    for name, values in arrays.items():
        path = folder / "expected" / file / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.asarray(values, dtype=np.float64, order="C"))


# ---- Zarr -----------------------------------------------------------------------------------------------------------


def zarr_2(folder):
    """Arrays of every codec and type; an array's name tells what is special about it."""
    store = folder / "2.zarr"
    group = zarr.open_group(store, mode="w", zarr_format=2, attributes={"title": "version 2"})
    blosc = numcodecs.Blosc
    cases = {
        "plain": {"dtype": "<f4", "compressor": None},
        "plain_big": {"dtype": ">i2", "compressor": None},
        "zlib": {"dtype": "<f8", "compressor": numcodecs.Zlib(6)},
        "gzip_big": {"dtype": ">f8", "compressor": numcodecs.GZip(6)},
        "zstd": {"dtype": "<i4", "compressor": numcodecs.Zstd(3)},
        "lz4_u1": {"dtype": "|u1", "compressor": numcodecs.LZ4()},
        "blosc_lz4": {"dtype": "<f4", "compressor": blosc("lz4", 5, blosc.SHUFFLE)},
        "blosc_zstd_half": {"dtype": "<f2", "compressor": blosc("zstd", 3, blosc.BITSHUFFLE)},
        "blosc_blosclz": {"dtype": "<i8", "compressor": blosc("blosclz", 5, blosc.NOSHUFFLE)},
        "shuffle_zlib": {"dtype": "<u2", "filters": [numcodecs.Shuffle(2)], "compressor": numcodecs.Zlib(1)},
        "shuffle_3": {"dtype": "<u4", "filters": [numcodecs.Shuffle(3)], "compressor": None},
        "crc32c": {"dtype": "|i1", "filters": [numcodecs.CRC32C()], "compressor": numcodecs.Zstd(1)},
        "fortran": {"dtype": "<f4", "order": "F", "compressor": numcodecs.Zstd(1)},
        "fortran_plain": {"dtype": "<u8", "order": "F", "compressor": None},
        "slashes": {"dtype": "<f4", "compressor": None,
                    "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    }
    expected = {}
    for name, options in cases.items():
        values = numbers(options["dtype"])
        array = group.create_array(name, shape=SHAPE, chunks=CHUNK, fill_value=0,
                                   **{"compressors": options.get("compressor"),
                                      **{k: v for k, v in options.items() if k != "compressor"}})
        array[:] = values
        expected[name] = values
    for name, fill in {"holes": np.nan, "zeros": 0.0, "eights": 8.5}.items():
        values = numbers("<f4")
        values[2:4, 3:6, :] = fill  # whole chunks, which are not written
        array = group.create_array(name, shape=SHAPE, chunks=CHUNK, dtype="<f4", fill_value=fill,
                                   compressors=numcodecs.Zstd(1), config={"write_empty_chunks": False})
        array[:] = values
        expected[name] = values
    scalar = group.create_array("below/scalar", shape=(), dtype="<f8", compressors=None)
    scalar[...] = -2.5
    expected["below/scalar"] = np.float64(-2.5)
    expect(folder, "2.zarr", expected)


def zarr_3(folder):
    store = folder / "3.zarr"
    group = zarr.open_group(store, mode="w", zarr_format=3, attributes={"title": "version 3"})
    little, big = BytesCodec(endian="little"), BytesCodec(endian="big")
    shards = {"shards": (4, 6, 8), "chunks": CHUNK}
    cases = {
        "plain": {"dtype": "float32", "compressors": None},
        "plain_big": {"dtype": "int16", "compressors": None, "serializer": big},
        "gzip": {"dtype": "float64", "compressors": GzipCodec(level=6)},
        "zstd": {"dtype": "int32", "compressors": ZstdCodec(level=3)},
        "zstd_checked": {"dtype": "uint8", "compressors": (ZstdCodec(level=3), Crc32cCodec())},
        "blosc": {"dtype": "float32", "compressors": BloscCodec(cname="lz4", shuffle="shuffle")},
        "half": {"dtype": "float16", "compressors": BloscCodec(cname="zstd", shuffle="bitshuffle"), "serializer": big},
        "transposed": {"dtype": "uint16", "filters": TransposeCodec(order=(2, 0, 1)), "compressors": ZstdCodec()},
        "identity": {"dtype": "int64", "filters": TransposeCodec(order=(0, 1, 2)), "compressors": None},
        "keys_of_2": {"dtype": "uint64", "compressors": None, "chunk_key_encoding": {"name": "v2", "separator": "."}},
        "dots": {"dtype": "int8", "compressors": None, "chunk_key_encoding": {"name": "default", "separator": "."}},
        "shards": {"dtype": "float32", "compressors": ZstdCodec(level=1), **shards},
        "shards_plain": {"dtype": "uint32", "compressors": None, **shards},
    }
    expected = {}
    for name, options in cases.items():
        values = numbers(options["dtype"])
        array = group.create_array(name, **{"shape": SHAPE, "chunks": CHUNK, "fill_value": 0, **options})
        array[:] = values
        expected[name] = values
    for location in ("start", "end"):
        name = f"shards_{location}"
        values = numbers("float32")
        values[2:4, 3:6, :] = np.nan
        values[4:] = np.nan  # chunks, and whole shards, which are not written
        codec = ShardingCodec(chunk_shape=CHUNK, codecs=[TransposeCodec(order=(1, 2, 0)), big, GzipCodec(level=1)],
                              index_codecs=[little, Crc32cCodec()] if location == "start" else [little],
                              index_location=location)
        array = group.create_array(name, shape=SHAPE, chunks=(4, 6, 8), dtype="float32", fill_value=np.nan,
                                   serializer=codec, compressors=None, filters=None,
                                   config={"write_empty_chunks": False})
        array[:] = values
        expected[name] = values
    scalar = group.create_array("below/scalar", shape=(), dtype="float64", compressors=None)
    scalar[...] = -2.5
    expected["below/scalar"] = np.float64(-2.5)
    expect(folder, "3.zarr", expected)


def weather():
    """A data set as xarray's users have it: packed numbers, fill values, units."""
    times = np.arange(6, dtype="int64") * 6
    latitude, longitude = np.linspace(60, -60, 5), np.arange(8) * 45.0
    packed = numbers("int16", (6, 5, 8))
    data = xarray.Dataset(
        {"t2m": (("time", "latitude", "longitude"), packed, {"units": "K", "scale_factor": 0.25, "add_offset": 270.0}),
         "u10": (("time", "latitude", "longitude"), numbers("float32", (6, 5, 8), 2), {"units": "m s-1"}),
         "lsm": (("latitude", "longitude"), numbers("float64", (5, 8), 3), {"flags": [1, 2, 3], "missing": np.nan}),
         "expver": (("time",), np.array(["0001"] * 5 + ["0005"]))},
        {"time": ("time", times, {"units": "hours since 1996-01-01", "calendar": "proleptic_gregorian"}),
         "latitude": ("latitude", latitude, {"units": "degrees_north"}), "longitude": ("longitude", longitude)},
        {"Conventions": "CF-1.8", "levels": [1, 2]})
    return data, {name: data[name].values for name in data.variables if name != "expver"}


def xarray_stores(folder):
    data, expected = weather()
    for version in (2, 3):
        name = f"xarray_{version}.zarr"
        data.to_zarr(folder / name, zarr_format=version, consolidated=True,
                     encoding={"t2m": {"chunks": (4, 3, 5)}, "u10": {"chunks": (1, 5, 8)}})
        expect(folder, name, expected)


# ---- NetCDF ---------------------------------------------------------------------------------------------------------


def netcdf_3(folder):
    """scipy, 1.17 at least, places records wrongly that are no multiple of 4 bytes: it gets none of them."""
    lengths = {"time": 4, "y": 3, "x": 5}
    variables = (("time", "f8", ("time",)), ("v", "f4", ("time", "y", "x")), ("grid", "i2", ("y", "x")))
    for version in (1, 2):
        name = f"scipy_{version}.nc"
        expected = {key: numbers(dtype, tuple(lengths[d] for d in of)) for key, dtype, of in variables}
        with scipy.io.netcdf_file(folder / name, "w", version=version) as file:
            file.title = "version %d" % version
            for dimension, length in lengths.items():
                file.createDimension(dimension, None if dimension == "time" else length)
            for key, dtype, of in variables:
                variable = file.createVariable(key, np.dtype(dtype), of)
                variable[:] = expected[key]
                variable.scale = np.float32(0.5)
        expect(folder, name, expected)
    old = ["i1", "i2", "i4", "f4", "f8"]
    for version, kind, types in ((1, "NETCDF3_CLASSIC", old), (2, "NETCDF3_64BIT_OFFSET", old),
                                 (5, "NETCDF3_64BIT_DATA", [*old, "u1", "u2", "u4", "i8", "u8"])):
        name = f"netcdf4_{version}.nc"
        with netCDF4.Dataset(folder / name, "w", format=kind) as file:
            write_netcdf(file, types)
        expect(folder, name, {key: numbers(key, (3, 5)) for key in types})
        expect(folder, name, {f"{key}_records": numbers(key, (4, 5), 2) for key in types})


def write_netcdf(file, dtypes, **storage):
    file.setncattr("title", "types")
    file.createDimension("time", None)
    file.createDimension("y", 3)
    file.createDimension("x", 5)
    for dtype in dtypes:
        file.createVariable(dtype, dtype, ("y", "x"), **storage)[:] = numbers(dtype, (3, 5))
        variable = file.createVariable(f"{dtype}_records", dtype, ("time", "x"), **storage)
        variable[:] = numbers(dtype, (4, 5), 2)
        variable.units = "K"


def netcdf_4(folder):
    name = "netcdf4_4.nc"
    with netCDF4.Dataset(folder / name, "w", format="NETCDF4") as file:
        write_netcdf(file, ["i2", "f4"], zlib=True, chunksizes=(2, 3))
        group = file.createGroup("below")
        group.createVariable("f8", "f8", ("y",))[:] = numbers("f8", (3,))
        file.createVariable("x", "f8", ("x",))[:] = np.arange(5) / 2
    expect(folder, name, {"i2": numbers("i2", (3, 5)), "f4": numbers("f4", (3, 5)), "below/f8": numbers("f8", (3,)),
                          "i2_records": numbers("i2", (4, 5), 2), "f4_records": numbers("f4", (4, 5), 2),
                          "x": np.arange(5) / 2})


def pack(folder, out):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
                entry.size = path.stat().st_size
                archive.addfile(entry, path.open("rb"))
    out.write_bytes(gzip.compress(plain.getvalue(), 9, mtime=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=GOLDEN / "stores.tar.gz")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of types and codecs that version 3 does not specify
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for write in (zarr_2, zarr_3, xarray_stores, netcdf_3, netcdf_4):
            write(folder)
        pack(folder, options.out)
    print(f"{options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
