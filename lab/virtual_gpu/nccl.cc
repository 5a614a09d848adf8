// NCCL's backend on several devices of the virtual GPU, with the library that stands in for NCCL: the device that each
// thread uses, the order by CUDA's streams and events, and a GPU that fails.
#include <sys/resource.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "comm/nccl/api.h"
#include "engine/storage.h"
#include "engine/stream.h"
#include "lab/stand_ins/cuda/driver.h"
#include "lab/stand_ins/nccl/trace.h"
#include "tests/comm/verb_cases.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::EnvironmentVariable;
using testing::Findings;

constexpr int kRanks = 3;

struct FreshContexts {
  FreshContexts() { cudaDeviceReset(); }
  ~FreshContexts() { cudaDeviceReset(); }
  const EnvironmentVariable devices{"ISOBAR_VIRTUAL_GPU_DEVICES", "3"};
};

Device gpu_of(const Communicator& world) {
  return {DeviceKind::cuda, world.rank()};
}

Tensor ones_on(const Communicator& world, std::int64_t n) {
  Tensor x = Tensor::empty({n}, DType::fp32, gpu_of(world));
  x.set_values(std::vector<double>(static_cast<std::size_t>(n), 1));
  return x;
}

testing::NcclThreads on_gpus(double timeout_seconds = 60) {
  return {.ranks = kRanks, .timeout_seconds = timeout_seconds, .kind = DeviceKind::cuda};
}

