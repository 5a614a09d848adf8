// A file that is written step by step goes on where the journal says, whatever happened before.
#include "data/fields/restartable_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::TemporaryFolder;
using Ranges = std::vector<StepRange>;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSteps = 10, kValues = 2 * 3 * 4;  // of a step

FieldFacts facts() {
  FieldFacts facts;
  facts.shape = {kSteps, 2, 3, 4};
  facts.channel_names = {"u10", "t2m"};
  facts.units = {"m s**-1", ""};
  facts.latitudes = {60, 0.1, -60};
  facts.longitudes = {0, 90, 180, 270};
  facts.time = TimeFacts{{}, "hours since 1970-01-01 00:00:00", "proleptic_gregorian"};
  for (std::int64_t step = 0; step < kSteps; ++step) facts.time->values.push_back(static_cast<double>(6 * step));
  return facts;
}

const nlohmann::json kMadeFrom = {{"channels", {"u10", "t2m"}}, {"sources", {"a.h5"}}};

RestartableFile open(const TemporaryFolder& folder) {
  return {folder / "2018.h5", facts(), kMadeFrom};
}

// other: added to the values.
void write_steps(RestartableFile& file, StepRange steps, float other = 0) {
  const std::vector<float> values = testing::field_values(facts().shape, other);
  for (std::int64_t step = steps[0]; step < steps[1]; ++step) file.write(step, values.data() + step * kValues);
}

std::string finished(const TemporaryFolder& folder) {
  RestartableFile file = open(folder);
  for (const StepRange& steps : file.missing()) {
    write_steps(file, steps);
    file.record(steps);
  }
  file.finish();
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);  // nothing hidden is left
  return read_file(folder / "2018.h5");
}

std::string undisturbed() {
  return finished(TemporaryFolder());
}

