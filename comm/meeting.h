// Where the processes of a run meet, and what stays open between them: a star of TCP connections around rank 0.
//
// Rank 0 listens at a port. Every other rank connects; both show that they know the job's key (comm/challenge.h), and
// the rank says who it is (Attendee). When all have come, rank 0 compares them and answers each: welcome, with a
// payload of rank 0 (NCCL's id, say), or the one sentence that says what is wrong. Those who do not know the key are
// dropped, whatever they send: they cost a few bytes each, and there are never more than some hundred of them.
//
// No data travel here. The connections stay open for what else would leave the others waiting: a closed one is a dead
// rank, the first error of any rank is told to all, and when a rank's time is over in a collective, rank 0 asks
// everybody where they are and names who has not come. A thread of each process listens, so that it answers while its
// rank computes. Rank 0 says something now and then, so that nothing on the way takes the connections for unused, and a
// host that has lost its power is found by the system, which gets no answer.
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

// What a rank says of itself.
struct Attendee {
  int rank = 0, ranks = 1;
  std::string host = {};
  std::string host_identity = {};                      // comm/hosts.h; empty: told by its name
  std::int64_t process = 0;                            // its id there
  std::string version = {}, config = {}, layout = {};  // which must be the same on all ranks
  std::string instructions = {};                       // of the CPU that it computes with; the same on all, or empty
  bool compares_calls = false;                         // ISOBAR_COMM_CHECK; the same on all
  std::string device = {};   // which no other rank may have; empty: any number may, as of a CPU
  std::string failure = {};  // a sentence: it has come only to say why it cannot go on
};

// Rank 0's port, open from here on; nobody is answered before the meeting.
class MeetingPort {
 public:
  // address: of this host, by name or number; empty: every address that it has, IPv4 and IPv6. port 0: any that is
  // free; else the first of `port` to `port + ports - 1` that is. Throws Error where the address is not this host's,
  // and where these ports are taken.
  MeetingPort(std::string address, int port, int ports = 1);

  int port() const { return port_; }
  std::string text() const;  // "127.0.0.1:4711", "port 4711 of node1 (all its addresses)"

 private:
  friend class MeetingHub;
  std::string address_;
  int port_ = 0;
  Socket socket_;
};

// Where the other ranks look for it.
struct MeetingPlace {
  std::vector<std::string> addresses = {};  // each is tried
  int port = 0, ports = 1;                  // and each of these
};

struct MeetingOptions {
  std::string key = {};          // of the job
  double timeout_seconds = 600;  // that all have to come
  std::string payload = {};      // rank 0's
  // Called in a thread of the meeting where the run has failed and this process has not ended of itself within
  // `grace_seconds`; with the sentence if this rank is the one that tells it, else with an empty one. Ends the process.
  std::function<void(const std::string& sentence)> last_resort = {};
  double grace_seconds = 10;
  // Called in rank 0's thread of the meeting as soon as another rank has died, with the sentence: some launchers kill
  // all the others within a fifth of a second. No rank is the teller then.
  std::function<void(const std::string& sentence)> tell_death = {};
  // Called in rank 0's thread of the meeting, once for a work that others have waited for in vain, with a sentence:
  // "rank 0 is writing a checkpoint since 600 s: the others wait for it".
  std::function<void(const std::string& sentence)> tell_work = {};
  double answer_seconds = 2;      // in which a rank that is asked where it is must answer
  double identify_seconds = 5;    // in which who comes, or listens, must show that it is of this job
  double late_seconds = 2;        // that those have to come who come later than what is wrong
  std::string why_absent = {};    // what may keep ranks from coming, if anything: rank 0 says so where some have not
  bool teller_ends_all = false;   // who tells a failure ends the processes of the others too
  bool tells_unreachable = true;  // this rank says so where it cannot reach rank 0: one a host does
  // How names become addresses; tests count the questions.
  std::function<Addresses(const std::string& host)> resolve = addresses_of;
  double beat_seconds = 30;         // rank 0 says something at least so often
  double unreachable_seconds = 60;  // without an answer of its system: a host is gone
};

// Thrown where the run has failed, and another process tells the user why.
struct ToldElsewhere : std::exception {
  const char* what() const noexcept override { return "another process says why the run has failed"; }
};

class Meeting {
 public:
  // Rank 0. Returns when all have come. Throws Error where they do not fit together, and where some have not come
  // within the time, naming them.
  Meeting(Attendee me, MeetingPort port, MeetingOptions options);
  // Another rank, which goes to where rank 0 is. Throws ToldElsewhere where rank 0 knows what is wrong, and Error where
  // it cannot be reached.
  Meeting(Attendee me, const MeetingPlace& place, MeetingOptions options);
  // Without leave() the other ranks take it for a death.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const std::string& payload() const;  // rank 0's
  PlaceOnHost place_on_host() const;   // of this rank
  int hosts() const;                   // of all ranks

  // Whether the run has failed: the first error of any rank, "rank 3: the disk is full", and whether this rank is the
  // one to tell it (the first one that still can). is_teller() waits where another one may be telling it just now.
  bool has_failed() const;
  std::string failure() const;
  bool is_teller() const;

  // The user has been told: nobody has to wait for that any more. And whether this rank knows it within the seconds.
  void note_told();
  bool is_told(double seconds) const;
  // Waits until the user has been told, so long at most. True: whoever was to tell is gone, and it is this rank's turn.
  bool has_to_tell(double seconds) const;

  // Tells all ranks of an error of this one. Returns the first error of all. Another rank may be the cause of it, where
  // a library says so: all are asked where they are then, and who does not answer is named first.
  enum class Cause : std::uint8_t { own, perhaps_another };
  std::string fail(const std::string& sentence, Cause cause = Cause::own);

  // Where this rank is, from here on: "all_reduce of 4 fp32, call 2 of group dp"; empty: in no call.
  void set_place(const std::string& call);
  // This rank works alone (comm/work.h), from begin to end.
  void begin_work(const std::string& what, double most_timeouts);
  void end_work();
  // This rank has waited for `seconds` in the call that is its place, for others of `members` (ranks). The run has
  // failed then: returns its sentence, which names who has not come. Empty where a rank works alone, or has done so a
  // moment ago: this one has to wait as long again.
  std::string time_is_over(std::span<const int> members, double seconds);

  // All ranks' work is done well: returns when all have called it. Throws Error where one has failed instead.
  void leave();

  struct Member;  // comm/meeting_member.h

 private:
  std::shared_ptr<Member> member_;
};

}  // namespace isobar
