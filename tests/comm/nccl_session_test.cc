// What NCCL's backend does with a GPU that fails or is stuck, with aborts that wait for the device, and what a call
// costs the host: on the stand-in, which can do all of it.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/api.h"
#include "engine/stream.h"
#include "kernels/emulator/devices.h"
#include "kernels/emulator/questions.h"
#include "lab/stand_ins/nccl/trace.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::EnvironmentVariable;
using testing::run_nccl;
using Clock = std::chrono::steady_clock;

constexpr const char* kFallen = "CUDA: cudaEventQuery: an illegal memory access was encountered";

// Of threads that the session started: the tests' ranks say that they are none of them.
thread_local bool is_of_session = true;

class Questions {
 public:
  explicit Questions(emulator::Question question) { emulator::set_question(question); }
  ~Questions() { emulator::set_question(nullptr); }
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;
};

std::string error_of(const testing::NcclThreads& options, const std::function<void(const Communicator&)>& body) {
  try {
    run_nccl(options, [&](const Communicator& world) {
      is_of_session = false;
      body(world);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Tensor zeros_on(const Communicator& world, std::int64_t n) {
  return Tensor::zeros({n}, DType::fp32, testing::emulator_of(world.rank()));
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class Function>
Function in_library(const char* name) {
  testing::use_stand_in();
  (void)nccl::api();
  void* library = ::dlopen((std::string(testing::kStandIns) + "/libnccl.so.2").c_str(), RTLD_NOW | RTLD_NOLOAD);
  ISOBAR_CHECK(library != nullptr, "the stand-in is not loaded");
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// Of rank 0; the others do not come to its call, and end after it.
class Alone {
 public:
  void call(const Communicator& world, const std::function<void()>& body) {
    try {
      if (world.rank() == 0) body();
    } catch (const Error&) {
      has_ended_ = true;
      throw;
    }
    for (int i = 0; i < 2000 && !has_ended_; ++i) sleep_for(0.01);
  }

 private:
  std::atomic<bool> has_ended_{false};
};

// Calls that last: until the run has failed.
void exchange_for_long(const Communicator& world) {
  const Tensor x = zeros_on(world, 4);
  for (int i = 0; i < 1000; ++i) {
    world.all_reduce(x);
    sleep_for(0.005);
    (void)x.to_vector();
  }
}

}  // namespace

TEST_CASE("nccl: a GPU that fails is one sentence on all ranks") {
  static std::atomic<int> asked;
  asked = 0;
  const Questions questions([]() -> const char* {
    const bool is_it = is_of_session && emulator::current_device().name == "test rank 1";
    return is_it && ++asked > 3 ? kFallen : nullptr;
  });
  std::atomic<int> woken = 0;
  const std::string error = error_of({.ranks = 3}, [&](const Communicator& world) {
    try {
      exchange_for_long(world);
    } catch (const Error&) {
      ++woken;
      throw;
    }
  });
  CHECK(error == concat("rank 1: all_reduce of 4 fp32, call ", error.substr(error.find("call ") + 5)));
  CHECK_THAT(error, ContainsSubstring(concat(" of group world: ", kFallen)));
  CHECK(woken == 3);
}

TEST_CASE("nccl: an error is thrown when the others have been told of it") {
  static std::atomic<int> asked;
  asked = 0;
  const Questions questions([]() -> const char* {
    const bool is_it = is_of_session && emulator::current_device().name == "test rank 1";
    return is_it && ++asked > 3 ? kFallen : nullptr;
  });
  std::atomic<bool> is_reported = false;
  std::atomic<int> thrown = 0, early = 0, told = 0;
  const auto tell = [&](const std::string&) {
    ++told;
    sleep_for(0.3);
    is_reported = true;
  };
  const std::string error = error_of({.ranks = 2, .on_failure = tell}, [&](const Communicator& world) {
    try {
      exchange_for_long(world);
    } catch (const Error&) {
      early += is_reported ? 0 : 1;
      ++thrown;
      throw;
    }
  });
  CHECK_THAT(error, ContainsSubstring(kFallen));
  CHECK(thrown == 2);
  CHECK(early == 0);
  CHECK(told == 1);  // the other rank's sentence comes from outside, and is nothing to tell
}

TEST_CASE("nccl: every thread of a rank has the rank's device") {
  static std::mutex mutex;
  static std::set<std::string> devices;
  devices.clear();
  const Questions questions([]() -> const char* {
    const std::lock_guard lock(mutex);
    if (is_of_session) devices.insert(emulator::current_device().name);
    return nullptr;
  });
  CHECK(error_of({.ranks = 2}, [](const Communicator& world) {
          const Tensor x = zeros_on(world, 4);
          for (int i = 0; i < 10; ++i) {
            world.all_reduce(x);
            sleep_for(0.02);
          }
          (void)x.to_vector();
        }) == "no error");
  CHECK(devices == std::set<std::string>{"test rank 0", "test rank 1"});
}

TEST_CASE("nccl: a GPU that never answers is a sentence, and keeps nobody from aborting") {
  static std::atomic<bool> is_released;
  static std::atomic<int> asked;
  is_released = false;
  asked = 0;
  const Questions questions([]() -> const char* {
    if (!is_of_session || emulator::current_device().name != "test rank 1" || ++asked < 3) return nullptr;
    for (int i = 0; i < 2000 && !is_released; ++i) sleep_for(0.01);
    return nullptr;
  });
  std::atomic<int> woken = 0;
  const auto begin = Clock::now();
  const std::string error = error_of({.ranks = 3, .timeout_seconds = 1}, [&](const Communicator& world) {
    try {
      exchange_for_long(world);
    } catch (const Error&) {
      if (++woken == 3) is_released = true;
      throw;
    }
  });
  CHECK(is_released);  // by ranks that have ended, one of them while its looker waited
  CHECK(seconds_since(begin) < 10);
  CHECK_THAT(error, ContainsSubstring("rank 1: all_reduce of 4 fp32, call ") &&
                        ContainsSubstring("of group world: the GPU has not answered within 1 s"));
}

TEST_CASE("nccl: a GPU that answers late is waited for until the time of a call is over") {
  static std::atomic<int> asked;
  static std::atomic<bool> has_answered;
  asked = 0;
  has_answered = false;
  const Questions questions([]() -> const char* {
    if (!is_of_session || emulator::current_device().name != "test rank 1" || ++asked != 1) return nullptr;
    sleep_for(1.5);
    has_answered = true;
    return nullptr;
  });
  CHECK(error_of({.ranks = 2}, [](const Communicator& world) {
          const Tensor x = zeros_on(world, 4);
          world.all_reduce(x);
          for (int i = 0; i < 2000 && !has_answered; ++i) sleep_for(0.01);
          world.all_reduce(x);
          (void)x.to_vector();
        }) == "no error");
  CHECK(has_answered);
}

TEST_CASE("nccl: a group is aborted while another one waits for ever") {
  for (const char* version : {"22809", "21805"}) {
    INFO(version);
    const EnvironmentVariable set("ISOBAR_NCCL_STAND_IN_VERSION", version);
    const auto begin = Clock::now();
    Alone alone;
    const std::string error = error_of({.ranks = 2, .timeout_seconds = 1}, [&](const Communicator& world) {
      const Communicator both = world.split(0, world.rank(), "both");
      const Tensor x = zeros_on(world, 4);
      alone.call(world, [&] {
        both.all_reduce(x);  // the abort of the world's communicator, the first one, would wait for it
        (void)x.to_vector();
        world.barrier();
      });
    });
    CHECK_THAT(error, ContainsSubstring("rank 0: all_reduce of 4 fp32, call 1 of group both has not ended within 1 s"));
    CHECK(seconds_since(begin) < 10);
  }
}

// What is kept of a call for the next one must not count as the next one's.
TEST_CASE("nccl: a run may last longer than one of its calls may") {
  constexpr double kTimeout = 1.5;
  const auto begin = Clock::now();
  CHECK(error_of({.ranks = 2, .timeout_seconds = kTimeout}, [&](const Communicator& world) {
          const Tensor x = zeros_on(world, 4);
          const Tensor is_over = Tensor::zeros({1}, DType::fp64, Device{});
          while (is_over.item() == 0) {
            world.all_reduce(x);
            sleep_for(0.05);  // the session's threads look at it, in its stream and when it has ended
            (void)x.to_vector();
            sleep_for(0.05);
            is_over.data_as<double>()[0] = seconds_since(begin) > 1.3 * kTimeout ? 1 : 0;
            world.all_reduce(is_over, Reduce::max);
          }
        }) == "no error");
}

TEST_CASE("nccl: a rank that works alone is waited for, and asked for once in the time of a call") {
  constexpr double kTimeout = 0.4;
  std::mutex mutex;
  std::vector<std::string> calls;  // that rank 0 has asked about
  std::vector<std::vector<int>> waiting;
  double waited = 0;
  std::atomic<bool> is_about_to_wait = false;  // rank 0
  const auto on_late = [&](int rank, const std::string& call, std::span<const int> members) -> std::string {
    const std::lock_guard lock(mutex);
    if (rank == 0) calls.push_back(call), waiting.emplace_back(members.begin(), members.end());
    return "";
  };
  CHECK(error_of({.ranks = 3, .timeout_seconds = kTimeout, .on_late = on_late}, [&](const Communicator& world) {
          const Communicator pair = world.split(world.rank() == 1 ? 1 : 0, world.rank(), "pair");
          const Tensor x = zeros_on(world, 4);
          if (world.rank() == 2) {
            while (!is_about_to_wait) sleep_for(0.001);
            sleep_for(1.2);
          }
          const auto begin = Clock::now();
          if (world.rank() == 0) is_about_to_wait = true;
          if (world.rank() != 1) pair.all_reduce(x);
          (void)x.to_vector();
          if (world.rank() == 0) waited = seconds_since(begin);
          world.barrier();
        }) == "no error");
  const std::lock_guard lock(mutex);
  REQUIRE(!calls.empty());
  CHECK(static_cast<double>(calls.size()) <= waited / kTimeout);
  for (const std::string& call : calls) CHECK(call == "all_reduce of 4 fp32, call 1 of group pair");
  for (const std::vector<int>& members : waiting) CHECK(members == std::vector<int>{0, 2});
}

TEST_CASE("nccl: what the others say of a call that is late, or of the run, ends it") {
  const std::string call = "all_reduce of 4 fp32, call 1 of group world";
  testing::NcclThreads options{.ranks = 2, .timeout_seconds = 60};
  SECTION("when its time is over") {
    options.timeout_seconds = 0.3;
    options.on_late = [&](int, const std::string& late, std::span<const int>) { return "nobody comes to " + late; };
  }
  SECTION("at any time, with the call that the rank is in") {
    options.watch = [&](int, const std::string& current) { return current == call ? "nobody comes to " + call : ""; };
  }
  Alone alone;
  std::string sentence;  // of rank 0; the other one may see no more than that it is gone
  (void)error_of(options, [&](const Communicator& world) {
    alone.call(world, [&] {
      try {
        const Tensor x = zeros_on(world, 4);
        world.all_reduce(x);
        (void)x.to_vector();
        world.barrier();
      } catch (const Error& error) {
        sentence = error.what();
        throw;
      }
    });
  });
  CHECK(sentence == "nobody comes to " + call);
}

TEST_CASE("nccl: a call that waits for another rank ends when the run fails") {
  const EnvironmentVariable connects("ISOBAR_NCCL_STAND_IN_CONNECTS", "1");  // in its first call, and waits there
  const auto begin = Clock::now();
  Alone alone;
  const std::string error = error_of({.ranks = 2, .timeout_seconds = 1}, [&](const Communicator& world) {
    alone.call(world, [&] { world.all_reduce(zeros_on(world, 4)); });
  });
  CHECK_THAT(error, ContainsSubstring("all_reduce of 4 fp32, call 1 of group world has not ended within 1 s"));
  CHECK(seconds_since(begin) < 10);
}

TEST_CASE("nccl: communicators that take their time start, split and end") {
  const EnvironmentVariable slow("ISOBAR_NCCL_STAND_IN_PROGRESS", "3000");
  CHECK(error_of({.ranks = 3}, [](const Communicator& world) {
          const Communicator all = world.split(0, -world.rank(), "all");
          Tensor x = zeros_on(world, 1);
          x.set_values({1});
          all.all_reduce(x);
          ISOBAR_CHECK(x.to_vector()[0] == 3, "the sum");
        }) == "no error");
}

TEST_CASE("nccl: what may not be registered is a sentence, and the world shares the memory of what it is split from") {
  const auto run_with = [](const char* limit) {
    const EnvironmentVariable registered("ISOBAR_NCCL_STAND_IN_REGISTERED", limit);
    return error_of({.ranks = 3}, [](const Communicator& world) { world.all_reduce(zeros_on(world, 4)); });
  };
  // Two boxes of 32 KiB a rank, and two of 16 KiB a peer: 128 KiB, once for each of the three ranks of this process.
  CHECK(run_with("393216") == "no error");
  CHECK_THAT(run_with("393215"),
             ContainsSubstring("the start of NCCL: NCCL: unhandled system error: ") &&
                 ContainsSubstring("cannot be registered beside 262144: the limit of locked memory"));
  CHECK(run_with("393216") == "no error");  // what was registered is not any more
}

TEST_CASE("nccl: a collective takes of the host no thread, no question and no sleep") {
  const EnvironmentVariable slow("ISOBAR_NCCL_STAND_IN_PROGRESS",
                                 "30");  // what is in progress lasts as long as NCCL's thread
  constexpr int kCalls = 300;
  static std::atomic<double> microseconds;
  nccl::stand_in::HostCounts counts{};
  CHECK(error_of({.ranks = 2}, [&](const Communicator& world) {
          const Tensor x = zeros_on(world, 4);
          world.barrier();
          if (world.rank() == 0) in_library<nccl::stand_in::ClearFunction>(nccl::stand_in::kClearName)();
          world.barrier();
          const auto begin = Clock::now();
          for (int i = 0; i < kCalls; ++i) world.all_reduce(x);
          if (world.rank() == 0) microseconds = seconds_since(begin) * 1e6 / kCalls;
          world.barrier();
          if (world.rank() == 0) counts = in_library<nccl::stand_in::HostFunction>(nccl::stand_in::kHostName)();
          world.barrier();
        }) == "no error");
  std::printf(
      "host time of a collective: %.1f us, of it in the library %.1f us; %llu answers \"in progress\", %llu "
      "threads\n",
      microseconds.load(), static_cast<double>(counts.nanoseconds) * 1e-3 / (2 * kCalls),
      static_cast<unsigned long long>(counts.in_progress), static_cast<unsigned long long>(counts.threads));
  CHECK(counts.calls >= 2 * kCalls);
  CHECK(counts.in_progress == 0);
  CHECK(counts.threads == 0);
}

}  // namespace isobar
