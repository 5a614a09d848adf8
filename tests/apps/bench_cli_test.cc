// isobar-bench, run as a process on tiny shapes: what it prints, which ops it knows, and how it refuses.
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/files/reader.h"
#include "kernels/cpu/isa.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/places.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Runs `isobar-bench ARGUMENTS` on two threads and as briefly as it can, without any GPU in sight.
Outcome bench(const std::string& arguments, const std::string& environment = "",
              const std::string& program = kIsobarBench) {
  const TemporaryFolder folder;
  const std::string command = environment + " CUDA_VISIBLE_DEVICES= " + program + " --threads 2 --seconds 0 " +
                              arguments + " >" + (folder / "out").string() + " 2>" + (folder / "err").string();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "out"), read_file(folder / "err")};
}

// The kernels that the headers of kernels/ declare, those of them that have cases with missing points, the products of
// a layer, and what a step does besides.
std::set<std::string> expected_ops() {
  const std::regex declaration("\nISOBAR_KERNEL\\((\\w+), \\w+\\)");  // at the start of a line: not its #define
  std::set<std::string> names{"linear_fwd",
                              "linear_dx",
                              "linear_dw",
                              "upload",
                              "launches",
                              "waits",
                              "normalize_filled",
                              "forecast_loss_sums_masked",
                              "forecast_loss_finish_masked",
                              "forecast_loss_bwd_masked",
                              "forecast_scores_masked"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("kernels"))) {
    if (entry.path().extension() != ".h") continue;
    const std::string text = read_file(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), declaration), end; match != end; ++match)
      names.insert((*match)[1]);
  }
  return names;
}

void check_result(const nlohmann::json& line, const std::string& op, const std::string& baseline) {
  INFO(line.dump());
  std::set<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.insert(key);
  CHECK(keys == std::set<std::string>{"op",
                                      "dims",
                                      "shape",
                                      "dtype",
                                      "device",
                                      "microseconds",
                                      "gbytes_per_second",
                                      "tflops",
                                      "percent_of_floor",
                                      "judged_by",
                                      "baseline",
                                      "ratio_to_baseline",
                                      "ratio_to_old",
                                      "microseconds_min",
                                      "microseconds_max",
                                      "calls",
                                      "warning",
                                      "cpu",
                                      "instruction_set",
                                      "threads",
                                      "commit",
                                      "peak_gbytes_per_second",
                                      "peak_gbytes_per_second_source",
                                      "peak_tflops",
                                      "peak_tflops_source"});
  CHECK(line["op"] == op);
  CHECK(line["device"] == "cpu");
  CHECK(line["microseconds"].get<double>() > 0);
  CHECK(line["microseconds_min"].get<double>() <= line["microseconds"].get<double>());
  CHECK(line["microseconds_max"].get<double>() >= line["microseconds"].get<double>());
  CHECK(line["calls"] == 3);
  CHECK(line["cpu"].get<std::string>() != "");
  CHECK(line["threads"] == 2);
  CHECK(line["commit"].get<std::string>() != "");
  CHECK(line["peak_gbytes_per_second"].get<double>() > 0);
  CHECK(line["peak_tflops"].get<double>() > 0);
  CHECK(line["gbytes_per_second"].get<double>() > 0);
  CHECK(line["tflops"].get<double>() >= 0);
  CHECK(line["percent_of_floor"].get<double>() > 0);
  CHECK(line["percent_of_floor"].get<double>() <= 100.0001);
  CHECK(line["gbytes_per_second"].get<double>() <= 1.000001 * line["peak_gbytes_per_second"].get<double>());
  if (baseline.empty()) {
    CHECK(line["baseline"].is_null());
    CHECK(line["ratio_to_baseline"].is_null());
  } else {
    CHECK(line["baseline"] == baseline);
    CHECK(line["ratio_to_baseline"].get<double>() > 0);
  }
}

}  // namespace

TEST_CASE("isobar-bench lists every kernel") {
  const Outcome outcome = bench("--list");
  REQUIRE(outcome.status == 0);
  std::set<std::string> listed;
  for (const std::string& line : lines_of(outcome.out)) listed.insert(line.substr(0, line.find(' ')));
  CHECK(expected_ops() == listed);
}

