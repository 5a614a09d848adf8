// Checkpoint folders are whole or not there: whatever is killed, damaged, removed or too full, a reader gets a whole
// one or is told.
#include "engine/files/checkpoint.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "engine/files/atomic_file.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/watched_disk.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;
using testing::ContainsSubstring;
using testing::DiskCall;
using testing::TemporaryFolder;
using testing::WatchedDisk;

const std::vector<std::string> kFiles{"model.safetensors", "optimizer.safetensors", "state.json"};

// Three files that all tell which save they belong to.
CheckpointStore::WriteFiles files_of(int save) {
  return [save](const fs::path& folder) {
    for (const std::string& name : kFiles) {
      std::ofstream(folder / name) << name << " of save " << save << std::string(300, 'x');
    }
  };
}

// The save that a checkpoint's files belong to; they must all agree.
int save_in(const fs::path& folder) {
  std::set<int> saves;
  for (const std::string& name : kFiles) {
    const std::string contents = read_file(folder / name);
    const std::string start = name + " of save ";
    REQUIRE(contents.starts_with(start));
    saves.insert(std::stoi(contents.substr(start.size())));
  }
  REQUIRE(saves.size() == 1);
  return *saves.begin();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Runs `work` in a child process and returns its status as waitpid() gives it.
template <class Work>
int in_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("the newest checkpoints are kept and found", "[checkpoint]") {
  const TemporaryFolder run;
  CHECK_FALSE(find_newest_whole(run.path()).checkpoint);
  CHECK_THROWS_WITH(find_best(run.path()), ContainsSubstring((run / "best").string()));

  CheckpointStore store(run.path(), 2);
  for (const int step : {10, 20, 100, 30}) store.save(step, files_of(step));
  // 100 was saved before 30: it belongs to a future that is being written again, and is not counted.
  CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step_00000020", "step_00000030", "step_00000100"});
  const FoundCheckpoint found = find_newest_whole(run.path());
  REQUIRE(found.checkpoint);
  CHECK(found.checkpoint->step == 100);
  CHECK(found.checkpoint->folder == run / "checkpoints/step_00000100");
  CHECK(found.skipped.empty());
  CHECK(save_in(found.checkpoint->folder) == 100);
  CHECK(names_in(found.checkpoint->folder) ==
        std::vector<std::string>{"checksums.xxh64", "model.safetensors", "optimizer.safetensors", "state.json"});

  CheckpointStore keeps_all(run.path(), 0);
  keeps_all.save(200, files_of(200));
  CHECK(names_in(run / "checkpoints").size() == 4);
  CHECK_THROWS_AS(CheckpointStore(run.path(), -1), Error);
}

TEST_CASE("checkpoints with Megatron-LM's names, and the file that names the newest", "[checkpoint]") {
  const TemporaryFolder run;
  const fs::path tracker = run / kTrackerFile;
  CheckpointStore store(run.path(), 2, CheckpointNames::megatron);
  const auto found = [&] { return find_newest_whole(run.path()).checkpoint->step; };
  for (const int step : {10, 20, 30}) {
    store.save(step, files_of(step));
    CHECK(read_file(tracker) == std::to_string(step));
  }
  CHECK(names_in(run.path()) == std::vector<std::string>{"iter_0000020", "iter_0000030", kTrackerFile});
  CHECK(find_newest_whole(run.path()).checkpoint->folder == run / "iter_0000030");
  CHECK(checkpoint_folder(run.path(), 30) == run / "iter_0000030");
  CHECK(checkpoint_folder(run.path(), 40) == run / "checkpoints/step_00000040");  // there is none

  // Who goes back to an earlier iteration writes it into the file, as people do there.
  std::ofstream(tracker) << "20\n";
  CHECK(found() == 20);
  std::ofstream(tracker) << "20 \t\r\n";
  CHECK(found() == 20);
  for (const char* none : {"release", "", " \n", "2x", "-20", "20 30"}) {  // these name no iteration
    std::ofstream(tracker) << none;
    INFO(none);
    CHECK(found() == 30);
  }
  std::ofstream(tracker) << std::string(65, '1');
  CHECK_THROWS_WITH(found(), tracker.string() + ": has more than 64 bytes, too many for what it should be");
  // Killed before its first checkpoint was named.
  fs::remove(tracker);
  CHECK(found() == 30);
  // A later part of the run may have isobar's names.
  CheckpointStore(run.path(), 2).save(40, files_of(40));
  CHECK(found() == 40);
  CHECK(names_in(run.path()) == std::vector<std::string>{"checkpoints", "iter_0000030"});
}

TEST_CASE("a checkpoint of the same step and the best one are replaced", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 3);
  WatchedDisk disk;
  disk.can_exchange = GENERATE(true, false);
  for (const int save : {1, 2, 3}) {
    store.save(7, files_of(save));
    store.save_best(files_of(save + 10));
    CHECK(save_in(find_newest_whole(run.path()).checkpoint->folder) == save);
    CHECK(save_in(find_best(run.path())) == save + 10);
  }
  CHECK(names_in(run.path()) == std::vector<std::string>{"best", "checkpoints"});
  CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step_00000007"});
}

