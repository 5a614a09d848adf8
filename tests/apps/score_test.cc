// isobar score and isobar data climatology as a user calls them, and the scores of longer forecasts in a validation.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "data/files/stored_arrays.h"
#include "engine/files/reader.h"
#include "tests/harness/small_runs.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;

class ScoreRuns : public SmallRuns {
 public:
  ScoreRuns()
      : SmallRuns(
            " --config tiny --device cpu --threads 1 --set num_iters=4 --set log_every=1 --set warmup=1"
            " --set validate_every=2 --set dtype=fp64 --set embed_dim=16 --set depth=1 --set num_heads=2"
            " --set global_batch_size=4 --set num_data_workers=1 --set limit_nsamples=8 ") {
    done(command("data synth --out " + path("data").string() +
                 " --train-years 2 --valid-years 1 --steps-per-year 40 --grid 8x16 --channels 2"));
  }

  std::string data(const std::string& below = "") const { return path("data").string() + below; }
  Outcome train_on(const std::string& run, const std::string& more = "") const {
    return train(run, "--data " + data() + " " + more);
  }
  nlohmann::json json(const std::string& name) const { return nlohmann::json::parse(file(name)); }
  std::vector<nlohmann::json> validations(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    for (const nlohmann::json& line : metrics_of(path(run)))
      if (line["event"] == "valid") lines.push_back(line);
    return lines;
  }
};

// Whether each number of a table of scores ends where a word of its head does.
bool columns_end_below_their_heads(const std::string& output) {
  const std::size_t begin = output.find("variable ");
  const std::string table = output.substr(begin, output.find("\n\n", begin) - begin);
  std::istringstream lines(table);
  std::string head, line;
  std::getline(lines, head);
  const std::size_t numbers = head.find("lead") + 4;
  const auto ends_at = [](const std::string& text, std::size_t i) {
    return i < text.size() && text[i] != ' ' && (i + 1 == text.size() || text[i + 1] == ' ');
  };
  int found = 0;
  while (std::getline(lines, line) && line.find(" h ") != line.npos)
    for (std::size_t i = numbers; i < line.size(); ++i) {
      if (!ends_at(line, i)) continue;
      ++found;
      if (!ends_at(head, i)) return false;
    }
  return found > 0;
}

}  // namespace

TEST_CASE("score: of one start RMSE and persistence are those that isobar forecast tells") {
  const ScoreRuns here;
  here.done(here.train_on("run"));
  const std::string forecast = here.path("f.h5").string(), made = here.path("made.json").string(),
                    scored = here.path("scored.json").string();
  here.done(here.command("forecast --weights " + here.path("run").string() + " --data " + here.data() +
                         " --start 3 --steps 3 --out " + forecast + " --scores " + made));
  const Outcome outcome =
      here.command("score " + forecast + " --truth " + here.data("/test") + " --json " + scored + " --png " +
                   here.path("png").string() + " --animate " + here.path("a.gif").string());
  here.done(outcome);
  const nlohmann::json a = here.json("made.json"), b = here.json("scored.json");
  CHECK(b["lead_hours"].size() == 3);
  const nlohmann::json& global = b["regions"]["global"];
  for (const auto& [name, values] : a["rmse"].items())
    for (std::size_t lead = 0; lead < 3; ++lead) {
      INFO(name << " lead " << lead);
      CHECK(global["forecast"]["rmse"][name][lead].get<double>() == Approx(values[lead].get<double>()).epsilon(1e-5));
      CHECK(global["persistence"]["rmse"][name][lead].get<double>() ==
            Approx(a["persistence_rmse"][name][lead].get<double>()).epsilon(1e-5));
    }
  CHECK(outcome.out.starts_with("1 start, 1982-01-01T18:00 to 1982-01-01T18:00; global, weights cos\n"));
  CHECK_THAT(outcome.out, ContainsSubstring(" pictures written to " + here.path("png").string() + "\n"));
  CHECK_THAT(outcome.out, ContainsSubstring("\nwritten to " + here.path("a.gif").string() +
                                            ": the forecast from 1982-01-01T18:00\n"));
  CHECK(fs::exists(here.path("a.gif")));

  const auto refused = [&](const std::string& arguments) {
    const Outcome refusal = here.command("score " + forecast + " --truth " + here.data("/test") + " " + arguments);
    CHECK(refusal.status == 1);
    return refusal.err;
  };
  CHECK_THAT(refused("--json " + forecast), ContainsSubstring("--json " + forecast + " would replace the data"));
  CHECK_THAT(refused("--json x.gif --animate x.gif"), ContainsSubstring("--json and --animate are both x.gif"));
  CHECK_THAT(refused("--json x.gif --animate ./x.gif"), ContainsSubstring("--json and --animate are both x.gif"));
  CHECK_THAT(refused("--png " + made), ContainsSubstring("--png " + made + " is no folder"));
  CHECK_THAT(refused("--animate " + forecast), ContainsSubstring("--animate " + forecast + " would replace the data"));
  CHECK_THAT(refused("--train-range 0 5"), ContainsSubstring("--train-range needs --climatology"));
  CHECK_THAT(refused("--region africa"), ContainsSubstring("no region africa"));
  CHECK_THAT(refused("--climatology " + forecast), ContainsSubstring("no variable on days"));
  CHECK_THAT(refused("--range 0 2"), ContainsSubstring("no forecast starts within --range"));
  CHECK_THAT(refused("--weights area"), ContainsSubstring("area"));
  CHECK_THAT(refused("--range 4 9"), ContainsSubstring("no forecast starts within --range"));
  const Outcome of_one = here.command("score " + forecast + " --truth " + here.data("/test") +
                                      " --range 3 4 --channels v10 --json " + here.path("one.json").string());
  here.done(of_one);
  CHECK_THAT(of_one.out, ContainsSubstring("v10") && !ContainsSubstring("u10"));
  const nlohmann::json one = here.json("one.json")["regions"]["global"]["forecast"]["rmse"];
  CHECK(one == nlohmann::json{{"v10", global["forecast"]["rmse"]["v10"]}});
  const Outcome tropics =
      here.command("score " + forecast + " --truth " + here.data("/test") + " --weights cells --region tropics");
  here.done(tropics);
  CHECK_THAT(tropics.out, ContainsSubstring("; tropics, weights cells\n"));
}

