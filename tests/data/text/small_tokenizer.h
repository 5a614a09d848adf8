// The small GPT-2 vocabulary of tests/golden/tokens.json, as the two files of a tokenizer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/text/gpt2_tokenizer.h"
#include "engine/files/reader.h"
#include "tests/harness/data_files.h"
#include "tests/harness/places.h"

namespace isobar::testing {

class SmallTokenizerFiles {
 public:
  static const nlohmann::json& golden() {
    static const nlohmann::json file = nlohmann::json::parse(read_file(source_path("tests/golden/tokens.json")));
    return file;
  }
  SmallTokenizerFiles() : SmallTokenizerFiles(golden()["vocab"].dump(), golden_merges()) {}
  SmallTokenizerFiles(const std::string& vocab, const std::string& merges) {
    write_text(this->vocab(), vocab);
    write_text(this->merges(), merges);
  }

  std::string vocab() const { return folder_ / "vocab.json"; }
  std::string merges() const { return folder_ / "merges.txt"; }
  std::string merges_text() const { return read_file(merges()); }
  Gpt2Tokenizer open() const { return Gpt2Tokenizer(vocab(), merges(), "<|endoftext|>"); }
  // As the command takes them.
  std::string flags() const {
    return "--tokenizer-type GPT2BPETokenizer --vocab-file " + vocab() + " --merge-file " + merges();
  }

 private:
  static std::string golden_merges() {
    std::string text = "#version: 0.2\n";
    for (const auto& line : golden()["merges"]) text += line.get<std::string>() + "\n";
    return text;
  }
  TemporaryFolder folder_;
};

}  // namespace isobar::testing
