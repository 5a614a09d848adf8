#!/usr/bin/env python3
"""Compares `isobar score` and `isobar data climatology` with scripts in xarray and numpy, to 1e-6: every score of every
region, kind of forecast and weight, climatologies of both day numbers over a leap year, damped persistence, spectra.
The forecasts are written by xarray as NetCDF and as Zarr. Nothing that is built or tested needs it.

    pip install xarray netCDF4 zarr numpy
    python3 tools/check_scores.py --isobar build/apps/isobar

Exit status 77 (skipped) without --isobar, as scripts/test calls it, or without these packages.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
if "--isobar" not in sys.argv and not {"-h", "--help"} & set(sys.argv):
    print("scores: skipped, it needs --isobar")
    sys.exit(SKIPPED)
try:
    import netCDF4  # noqa: F401  (xarray writes NetCDF-4 with it)
    import numpy as np
    import xarray as xr
    import zarr  # noqa: F401
except ImportError as error:
    print(f"scores: skipped, {error.name} is not installed")
    sys.exit(SKIPPED)

BOUND = 1e-6  # relative to the largest of a list
LEADS = [6, 24, 72]  # hours
VARIABLES = {"2m_temperature": "t2m", "10m_u_component_of_wind": "u10", "10m_v_component_of_wind": "v10"}
failures = []
worst = 0.0


def check(found, expected, what):
    """Numbers of the same shape; None is NaN."""
    global worst
    found, expected = np.array(found, float), np.array(expected, float)
    finite = np.isfinite(expected)
    scale = max(np.abs(expected[finite]).max(initial=0), 1e-30)
    error = np.abs(found - expected)[finite].max(initial=0) / scale
    is_right = found.shape == expected.shape and (np.isfinite(found) == finite).all() and error <= BOUND
    worst = max(worst, error)
    if not is_right:
        failures.append(what)
        print(f"WRONG   {what}: {found} {expected}")


def run(isobar, *arguments):
    subprocess.run([isobar, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def make_truth(rng, latitudes, longitudes):
    times = np.arange(np.datetime64("2019-01-01"), np.datetime64("2021-01-01"), np.timedelta64(6, "h"))
    truth = xr.Dataset(coords={"time": times.astype("datetime64[ns]"), "latitude": latitudes, "longitude": longitudes})
    hours = np.arange(len(times))[:, None, None] * 6.0
    for number, name in enumerate(VARIABLES.values()):
        season = 8 * np.cos(2 * np.pi * hours / 8766 + latitudes[None, :, None] / 50)
        day = 2 * np.sin(2 * np.pi * hours / 24 + np.deg2rad(longitudes)[None, None, :])
        noise = rng.standard_normal((len(times), len(latitudes), len(longitudes)))
        for t in range(1, len(times)):
            noise[t] = 0.8 * noise[t - 1] + 0.6 * noise[t]
        values = (280 if number == 0 else 0) + season + day + 3 * noise
        truth[name] = (("time", "latitude", "longitude"), values.astype("float32"))
        truth[name].attrs["units"] = "K" if number == 0 else "m s**-1"
    return truth


def make_forecast(rng, truth, starts):
    leads = np.array(LEADS, "timedelta64[h]").astype("timedelta64[ns]")
    forecast = xr.Dataset(coords={"time": starts, "prediction_timedelta": leads, "latitude": truth.latitude,
                                  "longitude": truth.longitude})
    for name, short in VARIABLES.items():
        values = np.stack([truth[short].sel(time=starts + lead).values for lead in leads], 1)
        error = rng.standard_normal(values.shape) * np.array([0.5, 1.5, 3])[None, :, None, None] + 0.2
        values = (values + error).astype("float32")
        values[1, 0, 2, 3] = np.nan  # of one start and lead
        forecast[name] = (("time", "prediction_timedelta", "latitude", "longitude"), values)
        forecast[name].attrs["units"] = truth[short].attrs["units"]
    return forecast.transpose("prediction_timedelta", "time", "longitude", "latitude")


def weights_of(kind, latitudes):
    if kind == "cos":
        weights = np.cos(np.deg2rad(latitudes))
    else:
        middle = (latitudes[1:] + latitudes[:-1]) / 2
        first, last = 2 * latitudes[0] - middle[0], 2 * latitudes[-1] - middle[-1]
        borders = np.clip(np.concatenate([[first], middle, [last]]), -90, 90)
        weights = np.abs(np.diff(np.sin(np.deg2rad(borders))))
    return xr.DataArray(weights / weights.mean(), dims="latitude", coords={"latitude": latitudes})


def climatology_of(truth, days, window):
    """A direct sum over years and the window; calendar: days of a leap year, dayofyear: WeatherBench's numbers."""
    half = window // 2
    weights = np.concatenate([np.linspace(0, 1, half + 1), np.linspace(1, 0, half + 1)[1:]])
    hours = np.unique(truth.time.dt.hour)
    fields = {name: [] for name in truth}
    for hour in hours:
        of_hour = truth.sel(time=truth.time.dt.hour == hour)
        number = of_hour.time.dt.dayofyear.values - 1
        year, leap = of_hour.time.dt.year.values, of_hour.time.dt.is_leap_year.values
        for name in truth:
            stacked = np.full((len(np.unique(year)), 366, *truth[name].shape[1:]), np.nan)
            at = number + ((~leap) & (number >= 59) if days == "calendar" else 0)
            stacked[year - year.min(), at] = of_hour[name].values
            if days == "dayofyear":
                lacks = np.isnan(stacked[:, 365, 0, 0])
                stacked[lacks, 365] = stacked[lacks, 364]
            means = []
            for day in range(366):
                part = stacked[:, np.arange(day - half, day + half + 1) % 366]
                w = weights[None, :, None, None] * np.isfinite(part)
                means.append(np.nansum(part * w, (0, 1)) / w.sum((0, 1)))
            fields[name].append(means)
    dims = ("hour", "calendar_day" if days == "calendar" else "dayofyear", "latitude", "longitude")
    return xr.Dataset({name: (dims, np.array(values, "float32")) for name, values in fields.items()},
                      {"hour": hours, dims[1]: np.arange(1, 367), "latitude": truth.latitude,
                       "longitude": truth.longitude})