TEST_CASE("data climatology: killed at random moments it leaves no half file, and then it makes the same bytes") {
  const ScoreRuns here;
  const std::string out = here.path("c.nc").string();
  const auto make = [&](const std::string& to, const std::function<void(pid_t)>& meanwhile = {}) {
    return isobar_command(here.path(), "data climatology " + here.data("/train") + " --out " + to, meanwhile);
  };
  const Outcome whole = make(here.path("whole.nc").string());
  REQUIRE(whole.status == 0);
  CHECK(whole.out.starts_with("80 steps of 2 files, 1979-01-01T00:00 to 1980-01-10T18:00; written to " +
                              here.path("whole.nc").string() + "\n"));
  const Outcome some =
      here.command("data climatology " + here.data("/train") + " --range 2 9 --out " + here.path("some.nc").string());
  here.done(some);
  const auto with_window = [&](const std::string& days) {
    return here.command("data climatology " + here.data("/train") + " --window " + days + " --out " +
                        here.path("window.nc").string());
  };
  here.done(with_window("1"));
  CHECK((here.file("window.nc") != here.file("whole.nc")));
  CHECK_THAT(with_window("2").err, ContainsSubstring("2"));
  CHECK(some.out.starts_with("7 steps of 1 file, 1979-01-01T12:00 to 1979-01-03T00:00; written to "));
  int killed = 0;
  for (int moment = 0; moment < 12; ++moment) {
    const Outcome outcome = make(out, [&](pid_t child) {
      ::usleep(static_cast<useconds_t>(4000 * moment));
      ::kill(child, SIGKILL);
    });
    if (outcome.status == 0) {
      CHECK((read_file(out) == read_file(here.path("whole.nc"))));
      fs::remove(out);
      continue;
    }
    ++killed;
    CHECK_FALSE(fs::exists(out));
  }
  CHECK(killed > 0);
  REQUIRE(make(out).status == 0);
  CHECK((read_file(out) == read_file(here.path("whole.nc"))));
  for (const fs::directory_entry& entry : fs::directory_iterator(here.path()))
    CHECK_FALSE(entry.path().filename().string().starts_with(".c.nc"));  // what a killed writer left is gone
  for (const fs::directory_entry& source : fs::directory_iterator(here.data("/train"))) {
    const Outcome refusal = make(source.path().string());
    CHECK(refusal.status == 1);
    CHECK_THAT(refusal.err, ContainsSubstring("would replace the data"));
  }
}