TEST_CASE("a damaged checkpoint is never found, and named", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 3);
  store.save(1, files_of(1));
  store.save(2, files_of(2));
  store.save_best(files_of(3));
  const fs::path newest = run / "checkpoints/step_00000002";
  const auto check_skipped = [&](const std::string& file) {
    const FoundCheckpoint found = find_newest_whole(run.path());
    REQUIRE(found.checkpoint);
    CHECK(found.checkpoint->step == 1);
    REQUIRE(found.skipped.size() == 1);
    CHECK_THAT(found.skipped[0], ContainsSubstring(newest.string()) && ContainsSubstring(file));
    CHECK(found.skipped[0].find('\n') == std::string::npos);
  };

  for (const std::string& name : names_in(newest)) {
    INFO(name);
    const std::string whole = read_file(newest / name);
    for (std::size_t at = 0; at < whole.size(); at += name == "checksums.xxh64" ? 1 : 37) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      std::ofstream(newest / name) << flipped;
      check_skipped(name);
    }
    for (const std::size_t length : {whole.size() - 1, whole.size() / 2, whole.find('\n') + 1, std::size_t{0}}) {
      std::ofstream(newest / name) << whole.substr(0, length);
      if (length < whole.size()) check_skipped(name);
    }
    std::ofstream(newest / name) << whole << "x";
    check_skipped(name);
    fs::remove(newest / name);
    check_skipped(name);
    fs::create_directory(newest / name);
    check_skipped(name);
    fs::remove(newest / name);
    std::ofstream(newest / name) << whole;
    REQUIRE(find_newest_whole(run.path()).checkpoint->step == 2);
  }

  std::ofstream(newest / "notes.txt") << "somebody's own file does no harm";
  CHECK(find_newest_whole(run.path()).checkpoint->step == 2);
  fs::remove_all(newest);
  std::ofstream(newest) << "a file where a folder should be";
  check_skipped("not a folder");

  fs::remove(run / "checkpoints/step_00000001/state.json");
  const FoundCheckpoint none = find_newest_whole(run.path());
  CHECK_FALSE(none.checkpoint);
  CHECK(none.skipped == std::vector<std::string>{newest.string() + ": is damaged (it is not a folder), skipped",
                                                 (run / "checkpoints/step_00000001").string() +
                                                     ": is damaged (state.json is missing), skipped"});

  std::ofstream(run / "best/model.safetensors", std::ios::app) << "x";
  CHECK_THROWS_WITH(find_best(run.path()),
                    (run / "best").string() + ": is damaged (model.safetensors does not agree with its checksum)");
}