def climatology_at(climatology, times):
    day = times.dt.dayofyear
    axis = "calendar_day" if "calendar_day" in climatology.dims else "dayofyear"
    if axis == "calendar_day":
        day = day + ((~times.dt.is_leap_year) & (day >= 60))
    return climatology.sel({"hour": times.dt.hour, axis: day}).drop_vars(["hour", axis])


def regions_of(latitudes):
    regions = {"global": np.isfinite(latitudes), "tropics": abs(latitudes) <= 20,
               "northern_extratropics": latitudes >= 20, "southern_extratropics": latitudes <= -20}
    return {name: inside for name, inside in regions.items() if inside.any()}


def scores_of(forecast, truth, climatology, weights):
    """By WeatherBench's formulas: means over a region, then over starts; points that are missing are left out."""
    def mean(values):
        return values.weighted(weights).mean(["latitude", "longitude"])

    there = np.isfinite(forecast) & np.isfinite(truth)
    forecast, truth = forecast.where(there), truth.where(there)
    error = forecast - truth
    scores = {"rmse": np.sqrt(mean(error**2).mean("time")), "mae": mean(abs(error)).mean("time"),
              "bias": mean(error).mean("time")}
    f, o = forecast - climatology, truth - climatology
    correlation = mean(f * o) / np.sqrt(mean(f**2) * mean(o**2))
    sums = [values.weighted(weights).sum(["time", "latitude", "longitude"]) for values in (f * o, f**2, o**2)]
    scores["acc"] = correlation.mean("time")
    scores["acc_pooled"] = sums[0] / np.sqrt(sums[1] * sums[2])
    scores["activity"] = (np.sqrt(mean((f - mean(f)) ** 2)) / np.sqrt(mean((o - mean(o)) ** 2))).mean("time")
    return scores


def spectrum_of(fields, weights):
    chosen = (abs(fields.latitude) >= 30) & (abs(fields.latitude) <= 60)
    fields = fields.sel(latitude=chosen).transpose(..., "latitude", "longitude")
    waves = np.fft.rfft(fields.values, axis=-1, norm="forward")
    circumference = 2 * np.pi * 6.371e6 * np.cos(np.deg2rad(fields.latitude.values))
    power = circumference[:, None] * np.abs(waves) ** 2 * np.r_[1, np.full(waves.shape[-1] - 1, 2)]
    row = weights.sel(latitude=chosen).values[:, None] * np.isfinite(power).all(-1, keepdims=True)
    return np.nansum(power * row, -2) / row.sum(-2)


def check_region(name, inside, kind, found, forecasts, truth, climatology, weights):
    chosen = {"latitude": inside}
    weights = weights.isel(chosen)
    for which, fields in forecasts.items():
        for short in VARIABLES.values():
            f, o, c = (values[short].isel(chosen) for values in (fields, truth, climatology))
            expected = scores_of(f, o, c, weights)
            for score, values in expected.items():
                if which == "climatology" and score in ("acc", "acc_pooled", "activity"):
                    continue  # it has no anomaly
                check(found[which][score][short], values.values, f"{kind} {name} {which} {score} {short}")
        squared = sum((fields[wind].isel(chosen) - truth[wind].isel(chosen)) ** 2 for wind in ("u10", "v10"))
        expected = np.sqrt(squared.weighted(weights).mean(["latitude", "longitude"]).mean("time"))
        check(found[which]["wind_vector_rmse"]["wind10"], expected.values, f"{kind} {name} {which} wind10")


