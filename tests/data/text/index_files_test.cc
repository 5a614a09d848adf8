// The index arrays of Megatron of 2022, as files: their names, shapes and numbers, and what is said about them.
#include "data/text/index_files.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "data/text/sample_index.h"
#include "data/text/token_writer.h"
#include "engine/files/reader.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("index files: three arrays of each set that has samples, under Megatron's names") {
  const testing::TemporaryFolder folder;
  const std::string prefix = folder / "text", out = folder / "index/of";
  std::vector<std::int32_t> lengths;
  {
    TokenWriter writer(prefix, TokenType::u16, ExistingFile::refused);
    for (int d = 0; d < 10; ++d) {
      lengths.push_back(3 + d);
      writer.add_sequence(std::vector<std::int32_t>(static_cast<std::size_t>(3 + d), d));
      writer.end_document();
    }
    writer.finish({});
  }
  const IndexFilesOptions options{
      .path = prefix, .split = "60,30,10", .samples = {7, 5, 0}, .seq_length = 4, .seed = 11, .out = out};
  CHECK(write_index_files(options) == std::vector<std::string>{"train: 6 documents, 33 tokens, 1 epoch, 8 samples",
                                                               "valid: 3 documents, 30 tokens, 1 epoch, 7 samples"});
  CHECK(std::distance(std::filesystem::directory_iterator(out), {}) == 6);
  const SampleIndex expected(
      {.name = "x", .lengths = lengths, .first = 6, .last = 9, .seq_length = 4, .samples = 5, .seed = 11});
  const std::string name = out + "/text_valid_indexmap_5ns_4sl_11s_";
  const auto numbers = [](const auto& values) { return std::vector<double>(values.begin(), values.end()); };
  const auto stored = [&](const std::string& array, const std::string& type) {
    constexpr std::size_t kHeader = 128;
    const std::string bytes = read_file(name + array);
    CHECK_THAT(bytes, testing::ContainsSubstring("'descr': '" + type + "'"));
    std::vector<double> values;
    for (std::size_t at = kHeader; at < bytes.size(); at += 4) {
      std::int32_t number = 0;
      std::memcpy(&number, bytes.data() + at, 4);
      values.push_back(number);
    }
    return values;
  };
  CHECK(stored("doc_idx.npy", "<i4") == numbers(expected.documents()));
  CHECK(stored("shuffle_idx.npy", "<u4") == numbers(expected.shuffle()));
  std::vector<double> places;
  for (std::int64_t i = 0; i <= expected.samples(); ++i) {
    places.push_back(static_cast<double>(expected.place(i).position));
    places.push_back(static_cast<double>(expected.place(i).offset));
  }
  CHECK(stored("sample_idx.npy", "<i4") == places);
  CHECK(read_file(name + "sample_idx.npy").find("(8, 2)") != std::string::npos);
}

TEST_CASE("index files: epochs are counted, and a set without documents is refused") {
  const testing::TemporaryFolder folder;
  const std::string prefix = folder / "text";
  {
    TokenWriter writer(prefix, TokenType::u16, ExistingFile::refused);
    for (int d = 0; d < 4; ++d) {
      writer.add_sequence(std::vector<std::int32_t>(5, d));
      writer.end_document();
    }
    writer.finish({});
  }
  const auto lines = [&](std::int64_t samples, const std::string& split, std::int64_t seq_length = 4) {
    return write_index_files(
        {.path = prefix, .split = split, .samples = {samples, 0, 1}, .seq_length = seq_length, .out = folder / "out"});
  };
  CHECK_THROWS_WITH(lines(1, "1,0,0"), testing::ContainsSubstring(prefix + ", test: documents 4 to 4 of 4 are no "
                                                                           "documents"));
  CHECK(lines(4, "2,1,1")[0] == "train: 2 documents, 10 tokens, 2 epochs, 4 samples");
  CHECK(lines(3, "2,1,1")[0] == "train: 2 documents, 10 tokens, 2 epochs, 4 samples");
  CHECK(lines(10, "2,1,1", 1)[0] == "train: 2 documents, 10 tokens, 2 epochs (the last one apart), 19 samples");
}
