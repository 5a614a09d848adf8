#include "comm/process_ranks.h"

#include <unistd.h>

#include <csignal>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/hmac.h"
#include "comm/hosts.h"
#include "comm/mpi_backend.h"
#include "comm/nccl/nccl_ranks.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"
#include "kernels/common/printable.h"
#include "kernels/common/sentence.h"

namespace isobar {
namespace {

// The meeting of this process, and its MPI if it has one, from run_process to the end of the process.
struct RunningProcess {
  const MpiPlugin* mpi;
  std::unique_ptr<Meeting> meeting;
};
std::optional<RunningProcess> running;
std::string met_at;  // of rank 0

// ---- Where to meet, sent over MPI -----------------------------------------------------------------------------------

// As it is sent.
struct PlaceMessage {
  std::array<char, 1024> addresses = {};  // separated by commas
  std::array<char, 80> key = {};
  int port = 0;
};

using HostIdentity = std::array<char, 128>;

std::string random_key() {
  std::string key;
  for (const char byte : random_bytes(32)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    key += kDigits[static_cast<unsigned char>(byte) >> 4];
    key += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return key;
}

// A call among all processes, before there is a meeting.
void call_all(const MpiPlugin& mpi, const Call& call, double seconds) {
  MpiRequest* request = nullptr;
  const char* wrong = mpi.begin(mpi.world(), &call, &request);
  ISOBAR_CHECK(wrong == nullptr, wrong);
  ISOBAR_CHECK(wait_for(mpi, request, seconds), "not all ranks have started within ", seconds, " s");
}

bool are_on_one_host(const MpiPlugin& mpi, double seconds) {
  HostIdentity mine = {};
  host_identity().copy(mine.data(), mine.size() - 1);
  const auto ranks = static_cast<std::size_t>(mpi.size(mpi.world()));
  std::vector<HostIdentity> all(ranks);
  const std::int64_t bytes = sizeof mine;
  const std::vector<std::int64_t> parts(ranks, bytes);
  call_all(
      mpi,
      {.verb = Verb::all_gather, .send = mine.data(), .receive = all.data(), .sends = {&bytes, 1}, .receives = parts},
      seconds);
  std::vector<std::string> identities;
  for (const HostIdentity& each : all) identities.emplace_back(each.data());
  return isobar::are_on_one_host(identities);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

std::unique_ptr<Meeting> meet_over_mpi(const MpiPlugin& mpi, RankDescription me, MeetingOptions options) {
  const bool is_local = are_on_one_host(mpi, options.timeout_seconds);
  PlaceMessage place;
  std::optional<MeetingPort> port;
  if (me.rank == 0) {
    const char* chosen = std::getenv("MASTER_ADDR");
    const std::vector<std::string> addresses = is_local            ? std::vector<std::string>{"127.0.0.1"}
                                               : chosen != nullptr ? std::vector<std::string>{chosen}
                                                                   : reachable_addresses();
    port.emplace(is_local ? "127.0.0.1" : "", 0);
    joined(addresses).copy(place.addresses.data(), place.addresses.size() - 1);
    random_key().copy(place.key.data(), place.key.size() - 1);
    place.port = port->port();
    met_at = port->text();
  }
  const std::int64_t bytes = sizeof place;
  call_all(mpi,
           {.verb = Verb::broadcast, .send = &place, .receive = &place, .sends = {&bytes, 1}, .receives = {&bytes, 1}},
           options.timeout_seconds);
  options.key = place.key.data();
  options.reporter_ends_all = true;
  if (port) return std::make_unique<Meeting>(std::move(me), std::move(*port), std::move(options));
  return std::make_unique<Meeting>(
      std::move(me), MeetingPlace{.addresses = split(place.addresses.data()), .port = place.port}, std::move(options));
}

// ---- Where to meet, from the launcher -------------------------------------------------------------------------------

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

// The address at which rank 0 listens; empty: all. The name by which the others know this host may resolve here to an
// address that only this host knows (Debian puts 127.0.1.1 into /etc/hosts), and other names and networks may lead here
// too. So rank 0 listens at all addresses.
std::string own_address(const Launch& launch) {
  if (is_loopback(launch.address)) return launch.address;
  return std::getenv("ISOBAR_INTERFACE") != nullptr ? reachable_addresses().front() : "";
}

std::unique_ptr<Meeting> meet_at(const Launch& launch, RankDescription me, MeetingOptions options) {
  options.key = launch.key;
  if (me.rank > 0) {
    const MeetingPlace place{.addresses = {launch.address}, .port = launch.port, .ports = launch.ports};
    return std::make_unique<Meeting>(std::move(me), place, std::move(options));
  }
  MeetingPort port(own_address(launch), launch.port, launch.ports);
  try {
    const MeetingPort probe(launch.address, 0);
  } catch (const Error& error) {  // the name may resolve differently on other hosts
    options.why_absent = error.what();
  }
  met_at = port.text();
  auto meeting = std::make_unique<Meeting>(std::move(me), std::move(port), std::move(options));
  if (meeting->hosts() > 1 && !launch.is_key_secret)
    print_line("the job's key is no secret: who can reach " + met_at +
               " could have taken a rank's place; set ISOBAR_JOB_KEY (docs/parallelism.md)");
  return meeting;
}

// mpirun does not set rank 0's address, but MPI can send it. NCCL needs no MPI if the variables have the address.
bool is_met_over_mpi(const Launch& launch, bool by_nccl) {
  const bool is_of_mpi = launch.launcher == Launcher::pmi || launch.launcher == Launcher::flux;
  return !by_nccl || launch.launcher == Launcher::open_mpi || (is_of_mpi && launch.address.empty());
}

// ---- NCCL -----------------------------------------------------------------------------------------------------------

// Rank 0's id, which the others receive at the meeting. An error of this rank's NCCL is sent to all there.
std::string id_for_meeting(const ProcessRanks& options, RankDescription& me) {
  try {
    check_nccl(options.device);
    me.version += " with NCCL " + nccl_version();
    return me.rank == 0 ? make_nccl_id() : "";
  } catch (const Error& error) {
    if (me.failure.empty()) me.failure = error.what();
    return "";
  }
}

NcclWorld start_nccl_at(Meeting& meeting, const ProcessRanks& options, const RankDescription& me) {
  // NCCL may notice that a rank is gone before the meeting has reported which one, and why.
  const auto fail_after_others = [&meeting](const std::string& why) {
    constexpr int kLooks = 300;
    for (int i = 0; i < kLooks && !meeting.has_failed(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    meeting.fail(why, Meeting::Cause::perhaps_another);
  };
  const auto watch = [&meeting](const std::string& call) {
    meeting.set_place(call);
    return meeting.has_failed() ? meeting.failure() : "";
  };
  const auto on_late = [&meeting, seconds = options.timeout_seconds](const std::string& call,
                                                                     std::span<const int> members) {
    meeting.set_place(call);
    return meeting.report_timeout(members, seconds);
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

// For a rank of a failed run that does not end by itself: it may wait for a disk, or be stopped.
void end_at_once(const std::string& sentence) {
  if (!sentence.empty()) print_line(sentence);
  _exit(1);
}

// Ends the process after `seconds`, unless the thread is destroyed before.
std::jthread end_after(double seconds, std::string sentence) {
  return std::jthread([seconds, sentence = std::move(sentence)](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
    if (!stop.stop_requested()) end_at_once(sentence);
  });
}

// MPI_Init waits for all ranks, without a timeout. At the timeout the first rank reports that, and ends the others; if
// rank 0 itself has not started, the next rank does.
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
  return {.begin = [&meeting](const std::string& what, double max_timeouts) { meeting.begin_work(what, max_timeouts); },
          .end = [&meeting] { meeting.end_work(); }};
}

// Sends an error to the other ranks before this rank's communicators are gone.
void call_and_report(const RankBody& body, const Communicator& world, const Launch& launch, Meeting& meeting) {
  try {
    body(world, launch);
  } catch (...) {
    meeting.fail(sentence_of_current_exception());
    throw;
  }
}

}  // namespace

void run_process(const ProcessRanks& given, const RankBody& body) {
  ProcessRanks options = given;
  Launch& launch = options.launch;
  check_can_start(launch, options.by_nccl);
  const MpiPlugin* mpi =
      is_met_over_mpi(launch, options.by_nccl) ? &start_mpi(launch, options.timeout_seconds) : nullptr;
  RankDescription me = options.me;
  me.rank = mpi != nullptr ? mpi->rank(mpi->world()) : launch.rank;
  me.ranks = launch.ranks;
  me.host = host_name();
  me.host_identity = host_identity();
  me.process = getpid();
  MeetingOptions meet{.timeout_seconds = options.timeout_seconds,
                      .force_exit = end_at_once,
                      .report_death = print_line,
                      .report_work = print_line,
                      .reports_unreachable = !launch.is_local_rank_known || launch.local_rank == 0};
  if (options.by_nccl) meet.payload = id_for_meeting(options, me);
  if (!running) running.emplace(RunningProcess{nullptr, nullptr});
  running->meeting = mpi != nullptr ? meet_over_mpi(*mpi, me, meet) : meet_at(launch, me, meet);
  Meeting& meeting = *running->meeting;
  try {
    if (!launch.is_local_rank_known) {
      launch.local_rank = meeting.place_on_host().local_rank;
      launch.local_ranks = meeting.place_on_host().local_ranks;
      if (options.find_device) options.device = options.find_device(launch);
    }
    if (options.by_nccl) {
      const Communicator world = start_nccl_at(meeting, options, me).world;
      world.set_work_listener(listener_of(meeting));
      call_and_report(body, world, launch, meeting);
    } else {
      const Communicator world(make_mpi_world(*mpi, meeting, options.timeout_seconds));
      world.set_work_listener(listener_of(meeting));
      body(world, launch);
    }
    meeting.leave();
  } catch (...) {
    const std::string first = meeting.fail(sentence_of_current_exception());
    if (meeting.reports_error()) throw_error(first);
    throw ErrorReportedByAnotherRank();
  }
  running.reset();
  if (mpi != nullptr) mpi->finish();
}

std::string describe_meeting() {
  if (!running || !running->meeting || met_at.empty()) return "";
  const int hosts = running->meeting->hosts();
  return concat("the ranks, on ", hosts, hosts == 1 ? " host" : " hosts", ", met at ", met_at);
}

bool is_running() {
  return running.has_value();
}

void end_process(int status, bool has_reported) {
  if (!running) return;
  // The reporting rank ends the others after its sentence is written. Without MPI each rank ends itself, and the
  // launcher may end all when the first has ended. From here on SIGTERM ends the process, whatever the program does
  // with it otherwise.
  constexpr double kSecondsToBeEnded = 15, kSecondsToTell = 12, kSecondsWithoutMeeting = 2;
  constexpr double kSecondsToPassOn = 2, kSecondsToAbort = 1;
  const bool has_mpi = running->mpi != nullptr;
  Meeting* meeting = running->meeting.get();
  const auto pause = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  std::signal(SIGTERM, SIG_DFL);
  if (meeting == nullptr && !has_reported) pause(has_mpi ? kSecondsToBeEnded : kSecondsWithoutMeeting);
  if (meeting != nullptr && !has_reported && meeting->must_report(has_mpi ? kSecondsToBeEnded : kSecondsToTell)) {
    print_line(meeting->failure());
    has_reported = true;
  }
  if (meeting != nullptr && has_reported) {
    meeting->note_reported();
    meeting->is_reported(kSecondsToPassOn);  // through rank 0's thread, if this is rank 0
  } else if (meeting != nullptr && has_mpi && meeting->is_reported(0)) {
    pause(kSecondsToAbort);
  }
  if (has_mpi) running->mpi->abort(status);
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace isobar