TEST_CASE("a writer that fails leaves what was there", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 1);
  store.save(1, files_of(1));
  store.save_best(files_of(1));
  const auto check_untouched = [&] {
    CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step_00000001"});
    CHECK(names_in(run.path()) == std::vector<std::string>{"best", "checkpoints"});
    CHECK(save_in(find_newest_whole(run.path()).checkpoint->folder) == 1);
    CHECK(save_in(find_best(run.path())) == 1);
  };
  const auto fails = [](const fs::path& folder) {
    std::ofstream(folder / "model.safetensors") << "half";
    throw_error("the writer gave up");
  };
  CHECK_THROWS_WITH(store.save(2, fails), ContainsSubstring("the writer gave up"));
  CHECK_THROWS_WITH(store.save_best(fails), ContainsSubstring("the writer gave up"));
  check_untouched();

  const auto large = [](const fs::path& folder) {
    write_file_atomically(folder / "model.safetensors", std::string(5000, 'x'));
  };
  {
    const testing::FileSizeLimit full(1000);
    CHECK_THROWS_WITH(store.save(2, large), ContainsSubstring("model.safetensors: cannot be written"));
    CHECK_THROWS_WITH(store.save_best(large), ContainsSubstring("model.safetensors: cannot be written"));
  }
  check_untouched();
}

TEST_CASE("a writer killed between any two changes on the disk loses nothing", "[checkpoint]") {
  const bool exchange = GENERATE(true, false);
  const bool same_step = GENERATE(true, false);
  std::set<std::string> seen;
  for (int kill_at = 0;; ++kill_at) {
    const TemporaryFolder run;
    {
      CheckpointStore store(run.path(), 1);
      store.save(1, files_of(1));
      store.save_best(files_of(1));
    }
    // The child saves step 2 (or step 1 again) and the best, and is killed after the kill_at-th change of these.
    const fs::path log = run / "changes";
    const int status = in_child([&] {
      CheckpointStore store(run.path(), 1);
      WatchedDisk disk;
      disk.can_exchange = exchange;
      int changes = 0;
      disk.after = [&](const DiskCall& call) {
        if (!call.has_changed) return;
        std::ofstream(log, std::ios::app) << call.text() << '\n';
        if (changes++ == kill_at) ::kill(::getpid(), SIGKILL);
      };
      store.save(same_step ? 1 : 2, files_of(2));
      store.save_best(files_of(2));
    });
    std::ifstream changes(log);
    std::string last;
    for (std::string text; std::getline(changes, text); last = text) seen.insert(text);
    fs::remove(log);
    if (last == "rename .deleting_step_00000001") CHECK_FALSE(fs::exists(run / "checkpoints/step_00000001"));

    const FoundCheckpoint found = find_newest_whole(run.path());
    REQUIRE(found.checkpoint);
    CHECK(found.skipped.empty());
    const int saved = save_in(found.checkpoint->folder);
    const int best = save_in(find_best(run.path()));
    CHECK((saved == 1 || saved == 2));
    CHECK(best <= saved);

    CheckpointStore reopened(run.path(), 1);
    CHECK(save_in(find_newest_whole(run.path()).checkpoint->folder) == saved);
    CHECK(save_in(find_best(run.path())) == best);
    CHECK(names_in(run.path()) == std::vector<std::string>{"best", "checkpoints"});
    for (const std::string& name : names_in(run / "checkpoints")) CHECK(name.starts_with("step_"));
    reopened.save(3, files_of(3));
    CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step_00000003"});
    if (!WIFSIGNALED(status)) {
      CHECK(saved == 2);
      CHECK(best == 2);
      break;
    }
  }
  for (const std::string text : {"mkdir .writing_best", "fsync", "unlink state.json"}) CHECK(seen.count(text) == 1);
  CHECK(seen.count("renameat2 best") == (exchange ? 1 : 0));
  CHECK(seen.count("rename .aside_best") == (exchange ? 0 : 1));
  CHECK(seen.count("rename .deleting_step_00000001") == (same_step ? 0 : 1));
}