TEST_CASE("isobar-bench times every op and writes the documented JSON") {
  const Outcome outcome = bench("--json --small --baseline memcpy");
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  std::set<std::string> timed;
  for (const std::string& text : lines_of(outcome.out)) {
    const nlohmann::json line = nlohmann::json::parse(text);
    check_result(line, line["op"], "memcpy");
    timed.insert(line["op"].get<std::string>());
  }
  CHECK(expected_ops() == timed);
}

TEST_CASE("isobar-bench judges by the minimum what varies, and says so") {
  const Outcome outcome = bench("--json --small");
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  std::size_t doubted = 0;
  for (const std::string& text : lines_of(outcome.out)) {
    const nlohmann::json line = nlohmann::json::parse(text);
    INFO(text);
    const bool varies = line["microseconds"].get<double>() > 1.25 * line["microseconds_min"].get<double>();
    const std::string warning = line["warning"].is_null() ? "" : line["warning"].get<std::string>();
    CHECK((warning.find("noisy") != std::string::npos) == varies);
    CHECK(line["judged_by"] == (varies ? "minimum" : "median"));
    CHECK(line["percent_of_floor"].get<double>() <= 100.0001);
    if (varies) ++doubted;
  }
  CHECK(lines_of(outcome.err).size() == doubted);
}

TEST_CASE("isobar-bench shows ladders, and says what is measured, what is counted and what is predicted", "[.long]") {
  for (const auto& [arguments, last_rung] : {std::pair{"layernorm --shape 5x33 --mean 3", "threaded"},
                                             {"product --shape 9x12x8", "tensor"},
                                             {"attention --shape 1x9", "tensor"}}) {
    const Outcome outcome = bench(std::string("--ladder ") + arguments);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, ContainsSubstring("\nMEASURED here, cpu, the least of 3 calls each"));
    CHECK_THAT(outcome.out, ContainsSubstring("\nkernels/"));
    if (!ISOBAR_HAS_EMULATOR) continue;
    CHECK_THAT(outcome.out, ContainsSubstring(std::string("\n") + last_rung));
    CHECK_THAT(outcome.out, ContainsSubstring("\nCUDA in the emulator, compared: "));
    const bool counts = outcome.out.find("counts no memory accesses") == std::string::npos;
    for (const char* words :
         {"CUDA, COUNTED in the emulator on ", "from that PREDICTED for ", "nobody has measured it"})
      CHECK((outcome.out.find(words) != std::string::npos) == counts);
  }
}

TEST_CASE("isobar-bench shows a ladder of a CPU alone") {
  const Outcome outcome = bench("--ladder conv --shape 2x5x3x7");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  for (const char* line :
       {"\nMEASURED here, cpu, the least of 3 calls each", "\nnaive ", "\ngathered ", "\nkernels/conv "})
    CHECK_THAT(outcome.out, ContainsSubstring(line));
  CHECK_THAT(outcome.out, !ContainsSubstring("CUDA"));
}

TEST_CASE("isobar-bench compares with an earlier run") {
  const TemporaryFolder folder;
  const std::string old = (folder / "old.jsonl").string(), ops = "--op fill --op gelu_fwd --shape 4000 --shape 7000 ";
  const Outcome first = bench("--json " + ops);
  REQUIRE(first.status == 0);
  std::vector<nlohmann::json> lines;
  for (const std::string& text : lines_of(first.out)) lines.push_back(nlohmann::json::parse(text));
  REQUIRE(lines.size() == 2);
  // Twice in the file: the least counts.
  const double least = lines[0]["microseconds_min"];
  lines[0]["microseconds_min"] = least / 1000;
  std::ofstream(old) << first.out << lines[0].dump() << '\n';

  const Outcome second = bench("--json " + ops + "--against " + old);
  INFO(second.err);
  REQUIRE(second.status == 0);
  const nlohmann::json now = nlohmann::json::parse(lines_of(second.out)[0]);
  CHECK(now["ratio_to_old"].get<double>() ==
        Approx(now["microseconds_min"].get<double>() / (least / 1000)).epsilon(1e-6));
  CHECK_THAT(bench(ops + "--against " + old).out, ContainsSubstring("of the old minimum"));
  const Outcome another = bench("--op fill --shape 4001 --against " + old);
  CHECK(another.status == 1);
  CHECK_THAT(another.err, ContainsSubstring("has no fill 4001 fp32 on cpu"));
  std::ofstream(old) << "op\n";
  CHECK_THAT(bench("--op fill --shape 4001 --against " + old).err, ContainsSubstring("is not what isobar-bench"));
  CHECK_THAT(bench("--op fill --shape 4001 --against " + old + ".none").err, ContainsSubstring("cannot be read"));
}

