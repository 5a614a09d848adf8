#include "comm/process_ranks.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mpi_backend.h"
#include "comm/nccl/nccl_ranks.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"
#include "kernels/common/printable.h"
#include "kernels/common/sentence.h"

namespace isobar {
namespace {

// The meeting of this process, and its MPI where it has one, from run_process until the process ends.
struct RunningProcess {
  const MpiPlugin* mpi;
  std::unique_ptr<Meeting> meeting;
};
std::optional<RunningProcess> running;

// ---- Where to meet, told over MPI -----------------------------------------------------------------------------------

struct MeetingPlace {
  std::array<char, 256> address = {};
  std::array<char, 40> key = {};
  int port = 0;
};

using HostName = std::array<char, 256>;

HostName this_host() {
  HostName name = {};
  host_name().copy(name.data(), name.size() - 1);
  return name;
}

std::string number_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool is_bridge(std::string_view interface) {
  constexpr std::array<std::string_view, 4> kOfThisHostOnly{"docker", "virbr", "veth", "br-"};
  return std::ranges::any_of(kOfThisHostOnly, [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

// An IPv4 address that other hosts can reach: the one that this host's name stands for, else that of the first network
// interface which leads to other hosts.
std::string reachable_address() {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return "127.0.0.1";
  std::vector<std::string> candidates;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0 || is_bridge(each->ifa_name)) continue;
    candidates.push_back(number_of(each->ifa_addr, sizeof(sockaddr_in)));
  }
  freeifaddrs(interfaces);
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_INET;
  std::string own;
  if (getaddrinfo(this_host().data(), nullptr, &hints, &found) == 0) {
    own = number_of(found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
  }
  if (std::ranges::find(candidates, own) != candidates.end()) return own;
  return candidates.empty() ? "127.0.0.1" : candidates.front();
}

std::string random_key() {
  std::random_device random;
  std::ostringstream key;
  for (int i = 0; i < 4; ++i) key << std::hex << std::setw(8) << std::setfill('0') << random();
  return key.str();
}

// A call among all processes while there is no meeting yet.
void call_all(const MpiPlugin& mpi, const Call& call, double seconds) {
  MpiRequest* request = nullptr;
  const char* wrong = mpi.begin(mpi.world(), &call, &request);
  ISOBAR_CHECK(wrong == nullptr, wrong);
  ISOBAR_CHECK(wait_for(mpi, request, seconds), "not all ranks have started within ", seconds, " s");
}

bool are_on_one_host(const MpiPlugin& mpi, double seconds) {
  const HostName mine = this_host();
  const auto ranks = static_cast<std::size_t>(mpi.size(mpi.world()));
  std::vector<HostName> all(ranks);
  const std::int64_t bytes = sizeof mine;
  const std::vector<std::int64_t> parts(ranks, bytes);
  call_all(
      mpi,
      {.verb = Verb::all_gather, .send = mine.data(), .receive = all.data(), .sends = {&bytes, 1}, .receives = parts},
      seconds);
  return std::ranges::all_of(all, [&](const HostName& name) { return name == mine; });
}

std::unique_ptr<Meeting> meet_over_mpi(const MpiPlugin& mpi, Attendee me, MeetingOptions options) {
  const bool is_local = are_on_one_host(mpi, options.timeout_seconds);
  MeetingPlace place;
  std::optional<MeetingPort> port;
  if (me.rank == 0) {
    const char* chosen = std::getenv("MASTER_ADDR");
    port.emplace(is_local ? "127.0.0.1" : chosen != nullptr ? chosen : reachable_address(), 0);
    port->address().copy(place.address.data(), place.address.size() - 1);
    random_key().copy(place.key.data(), place.key.size() - 1);
    place.port = port->port();
  }
  const std::int64_t bytes = sizeof place;
  call_all(mpi,
           {.verb = Verb::broadcast, .send = &place, .receive = &place, .sends = {&bytes, 1}, .receives = {&bytes, 1}},
           options.timeout_seconds);
  options.key = place.key.data();
  if (port) return std::make_unique<Meeting>(std::move(me), std::move(*port), std::move(options));
  return std::make_unique<Meeting>(std::move(me), place.address.data(), place.port, std::move(options));
}

// ---- Where to meet, as the launcher says it -------------------------------------------------------------------------

std::unique_ptr<Meeting> meet_at(const Launch& launch, Attendee me, MeetingOptions options) {
  options.key = launch.key;
  if (me.rank > 0) return std::make_unique<Meeting>(std::move(me), launch.address, launch.port, std::move(options));
  return std::make_unique<Meeting>(std::move(me), MeetingPort(launch.address, launch.port), std::move(options));
}

// mpirun says nothing of where rank 0 is; MPI does. NCCL needs no MPI where the variables say it.
bool is_met_over_mpi(const Launch& launch, bool by_nccl) {
  const bool is_of_mpi = launch.launcher == Launcher::pmi || launch.launcher == Launcher::flux;
  return !by_nccl || launch.launcher == Launcher::open_mpi || (is_of_mpi && launch.address.empty());
}

// ---- NCCL -----------------------------------------------------------------------------------------------------------

// Rank 0's id, which the others get at the meeting. What is wrong with this rank's NCCL is told to all there.
std::string id_for_meeting(const ProcessRanks& options, Attendee& me) {
  try {
    check_nccl(options.device);
    me.version += " with NCCL " + nccl_version();
    return me.rank == 0 ? make_nccl_id() : "";
  } catch (const Error& error) {
    if (me.failure.empty()) me.failure = error.what();
    return "";
  }
}

NcclWorld start_nccl_at(Meeting& meeting, const ProcessRanks& options, const Attendee& me) {
  // NCCL may find out that a rank is gone before the meeting has told which one, and why.
  const auto fail_after_others = [&meeting](const std::string& why) {
    constexpr int kLooks = 300;
    for (int i = 0; i < kLooks && !meeting.has_failed(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    meeting.fail(why);
  };
  const auto watch = [&meeting](const std::string& call) {
    meeting.set_place(call);
    return meeting.has_failed() ? meeting.failure() : "";
  };
  const auto on_late = [&meeting, seconds = options.timeout_seconds](const std::string& call,
                                                                     std::span<const int> members) {
    meeting.set_place(call);
    return meeting.time_is_over(members, seconds);
  };
  return start_nccl({.rank = me.rank,
                     .ranks = me.ranks,
                     .device = options.device,
                     .device_name = concat(me.host, " rank ", me.rank),
                     .timeout_seconds = options.timeout_seconds,
                     .id = meeting.payload(),
                     .watch = watch,
                     .on_late = on_late,
                     .on_failure = fail_after_others});
}

// ---- The run --------------------------------------------------------------------------------------------------------

// Where a rank of a run that has failed does not end of itself: it may wait for a disk, or be stopped.
void end_at_once(const std::string& sentence) {
  if (!sentence.empty()) tell(sentence);
  _exit(1);
}

// Ends the process when the time is over, unless the thread is destroyed before.
std::jthread end_after(double seconds, std::string sentence) {
  return std::jthread([seconds, sentence = std::move(sentence)](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
    if (!stop.stop_requested()) end_at_once(sentence);
  });
}

// MPI_Init, which waits for all ranks and knows no end. When the time is over the first rank says so, and ends the
// others; where it has not come itself the next does.
void start_in_time(const MpiPlugin& mpi, int rank, double seconds) {
  constexpr double kLater = 5;
  const std::jthread deadline =
      end_after(seconds + kLater * std::min(rank, 2),
                concat("rank ", rank, ": not all ranks have started MPI within ", seconds, " s"));
  const char* wrong = mpi.start();
  ISOBAR_CHECK(wrong == nullptr, wrong);
}

}  // namespace

void check_can_start(const Launch& launch, bool by_nccl) {
  if (!is_met_over_mpi(launch, by_nccl)) {
    ISOBAR_CHECK(!launch.address.empty(), launch.size_variable, " is ", launch.ranks, ", but ", launch.why_no_address,
                 ": set MASTER_ADDR to its host");
    return;
  }
  ISOBAR_CHECK(launch.launcher != Launcher::torchrun, launch.size_variable, " is ", launch.ranks,
               ": the backend mpi needs mpirun or srun --mpi=pmix to start the ranks");
  const MpiPlugin& mpi = load_mpi();
  const bool is_srun = launch.launcher == Launcher::slurm;
  const bool can_start = launch.launcher == Launcher::open_mpi || launch.launcher == Launcher::flux || launch.has_pmix;
  ISOBAR_CHECK(!mpi.is_open_mpi || can_start, launch.size_variable, " is ", launch.ranks,
               ": Open MPI cannot start under this ",
               is_srun ? "srun; use srun --mpi=pmix" : "launcher; use Open MPI's own mpirun, or srun --mpi=pmix");
}

namespace {

const MpiPlugin& start_mpi(const Launch& launch, double seconds) {
  const MpiPlugin& mpi = load_mpi();
  start_in_time(mpi, launch.rank, seconds);
  running.emplace(RunningProcess{&mpi, nullptr});
  const int ranks = mpi.size(mpi.world());
  ISOBAR_CHECK(ranks == launch.ranks, launch.size_variable, " is ", launch.ranks, ", but MPI has started ", ranks,
               " ranks: it is not the MPI of ", name_of(launch.launcher));
  return mpi;
}

WorkListener listener_of(Meeting& meeting) {
  return {
      .begin = [&meeting](const std::string& what, double most_timeouts) { meeting.begin_work(what, most_timeouts); },
      .end = [&meeting] { meeting.end_work(); }};
}

// The others hear of an error before this rank's communicators are gone.
void call_and_tell(const std::function<void(const Communicator& world)>& body, const Communicator& world,
                   Meeting& meeting) {
  try {
    body(world);
  } catch (...) {
    meeting.fail(sentence_of_current_exception());
    throw;
  }
}

}  // namespace

void run_process(const ProcessRanks& options, const std::function<void(const Communicator& world)>& body) {
  check_can_start(options.launch, options.by_nccl);
  const MpiPlugin* mpi =
      is_met_over_mpi(options.launch, options.by_nccl) ? &start_mpi(options.launch, options.timeout_seconds) : nullptr;
  Attendee me = options.me;
  me.rank = mpi != nullptr ? mpi->rank(mpi->world()) : options.launch.rank;
  me.ranks = options.launch.ranks;
  me.host = this_host().data();
  me.process = getpid();
  MeetingOptions meet{
      .timeout_seconds = options.timeout_seconds, .last_resort = end_at_once, .tell_death = tell, .tell_work = tell};
  if (options.by_nccl) meet.payload = id_for_meeting(options, me);
  if (!running) running.emplace(RunningProcess{nullptr, nullptr});
  running->meeting = mpi != nullptr ? meet_over_mpi(*mpi, me, meet) : meet_at(options.launch, me, meet);
  Meeting& meeting = *running->meeting;
  try {
    if (options.by_nccl) {
      const Communicator world = start_nccl_at(meeting, options, me).world;
      world.set_work_listener(listener_of(meeting));
      call_and_tell(body, world, meeting);
    } else {
      const Communicator world(make_mpi_world(*mpi, meeting, options.timeout_seconds));
      world.set_work_listener(listener_of(meeting));
      body(world);
    }
    meeting.leave();
  } catch (...) {
    const std::string first = meeting.fail(sentence_of_current_exception());
    if (meeting.is_teller()) throw_error(first);
    throw ToldElsewhere();
  }
  running.reset();
  if (mpi != nullptr) mpi->finish();
}

bool has_met() {
  return running.has_value();
}

void end_process(int status, bool has_told) {
  if (!running) return;
  // The one that tells ends the others, when the sentence is out. Without MPI each ends itself, and the launcher may
  // end all when the first has.
  constexpr int kSecondsToBeEnded = 15, kSecondsToTell = 2;
  const bool has_mpi = running->mpi != nullptr;
  if (!has_told) std::this_thread::sleep_for(std::chrono::seconds(has_mpi ? kSecondsToBeEnded : kSecondsToTell));
  if (has_mpi) running->mpi->abort(status);
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace isobar
