// NCCL's backend on the library that stands in for NCCL: the verbs of all backends, and what is this backend's own.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/api.h"
#include "engine/stream.h"
#include "kernels/common/host_name.h"
#include "tests/comm/verb_cases.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::EnvironmentVariable;
using testing::Findings;
using testing::run_nccl;

testing::RunWorld with_streams(bool own) {
  return [own](int ranks, const testing::Body& body) { run_nccl({.ranks = ranks, .own_streams = own}, body); };
}

std::string error_of(int ranks, const testing::Body& body, double timeout = 60) {
  try {
    run_nccl({.ranks = ranks, .timeout_seconds = timeout}, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Tensor zeros_on(const Communicator& world, std::int64_t n, DType dtype = DType::fp32) {
  return Tensor::zeros({n}, dtype, testing::emulator_of(world.rank()));
}

}  // namespace

TEST_CASE("nccl: every verb, on 1 to 8 ranks, in every dtype") {
  CHECK(testing::wrong_verbs(with_streams(true), testing::emulator_of) == "");
}

TEST_CASE("nccl: every verb on the null stream") {
  Findings findings;
  with_streams(false)(
      4, [&](const Communicator& world) { testing::check_verbs(world, testing::emulator_of(world.rank()), findings); });
  CHECK(findings.wrong() == "");
}

TEST_CASE("nccl: every verb on tensors of the host") {
  Findings findings;
  with_streams(true)(3, [&](const Communicator& world) { testing::check_verbs(world, Device{}, findings); });
  CHECK(findings.wrong() == "");
}

TEST_CASE("nccl: a part in place at the beginning of the whole, on the host") {
  Findings findings;
  with_streams(true)(3, [&](const Communicator& world) {
    constexpr std::int64_t kEach = 100'000;  // more than what memory is rounded up to
    const Tensor all = Tensor::zeros({3 * kEach}, DType::fp32, Device{});
    Tensor mine = all.slice(world.rank() * kEach, {kEach});
    mine.set_values(std::vector<double>(kEach, world.rank() + 1.0));
    world.all_gather(mine, all);
    for (int r = 0; r < 3; ++r)
      findings.expect(all.to_vector()[static_cast<std::size_t>((r + 1) * kEach - 1)] == r + 1.0, "a rank's part");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("nccl: verbs that need more calls of NCCL's than a group may hold take several groups") {
  Findings findings;
  run_nccl({.ranks = 3, .max_grouped = 2}, [&](const Communicator& world) {
    testing::check_verbs(world, testing::emulator_of(world.rank()), findings);
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("nccl: groups are split by color and ordered by key") {
  CHECK(testing::wrong_splits(with_streams(true), testing::emulator_of) == "");
}

TEST_CASE("nccl: what is freed at once after a call is sent as it was") {
  Findings findings;
  run_nccl({.ranks = 2}, [&](const Communicator& world) {
    const Device device = testing::emulator_of(world.rank());
    const Tensor got = testing::unwritten(2000, DType::fp32, device);
    const int other = 1 - world.rank();
    world.send_receive(testing::tensor_of(testing::values(world.rank(), 2000), DType::fp32, device), other, got, other);
    const Tensor next = testing::tensor_of(std::vector<double>(2000, 99), DType::fp32, device);
    findings.expect_values(got, testing::values(other, 2000), "received");
    findings.expect_values(next, std::vector<double>(2000, 99), "memory of the next tensor");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("nccl: a result that nobody waited for is not there") {
  Findings findings;
  run_nccl({.ranks = 3}, [&](const Communicator& world) {
    const Device device = testing::emulator_of(world.rank());
    const Tensor all = zeros_on(world, 6), x = zeros_on(world, 1);
    const Tensor mine = testing::tensor_of({1.0 * world.rank(), 7}, DType::fp32, device);
    SideStream side(device);
    Pending gathered = side.run([&] { world.all_gather(mine, all); });
    const std::vector<double> early = all.to_vector();  // the current stream does not follow the side stream yet
    for (const std::size_t i : {1, 3, 5}) findings.expect(!(early[i] == 7), "a value that has not come");
    gathered.wait();
    findings.expect_values(all, {0, 7, 1, 7, 2, 7}, "after the wait");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("nccl: two groups at work on one device need the launch order") {
  const auto both = [](const Communicator& world) {
    const Communicator half = world.split(world.rank() % 2, world.rank(), "half");
    const Tensor x = zeros_on(world, 5), y = zeros_on(world, 5);
    SideStream side(testing::emulator_of(world.rank()));
    world.all_reduce(x);
    Pending sum = side.run([&] {});
    world.all_reduce(x);  // the side stream does not follow this one
    Pending beside = side.run([&] { half.all_reduce(y); });
    sum.wait();
    world.all_reduce(x);  // and this one does not follow the side stream
    beside.wait();
    (void)x.to_vector();
  };
  const auto check_may_overlap = [](const Communicator& world) { ISOBAR_CHECK(world.may_overlap(), "no overlap"); };
  CHECK(error_of(4, both) == "no error");
  CHECK(error_of(2, check_may_overlap) == "no error");
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  CHECK_THAT(error_of(4, both), ContainsSubstring("is at work on the same device, and nothing orders the two"));
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
}

TEST_CASE("nccl: calls that do not fit together are an error that names both ranks") {
  CHECK_THAT(error_of(3,
                      [&](const Communicator& w) {
                        w.all_reduce(zeros_on(w, w.rank() == 2 ? 5 : 4));
                        w.barrier();
                      }),
             ContainsSubstring("call 1: rank 0 calls all_reduce of 4 fp32, rank 2 all_reduce of 5 fp32") ||
                 ContainsSubstring("call 1: rank 1 calls all_reduce of 4 fp32, rank 2 all_reduce of 5 fp32"));
  CHECK_THAT(error_of(2,
                      [&](const Communicator& w) {
                        const testing::CountList to{1, 1}, from{1, w.rank() == 0 ? 2 : 1};
                        w.all_to_all(zeros_on(w, 2), to, zeros_on(w, w.rank() == 0 ? 3 : 2), from);
                        w.barrier();
                      }),
             ContainsSubstring("from rank 1 to rank 0: rank 1 makes a send of 1 fp32, rank 0 a receive of 2 fp32"));
  CHECK_THAT(error_of(2, [&](const Communicator& w) { w.broadcast_text("x", w.rank()); }),
             ContainsSubstring("broadcast of 8 int8 with root 1"));
}

TEST_CASE("nccl: a tensor on another device than the rank's, and a color below 0, are refused") {
  CHECK_THROWS_WITH(with_streams(false)(2,
                                        [](const Communicator& w) {
                                          const Device device = testing::emulator_of(w.rank() == 0 ? 0 : 2);
                                          w.all_reduce(Tensor::zeros({4}, DType::fp32, device));
                                          w.barrier();
                                        }),
                    ContainsSubstring("rank 1: all_reduce of 4 fp32, call 1 of group world: its buffers lie on "
                                      "emulator 2, and this rank's device is emulator 1"));
  CHECK_THAT(error_of(2, [](const Communicator& w) { w.split(w.rank() - 1, 0, "part"); }),
             ContainsSubstring("rank 0: a group is split by colors from 0 on, not -1"));
}

TEST_CASE("nccl: an error of one rank wakes all and is told once, with its rank") {
  std::atomic<int> woken = 0;
  const std::string error = error_of(4, [&](const Communicator& world) {
    try {
      world.barrier();  // in which others may be still when rank 2 has left it
      if (world.rank() == 2) throw_error("the disk is full");
      world.barrier();
    } catch (const Error&) {
      if (world.rank() != 2) ++woken;
      throw;
    }
  });
  CHECK(error == "rank 2: the disk is full");
  CHECK(woken == 3);
}

TEST_CASE("nccl: a rank that does not come ends the call when the time is over") {
  std::atomic<int> told = 0;
  const auto sentence_of = [&](double late, double timeout) -> std::string {
    const auto body = [late](const Communicator& world) {
      const Tensor x = zeros_on(world, 4);
      world.all_reduce(x);
      (void)x.to_vector();
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(late));
      world.all_reduce(x);
      (void)x.to_vector();
      world.barrier();
    };
    try {
      const auto count = [&](const std::string& why) { told += why.find("call 2 of group world") != why.npos ? 1 : 0; };
      run_nccl({.ranks = 3, .timeout_seconds = timeout, .on_failure = count}, body);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(sentence_of(0.3, 60) == "no error");
  CHECK(told == 0);
  CHECK_THAT(sentence_of(8, 2),
             ContainsSubstring("all_reduce of 4 fp32, call 2 of group world has not ended within 2 s: a rank has not "
                               "come to it"));
  CHECK(told >= 1);
}

TEST_CASE("nccl: a group may be split and may end before its calls have happened") {
  CHECK(error_of(
            4,
            [](const Communicator& world) {
              const Tensor x = testing::tensor_of({1}, DType::fp32, testing::emulator_of(world.rank()));
              world.all_reduce(x);
              world.split(world.rank() % 2, 0, "half").all_reduce(x);
              ISOBAR_CHECK(x.to_vector()[0] == 8, "the sum");
            },
            20) == "no error");
}

TEST_CASE("nccl: a garbled call is found") {
  ::setenv("ISOBAR_FAULT", "rank=1 call=2 do=garble", 1);
  CHECK_THAT(error_of(2,
                      [](const Communicator& w) {
                        for (int i = 0; i < 3; ++i) w.all_reduce(zeros_on(w, 4));
                        w.barrier();
                      }),
             ContainsSubstring("call 2: rank 0 calls all_reduce of 4 fp32, rank 1 all_reduce of 3 fp32"));
  ::unsetenv("ISOBAR_FAULT");
}

TEST_CASE("nccl: the library must fit the device") {
  testing::use_stand_in();
  CHECK_THROWS_WITH(start_nccl({.device = Device{}}), ContainsSubstring("NCCL is for GPUs, and the device is cpu"));
  // In a program with the virtual GPU it fits, and the id is looked at.
  const char* const sentence = nccl::api().serves_gpus ? "an id of NCCL has 128 bytes" : "is a stand-in for tests";
  CHECK_THROWS_WITH(start_nccl({.device = {DeviceKind::cuda}}), ContainsSubstring(sentence));
  for (const int rank : {-1, 2})
    CHECK_THROWS_WITH(start_nccl({.rank = rank, .ranks = 2}), ContainsSubstring(concat("rank ", rank, " of 2")));
}

TEST_CASE("nccl: an id that is not as long as NCCL's is refused") {
  testing::use_stand_in();
  const std::string id = make_nccl_id();
  for (const std::string& other : {std::string(), id.substr(1), id + "x"})
    CHECK_THROWS_WITH(start_nccl({.device = testing::emulator_of(0), .id = other}),
                      ContainsSubstring(concat("an id of NCCL has 128 bytes, and this one ", other.size())));
}

TEST_CASE("nccl: its versions are written as NVIDIA writes them") {
  CHECK(nccl::name_of_version(21805) == "2.18.5");
  CHECK(nccl::name_of_version(22812) == "2.28.12");
  CHECK(nccl::name_of_version(30000) == "3.0.0");
}

TEST_CASE("nccl: a line tells its version, its file, and the network by its own log or by NCCL_NET") {
  testing::use_stand_in();
  const EnvironmentVariable level("NCCL_DEBUG", nullptr), pattern("NCCL_DEBUG_FILE", nullptr);
  const EnvironmentVariable no_network("NCCL_NET", nullptr);
  const testing::TemporaryFolder folder;
  CHECK_THAT(nccl::api().file, ContainsSubstring("/libnccl.so.2"));
  const std::string begin = concat("NCCL 2.28.9 from ", nccl::api().file, ", network ");
  CHECK(describe_nccl() == begin + "not known here: NCCL_DEBUG=INFO lets NCCL write it into the run folder");
  const EnvironmentVariable network("NCCL_NET", "IB");
  CHECK(describe_nccl() == begin + "IB (NCCL_NET)");

  keep_nccl_log(folder / "run");  // there is no log
  CHECK(std::getenv("NCCL_DEBUG_FILE") == nullptr);
  CHECK(!std::filesystem::exists(folder / "run"));
  const EnvironmentVariable verbose("NCCL_DEBUG", "INFO");
  keep_nccl_log(folder / "run");
  CHECK(std::getenv("NCCL_DEBUG_FILE") == (folder / "run").string() + "/nccl.%h.%p");
  keep_nccl_log(folder / "other");  // where it goes already is the user's choice
  CHECK(std::getenv("NCCL_DEBUG_FILE") == (folder / "run").string() + "/nccl.%h.%p");
  CHECK(!std::filesystem::exists(folder / "other"));
  CHECK(describe_nccl() == begin + "IB (NCCL_NET)");
  std::ofstream(folder / "run" / concat("nccl.", host_name(), '.', ::getpid()))
      << "node1:7:7 [0] NCCL INFO Bootstrap: Using eth0\nnode1:7:7 [0] NCCL INFO Using network Socket\n";
  CHECK(describe_nccl() == begin + "Socket");
}

// For a library of another version: tests/CMakeLists.txt runs these with it.
TEST_CASE("nccl: a library that is too old is refused", "[.]") {
  testing::use_stand_in();
  CHECK_THROWS_WITH(nccl::api(), "NCCL 2.18 or later is needed, and libnccl.so.2 says that it is version 21799");
}
TEST_CASE("nccl: a library without an order of launches lets no groups overlap", "[.]") {
  testing::use_stand_in();
  CHECK(!nccl::api().orders_launches);
  CHECK_THAT(describe_nccl(),
             ContainsSubstring("NCCL 2.25.99 from ") &&
                 ContainsSubstring("; without an order of launches: groups on one GPU do not overlap"));
}

// For a library without the stand-in's hook, as NVIDIA's: tests/CMakeLists.txt makes one and runs this case with it.
TEST_CASE("nccl: a library that takes no emulator is for GPUs alone", "[.]") {
  CHECK(!nccl::api().is_stand_in);
  CHECK(nccl::api().serves_gpus);
  CHECK_THROWS_WITH(check_nccl(testing::emulator_of(0)), ContainsSubstring("is NVIDIA's own"));
  check_nccl({DeviceKind::cuda});
}

}  // namespace isobar
