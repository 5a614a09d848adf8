// What every verb must do on every backend: one list of cases. Values are whole numbers, so that results are exact in
// every dtype; what nothing has written is NaN.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tests/harness/findings.h"

namespace isobar::testing {

using Body = std::function<void(const Communicator& world)>;
using CountList = std::vector<std::int64_t>;

Tensor tensor_of(const std::vector<double>& values, DType dtype, Device device);
Tensor unwritten(std::int64_t n, DType dtype, Device device);                  // NaN, or -77 in i32
std::vector<double> values(int rank, std::int64_t n, std::int64_t first = 0);  // of that rank: whole numbers

// Each is called by all ranks of the group; their tensors lie on `device`.
void check_verbs(const Communicator& g, Device device,
                 Findings& findings);  // every verb, dtype, ragged, empty, in place
void check_splits(const Communicator& world, Device device, Findings& findings);  // groups by color, ordered by key
// Of 16-bit sums, on four ranks and a backend that rounds once; the largest of a NaN.
void check_rounding(const Communicator& world, Device device, Findings& findings);

// How a backend runs `body` on the ranks of a new world. It throws what run_ranks (comm/thread_ranks.h) does.
using RunWorld = std::function<void(int ranks, const Body& body)>;
using DeviceOf = std::function<Device(int world_rank)>;  // that a rank works with

// What is wrong, or "": every verb on 1 to 8 ranks; groups of seven.
std::string wrong_verbs(const RunWorld& run, const DeviceOf& device_of);
std::string wrong_splits(const RunWorld& run, const DeviceOf& device_of);

}  // namespace isobar::testing
