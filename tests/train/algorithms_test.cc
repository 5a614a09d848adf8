// What a run does with the algorithms of its products, but for the GPU's part (lab/virtual_gpu).
#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/train/algorithms.h"
#include "comm/thread_ranks.h"
#include "engine/files/atomic_file.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/findings.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

namespace fs = std::filesystem;

namespace {

constexpr const char* kPlatform = "a GPU, cuBLASLt 1, form 1";

using Variable = isobar::testing::EnvironmentVariable;

}  // namespace

TEST_CASE("algorithms: as JSON and back, and what is something else is an error that names the key") {
  const ChosenAlgorithms chosen{kPlatform, {{"2 x 3 x 4", "00ff"}, {"5 x 6 x 7", "0a"}}};
  CHECK(algorithms_from(to_json(chosen)) == chosen);
  CHECK(algorithms_from(to_json(ChosenAlgorithms{kPlatform, {}})) == ChosenAlgorithms{kPlatform, {}});
  const ChosenAlgorithms both{kPlatform, {{"2 x 3 x 4", "00ff"}}, {{"conv_fwd 3-D", "engine 38: 2=1"}}};
  CHECK(algorithms_from(to_json(both)) == both);
  const auto read = [](const char* text) { algorithms_from(nlohmann::ordered_json::parse(text)); };
  CHECK_THROWS_WITH(read("[]"), ContainsSubstring("platform is missing"));
  CHECK_THROWS_WITH(read(R"({"platform": 3, "of_products": {}})"),
                    ContainsSubstring("platform is missing, or no text"));
  CHECK_THROWS_WITH(read(R"({"platform": "x"})"), ContainsSubstring("of_products is missing"));
  CHECK_THROWS_WITH(read(R"({"platform": "x", "of_products": {"p": 1}})"),
                    ContainsSubstring("the algorithm of \"p\" is no text"));
  CHECK_THROWS_WITH(read(R"({"platform": "x", "of_products": {}, "of_convolutions": 3})"),
                    ContainsSubstring("of_convolutions is missing, or no object"));
  CHECK_THROWS_WITH(read(R"({"platform": "x", "of_products": {}, "of_convolutions": {"c": 1}})"),
                    ContainsSubstring("the algorithm of \"c\" is no text"));
}

TEST_CASE("algorithms: without convolutions the JSON is what it was before there were any") {
  const char* before = R"({"platform":"a GPU, cuBLASLt 1, form 1","of_products":{"2 x 3 x 4":"00ff"}})";
  const ChosenAlgorithms read = algorithms_from(nlohmann::ordered_json::parse(before));
  CHECK(read == ChosenAlgorithms{kPlatform, {{"2 x 3 x 4", "00ff"}}});
  CHECK(to_json(read).dump() == before);
}

TEST_CASE("algorithms: the file lies in XDG_CACHE_HOME, else in HOME, one for each platform") {
  const Variable home("HOME", "/home/her");
  {
    const Variable cache("XDG_CACHE_HOME", "/caches");
    CHECK(algorithms_file(kPlatform) == "/caches/isobar/algorithms-a-GPU-cuBLASLt-1-form-1.json");
    CHECK(algorithms_file("../../x") == "/caches/isobar/algorithms-..-..-x.json");
  }
  for (const char* none : std::vector<const char*>{nullptr, "", "relative"}) {
    const Variable cache("XDG_CACHE_HOME", none);
    CHECK(algorithms_file("x") == "/home/her/.cache/isobar/algorithms-x.json");
    const Variable homeless("HOME", none);
    CHECK(algorithms_file("x").empty());
  }
}

TEST_CASE("algorithms: what several processes add to the file is all kept, and the last one of a product wins") {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "cache" / "isobar" / "x.json";
  CHECK(read_algorithms(file, kPlatform) == ChosenAlgorithms{kPlatform, {}});
  add_algorithms(file, {kPlatform, {{"p", "1"}, {"q", "2"}}});
  add_algorithms(file, {kPlatform, {{"q", "3"}, {"r", "4"}}});
  CHECK(read_algorithms(file, kPlatform).of_products == cuda::GemmAlgorithms{{"p", "1"}, {"q", "3"}, {"r", "4"}});
  add_algorithms(file, {kPlatform, {}, {{"c", "own"}, {"p", "own"}}});  // the keys of the two are apart
  add_algorithms(file, {kPlatform, {{"r", "5"}}, {{"c", "engine 1:"}}});
  CHECK(read_algorithms(file, kPlatform) ==
        ChosenAlgorithms{kPlatform, {{"p", "1"}, {"q", "3"}, {"r", "5"}}, {{"c", "engine 1:"}, {"p", "own"}}});
}

