#include "bench/ladder/show.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <memory>

#include "bench/ladder/ladder.h"
#include "bench/ladder/predict.h"
#include "bench/machine.h"
#include "bench/memory.h"
#include "bench/peaks.h"
#include "bench/timing.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "kernels/emulator/schedule.h"

namespace isobar::bench {
namespace {

using Sizes = std::vector<std::int64_t>;

struct Subject {
  std::string name;
  Sizes shape, emulated;                       // what is timed, and what the emulator computes; empty: only a CPU
  std::function<Sizes(const Sizes&)> counted;  // on what accesses are counted for a shape: whole tiles
  std::function<std::unique_ptr<Ladder>(const Sizes&, const LadderOptions&)> make;
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = {
      {"layernorm",
       {4050, 384},
       {64, 384},
       [](const Sizes& s) {
         return Sizes{64, s[1]};
       },
       [](const Sizes& s, const LadderOptions& options) { return layernorm_ladder(s[0], s[1], options.mean); }},
      {"product",
       {1024, 1024, 1024},
       {130, 132, 72},
       [](const Sizes&) {
         return Sizes{128, 128, 128};
       },
       [](const Sizes& s, const LadderOptions&) { return product_ladder(s[0], s[1], s[2]); }},
      {"attention",
       {2, 2025},
       {2, 150},
       [](const Sizes&) {
         return Sizes{1, 256};
       },
       [](const Sizes& s, const LadderOptions&) { return attention_ladder(s[0], s[1]); }},
      {"conv", {1, 128, 64, 64}, {}, {}, [](const Sizes& s, const LadderOptions&) {
         return conv_ladder(s[0], s[1], s[2], s[3]);
       }}};
  return all;
}

// A ladder's arrays in the memory of a device, inputs filled.
LadderPointers lay_out(const Ladder& ladder, Memory& memory) {
  LadderPointers arrays;
  for (const LadderArray& a : ladder.arrays()) {
    arrays.push_back(static_cast<float*>(a.is_output ? memory.allocate(sizeof(float) * static_cast<std::size_t>(a.size))
                                                     : memory.uniform(a.size, DType::fp32, a.low, a.high)));
  }
  return arrays;
}

// Results of a device against fp64.
class Judge {
 public:
  Judge(const Ladder& ladder, Device device)
      : ladder_(ladder), device_(device), host_(Device{DeviceKind::cpu}), on_host_(lay_out(ladder, host_)) {}

  LadderError error_of(const LadderPointers& on_device, Accuracy accuracy) {
    // A rung that may lose all digits is held to the bounds of the others: the table says that it does not meet them.
    if (accuracy == Accuracy::cancels) accuracy = Accuracy::fp32;
    if (!expected_.contains(accuracy)) expected_[accuracy] = ladder_.expected(on_host_, accuracy);
    if (device_.kind != DeviceKind::cuda) return ladder_error(ladder_, expected_[accuracy], on_device);
    std::size_t i = 0;
    for (const LadderArray& a : ladder_.arrays()) {
      if (a.is_output)
        gpu::copy(on_host_[i], on_device[i], sizeof(float) * static_cast<std::size_t>(a.size), device_, nullptr);
      ++i;
    }
    gpu::synchronize(device_, nullptr);
    return ladder_error(ladder_, expected_[accuracy], on_host_);
  }

 private:
  const Ladder& ladder_;
  Device device_;
  Memory host_;
  LadderPointers on_host_;
  std::map<Accuracy, std::vector<std::vector<Expected>>> expected_;
};

// Something to time: a rung, or what it is compared with.
struct Candidate {
  std::string name;
  std::function<void()> run;
  Accuracy accuracy = Accuracy::fp32;
  LadderError error = {};
  std::vector<double> seconds = {};

