// Ranks as processes, over the stand-in for NCCL: the same mechanism as for threads, and ranks that are killed.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/api.h"
#include "tests/comm/verb_cases.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::Findings;

constexpr int kMost = 8;

// What the processes of a test share.
struct Shared {
  std::array<std::array<char, 600>, kMost> sentences{};
  std::atomic<int> arrived{0};
  nccl::UniqueId id{};

  static Shared& make() {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ISOBAR_CHECK(memory != MAP_FAILED, "no shared memory");
    return *new (memory) Shared;
  }
};

class Processes {
 public:
  using Body = std::function<void(const Communicator& world, Shared& shared)>;

  Processes(int ranks, double timeout, const Body& body, int started = kMost) : shared_(Shared::make()) {
    testing::use_stand_in();
    nccl::api().GetUniqueId(&shared_.id);
    for (int rank = 0; rank < std::min(ranks, started); ++rank) {
      const pid_t process = ::fork();
      ISOBAR_CHECK(process >= 0, "no process");
      if (process == 0) ::_exit(run(rank, ranks, timeout, body));
      processes_.push_back(process);
    }
  }
  ~Processes() {
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
    for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
    ::munmap(&shared_, sizeof shared_);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  Shared& shared() const { return shared_; }
  pid_t process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }
  std::string sentence(int rank) const { return shared_.sentences[static_cast<std::size_t>(rank)].data(); }

  // Whether it has ended within the time, and how: its exit status, 1000 + signal, or -1.
  int wait_for(int rank, double seconds) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    int status = 0;
    while (::waitpid(process(rank), &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  // The file of the world's shared memory.
  bool leaves_a_file() const {
    std::uint64_t id = 0;
    std::memcpy(&id, shared_.id.bytes + 8, sizeof id);
    char path[64];
    std::snprintf(path, sizeof path, "/dev/shm/isobar-nccl-%016llx", static_cast<unsigned long long>(id));
    return ::access(path, F_OK) == 0;
  }

 private:
  int run(int rank, int ranks, double timeout, const Body& body) {
    try {
      // Each process has device 0, told from others by host and rank.
      const NcclWorld nccl = start_nccl({.rank = rank,
                                         .ranks = ranks,
                                         .device = testing::emulator_of(0),
                                         .device_name = concat("host rank ", rank),
                                         .timeout_seconds = timeout,
                                         .id = {shared_.id.bytes, sizeof shared_.id.bytes}});
      const StreamScope scope(std::make_shared<gpu::OwnedStream>(testing::emulator_of(0)));
      body(nccl.world, shared_);
      return 0;
    } catch (const std::exception& error) {
      std::snprintf(shared_.sentences[static_cast<std::size_t>(rank)].data(), 600, "%s", error.what());
      return 1;
    }
  }

  Shared& shared_;
  std::vector<pid_t> processes_;
};

}  // namespace

TEST_CASE("nccl processes: every verb on four") {
  Processes four(4, 60, [](const Communicator& world, Shared&) {
    Findings findings;
    testing::check_verbs(world, testing::emulator_of(0), findings);
    const Communicator pair = world.split(world.rank() / 2, world.rank(), "pair");
    testing::check_verbs(pair, testing::emulator_of(0), findings);
    ISOBAR_CHECK(findings.wrong().empty(), findings.wrong());
  });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(four.wait_for(rank, 100) == 0);
    CHECK(four.sentence(rank) == "");
  }
  CHECK(!four.leaves_a_file());
}

TEST_CASE("nccl processes: when one is killed the others end with a sentence") {
  // Two that wait in a call on the host, and one whose work waits in a stream.
  Processes four(4, 60, [](const Communicator& world, Shared& shared) {
    const Tensor x = Tensor::zeros({1000}, DType::fp32, testing::emulator_of(0));
    for (int i = 0;; ++i) {
      world.all_reduce(x);
      if (i == 20) ++shared.arrived;
      if (i > 20 && world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(600));
      if (i % 3 == 0) (void)x.to_vector();
      if (i % 5 == 0) world.barrier();
    }
  });
  for (int i = 0; i < 6000 && four.shared().arrived < 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(four.shared().arrived == 4);
  ::kill(four.process(1), SIGKILL);  // nobody waits for it yet: it is a zombie until the end
  for (const int rank : {0, 2, 3}) {
    INFO("rank " << rank);
    CHECK(four.wait_for(rank, 30) == 1);
    CHECK_THAT(four.sentence(rank), ContainsSubstring("NCCL: a rank has failed or left"));
  }
  CHECK(!four.leaves_a_file());
}

TEST_CASE("nccl processes: a rank that never starts") {
  Processes two(
      3, 1, [](const Communicator&, Shared&) {}, 2);
  for (const int rank : {0, 1}) {
    CHECK(two.wait_for(rank, 30) == 1);
    CHECK_THAT(two.sentence(rank), ContainsSubstring("the start of NCCL"));
  }
  // The other one may see that this one is gone.
  const std::string late = "the start of NCCL: a rank has not come within 1 s";
  CHECK((two.sentence(0) == late || two.sentence(1) == late));
  CHECK(!two.leaves_a_file());
}

}  // namespace isobar