// A program that runs isobar-bench, with times `factor` times as long in what it prints.
std::string scaled_bench(const TemporaryFolder& folder, const std::string& factor) {
  const std::string program = (folder / ("times_" + factor)).string();
  std::ofstream(program) << "#!/bin/sh\n"
                         << kIsobarBench << " \"$@\" | awk -F'\"microseconds_min\":' "
                         << "'{ rest = $2; sub(/^[0-9.e+-]*/, \"\", rest); "
                         << "print $1 FS ($2 + 0) * " << factor << " rest; fflush() }'\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return program;
}

TEST_CASE("isobar-bench takes turns with an older program and says which is faster", "[.long]") {
  const TemporaryFolder folder;
  const std::string ops = "--op fill --op gelu_fwd --shape 4000 --shape 7000 --against ";
  for (const auto& [factor, verdict] : {std::pair{"1000", "faster"}, {"0.001", "slower"}}) {
    const Outcome outcome = bench("--json " + ops + scaled_bench(folder, factor));
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.status == 0);
    const std::vector<std::string> lines = lines_of(outcome.out);
    REQUIRE(lines.size() == 2);
    for (const auto& [text, op, shape] : {std::tuple{lines[0], "fill", "4000"}, {lines[1], "gelu_fwd", "7000"}}) {
      const nlohmann::json line = nlohmann::json::parse(text);
      CHECK(line["op"] == op);
      CHECK(line["shape"] == shape);
      CHECK(line["dtype"] == "fp32");
      CHECK(line["device"] == "cpu");
      CHECK(line["rounds"] == 9);
      CHECK(line["threads"] == 2);
      CHECK(line["verdict"] == verdict);
      CHECK(line["microseconds_min"].get<double>() > 0);
      CHECK(line["ratio_to_old_low"].get<double>() <= line["ratio_to_old"].get<double>());
      CHECK(line["ratio_to_old"].get<double>() <= line["ratio_to_old_high"].get<double>());
      CHECK((line["old_microseconds_min"] > line["microseconds_min"]) == (std::string(verdict) == "faster"));
    }
  }
  // Beside itself: whatever the machine does meanwhile, neither is a hundred times as quick.
  const Outcome same = bench(ops + kIsobarBench);
  INFO(same.out << same.err);
  REQUIRE(same.status == 0);
  std::smatch row;
  REQUIRE(std::regex_search(same.out, row, std::regex("\ngelu_fwd +7000 +fp32 +[0-9.]+ +[0-9.]+ +([0-9.]+) ")));
  CHECK(std::stod(row[1]) > 0.01);
  CHECK(std::stod(row[1]) < 100);
}

TEST_CASE("isobar-bench refuses a program that it cannot take turns with", "[.long]") {
  const TemporaryFolder folder;
  const auto program = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << "#!/bin/sh\n" << text << '\n';
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
    return (folder / name).string();
  };
  for (const auto& [old, words] :
       {std::pair{program("fails", "echo 'old: there is no op \"fill\"' >&2; exit 1"),
                  "ended without a result: old: there is no op \"fill\""},
        {program("silent", "exit 0"), "ended without a result: it says nothing"},
        {program("talks", "echo hello; sleep 100"), "is no isobar-bench: it prints hello"},
        {program("another", "echo '{\"op\":\"cast\",\"shape\":\"5\",\"microseconds_min\":1}'"),
         "has timed cast 5 instead of fill 4000"}}) {
    const Outcome outcome = bench("--op fill --shape 4000 --against " + old);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 1);
    CHECK(lines_of(outcome.err).size() == 1);
    CHECK_THAT(outcome.err, ContainsSubstring(words));
  }
  // It is stopped while it waits, in vfork, for a child that is stopped too.
  const std::string forks = program("forks", "echo hello; while :; do /bin/true; done");
  for (int i = 0; i < 8; ++i) CHECK(bench("--op fill --shape 4000 --against " + forks).status == 1);
  CHECK_THAT(bench(std::string("--op fill --baseline memcpy --against ") + kIsobarBench).err,
             ContainsSubstring("--against a program times no --baseline"));
}