TEST_CASE("every file of a checkpoint is on the disk before the folder has its name", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 1);
  std::set<ino_t> flushed, unflushed;
  int moves = 0;
  WatchedDisk disk;
  disk.after = [&](const DiskCall& call) {
    if (call.name == "fsync") flushed.insert(call.file);
    if (!call.is_move() || call.held.empty()) return;
    ++moves;
    for (const ino_t file : call.held)
      if (!flushed.contains(file)) unflushed.insert(file);
    if (!flushed.contains(call.file)) unflushed.insert(call.file);
  };
  store.save(1, files_of(1));
  store.save_best(files_of(1));
  CHECK(moves == 2);
  CHECK(flushed.size() >= 2 * (kFiles.size() + 2));  // the checksums too, and the folder
  CHECK(unflushed.empty());
}

TEST_CASE("only what a store makes is removed from a run's folder", "[checkpoint]") {
  const TemporaryFolder run;
  const std::vector<std::string> others{".aside_notes",
                                        ".deleting_soon",
                                        ".writing_novel",
                                        "checkpoints/.writing_step",
                                        "checkpoints/.deleting_step_x",
                                        "checkpoints/.aside_draft",
                                        "novel"};
  for (const std::string& name : others) {
    fs::create_directories(run / name);
    std::ofstream(run / name / "chapter") << "x";
  }
  fs::create_directories(run / ".writing_best");
  fs::create_directories(run / "checkpoints/.deleting_step_00000001");
  fs::create_directory_symlink(run / "novel", run / ".deleting_best");
  CheckpointStore store(run.path(), 1);
  store.save(1, files_of(1));
  for (const std::string& name : others) CHECK(fs::exists(run / name / "chapter"));
  for (const std::string name : {".writing_best", ".deleting_best", "checkpoints/.deleting_step_00000001"})
    CHECK_FALSE(fs::exists(fs::symlink_status(run / name)));
}

TEST_CASE("a checkpoint that was moved aside is found, and back in its place when the store is opened",
          "[checkpoint]") {
  const TemporaryFolder run;
  { CheckpointStore(run.path(), 1).save(7, files_of(7)); }
  fs::rename(run / "checkpoints/step_00000007", run / "checkpoints/.aside_step_00000007");
  REQUIRE(find_newest_whole(run.path()).checkpoint->step == 7);
  const CheckpointStore store(run.path(), 1);
  CHECK(checkpoint_folder(run.path(), 7) == run / "checkpoints/step_00000007");
  CHECK(save_in(checkpoint_folder(run.path(), 7)) == 7);
}

TEST_CASE("one checkpoint too many is pruned, and any number may be kept", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore all(run.path(), std::int64_t{1} << 32 | 1);
  for (const int step : {1, 2, 3, 4}) all.save(step, files_of(step));
  CHECK(names_in(run / "checkpoints").size() == 4);
  CheckpointStore two(run.path(), 2);
  two.remove_old(3);
  CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step_00000002", "step_00000003", "step_00000004"});
  two.remove_old(4);
  CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step_00000003", "step_00000004"});
}