TEST_CASE("score: a climatology and a training range add their figures, and a climatology has days as it is asked") {
  const ScoreRuns here;
  here.done(here.train_on("run"));
  const std::string forecast = here.path("f.nc").string(), means = here.path("means.nc").string();
  here.done(here.command("forecast --weights " + here.path("run").string() + " --data " + here.data() +
                         " --starts 3:5 --steps 2 --out " + forecast));
  const auto climatology = [&](const std::string& name, const std::string& flags) {
    here.done(here.command("data climatology " + here.data("/train") + " --out " + here.path(name).string() + flags));
    return open_stored_arrays(here.path(name).string());
  };
  const auto whole = climatology("means.nc", ""), others = climatology("others.nc", " --days dayofyear --channels v10");
  CHECK(whole->find("dayofyear") == nullptr);
  CHECK(whole->find("u10") != nullptr);
  CHECK(others->find("dayofyear") != nullptr);
  CHECK(others->find("u10") == nullptr);
  CHECK(others->find("v10") != nullptr);

  const auto scored = [&](const std::string& flags) {
    const Outcome outcome = here.command("score " + forecast + " --truth " + here.data("/test") + " --json " +
                                         here.path("s.json").string() + " " + flags);
    here.done(outcome);
    return outcome.out;
  };
  const std::string alone = scored("--weights tutorial");
  CHECK(alone.starts_with("2 starts, 1982-01-01T18:00 to 1982-01-02T00:00; global, weights tutorial\n"));
  CHECK(here.json("s.json")["weights"] == "tutorial");
  CHECK_THAT(alone,
             !ContainsSubstring("pooled") &&
                 ContainsSubstring("\nno ACC, no activity and no climatology beside the scores: --climatology "));
  const std::string with_means = scored("--climatology " + means);
  CHECK_THAT(with_means,
             ContainsSubstring("persistence  climatology         MAE        bias      ACC   pooled  activity\n") &&
                 ContainsSubstring("\nno damped persistence beside the scores: --train-range "));
  CHECK(columns_end_below_their_heads(alone));
  CHECK(columns_end_below_their_heads(with_means));
  CHECK(here.json("s.json")["climatology"] == means);
  const std::string damped = scored("--climatology " + means + " --train-range 0 30");
  CHECK_THAT(damped, ContainsSubstring("climatology       damped         MAE") && !ContainsSubstring("no damped"));
  const nlohmann::json shares = here.json("s.json")["damping"];
  CHECK(shares.size() == 2);
  scored("--climatology " + means + " --train-range 0 20");
  CHECK(here.json("s.json")["damping"] != shares);

  const auto animated = [&](const std::string& flags) {
    scored("--animate " + here.path("a.gif").string() + flags);
    return here.file("a.gif");
  };
  const std::string first = animated("");
  CHECK((animated(" --animate-channel u10") == first));
  CHECK((animated(" --animate-channel v10") != first));
  const auto refused = [&](const std::string& flags) {
    return here.command("score " + forecast + " --truth " + here.data("/test") + " " + flags).err;
  };
  CHECK_THAT(refused("--truth-channels v10,u10"), ContainsSubstring("--truth-channels has 'v10' there"));
  CHECK_THAT(refused("--climatology " + means + " --json " + means), ContainsSubstring("would replace the data"));
}

TEST_CASE("valid_leads: validations score longer forecasts, alike on any ranks, and train the same") {
  const ScoreRuns here;
  const std::string leads = " --set 'valid_leads=[\"6h\",\"18h\"]'";
  here.done(here.train_on("plain", "--set valid_rollout=3"));
  here.done(here.train_on("leads", "--set valid_rollout=3" + leads));
  here.done(here.train_on("ranks", "--ranks 4 --context-parallel 2 --set valid_rollout=3" + leads));
  const auto plain = here.validations("plain"), with = here.validations("leads"), ranks = here.validations("ranks");
  REQUIRE(with.size() == 3);
  for (std::size_t i = 0; i < with.size(); ++i) {
    CHECK(plain[i]["loss"] == with[i]["loss"]);
    CHECK_FALSE(plain[i].contains("lead_18h_rmse"));
    for (const auto& [name, value] : with[i]["lead_18h_rmse"].items()) {
      // The validation set has less than 64 windows of three steps: both score all of them.
      CHECK(value.get<double>() == Approx(with[i]["last_rmse"][name].get<double>()).epsilon(1e-12));
      CHECK(with[i]["lead_18h_persistence_rmse"][name].get<double>() ==
            Approx(with[i]["last_persistence_rmse"][name].get<double>()).epsilon(1e-12));
      CHECK(with[i]["lead_6h_rmse"][name].get<double>() == Approx(with[i]["rmse"][name].get<double>()).epsilon(1e-12));
      CHECK(with[i]["lead_6h_persistence_rmse"][name].get<double>() > 0);
      CHECK(ranks[i]["lead_18h_rmse"][name].get<double>() == Approx(value.get<double>()).epsilon(1e-10));
    }
  }
  CHECK_THAT(here.file("leads/out.log"), ContainsSubstring("after 6h ") && ContainsSubstring(", after 18h "));
  CHECK(here.json("leads/summary.json").contains("val_lead_18h_rmse_physical"));
  CHECK(here.file("plain/best/model.safetensors").size() > 0);

  const auto refused = [&](const std::string& value) {
    const Outcome outcome = here.train_on("refused", "--set 'valid_leads=" + value + "'");
    CHECK(outcome.status == 1);
    return outcome.err;
  };
  CHECK_THAT(refused("[\"9h\"]"), ContainsSubstring("valid_leads has 9h, which is no multiple of the 6 hours"));
  CHECK_THAT(refused("[\"12h\",\"6h\"]"), ContainsSubstring("do not rise at 6h"));
  CHECK_THAT(refused("[]"), ContainsSubstring("valid_leads"));
  CHECK_THAT(refused("[\"soon\"]"), ContainsSubstring("valid_leads") && ContainsSubstring("'soon'"));
  CHECK_THAT(refused("[\"90d\"]"), ContainsSubstring("longest stretch"));
}

}  // namespace isobar::testing
