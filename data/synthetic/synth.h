// A synthetic global data set in the tutorial's layout: deterministic, predictable from its own state, not persistent.
// For the equations see docs/data.md.
#pragma once

#include <cstdint>
#include <string>

namespace isobar {

struct SynthOptions {
  std::string out = {};               // folder; created if needed
  std::int64_t train_years = 4;       // files in out/train
  std::int64_t valid_years = 1;       // files in each of out/valid and out/test
  std::int64_t steps_per_year = 292;  // six-hourly, from 1 January
  std::int64_t height = 32, width = 64;
  std::int64_t channels = 4;
  std::uint64_t seed = 0;
  int threads = 0;  // 0: as many as the machine has cores; the bytes do not depend on it
};

// Writes out/{train,valid,test}/YYYY.h5 and out/stats/*.npy. Each file is complete or does not exist.
void write_synthetic_data(const SynthOptions& options);

}  // namespace isobar