TEST_CASE("algorithms: what runs that end together add is all kept") {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "x.json";
  constexpr int kWriters = 4, kEach = 8;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer)
    writers.emplace_back([&, writer] {
      for (int i = 0; i < kEach; ++i) add_algorithms(file, {kPlatform, {{concat(writer, " x ", i), "1"}}});
    });
  for (std::thread& writer : writers) writer.join();
  CHECK(read_algorithms(file, kPlatform).of_products.size() == kWriters * kEach);
}

TEST_CASE("algorithms: what a link leads to is not replaced") {
  const testing::TemporaryFolder folder;
  write_file_atomically(folder.path() / "letters", "mine");
  fs::create_symlink(folder.path() / "letters", folder.path() / "x.json");
  CHECK_THROWS_WITH(add_algorithms(folder.path() / "x.json", {kPlatform, {{"p", "1"}}}),
                    ContainsSubstring("x.json is a link"));
  CHECK(read_file(folder.path() / "letters") == "mine");
}

TEST_CASE("algorithms: a file of another platform or a damaged one is refused, and replaced") {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "x.json";
  add_algorithms(file, {"another GPU", {{"p", "1"}}});
  CHECK_THROWS_WITH(read_algorithms(file, kPlatform),
                    ContainsSubstring("x.json is for another GPU, and this is " + std::string(kPlatform)));
  for (const auto& [text, why] :
       {std::pair(R"({"platform":)", "x.json"), std::pair("", "x.json"),
        std::pair("{}", "x.json holds no algorithms: platform is missing, or no text"),
        std::pair(R"({"platform": "x", "of_products": []})",
                  "x.json holds no algorithms: of_products is missing, or no object"),
        std::pair(R"({"platform": "x", "of_products": {"p": 1}})", "x.json holds no algorithms: the algorithm of "),
        std::pair(R"({"platform": "x", "of_products": {}, "of_convolutions": 1})",
                  "x.json holds no algorithms: of_convolutions is missing, or no object")}) {
    write_file_atomically(file, text);
    CHECK_THROWS_WITH(read_algorithms(file, kPlatform), ContainsSubstring(why));
    add_algorithms(file, {kPlatform, {{"q", "2"}}});
    CHECK(read_algorithms(file, kPlatform).of_products == cuda::GemmAlgorithms{{"q", "2"}});
  }
  CHECK_THROWS_WITH(add_algorithms(file / "y.json", {kPlatform, {}}), ContainsSubstring("cannot be made"));
}

TEST_CASE("algorithms: of each product the lowest rank's that knows it") {
  testing::Findings findings;
  const std::vector<ChosenAlgorithms> known{
      {kPlatform, {{"p", "0"}}},
      {kPlatform, {}, {{"c", "1"}}},
      {kPlatform, {{"p", "2"}, {"a long product", "2"}}, {{"c", "2"}, {"p", "2"}}},
      {kPlatform, {{"q", "3"}}}};
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    const ChosenAlgorithms agreed = agree_on(known[static_cast<std::size_t>(world.rank())], world);
    findings.expect(
        agreed ==
            ChosenAlgorithms{kPlatform, {{"p", "0"}, {"a long product", "2"}, {"q", "3"}}, {{"c", "1"}, {"p", "2"}}},
        concat("rank ", world.rank(), " has others"));
  });
  CHECK(findings.wrong() == "");
  CHECK(agree_on(known[2], Communicator()) == known[2]);
}

namespace {

// A device that times products and convolutions when asked for those that it does not know.
struct PlayedDevice {
  AlgorithmDevice device() {
    return {.platform = kPlatform,
            .engines = [] { return std::string("engines 7"); },
            .has_engines_of = [this](const ChosenAlgorithms&) { return has_engines; },
            .use = [this](const ChosenAlgorithms& chosen) { used.push_back(chosen); },
            .choose_by_time =
                [this](const ChosenAlgorithms& known, const std::function<void()>& rehearse) {
                  rehearse();
                  ChosenAlgorithms all = known;
                  all.of_products.insert(timed.of_products.begin(), timed.of_products.end());
                  all.of_convolutions.insert(timed.of_convolutions.begin(), timed.of_convolutions.end());
                  return all;
                }};
  }
  ChosenAlgorithms choose(const ChosenAlgorithms& of_checkpoint, const Communicator& ranks = {}) {
    used.clear();
    told.clear();
    return choose_algorithms(
        of_checkpoint, device(), ranks, [this] { ++rehearsals; },
        [this](const std::string& line) { told.push_back(line); });
  }

  ChosenAlgorithms timed;
  bool has_engines = true;
  int rehearsals = 0;
  std::vector<ChosenAlgorithms> used;
  std::vector<std::string> told;
};

using Told = std::vector<std::string>;

}  // namespace

