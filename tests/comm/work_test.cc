// Who works alone (comm/work.h), with ranks as threads: the others wait longer than their time for it.
#include "comm/work.h"

#include <barrier>
#include <chrono>
#include <optional>
#include <thread>

#include "comm/thread_ranks.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::Matches;

namespace {

void pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

TEST_CASE("work: the account knows what is done now, since when, and when it was last") {
  WorkAccount account;
  CHECK(account.now().what.empty());
  CHECK(!account.now().excuses(1e9));
  account.begin("writing", 3);
  account.begin("writing a part", kAnyTime);
  CHECK(account.now().what == "writing a part");
  CHECK(account.now().excuses(1e-9));
  account.end();
  CHECK(account.now().what == "writing");
  pause(0.02);
  const Work late = account.now();
  CHECK(late.seconds >= 0.02);
  CHECK(late.excuses(late.seconds / 2));
  CHECK(!late.excuses(late.seconds / 4));
  account.note_call(true);  // it waits itself: that is no work
  CHECK(account.now().what.empty());
  CHECK(account.now().excuses(60));
  pause(0.02);
  CHECK(!account.now().excuses(0.01));
  account.note_call(false);
  CHECK(account.now().what == "writing");
  CHECK(account.now().seconds < late.seconds);  // it begins anew behind each call
  account.end();
  CHECK(text_of_work(3, account.now()).empty());
  CHECK(text_of_work(3, late) == "; rank 3 is writing since 0 s");
}

TEST_CASE("work: when it is over the others may take their time again, as behind a long checkpoint") {
  WorkAccount account;
  account.begin("writing a checkpoint", 3);
  pause(0.02);
  account.end();
  const Work after = account.now();
  CHECK(after.what.empty());
  CHECK(after.excuses(60));
  CHECK(after.seconds_since_last < 60);
  pause(0.02);
  CHECK(!account.now().excuses(0.01));
  account.note_call(true);  // from one call to the next there is no work, and nothing is excused anew
  account.note_call(false);
  CHECK(!account.now().excuses(0.01));
  // Of work that ends while the rank waits itself, the time before that call counts.
  account.begin("reading", 3);
  account.note_call(true);
  pause(0.02);
  account.end();
  CHECK(!account.now().excuses(0.01));
  CHECK(account.now().excuses(60));
}

TEST_CASE("work: each has a number of its own, and of nested ones the innermost is told") {
  WorkAccount account;
  account.begin("writing", 3);
  const Work outer = account.now();
  CHECK(outer.max_timeouts == 3);
  account.begin("writing a part", 5);
  const Work inner = account.now();
  CHECK(inner.max_timeouts == 5);
  CHECK(inner.number != outer.number);
  account.end();
  CHECK(account.now().number == outer.number);
  account.end();
  account.begin("writing", 3);
  CHECK(account.now().number != outer.number);
  CHECK(account.now().number != inner.number);
  // The limit is that many times: at it, and not behind it.
  CHECK(Work{.what = "writing", .seconds = 2.9, .max_timeouts = 3}.excuses(1));
  CHECK(!Work{.what = "writing", .seconds = 3, .max_timeouts = 3}.excuses(1));
  CHECK(Work{.what = "writing", .seconds = 1e9}.excuses(1));
  CHECK(text_of_work(4, {.what = "reading", .seconds = 60.6}) == "; rank 4 is reading since 61 s");
}

TEST_CASE("work: ranks wait longer than their time for one that works alone") {
  run_ranks({.ranks = 3, .timeout_seconds = 0.2}, [](const Communicator& world) {
    if (world.rank() == 1) {
      const Working work(world, "reading all of it");
      pause(0.7);
      world.barrier();
      pause(0.5);
    }
    if (world.rank() != 1) world.barrier();
    world.barrier();
  });
}

TEST_CASE("work: without a word, and beyond its limit, a rank has not come") {
  const auto ended_by = [](double max_timeouts) -> std::string {
    try {
      run_ranks({.ranks = 2, .timeout_seconds = 0.1}, [&](const Communicator& world) {
        std::optional<Working> work;
        if (world.rank() == 0 && max_timeouts > 0) work.emplace(world, "writing a checkpoint", max_timeouts);
        if (world.rank() == 0) pause(0.8);
        world.barrier();
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(ended_by(0) == "rank 1: rank 0 has not come to barrier, call 1 of group world, within 0.1 s");
  CHECK_THAT(ended_by(3), Matches("rank 1: rank 0 has not come to barrier, call 1 of group world, within 0.1 s; rank 0 "
                                  "is writing a checkpoint since [0-9]+ s"));
  CHECK(ended_by(kAnyTime).empty());
}

TEST_CASE("work: all ranks that have not come are named, each with what it works at") {
  std::string sentence;
  std::barrier<> all(4);
  try {
    run_ranks({.ranks = 4, .timeout_seconds = 0.1}, [&](const Communicator& world) {
      std::optional<Working> work;
      if (world.rank() == 3) work.emplace(world, "writing a checkpoint", 2);
      all.arrive_and_wait();
      if (world.rank() > 0) pause(1);
      world.barrier();
    });
  } catch (const Error& error) {
    sentence = error.what();
  }
  CHECK_THAT(sentence, Matches("rank 0: ranks 1, 2, 3 have not come to barrier, call 1 of group world, within 0.1 s; "
                               "rank 3 is writing a checkpoint since [0-9]+ s"));
}
