#include "comm/mpi_backend.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "comm/call_numbers.h"
#include "comm/fit.h"
#include "comm/host_copies.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/cuda/runtime.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void check(const char* wrong) {
  ISOBAR_CHECK(wrong == nullptr, wrong);
}

// Time in which a call is polled without pauses, which keeps a core busy. A small call ends soon, and a large one makes
// progress only while it is polled.
double seconds_without_pause(const Call& call) {
  constexpr double kAtLeast = 2e-3, kBytesPerSecond = 2e8;
  return kAtLeast + static_cast<double>(call.payload()) / kBytesPerSecond;
}

// Polls until is_done(), or until look(), which is called now and then, returns true. Returns is_done().
bool poll_until(const std::function<bool()>& is_done, double seconds_without_pause, const std::function<bool()>& look) {
  constexpr int kPollsPerLook = 64;
  const Clock::time_point start = Clock::now();
  while (true) {
    for (int i = 0; i < kPollsPerLook; ++i) {
      if (is_done()) return true;
      sched_yield();  // ranks may share a core
    }
    if (look()) return false;
    if (std::chrono::duration<double>(Clock::now() - start).count() < seconds_without_pause) continue;
    for (int i = 0; i < kPollsPerLook; ++i) {
      if (is_done()) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

// Shared by all groups of a process.
struct MpiWorld {
  const MpiPlugin& mpi;
  Meeting& meeting;
  double timeout_seconds;
  bool compares;  // compares the ranks' calls
};

class MpiBackend : public Backend {
 public:
  MpiBackend(const MpiWorld& world, MpiGroup* group, std::vector<int> members)
      : world_(world), group_(group), members_(std::move(members)) {}

  int rank() const override { return world_.mpi.rank(group_); }
  int size() const override { return world_.mpi.size(group_); }
  bool has_failed() const override { return world_.meeting.has_failed(); }

  void run(const Call& call, const std::string& what) override {
    ISOBAR_CHECK(!is_reduced(call) || call.dtype, to_text(call), ": bytes have no sum");
    if (world_.compares) compare(call, what);
    gpu::synchronize(call.device, call.stream);
    if (call.device.kind != DeviceKind::cuda) return run_on_host(call, what);
    const HostCopies copies(call);
    run_on_host(copies.call(), what);
    copies.bring_back();
  }

  std::unique_ptr<Backend> split(int color, int key) override {
    const std::array<std::int64_t, 2> mine{color, key};
    std::vector<std::array<std::int64_t, 2>> choices(static_cast<std::size_t>(size()));
    gather(mine.data(), choices.data(), sizeof mine, "the split of a group");
    std::vector<std::pair<std::int64_t, int>> chosen;  // key, rank of this group
    for (int r = 0; r < size(); ++r)
      if (choices[static_cast<std::size_t>(r)][0] == color)
        chosen.emplace_back(choices[static_cast<std::size_t>(r)][1], r);
    std::ranges::sort(chosen);
    std::vector<int> members;
    for (const auto& [its_key, r] : chosen) members.push_back(members_[static_cast<std::size_t>(r)]);
    MpiGroup* part = nullptr;
    check(world_.mpi.split(group_, color, key, &part));
    return std::make_unique<MpiBackend>(world_, part, std::move(members));
  }

 private:
  static bool is_reduced(const Call& call) {
    return call.verb == Verb::all_reduce || call.verb == Verb::reduce_scatter;
  }

  void run_on_host(const Call& call, const std::string& what) {
    if (is_reduced(call) && is_16_bit(*call.dtype)) return run_in_fp32(call, what);
    world_.meeting.set_place(concat(to_text(call), ", ", what));
    throw_if_failed();
    MpiRequest* request = nullptr;
    check(world_.mpi.begin(group_, &call, &request));
    wait(request, call);
    world_.meeting.set_place("");
  }

  void throw_if_failed() const { ISOBAR_CHECK(!has_failed(), world_.meeting.failure()); }

  // A request that does not finish is not freed: the process ends.
  void wait(MpiRequest* request, const Call& call) {
    bool is_done = false;
    const auto test = [&] {
      check(world_.mpi.test(request, &is_done));
      return is_done;
    };
    Clock::time_point start = Clock::now();
    const auto look = [&] {
      throw_if_failed();
      return std::chrono::duration<double>(Clock::now() - start).count() > world_.timeout_seconds;
    };
    while (!poll_until(test, seconds_without_pause(call), look)) {
      const std::string sentence = world_.meeting.report_timeout(members_, world_.timeout_seconds);
      ISOBAR_CHECK(sentence.empty(), sentence);
      start = Clock::now();
    }
  }

  // Sums of 16-bit elements are computed in fp32 and rounded once, as by the kernels.
  void run_in_fp32(const Call& call, const std::string& what) {
    std::vector<float> send(static_cast<std::size_t>(call.sent())), receive;
    visit_any(*call.dtype, [&]<class T>(Type<T>) {
      const T* x = static_cast<const T*>(call.send);
      for (std::size_t i = 0; i < send.size(); ++i) send[i] = static_cast<float>(x[i]);
    });
    const bool in_place = call.verb == Verb::all_reduce;
    if (!in_place) receive.resize(static_cast<std::size_t>(call.received()));
    std::vector<float>& result = in_place ? send : receive;
    Call wide = call;
    wide.dtype = DType::fp32;
    wide.send = send.data();
    wide.receive = result.data();
    run_on_host(wide, what);
    visit_any(*call.dtype, [&]<class T>(Type<T>) {
      T* y = static_cast<T*>(call.receive);
      for (std::size_t i = 0; i < result.size(); ++i) y[i] = static_cast<T>(result[i]);
    });
  }

  // Gathers bytes of every rank.
  void gather(const void* mine, void* all, std::int64_t bytes, const std::string& what) {
    const std::vector<std::int64_t> parts(static_cast<std::size_t>(size()), bytes);
    run_on_host({.verb = Verb::all_gather, .send = mine, .receive = all, .sends = {&bytes, 1}, .receives = parts},
                what);
  }

  void compare(const Call& call, const std::string& what) {
    const std::vector<std::int64_t> mine = numbers_of(call, size());
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(size()));
    gather(mine.data(), all.data(), static_cast<std::int64_t>(mine.size() * sizeof mine[0]), what);
    std::vector<Call> calls;
    for (std::size_t at = 0; at < all.size(); at += mine.size())
      calls.push_back(call_in(std::span(all).subspan(at, mine.size()), size(), members_[at / mine.size()]));
    std::vector<const Call*> pointers;
    for (const Call& its : calls) pointers.push_back(&its);
    const std::string wrong = find_mismatch(pointers, members_, what);
    ISOBAR_CHECK(wrong.empty(), wrong);
  }

  const MpiWorld world_;
  MpiGroup* group_;
  std::vector<int> members_;  // the ranks' numbers in the world
};

void* open_plugin() {
  if (const char* chosen = std::getenv("ISOBAR_MPI_PLUGIN")) {
    void* handle = dlopen(chosen, RTLD_NOW | RTLD_GLOBAL);
    ISOBAR_CHECK(handle != nullptr, "ISOBAR_MPI_PLUGIN: ", dlerror());
    return handle;
  }
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& folder : {program, program / ".." / "lib"}) {
    const fs::path file = folder / kMpiPluginFile;
    if (!fs::exists(file, ignored)) continue;
    // Global, because MPI loads parts of itself that look up symbols in the libraries already loaded.
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    ISOBAR_CHECK(handle != nullptr, "MPI cannot be loaded: ", dlerror());
    return handle;
  }
  throw_error("the backend mpi: this isobar was built without MPI (there is no ", kMpiPluginFile,
              " beside the program)");
}

}  // namespace