TEST_CASE("isobar-bench-step times a training step, too") {
  const Outcome outcome = bench("--json --small --op train_step", "", kIsobarBenchStep);
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  check_result(nlohmann::json::parse(outcome.out), "train_step", "");
}

TEST_CASE("isobar-bench measures bf16 without AMX where ISOBAR_MAX_ISA says so") {
  const Outcome outcome = bench("--json --small --op gemm --dtype bf16", "ISOBAR_MAX_ISA=avx512");
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  const nlohmann::json line = nlohmann::json::parse(outcome.out);
  CHECK_THAT(line["instruction_set"].get<std::string>(), !ContainsSubstring("amx"));
  CHECK_THAT(line["peak_tflops_source"].get<std::string>(), !ContainsSubstring("AMX"));
}

TEST_CASE("isobar-bench measures bf16 with AVX512_BF16 where ISOBAR_MAX_ISA says so") {
  if (!cpu::has_pairs()) ISOBAR_SKIP("this CPU has no AVX512_BF16");
  const Outcome outcome = bench("--json --small --op gemm --dtype bf16", "ISOBAR_MAX_ISA=avx512_bf16");
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  const nlohmann::json line = nlohmann::json::parse(outcome.out);
  CHECK(line["instruction_set"] == "avx512 + avx512_bf16");
  CHECK(line["peak_tflops_source"] == "AVX512_BF16");
}

TEST_CASE("isobar-bench refuses an ISOBAR_MAX_ISA that it does not know") {
  const Outcome outcome = bench("--small --op fill", "ISOBAR_MAX_ISA=avx9");
  CHECK(outcome.status == 1);
  CHECK(outcome.err ==
        "isobar-bench: ISOBAR_MAX_ISA is \"avx9\"; it is one of generic, avx2, avx512, avx512_bf16 and amx\n");
}

TEST_CASE("isobar-bench sweeps over sizes", "[.long]") {
  const Outcome doubling = bench("--json --op gemm --op column_sum --shape 5x7x9 --shape 7x33 --sweep m=4:17");
  CHECK(doubling.status == 1);
  CHECK_THAT(doubling.err, ContainsSubstring("op column_sum has no size \"m\"; it has rows cols"));
  const auto shapes = [](const Outcome& outcome) {
    std::vector<std::string> found;
    for (const std::string& text : lines_of(outcome.out)) found.push_back(nlohmann::json::parse(text)["shape"]);
    return found;
  };
  CHECK(shapes(bench("--json --op gemm --shape 5x7x9 --sweep m=4:17")) ==
        std::vector<std::string>{"4x7x9", "8x7x9", "16x7x9"});
  CHECK(shapes(bench("--json --op attention_fwd --shape 1x2x17x17x8 --sweep q_tokens,kv_tokens=3,5")) ==
        std::vector<std::string>{"1x2x3x3x8", "1x2x5x5x8"});
}

