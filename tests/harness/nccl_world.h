// Ranks that are threads of the test and communicate by the NCCL backend, with the stand-in for NCCL. Each rank has its
// own device: the emulator's, or of kind cuda on the virtual GPU.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/nccl_ranks.h"
#include "kernels/cuda/runtime.h"
#include "lab/stand_ins/places.h"

namespace isobar::testing {

struct NcclThreads {
  int ranks = 1;
  double timeout_seconds = 60;
  int max_grouped = NcclRanks{}.max_grouped;
  DeviceKind kind = DeviceKind::emulator;
  bool own_streams = true;  // each rank works on its own stream; false: on the null stream
  std::function<void(const std::string& why)> on_failure{};
  // As NcclRanks' watch and on_late, of a rank.
  std::function<std::string(int rank, const std::string& call)> watch{};
  std::function<std::string(int rank, const std::string& call, std::span<const int> members)> on_late{};
};

inline void use_stand_in() {
  ::setenv("ISOBAR_CUDA_LIBS", kStandIns, 1);
}

inline Device emulator_of(int rank) {
  return {DeviceKind::emulator, rank};
}

// As run_ranks (comm/thread_ranks.h): the first error ends all, and is thrown with "rank R: " before its sentence.
class NcclThreadWorld {
 public:
  explicit NcclThreadWorld(const NcclThreads& options)
      : options_(options), id_(make_id()), stops_(static_cast<std::size_t>(options.ranks)) {}

  void run(const std::function<void(const Communicator& world)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < options_.ranks; ++rank) threads.emplace_back([&, rank] { run_rank(rank, body); });
    for (std::thread& thread : threads) thread.join();
    if (!failure_) return;
    try {
      std::rethrow_exception(failure_);
    } catch (const Error& error) {
      throw_error("rank ", failed_, ": ", error.what());
    }
  }

 private:
  static std::string make_id() {
    use_stand_in();
    return make_nccl_id();
  }

  Device device_of(int rank) const { return {options_.kind, rank}; }

  void run_rank(int rank, const std::function<void(const Communicator& world)>& body) {
    std::function<std::string(const std::string&)> watch;
    if (options_.watch) watch = [this, rank](const std::string& call) { return options_.watch(rank, call); };
    std::function<std::string(const std::string&, std::span<const int>)> on_late;
    if (options_.on_late)
      on_late = [this, rank](const std::string& call, std::span<const int> members) {
        return options_.on_late(rank, call, members);
      };
    try {
      NcclWorld nccl = start_nccl({.rank = rank,
                                   .ranks = options_.ranks,
                                   .device = device_of(rank),
                                   .device_name = concat("test rank ", rank),
                                   .timeout_seconds = options_.timeout_seconds,
                                   .id = id_,
                                   .max_grouped = options_.max_grouped,
                                   .watch = watch,
                                   .on_late = on_late,
                                   .on_failure = [&, rank](const std::string& why) { note_failure(rank, why); }});
      {
        const std::lock_guard lock(mutex_);
        stops_[static_cast<std::size_t>(rank)] = nccl.stop;
      }
      const StreamScope scope(options_.own_streams ? std::make_shared<gpu::OwnedStream>(device_of(rank)) : nullptr);
      call_and_report(rank, body, nccl.world);
    } catch (...) {
      fail(rank, std::current_exception());
    }
  }

  // The first cause is known before this rank's communicators are destroyed, which the others see.
  void call_and_report(int rank, const std::function<void(const Communicator& world)>& body,
                       const Communicator& world) {
    try {
      body(world);
    } catch (...) {
      fail(rank, std::current_exception());
      throw;
    }
  }

  // What the meeting does for processes: records the first cause, and stops all others.
  void note_failure(int rank, const std::string& why) {
    if (options_.on_failure) options_.on_failure(why);
    fail(rank, std::make_exception_ptr(Error(why)));
  }

  void fail(int rank, std::exception_ptr error) {
    std::vector<std::function<void(const std::string&)>> stops;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = std::move(error);
      failed_ = rank;
      stops = stops_;
      stops[static_cast<std::size_t>(rank)] = {};  // it knows already
    }
    for (const auto& stop : stops)
      if (stop) stop(concat("rank ", rank, " has failed"));
  }

  const NcclThreads options_;
  const std::string id_;
  std::mutex mutex_;
  std::vector<std::function<void(const std::string&)>> stops_;
  std::exception_ptr failure_;
  int failed_ = -1;
};

inline void run_nccl(const NcclThreads& options, const std::function<void(const Communicator& world)>& body) {
  NcclThreadWorld(options).run(body);
}

}  // namespace isobar::testing
