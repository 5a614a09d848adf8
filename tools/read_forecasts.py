#!/usr/bin/env python3
"""Whether other programs read the forecasts that isobar writes: xarray by every engine that is installed (netcdf4,
h5netcdf, zarr), with dates, leads, names and units, and the values of the .h5; netCDF4 also appends to the .nc.

    pip install xarray netCDF4 h5netcdf zarr h5py
    python3 tools/read_forecasts.py --isobar build/apps/isobar

Says what it read. Exit status 77 where xarray or every engine is missing, 1 where something differs.
"""
import argparse
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

NEEDED = ("numpy", "xarray", "h5py")
ENGINES = {"f.nc": ("netcdf4", "h5netcdf"), "f.zarr": ("zarr",)}
MODULES = {"netcdf4": "netCDF4", "h5netcdf": "h5netcdf", "zarr": "zarr"}
STARTS, STEPS = 3, 4


def is_installed(module):
    return importlib.util.find_spec(module) is not None


def run(isobar, *arguments):
    subprocess.run([isobar, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def make_forecasts(isobar, folder):
    """A model of a few iterations; the data end with the last start, in 1980, so that leads lie beyond them."""
    data, weights = folder / "data", folder / "run"
    run(isobar, "data", "synth", "--out", data, "--train-years", 1, "--valid-years", 1, "--steps-per-year", 40,
        "--grid", "8x16", "--channels", 20)
    run(isobar, "train", "--config", "tiny", "--device", "cpu", "--data", data, "--run-dir", weights, "--set",
        "num_iters=2", "--set", "warmup=1", "--set", "embed_dim=16", "--set", "depth=1", "--set", "num_heads=2",
        "--set", "patch_size=4", "--set", "global_batch_size=2")
    forecast = ["forecast", "--device", "cpu", "--weights", weights, "--data", data, "--steps", STEPS]
    several = [*forecast, "--starts", "37:40"]
    for name in ENGINES:
        run(isobar, *several, "--out", folder / "plain" / name)
        run(isobar, *several, "--compress", "--out", folder / "compressed" / name)
        run(isobar, *several, "--wb2", "--out", folder / "wb2" / name)
    for start in range(STARTS):
        run(isobar, *forecast, "--start", 37 + start, "--out", folder / f"{start}.h5")


class Reader:
    def __init__(self, folder):
        import h5py
        self.names = []
        fields = []
        for start in range(STARTS):
            with h5py.File(folder / f"{start}.h5") as file:
                self.names = [name.decode() for name in file["channel"]]
                self.units = [unit.decode() for unit in file["units"]]
                self.valid = file["time"][:]  # of the last start
                self.latitudes, self.longitudes = file["lat"][:], file["lon"][:]
                fields.append(file["fields"][:])
        import numpy
        self.fields = numpy.stack(fields)  # [start, lead, channel, row, column]

    def check(self, path, engine, is_wb2):
        import numpy
        import xarray
        from numpy.testing import assert_array_equal
        with xarray.open_dataset(path, engine=engine) as data:
            assert data["time"].dtype.kind == "M" and data["prediction_timedelta"].dtype.kind == "m", data
            hours = (data["prediction_timedelta"] / numpy.timedelta64(1, "h")).values
            assert hours.shape == (STEPS,) and (numpy.diff(hours) == hours[0]).all(), hours
            last = data["time"].values[-1] + data["prediction_timedelta"].values
            epoch = numpy.datetime64("1970-01-01", "ns")
            assert_array_equal((last - epoch) / numpy.timedelta64(1, "h"), self.valid)
            assert_array_equal(data["latitude"], self.latitudes)
            assert_array_equal(data["longitude"], self.longitudes)
            assert data.attrs["Conventions"] == "CF-1.8" and data.attrs["source"].startswith("isobar"), data.attrs
            for c, name in enumerate(self.names):
                field = self.variable(data, name) if is_wb2 else data[name]
                assert field.dims == ("time", "prediction_timedelta", "latitude", "longitude"), field.dims
                assert field.attrs["units"] == self.units[c], (name, field.attrs)
                assert_array_equal(field.values, self.fields[:, :, c], err_msg=name)
            if not is_wb2:
                assert list(data.data_vars) == self.names or engine == "zarr", list(data.data_vars)

    @staticmethod
    def variable(data, name):
        surface = {"u10": "10m_u_component_of_wind", "v10": "10m_v_component_of_wind", "t2m": "2m_temperature",
                   "sp": "surface_pressure", "msl": "mean_sea_level_pressure", "tcwv": "total_column_water_vapour"}
        if name in surface:
            return data[surface[name]]
        upper = {"t": "temperature", "u": "u_component_of_wind", "v": "v_component_of_wind", "z": "geopotential",
                 "r": "relative_humidity"}
        field = data[upper[name[0]]].sel(level=int(name[1:]))
        return field.drop_vars("level")


def check_append(path):
    """netCDF-C refuses files whose links it cannot order."""
    import netCDF4
    with netCDF4.Dataset(path, "a") as file:
        file.history = file.history + "; appended to"
        file.createVariable("mean", "f4", ("time",))[:] = 1
    with netCDF4.Dataset(path) as file:
        assert list(file.dimensions) == ["time", "prediction_timedelta", "latitude", "longitude"], file.dimensions
        assert file["mean"][:].sum() == STARTS and file.history.endswith("appended to")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", required=True, help="the program")
    parser.add_argument("--keep", type=pathlib.Path, help="an empty folder for the forecasts, which stay")
    options = parser.parse_args()
    missing = [module for module in NEEDED if not is_installed(module)]
    engines = [engine for engine, module in MODULES.items() if is_installed(module)]
    if missing or not engines:
        print("skipped: not installed:", ", ".join(missing or MODULES.values()))
        return 77
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or pathlib.Path(made)
        for kind in ("plain", "compressed", "wb2"):
            (folder / kind).mkdir()
        make_forecasts(options.isobar, folder)
        reader = Reader(folder)
        import xarray
        for kind in ("plain", "compressed", "wb2"):
            for name, by in ENGINES.items():
                for engine in by:
                    if engine not in engines:
                        print(f"not read: {kind}/{name} by {engine}, which is not installed")
                        continue
                    reader.check(folder / kind / name, engine, kind == "wb2")
                    print(f"{kind}/{name} by xarray {xarray.__version__} and {engine}: "
                          f"{len(reader.names)} channels, {STARTS} starts, {STEPS} leads")
        if "netcdf4" in engines:
            check_append(folder / "plain" / "f.nc")
            print("plain/f.nc: netCDF4 appends to it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