TEST_CASE("what is wrong with a checkpoint is told, and only names that a store makes are steps", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 0);
  store.save(3, files_of(3));
  const fs::path folder = checkpoint_folder(run.path(), 3), sums = folder / "checksums.xxh64";
  CHECK_FALSE(damage_of(folder));
  CHECK(damage_of(run / "none") == "it is not a folder");
  const std::string right = read_file(sums);
  fs::remove(folder / "state.json");
  CHECK(damage_of(folder) == "state.json is missing");
  std::ofstream(folder / "state.json") << "other";
  CHECK(damage_of(folder) == "state.json does not agree with its checksum");
  std::ofstream(sums) << right << "x";
  CHECK(damage_of(folder) == "checksums.xxh64 does not agree with itself");
  std::ofstream(sums) << "no line of checksums";
  CHECK(damage_of(folder) == "checksums.xxh64 does not agree with itself");
  std::ofstream(sums) << std::string((1 << 20) + 1, 'x');
  CHECK_THAT(*damage_of(folder), ContainsSubstring("has more than 1048576 bytes"));
  fs::remove(sums);
  CHECK(damage_of(folder) == "checksums.xxh64 is missing");

  fs::remove_all(folder);
  for (const char* name : {"step_", "step_x", "step_1x", "step_-1", "stop_00000004", "step_99999999999999999999"})
    fs::create_directories(run / "checkpoints" / name);
  const FoundCheckpoint none = find_newest_whole(run.path());
  CHECK_FALSE(none.checkpoint);
  CHECK(none.skipped.empty());
  store.save(123456789, files_of(1));  // more digits than the others
  CHECK(find_newest_whole(run.path()).checkpoint->folder == run / "checkpoints/step_123456789");
  CHECK(find_best(find_newest_whole(run.path()).checkpoint->folder) == run / "checkpoints/step_123456789");
  CHECK_THROWS_WITH(find_best(run.path()), (run / "best").string() + ": is not there: the run has no best weights yet");
  CHECK_THROWS_WITH(CheckpointStore(run.path(), -1), "keep_checkpoints is -1; it must be 0 (all) or more");
}

TEST_CASE("a checkpoint is flushed, each file and its folder before it gets its name, then the folder around it",
          "[checkpoint]") {
  const auto inode_of = [](const fs::path& path) {
    struct stat status = {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_ino;
  };
  const bool exchange = GENERATE(true, false);
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 2);
  const auto check_flushed = [&](const fs::path& folder, const auto& save) {
    std::set<ino_t> before, behind;
    bool has_moved = false;
    {
      WatchedDisk disk;
      disk.can_exchange = exchange;
      disk.after = [&](const DiskCall& call) {
        has_moved = has_moved || (call.has_changed && call.is_move() && fs::path(call.to) == folder);
        if (call.name == "fsync") (has_moved ? behind : before).insert(call.file);
      };
      save();
    }
    CHECK(has_moved);
    CHECK(before.contains(inode_of(folder)));
    for (const std::string& name : names_in(folder)) CHECK(before.contains(inode_of(folder / name)));
    CHECK(behind.contains(inode_of(folder.parent_path())));
  };
  for (const int step : {1, 1, 2})  // the second one takes the place of the first
    check_flushed(run / concat("checkpoints/step_0000000", step), [&] { store.save(step, files_of(step)); });
  for (int i = 0; i < 2; ++i) check_flushed(run / "best", [&] { store.save_best(files_of(i)); });
}

TEST_CASE("what a killed writer has left beside a whole checkpoint goes when the store is opened", "[checkpoint]") {
  const TemporaryFolder run;
  {
    CheckpointStore store(run.path(), 2);
    store.save(7, files_of(7));
    store.save_best(files_of(7));
  }
  for (const char* name :
       {"checkpoints/.aside_step_00000007", "checkpoints/.writing_step_00000007", "checkpoints/.deleting_step_00000007",
        "checkpoints/.writing_step_00000008", ".aside_best", ".writing_best", ".deleting_best"}) {
    fs::create_directories(run / name);
    std::ofstream(run / name / "state.json") << "old";
  }
  const CheckpointStore store(run.path(), 2);
  CHECK(names_in(run.path()) == std::vector<std::string>{"best", "checkpoints"});
  CHECK(names_in(run / "checkpoints") == std::vector<std::string>{"step_00000007"});
  CHECK(save_in(run / "checkpoints/step_00000007") == 7);
  CHECK(save_in(run / "best") == 7);
}

