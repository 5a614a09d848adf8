// A run whose data are open: from where on its samples come again, and ranks that have opened other data.
#include "apps/train/opened_run.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/rank_of_run.h"
#include "comm/thread_ranks.h"
#include "data/text/byte_tokenizer.h"
#include "data/text/token_writer.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

// Token files of bytes, their documents of six tokens each, and a small model of them.
class OpenedTokens {
 public:
  std::string write(const std::string& name, int documents, std::int32_t first = 1) const {
    TokenWriter writer(folder_ / name, TokenType::u16, ExistingFile::replaced);
    for (int d = 0; d < documents; ++d) {
      writer.add_sequence(std::vector<std::int32_t>{first, 2, 3, 4, d % 256, 256});
      writer.end_document();
    }
    writer.finish({.tokenizer = "bytes", .fingerprint = fingerprint_text(ByteTokenizer().fingerprint())});
    return folder_ / name;
  }
  static RunConfig config(std::vector<std::string> assignments) {
    assignments.insert(assignments.begin(), {"task=language_model", "tokenizer=bytes", "seq_length=4", "embed_dim=8",
                                             "num_heads=1", "depth=1", "global_batch_size=4"});
    return read_config(testing::entries_of(assignments));
  }

 private:
  testing::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("an opened run: from which iteration on it takes its samples again") {
  const OpenedTokens tokens;
  const std::string train = tokens.write("train", 40), valid = tokens.write("valid", 4);
  const auto told = [&](std::int64_t num_iters, const std::vector<std::string>& more = {}) {
    std::vector<std::string> keys{"train_token_path=" + train, "valid_token_path=" + valid, "train_samples=22"};
    keys.insert(keys.end(), more.begin(), more.end());
    RunConfig config = OpenedTokens::config(keys);
    const std::unique_ptr<OpenedRecipe> data = config.recipe->open(config.origins, {.global_batch_size = 4});
    ScheduleOptions schedule = config.schedule;
    schedule.num_iters = num_iters;
    return about_repeated_samples(config, *data, schedule);
  };
  const auto warning = [](int samples, int enough, int of) {
    return concat(
        "warning: the ", samples, " training samples (train_samples) are enough for ", enough, " of the ", of,
        " iterations: from iteration ", enough + 1,
        " on the same ones are taken again, in the same order. A larger train_samples has new ones, for a run "
        "that has not begun again");
  };
  CHECK(told(5) == "");  // five batches of four; two samples are left out
  CHECK(told(6) == warning(22, 5, 6));
  CHECK(told(6, {"incomplete_batch=keep"}) == "");
  CHECK(told(7, {"incomplete_batch=keep"}) == warning(22, 6, 7));
  // Batches of 2, 2, 2, 4, 4, ...: 20 samples are six whole ones.
  CHECK(told(6, {"batch_rampup=[2,2,6]"}) == "");
  CHECK(told(7, {"batch_rampup=[2,2,6]"}) == warning(22, 6, 7));
  CHECK(told(3, {"batch_rampup=[2,2,6]", "train_samples=8"}) == "");
  CHECK(told(4, {"batch_rampup=[2,2,6]", "train_samples=8"}) == warning(8, 3, 4));
}

TEST_CASE("an opened run: of a number of epochs the config has the iterations that the data make of them") {
  const OpenedTokens tokens;
  RunConfig config = OpenedTokens::config({"train_token_path=" + tokens.write("train", 40), "train_samples=22",
                                           "num_epochs=3", "valid_token_path=" + tokens.write("valid", 4)});
  const std::unique_ptr<OpenedRecipe> data = config.recipe->open(config.origins, {.global_batch_size = 4});
  const ScheduleOptions schedule = config.schedule.of_run(config.batch.iterations_per_epoch(data->train().samples()));
  CHECK(schedule.num_iters == 15);
  const nlohmann::ordered_json kept = config_of_run(config, *data, schedule);
  CHECK(kept.at("num_iters") == 15);
  CHECK(kept.at("num_epochs") == 3);
  CHECK(kept.at("vocab_size") == 258);
  CHECK(kept.at("positions") == 4);
}

// As on hosts whose disks have other files at the same path.
TEST_CASE("an opened run: what a rank has opened otherwise than the first one is named before anything is written") {
  const OpenedTokens tokens;
  const std::string train = tokens.write("train", 40), valid = tokens.write("valid", 10),
                    other_valid = tokens.write("other_valid", 11), other_tokens = tokens.write("other_tokens", 40, 9);
  struct Opened {
    std::string train, valid, test;
    std::string samples = "12";
    std::vector<std::string> more = {};
    double lr = 1;  // of the config as it is kept
  };
  const Opened first{train, valid, valid};
  const auto refusal = [&](const Opened& second) {
    return testing::error_of([&] {
      run_ranks({.ranks = 2}, [&](const Communicator& world) {
        const Opened& mine = world.rank() == 0 ? first : second;
        std::vector<std::string> keys{"train_token_path=" + mine.train, "valid_token_path=" + mine.valid,
                                      "train_samples=" + mine.samples};
        if (!mine.test.empty()) keys.push_back("test_token_path=" + mine.test);
        keys.insert(keys.end(), mine.more.begin(), mine.more.end());
        RunConfig config = OpenedTokens::config(keys);
        const std::unique_ptr<OpenedRecipe> data = config.recipe->open(config.origins, {.global_batch_size = 4});
        OpenedRun run{.config = config,
                      .data = *data,
                      .folder = nullptr,
                      .found = {},
                      .trained = {},
                      .init = {},
                      .init_moments = {},
                      .partial = {},
                      .setup = {.folder = {},
                                .options = config.run,
                                .num_iters = 0,
                                .global_batch_size = 4,
                                .precision = "fp32",
                                .rank_map = "",
                                .notes = {},
                                .config = {{"lr", mine.lr}}},
                      .device = {}};
        train_as_rank(Parallel::start(world, {.dp = 2}, "tp-cp-dp"), {.sizes = {.dp = 2}, .rank = world.rank()}, run,
                      nullptr);
      });
    });
  };
  const auto names = [](const std::string& what) {
    return testing::ContainsSubstring("rank 1 has " + what + " other than rank 0's");
  };
  CHECK_THAT(refusal({train, valid, valid, "12", {}, 2}), names("a config, completed by its data,"));
  CHECK_THAT(refusal({train, valid, valid, "13"}), names("a number of training samples"));
  CHECK_THAT(refusal({train, other_valid, valid}), names("a number of validation samples"));
  CHECK_THAT(refusal({train, valid, other_valid}), names("a number of test samples"));
  CHECK_THAT(refusal({train, valid, ""}), names("a number of test samples"));
  CHECK_THAT(refusal({train, valid, valid, "12", {"eod_mask_loss=true"}}), names("a shape of samples"));
  CHECK_THAT(refusal({other_tokens, valid, valid}), names("statistics or names of the data"));
}

}  // namespace isobar