  double min_seconds() const { return timing_of(seconds).min; }
  bool is_right() const { return error.of_bound <= 1; }
};

void on_one_thread(const std::function<void()>& run) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  run();
  omp_set_num_threads(threads);
}

std::vector<Candidate> candidates_of(const Ladder& ladder, const LadderPointers& arrays, Device device) {
  std::vector<Candidate> candidates;
  for (const Rung& rung : ladder.rungs()) {
    if (rung.device == device.kind)
      candidates.push_back({.name = rung.name, .run = [=] { rung.run(arrays); }, .accuracy = rung.accuracy});
  }
  const auto kernel = [&ladder, arrays, device] { ladder.run_kernel(device, arrays); };
  candidates.push_back({.name = ladder.kernel_name(), .run = kernel});
  if (device.kind == DeviceKind::cpu)
    candidates.push_back({.name = "  on one thread", .run = [kernel] { on_one_thread(kernel); }});
  return candidates;
}

// Rounds over all candidates, until each has had its share of the time.
void time_in_turn(std::vector<Candidate>& candidates, double seconds, Stopwatch& stopwatch) {
  constexpr std::size_t kMinRounds = 3, kMaxRounds = 50;
  double spent = 0;
  for (std::size_t round = 0; round < kMinRounds || (round < kMaxRounds && spent < seconds * candidates.size());
       ++round) {
    for (Candidate& candidate : candidates) {
      candidate.seconds.push_back(stopwatch.time_once(candidate.run));
      spent += candidate.seconds.back();
    }
  }
}

// Returns whether those that should be right are.
bool print_times(const std::vector<Candidate>& candidates, const Cost& cost, const Peaks& peaks, Device device) {
  const double floor = cost.floor_seconds(peaks.bandwidth, peaks.flops);
  const bool by_memory = cost.bytes / peaks.bandwidth > cost.flops / peaks.flops;
  std::printf("\nMEASURED here, %s, the least of %zu calls each; peak: %s, %.1f %s, measured now on all threads\n",
              name_of(device.kind), candidates.front().seconds.size(),
              (by_memory ? peaks.bandwidth_source : peaks.flops_source).c_str(),
              (by_memory ? peaks.bandwidth : peaks.flops) * 1e-9, by_memory ? "GB/s" : "Gflop/s");
  std::printf("%-18s %10s %14s %14s %10s   %s\n", "rung", "us", "/ first rung", "/ rung before", "% of peak",
              "greatest error");
  bool all_right = true;
  for (auto c = candidates.begin(); c != candidates.end(); ++c) {
    const bool is_rung = c->name.rfind("kernels/", 0) != 0 && c->name[0] != ' ';
    std::printf("%-18s %10.1f %14.4f ", c->name.c_str(), c->min_seconds() * 1e6,
                c->min_seconds() / candidates.front().min_seconds());
    if (c == candidates.begin() || !is_rung)
      std::printf("%14s ", "-");
    else
      std::printf("%14.2f ", c->min_seconds() / std::prev(c)->min_seconds());
    std::printf("%10.1f   %.1e, %s\n", 100 * floor / c->min_seconds(), c->error.greatest,
                c->is_right() ? "right" : "WRONG");
    all_right = all_right && (c->is_right() || c->accuracy == Accuracy::cancels);
  }
  if (by_memory && device.kind == DeviceKind::cpu)
    std::printf(
        "above 100 %%: the peak is that of a copy which no cache holds; here a cache takes up some of the results\n");
  return all_right;
}

bool time_rungs(const Ladder& ladder, const LadderOptions& options, Device device) {
  Memory memory(device);
  const LadderPointers arrays = lay_out(ladder, memory);
  Stopwatch stopwatch(device, options.seconds);
  const Peaks peaks = measure_peaks(device, {DType::fp32}, stopwatch);
  Judge judge(ladder, device);
  std::vector<Candidate> candidates = candidates_of(ladder, arrays, device);
  for (Candidate& candidate : candidates) {  // a first call, which is not timed
    candidate.run();
    candidate.error = judge.error_of(arrays, candidate.accuracy);
  }
  time_in_turn(candidates, options.seconds, stopwatch);
  return print_times(candidates, ladder.cost(), peaks, device);
}

// ---- in the emulator ------------------------------------------------------------------------------------------------

// What an emulated rung gives under every schedule of the tests.
struct Emulated {
  bool same_bits = true;
  LadderError worst;
};

Emulated run_schedules(const Ladder& ladder, const Rung& rung, const LadderPointers& arrays, Judge& judge) {
  Emulated result;
  if constexpr (ISOBAR_HAS_EMULATOR) {
    std::vector<float> first;
    for (const emulator::Schedule& schedule : emulator::kTestSchedules) {
      emulator::set_schedule(schedule);
      rung.run(arrays);
      std::vector<float> found;
      std::size_t i = 0;
      for (const LadderArray& a : ladder.arrays()) {
        if (a.is_output) found.insert(found.end(), arrays[i], arrays[i] + a.size);
        ++i;
      }
      if (first.empty()) first = found;
      result.same_bits = result.same_bits && found == first;
      const LadderError error = judge.error_of(arrays, rung.accuracy);
      if (!(error.of_bound <= result.worst.of_bound)) result.worst = error;
    }
    emulator::set_schedule({});
  }
  return result;
}

// What a rung says that cannot have this shape; empty where it can.
std::string refusal_of(const Rung& rung, const LadderPointers& arrays) {
  if (rung.multiple == 1) return {};
  try {
    rung.run(arrays);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Returns whether all are right and give the same bits in every schedule.
bool compare_emulated(const Ladder& ladder) {
  Memory memory({DeviceKind::emulator});
  const LadderPointers arrays = lay_out(ladder, memory);
  Judge judge(ladder, memory.device());
  std::printf("\nCUDA in the emulator, compared: %s, %zu orders of the threads\n", ladder.title().c_str(),
              std::size(emulator::kTestSchedules));
  bool all_right = true;
  for (const Rung& rung : ladder.rungs()) {
    if (rung.device != DeviceKind::emulator) continue;
    if (const std::string reason = refusal_of(rung, arrays); !reason.empty()) {
      std::printf("%-18s left out: %s\n", rung.name.c_str(), reason.c_str());
      continue;
    }
    const Emulated result = run_schedules(ladder, rung, arrays, judge);
    const bool is_right = result.worst.of_bound <= 1;
    std::printf("%-18s %s in all of them; greatest error %.1e, %s\n", rung.name.c_str(),
                result.same_bits ? "the same bits" : "DIFFERENT bits", result.worst.greatest,
                is_right ? "right" : "WRONG");
    all_right = all_right && result.same_bits && is_right;
  }
  return all_right;
}

// Counted on `counted`, and for `ladder`, another shape of the same subject, as many times more as it has operations.
void print_predictions(const Ladder& ladder, const Ladder& counted) {
  Memory memory({DeviceKind::emulator});
  const LadderPointers arrays = lay_out(counted, memory);
  const double factor = ladder.cost().flops / counted.cost().flops;
  std::printf("\nCUDA, COUNTED in the emulator on %s;\n", counted.title().c_str());
  std::printf("from that PREDICTED for %s on one %s: nobody has measured it\n", ladder.title().c_str(),
              kPredictedGpu.name);
  std::printf("%-18s | %12s %10s %12s %10s | %12s %14s   %s\n", "rung", "global MB", "of least", "shared Mwf",
              "of least", "at least us", "/ rung before", "busiest unit");
  double before = 0;
  for (const Rung& rung : counted.rungs()) {
    if (rung.device != DeviceKind::emulator) continue;
    const RungCounts counts = count_rung(counted, rung, arrays).times(factor);
    const Prediction prediction = predict(ladder, rung, counts);
    const auto part = [](double of, double least) { return least > 0 ? of / least : 1; };
    std::printf("%-18s | %12.1f %10.2f %12.3f %10.2f | %12.1f ", rung.name.c_str(), counts.sectors * 32e-6,
                part(counts.sectors, counts.least_sectors), counts.shared_wavefronts * 1e-6,
                part(counts.shared_wavefronts, counts.least_shared), prediction.seconds * 1e6);
    if (before > 0)
      std::printf("%14.2f", prediction.seconds / before);
    else
      std::printf("%14s", "-");
    std::printf("   %s\n", prediction.unit);
    before = prediction.seconds;
  }
  std::printf(
      "%s\n",
      "global MB: what loads and stores move, caches or not. shared Mwf: millions of wavefronts of shared memory.\n"
      "of least: what a warp's bytes need side by side, in different banks. at least: if that unit never waits");
}

const Subject& find_subject(const std::string& name) {
  std::string known;
  for (const Subject& subject : subjects()) {
    if (subject.name == name) return subject;
    known += (known.empty() ? "" : ", ") + subject.name;
  }
  throw_error("there is no ladder \"", name, "\"; there are ", known);
}

bool show(const Subject& subject, const LadderOptions& options) {
  ISOBAR_CHECK(options.shape.empty() || options.shape.size() == subject.shape.size(), "the shape of ladder ",
               subject.name, " has ", subject.shape.size(), " sizes, not ", options.shape.size());
  const Sizes shape = options.shape.empty() ? subject.shape : options.shape;
  const std::unique_ptr<Ladder> ladder = subject.make(shape, options);
  const Cost cost = ladder->cost();
  std::printf("\n== %s: at least %.2f MB move, %.1f Mflop\n", ladder->title().c_str(), cost.bytes * 1e-6,
              cost.flops * 1e-6);
  bool right = time_rungs(*ladder, options, {DeviceKind::cpu});
  if (subject.emulated.empty()) return right;
  if (gpu::device_count() > 0) right = time_rungs(*ladder, options, {DeviceKind::cuda}) && right;
  Sizes emulated = subject.emulated;  // a ragged size stays one
  for (std::size_t i = 0; i < shape.size(); ++i) emulated[i] = std::min(emulated[i], shape[i]);
  if constexpr (ISOBAR_HAS_EMULATOR)
    right = compare_emulated(*subject.make(emulated, options)) && right;
  else
    std::printf("\nthis build has no emulator: CUDA's rungs are not compared\n");
  if constexpr (kCountsAccesses)
    print_predictions(*ladder, *subject.make(subject.counted(shape), options));
  else
    std::printf("\nthis build counts no memory accesses, and predicts nothing\n");
  return right;
}

}  // namespace

bool show_ladders(const LadderOptions& options) {
  std::vector<const Subject*> wanted;
  for (const std::string& name : options.subjects) wanted.push_back(&find_subject(name));
  if (wanted.empty()) {
    for (const Subject& subject : subjects()) wanted.push_back(&subject);
  }
  ISOBAR_CHECK(options.shape.empty() || wanted.size() == 1, "a --shape is for one ladder: --ladder NAME");
  const Machine machine = this_machine();
  std::printf("%s, %s, %d threads, commit %s\n", machine.cpu.c_str(), machine.instruction_set.c_str(), machine.threads,
              machine.commit.c_str());
  bool right = true;
  for (const Subject* subject : wanted) right = show(*subject, options) && right;
  return right;
}

}  // namespace isobar::bench
