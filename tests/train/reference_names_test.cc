// The YAML files of the reference programs: which program it is, and what its names mean here.
#include "apps/train/reference_names.h"

#include <string>

#include "tests/harness/forecast_config.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

NamedConfig read(const std::vector<std::string>& assignments) {
  NamedConfig config{"base", {}};
  for (const std::string& assignment : assignments) {
    const std::size_t equals = assignment.find('=');
    config.entries[assignment.substr(0, equals)] = {nlohmann::json::parse(assignment.substr(equals + 1)),
                                                    "course.yaml"};
  }
  return read_reference_names(config, config_search_path());
}

}  // namespace

TEST_CASE("reference names: a YAML of the course extends the config cnn, whose keys it replaces") {
  const NamedConfig named = read({"in_chan=3", "batch_size=8", "max_epochs=2", "lr=0.5", "log_to_screen=true"});
  RunConfig config = testing::checked_config(named.entries);
  CHECK(config.task == "image_regression");
  CHECK(config.model == "cnn");
  CHECK(config.batch.global_batch_size == 8);
  CHECK(config.schedule.num_epochs == 2);
  CHECK(config.schedule.decay_epochs == 25);  // the program's own
  CHECK(config.schedule.lr == 0.5);
  CHECK(config.run.resume == Resuming::automatic);
  CHECK(named.notes == std::vector<std::string>{"log_to_screen: the log is always shown"});
  CHECK(named.entries.at("global_batch_size").origin == "course.yaml");
  CHECK_FALSE(testing::checked_config(read({"in_chan=1", "num_iters=7"}).entries).schedule.num_epochs);
}

TEST_CASE("reference names: the tutorial's YAML stays the tutorial's, and a named task is believed") {
  CHECK(read({"embed_dim=8", "batch_size=8"}).entries.count("task") == 0);
  CHECK(read({"embed_dim=8", "batch_size=8"}).entries.at("global_batch_size").value == 8);
  const NamedConfig named = read({"task=\"image_regression\"", "in_chan=2"});
  CHECK(named.entries.size() == 2);
  CHECK(named.entries.at("n_in_channels").value == 2);
}

TEST_CASE("reference names: two names of one key, and unknown ones, are refused") {
  CHECK_THROWS_WITH(read({"batch_size=8", "global_batch_size=8"}),
                    "config key batch_size in course.yaml is global_batch_size, which stands there too");
  CHECK_THROWS_WITH(read_config(read({"in_chan=1", "nonsense=1"}).entries), ContainsSubstring("unknown config key"));
}