TEST_CASE("a run whose folder of checkpoints is a file is told so, whoever asks", "[checkpoint]") {
  const TemporaryFolder run;
  std::ofstream(run / "checkpoints") << "x";
  CHECK_THROWS_WITH(CheckpointStore(run.path(), 1),
                    (run / "checkpoints").string() + ": cannot be made: Not a directory");
  CHECK_THROWS_WITH(find_newest_whole(run.path()),
                    (run / "checkpoints").string() + ": cannot be read: Not a directory");
}

TEST_CASE("a pipe in the place of a checkpoint's file is damage", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 2);
  store.save(1, files_of(1));
  store.save(2, files_of(2));
  const fs::path file = checkpoint_folder(run.path(), 2) / "optimizer.safetensors";
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK(find_newest_whole(run.path()).checkpoint->step == 1);
}

TEST_CASE("a writer killed at any time leaves a whole checkpoint", "[checkpoint]") {
  const TemporaryFolder run;
  {
    CheckpointStore store(run.path(), 2);
    store.save(0, files_of(0));
    store.save_best(files_of(0));
  }
  int last = 0;
  for (int round = 0; round < 12; ++round) {
    int started[2];
    REQUIRE(::pipe(started) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      CheckpointStore store(run.path(), 2);
      WatchedDisk disk;
      disk.can_exchange = round % 2 == 0;
      for (int step = last + 1;; ++step) {
        store.save(step, files_of(step));
        store.save_best(files_of(step));
        [[maybe_unused]] const ssize_t told = ::write(started[1], "x", 1);
      }
    }
    // Killed at some moment of its second save or later.
    char once = 0;
    ::close(started[1]);
    REQUIRE(::read(started[0], &once, 1) == 1);
    ::usleep(static_cast<useconds_t>(977 * round % 7000));
    ::kill(child, SIGKILL);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    ::close(started[0]);
    const FoundCheckpoint found = find_newest_whole(run.path());
    REQUIRE(found.checkpoint);
    CHECK(found.skipped.empty());
    CHECK(save_in(found.checkpoint->folder) == found.checkpoint->step);
    CHECK(found.checkpoint->step > last);
    CHECK(save_in(find_best(run.path())) <= found.checkpoint->step);
    last = static_cast<int>(found.checkpoint->step);
  }
}

// What check_best_can_be_replaced says in a process that mounts something there first; "cannot mount" without the right
// to.
std::string said_of_mount(const fs::path& run, const std::string& from, const char* type, unsigned long flags) {
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said = "nothing";
    const bool is_mounted = ::unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                            ::mount(from.c_str(), (run / "best").c_str(), type, flags, nullptr) == 0;
    try {
      if (is_mounted) check_best_can_be_replaced(run);
    } catch (const Error& error) {
      said = error.what();
    }
    if (!is_mounted) said = "cannot mount";
    [[maybe_unused]] const ssize_t told = ::write(ends[1], said.data(), said.size());
    _exit(0);
  }
  ::close(ends[1]);
  char said[1024] = "";
  [[maybe_unused]] const ssize_t got = ::read(ends[0], said, sizeof said - 1);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return said;
}

TEST_CASE("checkpoints: best/ that is a mount point is refused before there are weights to put there") {
  const TemporaryFolder run, other;
  CHECK_NOTHROW(check_best_can_be_replaced(run.path()));  // none yet
  fs::create_directory(run.path() / "best");
  CHECK_NOTHROW(check_best_can_be_replaced(run.path()));
  const std::string of_another = said_of_mount(run.path(), "tmpfs", "tmpfs", 0);
  if (of_another == "cannot mount") ISOBAR_SKIP("nothing can be mounted here");
  CHECK_THAT(of_another, ContainsSubstring("best is a mount point: new weights could not take its place in one step"));
  // Within one file system too.
  CHECK_THAT(said_of_mount(run.path(), other.path(), nullptr, MS_BIND), ContainsSubstring("best is a mount point"));
}

}  // namespace
}  // namespace isobar