def damping_of(truth, climatology, weights, train):
    damping = {short: [] for short in VARIABLES.values()}
    for lead in LEADS:
        times = truth.time[:train]
        later = times + np.timedelta64(lead, "h")
        both = later.values < truth.time.values[train]
        times, later = times[both], later[both]
        then = truth.sel(time=times) - climatology_at(climatology, times)
        now = truth.sel(time=later.values) - climatology_at(climatology, truth.time.sel(time=later.values))
        for short in damping:
            products = [(a * b * weights).sum() for a, b in ((then[short].values, now[short]),
                                                             (then[short].values, then[short]))]
            damping[short].append(float(products[0] / products[1]))
    return damping


def compare(isobar, folder, latitudes, longitudes, kind, days):
    rng = np.random.default_rng(len(latitudes))
    truth = make_truth(rng, latitudes, longitudes)
    truth_path, climatology_path, json_path = folder / "truth.nc", folder / f"{days}.nc", folder / "scores.json"
    truth.to_netcdf(truth_path)
    starts = np.array(["2020-02-26T00", "2020-02-28T06", "2020-03-01T12", "2020-12-20T18"], "datetime64[ns]")
    forecast = make_forecast(rng, truth, starts)
    # Two files of different starts, one of each format.
    forecast.isel(time=slice(0, 2)).to_netcdf(folder / "a.nc")
    forecast.isel(time=slice(2, 4)).to_zarr(folder / "b.zarr", mode="w", zarr_format=2)

    run(isobar, "data", "climatology", truth_path, "--out", climatology_path, "--days", days)
    expected = climatology_of(truth, days, 61)
    climatology = xr.open_dataset(climatology_path)
    for short in VARIABLES.values():
        check(climatology[short].values, expected[short].values, f"climatology {days} {short}")

    train = 900
    run(isobar, "score", folder / "a.nc", folder / "b.zarr", "--truth", truth_path, "--climatology", climatology_path,
        "--weights", kind, "--train-range", 0, train, "--json", json_path)
    found = json.loads(json_path.read_text())
    weights = weights_of(kind, latitudes)
    names = {long: short for long, short in VARIABLES.items()}
    fields = forecast.rename(names).transpose("time", "prediction_timedelta", "latitude", "longitude").astype("float64")
    valid = fields.time + fields.prediction_timedelta
    exact = truth.astype("float64")
    at_valid = exact.sel(time=valid).drop_vars("time").assign_coords(time=fields.time)
    at_start = exact.sel(time=fields.time)
    means = climatology.astype("float64").load()
    c_valid = climatology_at(means, valid)
    damping = damping_of(exact, means, weights, train)
    damped = xr.Dataset({short: c_valid[short] + xr.DataArray(damping[short], dims="prediction_timedelta")
                         * (at_start[short] - climatology_at(means, fields.time)[short]) for short in damping})
    forecasts = {"forecast": fields, "persistence": at_start.broadcast_like(at_valid), "climatology": c_valid,
                 "damped_persistence": damped}
    for short in damping:
        check(found["damping"][short], damping[short], f"{kind} damping {short}")
    assert list(found["regions"]) == list(regions_of(latitudes)), found["regions"].keys()
    for name, inside in regions_of(latitudes).items():
        check_region(name, inside, kind, found["regions"][name], forecasts, at_valid, c_valid, weights)
    is_globe = len(longitudes) * (longitudes[1] - longitudes[0]) == 360
    assert ("spectrum" in found) == is_globe
    for short in damping if is_globe else ():
        for which, values in (("forecast", fields[short]), ("truth", at_valid[short])):
            expected = spectrum_of(values, weights)  # [time, lead, wavenumber]
            for lead in range(len(LEADS)):
                check(found["spectrum"][which][short][lead], expected[:, lead].mean(0), f"{kind} spectrum {which}")
    print(f"{'ok' if not failures else 'WRONG'}      {len(latitudes)} x {len(longitudes)}, {kind}, {days}: largest "
          f"relative difference {worst:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isobar", required=True, type=pathlib.Path)
    isobar = parser.parse_args().isobar
    globe = np.linspace(90, -90, 13), np.arange(0, 360, 20.0)
    region = np.linspace(75, 17.5, 8), np.linspace(200, 330, 9)
    with tempfile.TemporaryDirectory() as folder:
        for latitudes, longitudes in (globe, region):
            for kind, days in (("cos", "calendar"), ("cells", "dayofyear")):
                compare(isobar, pathlib.Path(folder), latitudes, longitudes, kind, days)
    print(f"scores: {len(failures)} wrong" if failures else "scores: all right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