TEST_CASE("algorithms: of a checkpoint all are taken, of the file what is there, and the rest is timed and kept") {
  const testing::TemporaryFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  const fs::path file = algorithms_file(kPlatform);
  PlayedDevice played;
  played.timed = {kPlatform, {{"p", "1"}, {"q", "2"}}};
  const ChosenAlgorithms first = played.choose({});
  CHECK(first == ChosenAlgorithms{kPlatform, {{"p", "1"}, {"q", "2"}}});
  CHECK(played.used == std::vector<ChosenAlgorithms>{{kPlatform, {}}, first});
  CHECK(played.told == Told{"algorithms of 2 products, 2 of them chosen by time"});
  CHECK(read_algorithms(file, kPlatform) == first);

  played.timed = {kPlatform, {{"p", "9"}, {"r", "3"}}, {{"c", "4"}}};
  const ChosenAlgorithms second = played.choose({});
  CHECK(second == ChosenAlgorithms{kPlatform, {{"p", "1"}, {"q", "2"}, {"r", "3"}}, {{"c", "4"}}});
  CHECK(played.used == std::vector<ChosenAlgorithms>{first, second});
  CHECK(played.told == Told{"algorithms of 3 products, 1 of them chosen by time",
                            "algorithms of 1 convolutions, 1 of them chosen by time"});
  CHECK(played.rehearsals == 2);

  const ChosenAlgorithms kept{kPlatform, {{"p", "5"}}, {{"c", "6"}}};
  CHECK(played.choose(kept) == kept);
  CHECK(played.used == std::vector<ChosenAlgorithms>{kept});
  CHECK(played.told.empty());
  CHECK(played.rehearsals == 2);  // nothing is timed

  played.timed = {};
  CHECK(played.choose({"another GPU", {{"p", "5"}}}) == second);
  CHECK(played.told.at(0) == concat("the checkpoint's algorithms of products are for another GPU, and this is ",
                                    kPlatform, ": others are chosen"));
  CHECK(played.told.at(1) == "algorithms of 3 products, 0 of them chosen by time");
  played.has_engines = false;  // products of the checkpoint come before those of the file
  CHECK(played.choose(kept) == ChosenAlgorithms{kPlatform, {{"p", "5"}, {"q", "2"}, {"r", "3"}}, {{"c", "4"}}});
  CHECK(played.told.at(0) == "the checkpoint's algorithms of convolutions are not of engines 7: others are chosen");
  CHECK(read_algorithms(file, kPlatform) == second);  // nothing new
}

TEST_CASE("algorithms: a run goes on where its file is damaged, or there is no place for one") {
  const testing::TemporaryFolder folder;
  PlayedDevice played;
  played.timed = {kPlatform, {{"p", "1"}}};
  {
    const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
    fs::create_directories(algorithms_file(kPlatform).parent_path());
    write_file_atomically(algorithms_file(kPlatform), "{");
    CHECK(played.choose({}) == played.timed);
    REQUIRE(played.told.size() == 2);
    CHECK_THAT(played.told[0], ContainsSubstring("passed over: ") && ContainsSubstring(folder.path().string()));
    CHECK(read_algorithms(algorithms_file(kPlatform), kPlatform) == played.timed);  // replaced
    fs::remove_all(folder / "isobar");
    write_file_atomically(folder / "isobar", "a file in the place of the folder");
    CHECK(played.choose({}) == played.timed);
    CHECK_THAT(played.told.at(0), ContainsSubstring("what is chosen is not kept for other runs: "));
  }
  const Variable cache("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
  CHECK(played.choose({}) == played.timed);
  CHECK(played.told == Told{"no folder for what is chosen: neither XDG_CACHE_HOME nor HOME is an absolute path",
                            "algorithms of 1 products, 1 of them chosen by time"});
}

TEST_CASE("algorithms: ranks begin with what the first one knows, end with the same, and the first one keeps it") {
  const testing::TemporaryFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  std::array<PlayedDevice, 2> played;
  played[0].timed = {kPlatform, {{"p", "0"}}};
  played[1].timed = {kPlatform, {{"p", "1"}, {"q", "1"}}};
  const ChosenAlgorithms all{kPlatform, {{"p", "0"}, {"q", "1"}}}, kept{kPlatform, {{"p", "5"}}};
  testing::Findings findings;
  const auto choose = [&](const ChosenAlgorithms& of_checkpoint, const ChosenAlgorithms& expected) {
    run_ranks({.ranks = 2}, [&](const Communicator& world) {
      PlayedDevice& own = played[static_cast<std::size_t>(world.rank())];
      findings.expect(own.choose(world.rank() == 0 ? of_checkpoint : ChosenAlgorithms{}, world) == expected, "chosen");
      findings.expect(own.used.back() == expected, "used");
    });
  };
  choose({}, all);
  CHECK(read_algorithms(algorithms_file(kPlatform), kPlatform) == all);
  choose(kept, kept);  // which the second one is told
  CHECK(played[1].rehearsals == 1);
  CHECK(findings.wrong() == "");
}
