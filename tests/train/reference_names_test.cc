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
  CHECK(read({"in_chan=1", "valid_batch_size=4", "save_checkpoint=true"}).notes ==
        std::vector<std::string>{
            "valid_batch_size: a batch of a validation has as many samples as a part of a training batch",
            "save_checkpoint: checkpoints are always written"});
}

TEST_CASE("reference names: the tutorial's YAML stays the tutorial's, and a named task is believed") {
  CHECK(read({"embed_dim=8", "batch_size=8"}).entries.count("task") == 0);
  CHECK(read({"embed_dim=8", "batch_size=8"}).entries.at("global_batch_size").value == 8);
  const NamedConfig named = read({"task=\"image_regression\"", "in_chan=2"});
  CHECK(named.entries.size() == 2);
  CHECK(named.entries.at("n_in_channels").value == 2);
}

TEST_CASE("reference names: a YAML of the tutorial on volumes extends the config unet") {
  const NamedConfig named = read({"weight_init.conv_init=\"normal\"",
                                  "weight_init.conv_scale=0.03",
                                  "weight_init.conv_bias=0.5",
                                  "lambda_rho=0.1",
                                  "full_scale=false",
                                  "global_batch_size=128",
                                  "base_batch_size=32",
                                  "Nsamples=256",
                                  "Nsamples_val=64",
                                  "num_epochs=4",
                                  "enable_amp=false",
                                  "enable_apex=true",
                                  "enable_benchy=false",
                                  "enable_jit=false",
                                  "expdir=\"/logs\"",
                                  "lr_schedule.scaling=\"linear\"",
                                  "lr_schedule.start_lr=0.001",
                                  "lr_schedule.end_lr=0.0001",
                                  "lr_schedule.warmup_steps=7",
                                  "data_loader_config=\"inmem\"",
                                  "box_size=[1024,512]",
                                  "data_size=32",
                                  "num_data_workers=3",
                                  "N_out_channels=5",
                                  "train_path=\"/a.h5\"",
                                  "val_path=\"/b.h5\"",
                                  "train_path_npy_data=\"/a_data.npy\"",
                                  "train_path_npy_label=\"/a_label.npy\"",
                                  "val_path_npy_data=\"/b_data.npy\"",
                                  "val_path_npy_label=\"/b_label.npy\"",
                                  "use_cache=\"None\""});
  RunConfig config = testing::checked_config(named.entries);
  CHECK(config.task == "volume_regression");
  CHECK(config.model == "unet");
  const nlohmann::json keys = to_json(config);
  CHECK(keys.at("conv_scale") == 0.03);
  CHECK(keys.at("conv_bias") == 0.5);
  CHECK(keys.at("full_scale") == false);
  CHECK(keys.at("reference_batch_size") == 32);
  CHECK(keys.at("batch_lr_scaling") == "linear");
  CHECK(keys.at("lr") == 0.001);
  CHECK(keys.at("end_lr") == 0.0001);
  CHECK(keys.at("warmup") == 7);
  CHECK(keys.at("warmup_rule") == "unet");  // the program's own
  CHECK(keys.at("lr_schedule") == "cosine");
  CHECK(keys.at("volumes") == "memory");
  CHECK(keys.at("nsamples") == 256);
  CHECK(keys.at("nsamples_val") == 64);
  CHECK(keys.at("n_out_channels") == 5);
  CHECK(keys.at("train_path") == "/a.h5");
  CHECK(named.notes == std::vector<std::string>{"enable_amp: the tutorial reads it from its flag alone; set amp_mode",
                                                "enable_apex: isobar's Adam is one fused kernel always",
                                                "enable_benchy: isobar-bench times kernels",
                                                "box_size: the files say how large their volumes are",
                                                "train_path_npy_data: train_path is read; it may be such a file",
                                                "train_path_npy_label: it is the file beside X_data.npy",
                                                "val_path_npy_data: val_path is read; it may be such a file",
                                                "val_path_npy_label: it is the file beside X_data.npy",
                                                "use_cache: name the copies by train_path and val_path"});
  for (const auto& [word, volumes] : {std::pair("lowmem", "file"), std::pair("dali-lowmem", "file"),
                                      std::pair("inmem", "memory"), std::pair("synthetic", "synthetic")})
    CHECK(read({"lambda_rho=0", "data_loader_config=\"" + std::string(word) + "\""}).entries.at("volumes").value ==
          volumes);
}

TEST_CASE("reference names: two names of one key, and unknown ones, are refused") {
  CHECK_THROWS_WITH(read({"batch_size=8", "global_batch_size=8"}),
                    "config key batch_size in course.yaml is global_batch_size, which stands there too");
  CHECK_THROWS_WITH(read_config(read({"in_chan=1", "nonsense=1"}).entries), ContainsSubstring("unknown config key"));
}
