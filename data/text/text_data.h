// The three sets of a run on text: from token files, from a blend of them, or made up.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/text/sample_index.h"
#include "data/text/token_samples.h"

namespace isobar {

// Every sample of a set: those of one epoch of each of its files.
inline constexpr std::int64_t kAllSamples = -1;

// What --data-path and the options beside it say. Either data_path with split, or a list for each set, or mock data.
struct TextDataOptions {
  std::vector<std::string> data_path = {};  // prefixes, or a weight before each (data/text/blend.h)
  std::string split = "969,30,1";
  SplitRule rule = SplitRule::legacy;
  std::array<std::vector<std::string>, 3> paths = {};  // of train, valid, test: instead of data_path
  bool is_mock = false;

  std::int64_t seq_length = 0;
  // Of train, valid, test that the run takes: a number, or kAllSamples; 0: the set is not opened.
  std::array<std::int64_t, 3> samples = {};
  // A split whose share for test has no whole sample gives no test set, instead of an Error.
  bool may_lack_test = false;
  std::uint32_t seed = 1234;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  // Of the tokenizer, if there is one; the files must be made by it. eod -1: none.
  std::int64_t vocabulary = std::int64_t{1} << 31;
  std::int64_t eod = -1;
  std::string fingerprint = {};
};

// One of the three sets, of exactly the samples that are asked for. Null if none are, or test is lacking.
struct TextData {
  std::array<std::unique_ptr<Dataset>, 3> sets;  // by DataSplit
  std::vector<std::string> notes;                // lines for the log
  // Of all that decides which tokens the training samples have, but for their order: options, lengths of the documents,
  // and some of the tokens of each file (all of them would take as long as an epoch).
  std::uint64_t trained_on = 0;
  // The same of options and their number of samples, as weights have it that do not know the order.
  std::uint64_t trained_on_counted = 0;
  // Their order, of each file: "1 epoch", "2 epochs and one apart" (data/text/sample_index.h). Two runs on the same
  // text whose orders are called alike have the same first samples, as many as the shorter one takes.
  std::string order;
  // The largest number of training samples that have this order.
  std::int64_t most_samples = 0;
};

// Error with the numbers for a set without documents from which samples are wanted, for a blend that is too small, and
// for files of another tokenizer.
TextData open_text_data(const TextDataOptions& options);

}  // namespace isobar