std::string error_of(const testing::NcclThreads& options, const std::function<void(const Communicator&)>& body) {
  try {
    testing::run_nccl(options, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

template <class Function>
Function in_library(const char* name) {
  void* library = ::dlopen((std::string(testing::kStandIns) + "/libnccl.so.2").c_str(), RTLD_NOW | RTLD_NOLOAD);
  ISOBAR_CHECK(library != nullptr, "the stand-in is not loaded");
  return reinterpret_cast<Function>(::dlsym(library, name));
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

TEST_CASE("virtual GPU: every verb of NCCL, between ranks with a device each") {
  const FreshContexts whole;
  Findings findings;
  CHECK(error_of(on_gpus(), [&](const Communicator& world) { testing::check_verbs(world, gpu_of(world), findings); }) ==
        "no error");
  CHECK(findings.wrong() == "");
}

TEST_CASE("virtual GPU: no thread of a rank makes a context on another rank's device") {
  const FreshContexts whole;
  CHECK(error_of(on_gpus(), [&](const Communicator& world) {
          const Tensor x = ones_on(world, 4);
          for (int i = 0; i < 4; ++i) {
            world.all_reduce(x);
            sleep_for(0.03);  // the looker queries
          }
          (void)x.to_vector();
        }) == "no error");
  std::map<int, std::set<int>> devices_of, threads_of;
  for (const virtual_gpu::ContextUse& use : virtual_gpu::context_uses()) {
    INFO("thread " << use.thread << ", device " << use.device << ": " << use.call);
    CHECK(devices_of[use.thread].insert(use.device).second);
    CHECK(devices_of[use.thread].size() == 1);
    threads_of[use.device].insert(use.thread);
  }
  CHECK(threads_of.size() == kRanks);
  for (const auto& [device, threads] : threads_of) CHECK(threads.size() == threads_of[0].size());
  CHECK(threads_of[1].size() == 3);  // the rank's own thread, its looker and its watcher
}

TEST_CASE("virtual GPU: a GPU that fails for good is one sentence on all ranks") {
  // In a call of the rank's thread, or in one of its looker, whose queries begin some time later.
  for (const char* call : {"cudaEventRecord:9", "cudaEventQuery:3", "cudaMemcpyAsync:3", "any:60"}) {
    INFO(call);
    const FreshContexts whole;
    const std::string fail = std::string(call) + ":700:on:1";
    const EnvironmentVariable set("ISOBAR_VIRTUAL_GPU_FAIL", fail.c_str());
    std::atomic<int> woken = 0;
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = error_of(on_gpus(), [&](const Communicator& world) {
      try {
        const Tensor x = ones_on(world, 4);
        for (int i = 0; i < 1000; ++i) {
          world.all_reduce(x);
          sleep_for(0.005);
          (void)x.to_vector();
        }
      } catch (const Error&) {
        ++woken;
        throw;
      }
    });
    CHECK_THAT(error, ContainsSubstring("rank 1: ") && ContainsSubstring("an illegal memory access"));
    CHECK(woken == kRanks);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(40));  // all 1000 would take longer
    gpu::quietly([] { gpu::free_memory(); });
  }
}

TEST_CASE("virtual GPU: a group is aborted while another one waits for ever") {
  for (const char* version : {"22809", "21805"}) {
    INFO(version);
    const FreshContexts whole;
    const EnvironmentVariable set("ISOBAR_NCCL_STAND_IN_VERSION", version);
    std::atomic<bool> has_ended = false;
    const std::string error = error_of(on_gpus(1), [&](const Communicator& world) {
      const Communicator both = world.split(0, world.rank(), "both");
      const Tensor x = ones_on(world, 4);
      try {
        if (world.rank() == 0) {
          both.all_reduce(x);  // the abort of the world's communicator, the first one, would wait for it
          (void)x.to_vector();
          world.barrier();
        }
      } catch (const Error&) {
        has_ended = true;
        throw;
      }
      for (int i = 0; i < 3000 && !has_ended; ++i) sleep_for(0.01);
    });
    CHECK_THAT(error, ContainsSubstring("all_reduce of 4 fp32, call 1 of group both has not ended within 1 s"));
  }
}

TEST_CASE("virtual GPU: a collective takes of the host no thread, no question and no sleep") {
  const FreshContexts whole;
  const EnvironmentVariable slow("ISOBAR_NCCL_STAND_IN_PROGRESS", "30");
  constexpr int kRounds = 10, kCalls = 20;  // in a round
  nccl::stand_in::HostCounts counts{};
  std::atomic<long> sleeps = std::numeric_limits<long>::max();  // in the quietest round
  CHECK(error_of(on_gpus(), [&](const Communicator& world) {
          const Tensor x = ones_on(world, 4);
          world.barrier();
          if (world.rank() == 0) in_library<nccl::stand_in::ClearFunction>(nccl::stand_in::kClearName)();
          world.barrier();
          for (int round = 0; round < kRounds; ++round) {
            rusage before{}, after{};
            ::getrusage(RUSAGE_THREAD, &before);
            for (int i = 0; i < kCalls; ++i) world.all_reduce(x);
            ::getrusage(RUSAGE_THREAD, &after);
            if (world.rank() == 0) sleeps = std::min<long>(sleeps, after.ru_nvcsw - before.ru_nvcsw);
          }
          world.barrier();
          if (world.rank() == 0) counts = in_library<nccl::stand_in::HostFunction>(nccl::stand_in::kHostName)();
          world.barrier();
        }) == "no error");
  CHECK(counts.calls >= kRanks * kRounds * kCalls);
  CHECK(counts.in_progress == 0);
  CHECK(counts.threads == 0);
  // A sleep per call would be one each, in every round. Threads that contend for a mutex sleep too, on a busy machine
  // often, but not in all rounds.
  CHECK(sleeps < kCalls / 2);
}

TEST_CASE("virtual GPU: what a side stream sums follows its input, and what reads it follows the sum") {
  const FreshContexts whole;
  Findings findings;
  CHECK(error_of(on_gpus(), [&](const Communicator& world) {
          const Tensor ones = ones_on(world, 4096), x = Tensor::zeros({4096}, DType::fp32, gpu_of(world));
          SideStream side(gpu_of(world));
          gpu::copy(x.data(), ones.data(), x.bytes(), gpu_of(world), current_stream());  // which the sum must follow
          Pending pending = side.run([&] { world.all_reduce(x); });
          pending.wait();
          findings.expect(x.to_vector() == std::vector<double>(4096, kRanks), "the sum, where it is waited for");
        }) == "no error");
  CHECK(findings.wrong() == "");
}

}  // namespace isobar