std::string restart_refusal(const TemporaryFolder& folder, const FieldFacts& facts, const nlohmann::json& made_from) {
  try {
    const RestartableFile file(folder / "2018.h5", facts, made_from);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("restartable file: it is an ordinary file of fields") {
  const TemporaryFolder folder;
  finished(folder);
  const FieldSeries series({.paths = {folder / "2018.h5"}});
  CHECK(series.channel_names() == facts().channel_names);
  CHECK(series.labels().units == facts().units);
  CHECK(series.latitudes() == facts().latitudes);
  CHECK(series.longitudes() == facts().longitudes);
  CHECK(series.hours_since_1970(3) == 18);
  CHECK(series.file(0).how_it_is_read().starts_with("contiguous"));
  std::vector<float> step(kValues);
  series.read_step(7, step.data());
  const std::vector<float> all = testing::field_values(facts().shape);
  CHECK(step == std::vector<float>(all.begin() + 7 * kValues, all.begin() + 8 * kValues));
}

TEST_CASE("restartable file: recorded steps are kept, others are written again") {
  const std::string whole = undisturbed();
  const TemporaryFolder folder;
  {
    RestartableFile file = open(folder);
    CHECK(file.missing() == Ranges{{0, 10}});
    write_steps(file, {4, 6});
    file.record({4, 6});
    write_steps(file, {0, 2});
    file.record({0, 2});
    CHECK(file.missing() == Ranges{{2, 4}, {6, 10}});
    write_steps(file, {2, 4}, 1000);  // wrong values, as of steps that never reached the disk
    CHECK_THROWS_WITH(file.finish(), ContainsSubstring("2018.h5: not all steps are written"));
  }
  CHECK_FALSE(fs::exists(folder / "2018.h5"));
  {
    RestartableFile file = open(folder);
    CHECK(file.missing() == Ranges{{2, 4}, {6, 10}});
    write_steps(file, {6, 7});
    file.record({6, 7});
    CHECK(file.missing() == Ranges{{2, 4}, {7, 10}});
  }
  CHECK((finished(folder) == whole));
}

TEST_CASE("restartable file: a kill between any two of its events is survived") {
  const std::string whole = undisturbed();
  const TemporaryFolder folder;
  const fs::path partial = folder / ".2018.h5.partial", journal = folder / ".2018.h5.done";
  {
    RestartableFile file = open(folder);
    write_steps(file, {0, 10});
    file.record({0, 10});
  }
  SECTION("an old journal says nothing of a new file") {
    fs::remove(partial);
    CHECK(open(folder).missing() == Ranges{{0, 10}});
    CHECK(open(folder).missing() == Ranges{{0, 10}});
    CHECK((finished(folder) == whole));
  }
  SECTION("a kill between a new file and its journal") {
    const nlohmann::json large = {{"channels", std::string(1 << 16, 'a')}};  // its journal is beyond the limit
    RestartableFile::remove_unfinished(folder / "2018.h5");
    RestartableFile(folder / "2018.h5", facts(), large).record({0, 10});
    fs::remove(partial);
    {
      const testing::FileSizeLimit limit(1 << 15);
      CHECK_THROWS_WITH(RestartableFile(folder / "2018.h5", facts(), large),
                        ContainsSubstring(".2018.h5.done: cannot be written: File too large"));
    }
    CHECK(fs::exists(partial));
    CHECK(RestartableFile(folder / "2018.h5", facts(), large).missing() == Ranges{{0, 10}});
  }
  SECTION("a file without journal is begun anew") {
    fs::remove(journal);
    fs::resize_file(partial, 100);
    CHECK(open(folder).missing() == Ranges{{0, 10}});
    CHECK((finished(folder) == whole));
  }
  SECTION("all steps are written, but it has no name yet") {
    CHECK((finished(folder) == whole));
  }
}

TEST_CASE("restartable file: unfinished work is not mixed with another") {
  const TemporaryFolder folder;
  open(folder).record({0, 1});
  const std::string journal = folder / ".2018.h5.done";
  const auto with = [](const char* key, const nlohmann::json& value) {
    nlohmann::json json = kMadeFrom;
    json[key] = value;
    return json;
  };
  CHECK(restart_refusal(folder, facts(), with("channels", {"t2m", "u10"})) ==
        journal + ": its file was begun with other channels; go on with the same ones, or remove it to begin anew");
  CHECK_THAT(restart_refusal(folder, facts(), with("sources", {"b.h5"})), ContainsSubstring("with other sources; "));
  FieldFacts other = facts();
  other.longitudes[1] = 91;
  CHECK_THAT(restart_refusal(folder, other, kMadeFrom),
             ContainsSubstring("/.2018.h5.partial is not the file that " + journal + " is of; remove both"));
  CHECK(restart_refusal(folder, facts(), kMadeFrom) == "accepted");
  testing::write_text(journal, R"({"made_from": )" + kMadeFrom.dump() + R"(, "done": [[0, 11]]})");
  CHECK(restart_refusal(folder, facts(), kMadeFrom) ==
        journal + ": [0, 11) are no steps of its file; remove it to begin anew");
  testing::write_text(journal, "[]");
  CHECK(restart_refusal(folder, facts(), kMadeFrom) ==
        journal + R"( is not of the form {"made_from": {...}, "done": [[0, 10], ...]}; remove it to begin anew)");
  testing::write_text(journal, R"({"made_from")");
  CHECK_THAT(restart_refusal(folder, facts(), kMadeFrom), ContainsSubstring(journal));
  fs::remove(journal);
  CHECK(restart_refusal(folder, facts(), with("channels", {"t2m", "u10"})) == "accepted");
}

TEST_CASE("restartable file: a full disk loses nothing") {
  const std::string whole = undisturbed();
  const TemporaryFolder folder;
  {
    const testing::FileSizeLimit limit(500);  // less than the file's labels
    CHECK_THROWS_WITH(open(folder), ContainsSubstring("2018.h5"));
  }
  {
    RestartableFile file = open(folder);
    write_steps(file, {0, 3});
    file.record({0, 3});
    const testing::FileSizeLimit limit(whole.size() / 2);
    CHECK_THROWS_WITH(write_steps(file, {3, 10}), ContainsSubstring("/2018.h5: cannot be written: File too large"));
  }
  CHECK(open(folder).missing() == Ranges{{3, 10}});
  CHECK((finished(folder) == whole));
}

TEST_CASE("restartable file: it has its name when all steps are written, and takes no other file's") {
  const TemporaryFolder folder;
  RestartableFile file = open(folder);
  write_steps(file, {0, kSteps - 1});
  file.record({4, kSteps - 1});
  file.record({0, 2});
  CHECK(file.missing() == Ranges{{2, 4}, {kSteps - 1, kSteps}});
  CHECK(RestartableFile::occupied_bytes(folder / "2018.h5") > 0);
  CHECK(RestartableFile::occupied_bytes(folder / "2019.h5") == 0);
  CHECK_THROWS_WITH(file.finish(), (folder / "2018.h5").string() + ": not all steps are written");
  file.record({2, 4});
  write_steps(file, {kSteps - 1, kSteps});
  file.record({kSteps - 1, kSteps});
  testing::write_text(folder / "2018.h5", "another's");
  CHECK_THROWS_WITH(file.finish(), (folder / "2018.h5").string() + " is there already");
  CHECK(read_file(folder / "2018.h5") == "another's");
  fs::remove(folder / "2018.h5");
  file.finish();
  CHECK((read_file(folder / "2018.h5") == undisturbed()));
}