TEST_CASE("isobar-bench knows 16-bit types and other baselines", "[.long]") {
  const Outcome bf16 = bench("--op layernorm_fwd --op gemm --shape 7x33 --shape 5x7x9 --dtype bf16 --json");
  INFO(bf16.err);
  REQUIRE(bf16.status == 0);
  const std::vector<std::string> lines = lines_of(bf16.out);
  REQUIRE(lines.size() == 2);
  check_result(nlohmann::json::parse(lines[0]), "layernorm_fwd", "");
  CHECK(nlohmann::json::parse(lines[1])["shape"] == "5x7x9");
  CHECK(nlohmann::json::parse(lines[1])["dtype"] == "bf16");

  const Outcome dnnl = bench("--op gemm --shape 5x7x9 --baseline dnnl");
  CHECK(dnnl.status == 0);
  CHECK_THAT(dnnl.out, ContainsSubstring("TFLOP/s"));
  CHECK_THAT(dnnl.out, ContainsSubstring("of dnnl"));
  CHECK(bench("--op attention_fwd --shape 1x2x17x17x8 --baseline gemm").status == 0);
}

TEST_CASE("isobar-bench times oneDNN beside every op that it has") {
  const std::string ops =
      "--json --small --baseline onednn --op gemm --op gelu_fwd --op gelu_bwd --op layernorm_fwd "
      "--op layernorm_bwd";
  const std::string dtype = GENERATE("fp32", "bf16");
  const Outcome outcome = bench(ops + " --dtype " + dtype);
  INFO(outcome.err);
  if (outcome.err.find("CPUs with AVX-512 only") != std::string::npos) return;
  REQUIRE(outcome.status == 0);
  CHECK(lines_of(outcome.out).size() == 5);
  for (const std::string& text : lines_of(outcome.out)) {
    const nlohmann::json line = nlohmann::json::parse(text);
    check_result(line, line["op"], "onednn");
  }
}

TEST_CASE("isobar-bench refuses with one line") {
  const auto [arguments, words] = GENERATE(table<std::string, std::string>({
      {"--op gelu", "no op \"gelu\""},
      {"--op gemm --shape 5x7", "needs 3 numbers (m n k)"},
      {"--op gemm --shape 5x7x-9", "not a list of positive numbers"},
      {"--op gemm --shape 5x0x9", "not a list of positive numbers"},
      {"--op gemm --shape 5xx9", "not a list of positive numbers"},
      {"--op fill --shape ''", "not a list of positive numbers"},
      {"--shape 5x7x9", "1 --shape for 0 --op"},
      {"--op gemm --dtype fp64", "no dtype \"fp64\""},
      {"--op sum_of_squares --dtype bf16", "op sum_of_squares has no dtype bf16; it has fp32"},
      {"--op gelu_fwd --dtype tf32 --device cuda", "op gelu_fwd has no dtype tf32; it has fp32, bf16, fp16"},
      {"--op gemm --dtype tf32", "the dtype tf32 is for GPUs"},
      {"--op gemm --device tpu", "no device \"tpu\""},
      {"--op gemm --device cuda", "the device cuda is not available"},
      {"--op gemm --baseline torch", "no baseline \"torch\"; it has memcpy, dnnl"},
      {"--op gemm --shape 5x7x9 --dtype bf16 --baseline dnnl", "baseline dnnl"},
      {"--op patchify --shape 1x3x5x6x2", "cannot be cut into patches of 2 x 2"},
      {"--op attention_fwd --shape 1x2x17x17x7", "head_size that is a multiple of 8"},
      {"--op gemm --sweep m", "the sweep \"m\" is none"},
      {"--op gemm --sweep m=0:4", "the sweep \"m=0:4\" is none"},
      {"--op gemm --sweep m=8:4", "ends before it begins"},
      {"--op gelu_fwd --dtype fp16 --baseline onednn", "baseline onednn"},
      {"--ladder nosuch", "there is no ladder \"nosuch\"; there are layernorm, product, attention, conv"},
      {"--ladder product --shape 3x4", "the shape of ladder product has 3 sizes, not 2"},
      {"--ladder product --shape 3x4x-5", "not a list of positive numbers"},
      {"--ladder product attention --shape 3x4x5", "a --shape is for one ladder"},
      {"--colour", "--colour"},
  }));
  INFO(arguments);
  const Outcome outcome = bench(arguments);
  CHECK(outcome.status == 1);
  CHECK(outcome.err.rfind("isobar-bench: ", 0) == 0);
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK_THAT(outcome.err, ContainsSubstring(words));
}

}  // namespace isobar::testing
