// The shipped configs of GPT-2: as many parameters as their papers and programs count.
#include <cstdint>
#include <string>

#include "apps/train/config.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

namespace isobar {

TEST_CASE("gpt: the shipped configs have the sizes of GPT-2") {
  struct Size {
    const char* config;
    std::int64_t parameters, published;  // of the config, and with a table of 50257 rows
  };
  // published: 50257·C + 1024·C + depth·(12·C² + 13·C) + 2·C; 124,475,904 is what the course's program prints.
  const std::vector<Size> sizes{{"gpt2", 124475904, 124439808},       {"gpt2-medium", 354871296, 354823168},
                                {"gpt2-large", 774090240, 774030080}, {"gpt2-xl", 1557686400, 1557611200},
                                {"dli", 124475904, 124439808},        {"wikitext", 7248640, 7242624}};
  for (const auto& [name, parameters, published] : sizes) {
    INFO(name);
    const auto count = [&](const std::vector<std::string>& assignments) {
      ConfigEntries entries = load_config(name, {testing::source_path("configs")}).entries;
      for (const std::string& assignment : assignments) set_from_assignment(entries, assignment);
      RunConfig config = read_config(entries);
      config.check();
      return config.recipe->on_shapes()->make_task(config.compute, Device{DeviceKind::meta})->parameters().count();
    };
    CHECK(count({}) == parameters);
    CHECK(count({"vocab_multiple=1"}) == published);
  }
}

}  // namespace isobar
