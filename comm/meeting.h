// The rendezvous of a run's processes, and the connections that stay open between them: a star of TCP connections
// around rank 0.
//
// Rank 0 listens at a port. Every other rank connects. Both prove that they know the job's key (comm/challenge.h), and
// the rank describes itself (RankDescription). When all have connected, rank 0 compares the descriptions. It answers
// each rank: welcome, with a payload of rank 0 (such as NCCL's id), or the one sentence that says what is wrong. A
// connection that does not prove the key is dropped. Each costs a few bytes, and there are never more than some hundred
// of them.
//
// No tensors are sent here. The connections report what would otherwise leave ranks waiting. A closed connection is a
// dead rank. The first error of any rank is sent to all. When a rank's timeout in a collective has expired, rank 0 asks
// all ranks where they are, and names those that have not joined. A thread of each process listens, so that it answers
// while its rank computes. Rank 0 sends heartbeats, so that no router drops an idle connection. The system detects a
// host that has lost power, because the host does not answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/hosts.h"
#include "comm/sockets.h"
#include "comm/work.h"

namespace isobar {

// How a rank describes itself.
struct RankDescription {
  int rank = 0, ranks = 1;
  std::string host = {};
  std::string host_identity = {};                      // comm/hosts.h; empty: its name identifies the host
  std::int64_t process = 0;                            // process id on that host
  std::string version = {}, config = {}, layout = {};  // must be equal on all ranks
  std::string instructions = {};                       // instruction set in use; equal on all ranks, or empty
  bool compares_calls = false;                         // ISOBAR_COMM_CHECK; equal on all ranks
  std::string device = {};                             // that no other rank may use; empty: may be shared, as a CPU
  std::string failure = {};                            // a sentence: it connects only to report why it cannot go on
};

// Rank 0's port. It is open from the constructor on; connections are answered from the meeting on.
class MeetingPort {
 public:
  // address: of this host, by name or number; empty: all its addresses, IPv4 and IPv6. port 0: any free one; else the
  // first free one of `port` to `port + ports - 1`. Throws Error if the address is not this host's, or if all these
  // ports are taken.
  MeetingPort(std::string address, int port, int ports = 1);

  int port() const { return port_; }
  std::string text() const;  // "127.0.0.1:4711", "port 4711 of node1 (all its addresses)"

 private:
  friend class MeetingHub;
  std::string address_;
  int port_ = 0;
  Socket socket_;
};

// Where the other ranks look for rank 0.
struct MeetingPlace {
  std::vector<std::string> addresses = {};  // each is tried
  int port = 0, ports = 1;                  // and each of these
};

struct MeetingOptions {
  std::string key = {};          // of the job
  double timeout_seconds = 600;  // for all ranks to connect
  std::string payload = {};      // of rank 0
  // Called in a thread of the meeting if the run has failed and this process has not ended within `grace_seconds`. It
  // ends the process. The sentence is the error if this rank must report it, else empty.
  std::function<void(const std::string& sentence)> force_exit = {};
  double grace_seconds = 10;
  // Called in rank 0's thread of the meeting as soon as another rank has died, with the sentence: some launchers kill
  // all other ranks within 0.2 s. No rank has to report the error after that.
  std::function<void(const std::string& sentence)> report_death = {};
  // Called in rank 0's thread of the meeting, once for each work (comm/work.h) for which others have waited until their
  // timeout, with a sentence: "rank 0 is writing a checkpoint since 600 s: the others wait for it".
  std::function<void(const std::string& sentence)> report_work = {};
  double answer_seconds = 2;        // for a rank to answer where it is
  double identify_seconds = 5;      // for the other end of a connection to prove that it is of this job
  double late_seconds = 2;          // for later ranks to connect after something was found wrong
  std::string why_absent = {};      // why ranks may not connect, if known; rank 0 adds it to the error
  bool reporter_ends_all = false;   // the rank that reports a failure also ends the other processes
  bool reports_unreachable = true;  // this rank reports that it cannot reach rank 0: one rank per host does
  // Resolves names; tests count the calls.
  std::function<Addresses(const std::string& host)> resolve = addresses_of;
  double beat_seconds = 30;         // maximum time between messages of rank 0
  double unreachable_seconds = 60;  // without an answer of its system: the host is gone
};

// Thrown if the run has failed and another process reports why.
struct ErrorReportedByAnotherRank : std::exception {
  const char* what() const noexcept override { return "another process says why the run has failed"; }
};

class Meeting {
 public:
  // For rank 0. Returns when all ranks have connected. Throws Error if they do not match, or if some do not connect
  // within the timeout; the error names them.
  Meeting(RankDescription me, MeetingPort port, MeetingOptions options);
  // For any other rank; connects to rank 0. Throws ErrorReportedByAnotherRank if rank 0 reports what is wrong, and
  // Error if rank 0 cannot be reached.
  Meeting(RankDescription me, const MeetingPlace& place, MeetingOptions options);
  // Without leave() the other ranks treat this as the death of the rank.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const std::string& payload() const;  // rank 0's
  PlaceOnHost place_on_host() const;   // of this rank
  int hosts() const;                   // of the run

  // Whether the run has failed, and the first error of any rank: "rank 3: the disk is full". reports_error(): whether
  // this rank must report it (the first rank that still can); waits while another rank may be reporting it.
  bool has_failed() const;
  std::string failure() const;
  bool reports_error() const;

  // note_reported: this rank has reported the error, so that no other rank must. is_reported: this rank learns of a
  // report within `seconds`.
  void note_reported();
  bool is_reported(double seconds) const;
  // Waits at most `seconds` for the error to be reported. True: the rank that had to report it is gone, and this one
  // must.
  bool must_report(double seconds) const;

  // Sends an error of this rank to all ranks. Returns the first error of any rank. perhaps_another: a library reports
  // an error whose cause may be another rank. All ranks are then asked where they are, and one that does not answer is
  // named first.
  enum class Cause : std::uint8_t { own, perhaps_another };
  std::string fail(const std::string& sentence, Cause cause = Cause::own);

  // Sets where this rank is: "all_reduce of 4 fp32, call 2 of group dp"; empty: in no call.
  void set_place(const std::string& call);
  // Begin and end of a work that this rank does alone (comm/work.h).
  void begin_work(const std::string& what, double max_timeouts);
  void end_work();
  // This rank has waited for `seconds` in its current call, for other ranks of `members`. Fails the run and returns its
  // error, which names the ranks that have not joined. Empty if a rank works alone, or did so a moment ago: this rank
  // must then wait as long again.
  std::string report_timeout(std::span<const int> members, double seconds);

  // Ends a run without errors: returns when all ranks have called it. Throws Error if one has failed instead.
  void leave();

  struct Member;  // comm/meeting_member.h

 private:
  std::shared_ptr<Member> member_;
};

}  // namespace isobar
