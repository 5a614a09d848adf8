// Folders that take the place of others whole or not at all, and what is removed with them.
#include "engine/files/folders.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "engine/files/atomic_file.h"
#include "engine/files/reader.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/watched_disk.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing::WatchedDisk;

using Entries = std::set<std::string>;

Entries entries_in(const fs::path& folder) {
  Entries names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// Replaces a folder by one that holds these files.
void replace_folder(const fs::path& path, const Entries& files) {
  FolderReplacement replacement(path);
  for (const std::string& name : files) std::ofstream(replacement.temporary() / name) << name;
  replacement.put_in_place();
}

}  // namespace

TEST_CASE("folders: a new folder has its name when it is put in place and not before", "[folders]") {
  const TemporaryFolder folder;
  FolderReplacement replacement(folder / "store");
  CHECK(replacement.path() == folder / "store");
  CHECK(replacement.temporary().parent_path() == folder.path());
  CHECK(replacement.temporary().filename().string().starts_with(".store.writing."));
  std::ofstream(replacement.temporary() / "a") << "x";
  CHECK_FALSE(fs::exists(folder / "store"));
  replacement.put_in_place();
  CHECK(entries_in(folder.path()) == Entries{"store"});
  CHECK(entries_in(folder / "store") == Entries{"a"});
  CHECK(testing::error_of([&] { replacement.put_in_place(); }) == (folder / "store").string() + ": put in place twice");
}

TEST_CASE("folders: the old folder goes whole, whether the disk can exchange folders or not", "[folders]") {
  const TemporaryFolder folder;
  WatchedDisk disk;
  disk.can_exchange = GENERATE(true, false);
  replace_folder(folder / "store", {"old", "kept"});
  fs::create_directories(folder / "store/deep/deeper");
  std::ofstream(folder / "store/deep/deeper/x") << "x";
  for (const Entries& files : {Entries{"new", "kept"}, Entries{}, Entries{"last"}}) {
    replace_folder(folder / "store", files);
    CHECK(entries_in(folder / "store") == files);
    CHECK(entries_in(folder.path()) == Entries{"store"});
  }
}

TEST_CASE("folders: one that is given up leaves the old one as it was", "[folders]") {
  const TemporaryFolder folder;
  replace_folder(folder / "store", {"old"});
  {
    const FolderReplacement replacement(folder / "store");
    std::ofstream(replacement.temporary() / "new") << "x";
    CHECK(entries_in(folder.path()).size() == 2);
  }
  CHECK(entries_in(folder.path()) == Entries{"store"});
  CHECK(entries_in(folder / "store") == Entries{"old"});
}

TEST_CASE("folders: what a killed writer has left is removed, what another one writes is not", "[folders]") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderReplacement killed(folder / "store");
    std::ofstream(killed.temporary() / "half") << "x";
    ::_exit(0);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  REQUIRE(entries_in(folder.path()).size() == 1);
  std::ofstream(folder / ".store.writing.note") << "a file";
  fs::create_directory(folder / ".other.writing.1");
  FolderReplacement first(folder / "store");
  Entries expected{".store.writing.note", ".other.writing.1", first.temporary().filename().string()};
  CHECK(entries_in(folder.path()) == expected);
  FolderReplacement second(folder / "store");
  expected.insert(second.temporary().filename().string());
  CHECK(expected.size() == 4);
  CHECK(entries_in(folder.path()) == expected);
  second.put_in_place();
  first.put_in_place();
  CHECK(entries_in(folder.path()) == Entries{".store.writing.note", ".other.writing.1", "store"});
}

TEST_CASE("folders: a name may end in a slash, be a link or be as long as the system takes", "[folders]") {
  const TemporaryFolder folder;
  replace_folder(folder / "store/", {"a"});
  CHECK(FolderReplacement(folder / "store/").path() == folder / "store");
  CHECK(entries_in(folder / "store") == Entries{"a"});
  fs::create_directory(folder / "elsewhere");
  fs::create_directory_symlink("elsewhere", folder / "link");
  replace_folder(folder / "link", {"b"});
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(entries_in(folder / "elsewhere") == Entries{"b"});
  const std::string longest(255, 'n');
  replace_folder(folder / longest, {"c"});
  CHECK(entries_in(folder / longest) == Entries{"c"});
  CHECK(testing::error_of([&] { const FolderReplacement none(folder / "none/store"); }) ==
        (folder / "none/store").string() + ": there is no folder " + (folder / "none").string());
}

TEST_CASE("folders: all of a folder is removed, and of a link the link", "[folders]") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "gone/deep/deeper");
  fs::create_directory(folder / "kept");
  for (const char* file : {"gone/a", "gone/.hidden", "gone/deep/deeper/b", "kept/c", "file"})
    std::ofstream(folder / file) << "x";
  fs::create_directory_symlink(folder / "kept", folder / "gone/link");
  fs::create_directory_symlink(folder / "kept", folder / "link");
  for (const char* name : {"gone", "link", "file", "none"}) remove_all_of(folder / name);
  CHECK(entries_in(folder.path()) == Entries{"kept"});
  CHECK(entries_in(folder / "kept") == Entries{"c"});
}

TEST_CASE("folders: two are exchanged in one step, or the disk cannot", "[folders]") {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    fs::create_directory(folder / name);
    std::ofstream(folder / name / name) << "x";
  }
  {
    WatchedDisk disk;
    disk.can_exchange = false;
    CHECK_FALSE(exchange_folders(folder / "a", folder / "b"));
  }
  CHECK(entries_in(folder / "a") == Entries{"a"});
  CHECK(exchange_folders(folder / "a", folder / "b"));
  CHECK(entries_in(folder / "a") == Entries{"b"});
  CHECK(entries_in(folder / "b") == Entries{"a"});
  CHECK(testing::error_of([&] { exchange_folders(folder / "a", folder / "none"); }) ==
        (folder / "a").string() + ": cannot be exchanged with " + (folder / "none").string() +
            ": No such file or directory");
}

TEST_CASE("folders: where a path leads is one, however it is spelled", "[folders]") {
  CHECK(folder_of("a/b") == "a");
  CHECK(folder_of("b") == ".");
  CHECK(folder_of("/b") == "/");
  const TemporaryFolder folder;
  const fs::path place = fs::canonical(folder.path());
  fs::create_directory(folder / "real");
  fs::create_directory_symlink("real", folder / "link");
  CHECK(resolved_path("") == "");
  CHECK(resolved_path(folder / "link/./new.h5") == place / "real/new.h5");
  CHECK(resolved_path(folder / "real/../real/new.h5") == place / "real/new.h5");
  CHECK(resolved_path("new.h5") == fs::current_path() / "new.h5");
}

}  // namespace isobar
