// A run that starts with Adam's moments of another one: it makes that run's updates, with rates of its own.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/thread_ranks.h"
#include "tests/harness/error_of.h"
#include "tests/harness/findings.h"
#include "tests/harness/safetensors_copy.h"
#include "tests/harness/testing.h"
#include "tests/harness/tiny_classifier.h"

namespace isobar::testing {
namespace {

constexpr int kEarlier = 3;

TinyClassifier with_given_moments(std::vector<std::string> keys) {
  keys.insert(keys.end(), {"dropout=0", "warmup=0"});
  return TinyClassifier({0, 1, 2, 2, 1, 0, 0, 1, 1, 2, 0, 2, 1, 0}, std::move(keys));
}

Metadata of_updates(const std::string& updates) {
  return {{kUpdatesOfMoments, updates}};
}

// Weights, moments and place in the data of a run after some updates.
struct EarlierRun {
  TemporaryFolder folder;
  Cursor cursor;

  explicit EarlierRun(TinyRank& rank) {
    for (int t = 0; t < kEarlier; ++t) rank.step();
    rank.write_files(folder, "alone");
    copy_safetensors(folder / "alone.optimizer", folder / "moments", of_updates(std::to_string(kEarlier)));
    cursor = rank.loaders().cursor();
  }
  void start(TinyRank& rank) const {
    read_model(folder / "alone.model", rank.task());
    rank.trainer().take_moments(folder / "moments");
    rank.loaders().seek(cursor);
  }
};

}  // namespace

TEST_CASE("moments of another run: the next updates are that run's, bit for bit") {
  for (const char* ema : {"ema=0", "ema=0.5"}) {
    const TinyClassifier classifier = with_given_moments({"lr_schedule=constant", "ema=0"});
    const TinyClassifier averaging = with_given_moments({"lr_schedule=constant", ema});
    TinyRank whole(classifier);
    const EarlierRun earlier(whole);
    TinyRank rank(averaging), cold(classifier);
    earlier.start(rank);
    read_model(earlier.folder / "alone.model", cold.task());
    cold.loaders().seek(earlier.cursor);
    CHECK(rank.averaged_weights() == whole.weights());  // an average begins with the weights
    for (int t = 0; t < 2; ++t)
      for (TinyRank* one : {&whole, &rank, &cold}) one->step();
    CHECK(rank.weights() == whole.weights());
    CHECK(cold.weights() != whole.weights());
    CHECK(rank.trainer().iteration() == 2);

    // Its own checkpoints know of the earlier updates.
    rank.write_files(earlier.folder, "later");
    const nlohmann::ordered_json state = rank.trainer().state();
    CHECK(state.at("updates") == kEarlier + 2);
    CHECK(state.at("earlier_updates") == kEarlier);
    CHECK(!whole.trainer().state().contains("earlier_updates"));
    TinyRank resumed(averaging);
    read_model(earlier.folder / "later.model", resumed.task());
    resumed.trainer().read_optimizer(earlier.folder / "later.optimizer");
    resumed.trainer().set_state(state);
    resumed.loaders().seek(rank.loaders().cursor());
    CHECK(resumed.trainer().state() == state);
    for (TinyRank* one : {&rank, &resumed}) one->step();
    CHECK(resumed.weights() == rank.weights());
    nlohmann::ordered_json wrong = state;
    wrong["updates"] = kEarlier + 3;  // of two iterations
    CHECK_THAT(error_of([&] { resumed.trainer().set_state(wrong); }), ContainsSubstring("updates"));
    wrong["updates"] = kEarlier - 1;
    CHECK_THAT(error_of([&] { resumed.trainer().set_state(wrong); }), ContainsSubstring("updates"));
  }
}

TEST_CASE("moments of another run: rates begin anew") {
  for (const char* rule : {"warmup_rule=tutorial", "warmup_rule=megatron"}) {  // by iterations, and by updates
    const TinyClassifier classifier = with_given_moments({"lr_schedule=cosine", "num_iters=8", rule});
    TinyRank whole(classifier), fresh(classifier), rank(classifier);
    const EarlierRun earlier(whole);
    earlier.start(rank);
    for (int t = 0; t < 3; ++t) {
      CHECK(rank.trainer().lr_after() == fresh.trainer().lr_after());
      CHECK(rank.trainer().lr_after() != whole.trainer().lr_after());
      for (TinyRank* one : {&whole, &fresh, &rank}) one->step();
    }
  }
}

TEST_CASE("moments of another run: ranks take their parts of them") {
  const TinyClassifier classifier = with_given_moments({"lr_schedule=constant"});
  TinyRank whole(classifier);
  const EarlierRun earlier(whole);
  for (int t = 0; t < 2; ++t) whole.step();
  const NamedTensors expected = whole.weights();
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    TinyRank rank(classifier, world, {.dp = 2, .tp = 2}, 1, {.bucket_bytes = 4096, .shards = ExchangeOptions::kAll});
    earlier.start(rank);
    for (int t = 0; t < 2; ++t) rank.step();
    const NamedTensors weights = rank.weights();
    if (world.rank() == 0)
      for (const auto& [name, values] : expected)
        findings.expect(relative_difference(values, weights.at(name)) < 1e-12, name);
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("moments: a mean of squares that is negative is refused by its name, wherever it comes from") {
  const TinyClassifier classifier = with_given_moments({"lr_schedule=constant"});
  TinyRank whole(classifier), rank(classifier);
  const EarlierRun earlier(whole);
  const std::filesystem::path other = earlier.folder / "other";
  // The sign of every number of a tensor is turned.
  const auto turned = [&](const std::string& name) {
    const SafetensorsFile file(earlier.folder / "moments");
    std::vector<std::byte> bytes;
    std::vector<TensorBytes> tensors = file.tensors();
    for (TensorBytes& tensor : tensors) {
      if (tensor.info.name != name) continue;
      bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
      const std::size_t size = size_of(tensor.info.dtype);
      for (std::size_t i = size - 1; i < bytes.size(); i += size) bytes[i] ^= std::byte{0x80};  // little-endian
      tensor.bytes = bytes;
    }
    write_safetensors(other, tensors, of_updates("3"));
  };
  turned("v.head.weight");
  const std::string refusal =
      other.string() + ": tensor v.head.weight holds negative numbers, but means of squares have none";
  CHECK(error_of([&] { rank.trainer().take_moments(other); }) == refusal);
  CHECK(error_of([&] { rank.trainer().read_optimizer(other); }) == refusal);
  turned("m.head.weight");
  rank.trainer().take_moments(other);
  rank.trainer().read_optimizer(other);
}

TEST_CASE("moments of another run: a file that is none is refused, and nothing is taken of it") {
  const TinyClassifier classifier = with_given_moments({"lr_schedule=constant"});
  TinyRank whole(classifier), rank(classifier);
  const EarlierRun earlier(whole);
  const std::filesystem::path given = earlier.folder / "alone.optimizer", other = earlier.folder / "other";
  const nlohmann::ordered_json before = rank.trainer().state();
  const auto refusal = [&](const Metadata& metadata, const std::string& without = "") {
    copy_safetensors(given, other, metadata, without);
    return error_of([&] { rank.trainer().take_moments(other); });
  };
  CHECK(refusal({}) == other.string() +
                           " does not say how many updates its moments are of (isobar.updates of its "
                           "metadata)");
  for (const char* updates : {"", "0", "-3", "3.5", "many", "99999999999999999999"})
    CHECK_THAT(refusal(of_updates(updates)), ContainsSubstring(concat(": isobar.updates of its metadata is \"", updates,
                                                                      "\", no number of updates")));
  CHECK(refusal(of_updates("3"), "v.head.weight") == other.string() + ": tensor v.head.weight is missing");
  CHECK(rank.trainer().state() == before);
}

}  // namespace isobar::testing
