// The lines of a run's log, in the words of the two programs that people may know.
#include "apps/train/log_lines.h"

#include "tests/harness/testing.h"

using namespace isobar;

namespace {

const EpochFigures kEpoch{.epoch = 3, .seconds = 2, .data_seconds = 0.5, .samples_per_second = 64, .loss = 0.25};
const ValidationFigures kValid{.loss = 0.125, .seconds = 0.5, .sentence = "a sentence"};

}  // namespace

TEST_CASE("log lines: the weather tutorial's") {
  const auto lines = make_log_lines(LogStyle::weather);
  CHECK(lines->ranks(4) == "");
  CHECK(lines->resumed("FOLDER", 7) == "resumed from FOLDER, after iteration 7");
  CHECK(lines->loop_begins() == "Starting Training Loop...");
  CHECK(lines->run_ends() == "DONE ---- rank 0");
  CHECK(lines->epoch_end(kEpoch) == Lines{"Time taken for epoch 3 is 2.000000 sec, avg 64.000000 samples/sec",
                                          "  Avg train loss=0.250000", "  Waited for data: 0.5 sec"});
  CHECK(lines->validated(kValid) == Lines{"  Avg val loss=0.125", "  a sentence", "  Total validation time: 0.5 sec"});
}

TEST_CASE("log lines: the course's, which tell an epoch together with its validation") {
  const auto lines = make_log_lines(LogStyle::course);
  CHECK(lines->ranks(4) == "running on rank 0 with world size 4");
  CHECK(lines->resumed("FOLDER", 7) == "Loading checkpoint FOLDER");
  CHECK(lines->loop_begins() == "Starting training loop...");
  CHECK(lines->run_ends() == "Training complete");
  CHECK(lines->validated(kValid) == Lines{"Val loss = 0.125", "a sentence"});  // before training
  CHECK(lines->epoch_end(kEpoch).empty());
  CHECK(lines->validated(kValid) == Lines{"Time taken for epoch 3 is 2.5 sec; with 2/0.5 in tr/val",
                                          "Loss = 0.25, Val loss = 0.125", "a sentence"});
  CHECK(lines->validated(kValid) == Lines{"Val loss = 0.125", "a sentence"});
  CHECK(lines->epoch_end(kEpoch).empty());  // and no validation before the next one
  CHECK(lines->epoch_end(kEpoch) == Lines{"Time taken for epoch 3 is 2 sec; with 2/0 in tr/val", "Loss = 0.25"});
}
