// What a run finds in its folder, and that processes without the folder are told the same.
#include "apps/train/found_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "engine/files/atomic_file.h"
#include "engine/files/safetensors.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
using isobar::testing::TemporaryFolder;
namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

const ordered_json kSmallConfig{{"num_iters", 8}, {"global_batch_size", 4}};

// A run with checkpoints of these iterations and a summary of that one; 0: none.
void make_run(const fs::path& path, const std::vector<std::int64_t>& checkpoints, std::int64_t summed_up) {
  RunFolder run(path, ExistingRun::refuse);
  run.prepare(kSmallConfig);
  CheckpointStore store(path, 0);
  for (const std::int64_t step : checkpoints)
    store.save(step, [&](const fs::path& folder) {
      write_file_atomically(folder / "state.json", ordered_json{{"run_id", run.run_id()}}.dump());
    });
  if (summed_up > 0) run.write_summary({{"iterations", summed_up}});
}

FoundRun found_in(const fs::path& path, bool resumes = true) {
  const RunFolder folder(path, ExistingRun::resume);
  return find_run(&folder, path, resumes, {}, Communicator());
}

}  // namespace

TEST_CASE("a found run: its newest whole checkpoint, and whether its summary is of that one") {
  const TemporaryFolder folder;
  const FoundRun none = found_in(folder / "none");
  CHECK_FALSE(none.is_resumed);
  CHECK_FALSE(none.checkpoint);

  make_run(folder / "begun", {}, 0);
  CHECK(found_in(folder / "begun").is_resumed);
  CHECK_FALSE(found_in(folder / "begun").checkpoint);

  make_run(folder / "finished", {4, 8}, 8);
  REQUIRE(found_in(folder / "finished").checkpoint);
  CHECK(found_in(folder / "finished").checkpoint->step == 8);
  CHECK(found_in(folder / "finished").summed_up == 8);
  CHECK_FALSE(found_in(folder / "finished", /*resumes=*/false).checkpoint);
  CHECK(found_in(folder / "finished", /*resumes=*/false).summed_up == 0);

  make_run(folder / "mixed", {}, 0);
  const fs::path best = folder / "mixed/best";
  fs::create_directory(best);
  write_file_atomically(best / "state.json", ordered_json{{"run_id", std::string(32, 'a')}}.dump());
  ordered_json config = kSmallConfig;
  config["seed"] = 3;
  write_safetensors(best / "model.safetensors", {}, {{"isobar.config", config.dump()}});
  CHECK_THROWS_WITH(found_in(folder / "mixed"), ContainsSubstring("best is of another run"));

  fs::remove(checkpoint_folder(folder / "finished", 8) / "state.json");  // damaged: the run goes on from before
  REQUIRE(found_in(folder / "finished").checkpoint);
  CHECK(found_in(folder / "finished").checkpoint->step == 4);
  CHECK(found_in(folder / "finished").summed_up == 0);
}

TEST_CASE("a found run: who has not looked is told") {
  const TemporaryFolder folder;
  make_run(folder / "finished", {8}, 8);
  make_run(folder / "begun", {}, 0);
  for (const char* name : {"finished", "begun"}) {
    const fs::path path = folder / name;
    const RunFolder run(path, ExistingRun::resume);
    FoundRun first, second;
    run_ranks({.ranks = 2}, [&](const Communicator& world) {
      (world.rank() == 0 ? first : second) = find_run(world.rank() == 0 ? &run : nullptr, path, true, {}, world);
    });
    CHECK(second.is_resumed == first.is_resumed);
    CHECK(second.is_resumed);
    CHECK(second.summed_up == first.summed_up);
    REQUIRE(second.checkpoint.has_value() == first.checkpoint.has_value());
    if (!first.checkpoint) continue;
    CHECK(second.checkpoint->step == first.checkpoint->step);
    CHECK(second.checkpoint->folder == first.checkpoint->folder);
  }
}
