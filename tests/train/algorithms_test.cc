// What a run does with the algorithms of its products, but for the GPU's part (lab/virtual_gpu).
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
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
  for (const char* text : {"{\"platform\":", "{}", "", "{\"platform\": \"x\", \"of_products\": []}"}) {
    write_file_atomically(file, text);
    CHECK_THROWS_WITH(read_algorithms(file, kPlatform), ContainsSubstring("x.json"));
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
