// The keys of a vision transformer: their bounds, defaults and other names, and which values contradict each other.
#include "models/vit/options.h"

#include <string>
#include <utility>
#include <vector>

#include "models/vit/vit.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/key_facts.h"
#include "tests/harness/testing.h"

namespace isobar::testing {

TEST_CASE("vit options: each key's bounds and its names in other programs") {
  VitOptions options;
  const std::string extent = "at least 1, at most " + std::to_string(kLargestExtent);
  CHECK(key_facts(options.keys()) ==
        std::vector<std::string>{"embed_dim; " + extent + "; also: hiddensize, hiddendim, dmodel, width",
                                 "depth; at least 1, at most 8000; also: layers, numlayers, nlayers, blocks",
                                 "num_heads; " + extent + "; also: heads, nhead, nheads",
                                 "patch_size; " + extent + "; also: patch",
                                 "dropout; at least 0, below 1; also: droprate"});
  CHECK(options.embed_dim == 384);
  CHECK(options.depth == 12);
  CHECK(options.num_heads == 8);
  CHECK(options.patch_size == 8);
  CHECK(options.dropout == 0);
}

TEST_CASE("vit options: heads divide the width into multiples of 8 up to 128, and a patch is asked for without data") {
  const auto refusal = [](const std::string& embed_dim, const std::string& num_heads,
                          const std::string& patch_size = "2") {
    return error_of([&] {
      checked_config(entries_of({"img_size=[8,16]", "n_in_channels=2", "n_out_channels=2", "embed_dim=" + embed_dim,
                                 "num_heads=" + num_heads, "patch_size=" + patch_size}));
    });
  };
  CHECK(refusal("16", "2").empty());
  CHECK(refusal("8", "1").empty());
  CHECK(refusal("128", "1").empty());
  CHECK(refusal("256", "2").empty());
  const std::string key = "config key embed_dim in --set ";
  CHECK(refusal("24", "5") == key + "must be a multiple of num_heads (5), not 24");
  CHECK(refusal("24", "2") == key + "divided by num_heads must be a multiple of 8 up to 128, not 12");
  CHECK(refusal("136", "1") == key + "divided by num_heads must be a multiple of 8 up to 128, not 136");
  CHECK(refusal("16", "2", "null") == "config key patch_size in --set is null where no data can fill it");
  CHECK(refusal("16", "2", "0") == "config key patch_size in --set must be at least 1, not 0");
  CHECK(refusal("16", "2", "16") == "config key img_size in --set must be a multiple of patch_size (16), not 8");
  CHECK(refusal("16", "2", "8").empty());
}

TEST_CASE(
    "vit options: the network's numbers are those of its ports, and fields have channels where images have classes") {
  const VitOptions options{.embed_dim = 48, .depth = 3, .num_heads = 6, .patch_size = 4, .dropout = 0.25};
  const VitConfig fields = options.config({.in = {5, 8, 12}, .out = {3, 8, 12}, .starts_at_zero = true});
  CHECK(fields.height == 8);
  CHECK(fields.width == 12);
  CHECK(fields.patch == 4);
  CHECK(fields.in_channels == 5);
  CHECK(fields.out_channels == 3);
  CHECK(fields.classes == 0);
  CHECK(fields.embed == 48);
  CHECK(fields.depth == 3);
  CHECK(fields.heads == 6);
  CHECK(fields.dropout == 0.25);
  CHECK(fields.zero_head);
  const VitConfig classes = options.config({.in = {1, 8, 12}, .out = {7}});
  CHECK(classes.classes == 7);
  CHECK(classes.out_channels == 0);
  CHECK_FALSE(classes.zero_head);
}

TEST_CASE("vit: a block's path is dropped the more often the deeper it lies") {
  const VitConfig five{.depth = 5, .dropout = 0.4};
  for (const auto& [block, rate] : {std::pair(0, 0.0), {1, 0.1}, {2, 0.2}, {4, 0.4}})
    CHECK(five.drop_path(block) == Approx(rate).epsilon(1e-15));
  CHECK(VitConfig{.depth = 1, .dropout = 0.4}.drop_path(0) == 0);
  CHECK(VitConfig{.depth = 2, .dropout = 0.4}.drop_path(1) == 0.4);
}

}  // namespace isobar::testing