const MpiPlugin& load_mpi() {
  static const MpiPlugin& loaded = []() -> const MpiPlugin& {
    void* handle = open_plugin();
    const auto plugin = reinterpret_cast<const MpiPlugin* (*)()>(dlsym(handle, kMpiPluginFunction));
    ISOBAR_CHECK(plugin != nullptr && plugin()->version == kMpiPluginVersion, kMpiPluginFile,
                 " is of another isobar than this program");
    return *plugin();
  }();
  return loaded;
}

bool compares_calls() {
  const char* value = std::getenv("ISOBAR_COMM_CHECK");
  return value != nullptr && std::string_view(value) == "1";
}

bool wait_for(const MpiPlugin& mpi, MpiRequest* request, double seconds) {
  bool is_done = false;
  const Clock::time_point start = Clock::now();
  return poll_until(
      [&] {
        check(mpi.test(request, &is_done));
        return is_done;
      },
      0, [&] { return std::chrono::duration<double>(Clock::now() - start).count() > seconds; });
}

std::unique_ptr<Backend> make_mpi_world(const MpiPlugin& mpi, Meeting& meeting, double timeout_seconds) {
  std::vector<int> members(static_cast<std::size_t>(mpi.size(mpi.world())));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<MpiBackend>(MpiWorld{mpi, meeting, timeout_seconds, compares_calls()}, mpi.world(),
                                      std::move(members));
}

}  // namespace isobar
