// Which folders are those of Hugging Face's libraries, and which files of theirs hold weights.
#include "engine/files/huggingface_folder.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";

void put_file(const fs::path& file, const std::string& contents = "{}") {
  std::ofstream(file) << contents;
}

}  // namespace

TEST_CASE("hugging face folder: one has config.json and weights, in one file or in several") {
  const testing::TemporaryFolder folder;
  CHECK_FALSE(is_huggingface_folder(folder / "none"));
  for (const char* weights : {"model.safetensors", kIndexName}) {
    INFO(weights);
    const fs::path model = folder / weights;  // a folder of that name
    fs::create_directory(model);
    CHECK_FALSE(is_huggingface_folder(model));
    put_file(model / weights);
    CHECK_FALSE(is_huggingface_folder(model));
    put_file(model / "config.json");
    CHECK(is_huggingface_folder(model));
    CHECK_FALSE(is_huggingface_folder(model / "config.json"));
    fs::remove(model / weights);
    fs::create_directory(model / weights);
    CHECK_FALSE(is_huggingface_folder(model));
  }
}

TEST_CASE("hugging face folder: its files of weights are those of the index, each once") {
  const testing::TemporaryFolder folder;
  CHECK(weight_files_of(folder.path()) == std::set<std::string>{"model.safetensors"});
  const fs::path index = folder / kIndexName;
  put_file(index, R"({"metadata": {"total_size": 7},
                      "weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors",
                                     "c": "model-2.safetensors"}})");
  CHECK(weight_files_of(folder.path()) == std::set<std::string>{"model-1.safetensors", "model-2.safetensors"});
  const auto refused = [&](const std::string& contents, const std::string& why) {
    put_file(index, contents);
    CHECK(testing::error_of([&] { weight_files_of(folder.path()); }) == index.string() + why);
  };
  for (const char* none : {"[]", "{}", R"({"weight_map": {}})", R"({"weight_map": ["a"]})", "3"})
    refused(none, " names no files of weights");
  refused(R"({"weight_map": {"a": 3}})", ": the file of a is 3, which is no file's name");
  refused(R"({"weight_map": {"a": "../b"}})", R"(: the file of a is "../b", which is no file's name)");
  refused(R"({"weight_map": )", ": is not valid JSON: it ends too early (at key \"weight_map\")");
}

}  // namespace isobar
