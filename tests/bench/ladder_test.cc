// The rungs of bench/ladder/: each against fp64, within the bounds that bench/ladder/*.cc state, on shapes that fill no
// tile; and which of layer norm's can stand a mean that is large beside the deviation.
#include "bench/ladder/ladder.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/ladder/attention.h"
#include "bench/ladder/predict.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "kernels/emulator/schedule.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

// A ladder with random inputs. Outputs start as NaN, so that an element that is never written is found; so do arrays
// that are neither, which a rung must not read before it has written them.
class Case {
 public:
  explicit Case(std::unique_ptr<Ladder> ladder) : ladder_(std::move(ladder)) {
    std::mt19937 random(7);
    for (const LadderArray& a : ladder_->arrays()) {
      std::uniform_real_distribution<double> distribution(a.low, a.high);
      std::vector<float>& values = values_.emplace_back(static_cast<std::size_t>(a.size));
      for (float& value : values) value = static_cast<float>(distribution(random));
    }
  }

  LadderError run(const Rung& rung, Accuracy accuracy) {
    const std::vector<LadderArray> arrays = ladder_->arrays();
    bool seen_output = false;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      seen_output = seen_output || arrays[i].is_output;
      if (seen_output) values_[i].assign(values_[i].size(), NAN);
    }
    rung.device == DeviceKind::cuda ? run_on_gpu(rung) : rung.run(pointers());
    return ladder_error(*ladder_, ladder_->expected(pointers(), accuracy), pointers());
  }
  LadderError run(const Rung& rung) { return run(rung, rung.accuracy); }
  // On arrays that begin at multiples of 256 bytes, as CUDA's do.
  RungCounts count(const Rung& rung) const {
    std::vector<std::vector<float>> rooms;
    LadderPointers aligned;
    for (const std::vector<float>& values : values_) {
      std::vector<float>& room = rooms.emplace_back(values.size() + 64);
      void* begin = room.data();
      std::size_t space = room.size() * sizeof(float);
      aligned.push_back(static_cast<float*>(std::align(256, values.size() * sizeof(float), begin, space)));
      std::copy(values.begin(), values.end(), aligned.back());
    }
    return count_rung(*ladder_, rung, aligned);
  }

  const Ladder& ladder() const { return *ladder_; }
  const std::vector<float>& array(std::size_t i) const { return values_[i]; }

 private:
  LadderPointers pointers() {
    LadderPointers pointers;
    for (std::vector<float>& values : values_) pointers.push_back(values.data());
    return pointers;
  }

  // With copies of all arrays in device memory, which are copied back.
  void run_on_gpu(const Rung& rung) {
    constexpr Device kGpu{DeviceKind::cuda};
    LadderPointers on_device;
    for (const std::vector<float>& values : values_) {
      on_device.push_back(static_cast<float*>(gpu::allocate(values.size() * sizeof(float), 0, nullptr)));
      gpu::copy(on_device.back(), values.data(), values.size() * sizeof(float), kGpu, nullptr);
    }
    rung.run(on_device);
    for (std::size_t i = 0; i < values_.size(); ++i)
      gpu::copy(values_[i].data(), on_device[i], values_[i].size() * sizeof(float), kGpu, nullptr);
    gpu::synchronize(kGpu, nullptr);
    for (float* buffer : on_device) gpu::free(buffer, nullptr);
  }

  std::unique_ptr<Ladder> ladder_;
  std::vector<std::vector<float>> values_;
};

// Calls f for every rung that can run here: in the emulator once for each schedule, on a GPU where there is one.
template <class F>
void for_each_rung(const Ladder& ladder, const F& f) {
  for (const Rung& rung : ladder.rungs()) {
    INFO(ladder.title() << ": " << name_of(rung.device) << " " << rung.name);
    if (rung.device == DeviceKind::cpu || (rung.device == DeviceKind::cuda && gpu::device_count() > 0)) f(rung);
    if constexpr (ISOBAR_HAS_EMULATOR) {
      if (rung.device != DeviceKind::emulator) continue;
      const emulator::Schedule before = emulator::current_schedule();
      for (const emulator::Schedule& schedule : emulator::kTestSchedules) {
        INFO("schedule " << emulator::name_of(schedule));
        emulator::set_schedule(schedule);
        f(rung);
      }
      emulator::set_schedule(before);
    }
  }
}

void check_rungs(std::unique_ptr<Ladder> ladder) {
  Case one(std::move(ladder));
  for_each_rung(one.ladder(), [&](const Rung& rung) {
    if (rung.multiple == 1) CHECK(one.run(rung).of_bound <= 1);
  });
}

// A rung of a CPU with one thread and with three.
void check_threads(std::unique_ptr<Ladder> ladder, std::size_t output, const std::string& name = "threaded") {
  Case one(std::move(ladder));
  const int threads = omp_get_max_threads();
  std::vector<std::vector<float>> results;
  for (const Rung& rung : one.ladder().rungs()) {
    if (rung.device != DeviceKind::cpu || rung.name != name) continue;
    for (const int count : {1, 3}) {
      omp_set_num_threads(count);
      CHECK(one.run(rung).of_bound <= 1);
      results.push_back(one.array(output));
    }
  }
  omp_set_num_threads(threads);
  REQUIRE(results.size() == 2);
  CHECK(results[0] == results[1]);
}

}  // namespace

TEST_CASE("ladder: every rung is layer norm, on ragged shapes") {
  for (const std::int64_t rows : {1, 7})
    for (const std::int64_t cols : {1, 31, 33, 384, 1000}) check_rungs(layernorm_ladder(rows, cols));
}

TEST_CASE("ladder: every rung is the matrix product, on ragged shapes") {
  for (const std::int64_t m : {1, 17, 65})
    for (const std::int64_t n : {1, 50, 67})
      for (const std::int64_t k : {1, 33, 130}) check_rungs(product_ladder(m, n, k));
}

TEST_CASE("ladder: products that copy four numbers at once need sizes that are multiples of four, and say so") {
  for (const std::int64_t n : {4, 68, 132}) {
    Case one(product_ladder(70, n, n - 4 > 0 ? n - 4 : 4));
    for_each_rung(one.ladder(), [&](const Rung& rung) {
      if (rung.multiple == 4) CHECK(one.run(rung).of_bound <= 1);
    });
  }
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{6, 8}, {8, 6}}) {
    Case ragged(product_ladder(8, n, k));
    for_each_rung(ragged.ladder(), [&](const Rung& rung) {
      if (rung.multiple == 4) CHECK_THROWS_AS(ragged.run(rung), Error);
    });
  }
}

TEST_CASE("ladder: every rung is attention, on ragged shapes") {
  for (const std::int64_t heads : {1, 2})
    for (const std::int64_t tokens : {1, 15, 49, 64, 130}) check_rungs(attention_ladder(heads, tokens));
}

TEST_CASE("ladder: every rung is the convolution, on ragged shapes") {
  for (const std::int64_t side : {1, 2, 7, 17})
    for (const std::int64_t in : {1, 16, 35})
      for (const std::int64_t out : {1, 6, 50}) check_rungs(conv_ladder(2, side, in, out));
}

TEST_CASE("ladder: the worked example of docs/learn/4_attention.md, with scores of one channel") {
  // Scores 1, 2, 4 and 0, values 10, 20, 30 and 40: the query has √48 in its first channel, keys have the scores there.
  Case one(attention_ladder(1, 4));
  std::vector<float> q(4 * kRungHead), k(4 * kRungHead), v(4 * kRungHead), o(4 * kRungHead), lse(4), scores(16);
  for (int i = 0; i < 4; ++i) {
    const auto row = static_cast<std::size_t>(i * kRungHead);
    q[row] = static_cast<float>(std::sqrt(48.0));
    k[row] = std::vector<float>{1, 2, 4, 0}[static_cast<std::size_t>(i)];
    v[row] = 10.0f * static_cast<float>(i + 1);
  }
  for_each_rung(one.ladder(), [&](const Rung& rung) {
    if (rung.device == DeviceKind::cuda) return;
    rung.run({q.data(), k.data(), v.data(), o.data(), lse.data(), scores.data()});
    const double margin = rung.accuracy == Accuracy::tf32 ? 2e-2 : 2e-5;
    CHECK(std::abs(o[0] - 28.200208) < margin);
    CHECK(std::abs(lse[0] - 4.185182) < margin);
    CHECK(o[1] == 0);
  });
}

TEST_CASE("ladder: rows go to several threads and blocks") {
  check_rungs(layernorm_ladder(300, 384));
  check_threads(layernorm_ladder(300, 384), 3);
  check_threads(product_ladder(100, 60, 40), 2);
  check_threads(attention_ladder(2, 200), 3);
  check_threads(conv_ladder(2, 19, 20, 50), 2);
#ifndef ISOBAR_SANITIZED  // of two loops ThreadSanitizer does not see how libgomp hands the second one to its threads
  for (const char* rung : {"im2col", "gathered"}) check_threads(conv_ladder(2, 19, 20, 50), 2, rung);
#endif
}

TEST_CASE("ladder: a variance in two passes stands a large mean, the textbook's formula does not") {
  for (const std::int64_t cols : {31, 384, 1000}) {
    Case one(layernorm_ladder(7, cols, 1e4, std::sqrt(3.0)));  // so that the deviation is 1
    for_each_rung(one.ladder(), [&](const Rung& rung) {
      const LadderError error = one.run(rung, Accuracy::fp32);
      if (rung.accuracy == Accuracy::cancels)
        CHECK(!(error.of_bound <= 3));
      else
        CHECK(error.of_bound <= 1);
    });
  }
}

// By hand, of 128 x 128 x 128. Rung 1: a multiply-add of a warp loads 1 sector of A and 4 of B, in two requests, and
// 16,384 results are stored. Rung 2: 64 blocks of 8 warps make 8 turns, of 4 + 4 sectors, 2 stores and 2 · 16 loads.
// Rung 3: 4 blocks make 8 turns, of 96 stores (a row of A is half a warp long, and the next begins 20 banks on) and,
// for each of 8 warps and 16 steps, 4 loads of A and 4 wavefronts of B, of which half want what the other half wants.
TEST_CASE("ladder: counted accesses and predicted times are those that can be had by hand") {
  if (!kCountsAccesses) ISOBAR_SKIP("this build counts no memory accesses");
  const auto ladder = product_ladder(128, 128, 128);
  Case one(product_ladder(128, 128, 128));
  std::vector<RungCounts> counts;
  std::vector<Prediction> predictions;
  for (const Rung& rung : ladder->rungs()) {
    if (rung.device != DeviceKind::emulator) continue;
    counts.push_back(one.count(rung));
    predictions.push_back(predict(*ladder, rung, counts.back()));
  }
  REQUIRE(counts.size() == 5);
  constexpr double kMultiplyAdds = 128.0 * 128 * 128, kCycles = 132 * 1.755e9;
  CHECK(counts[0].sectors == kMultiplyAdds / 32 * 5 + 2048);
  CHECK(counts[0].global_wavefronts == kMultiplyAdds / 32 * 2 + 512);
  CHECK(counts[0].shared_wavefronts == 0);
  CHECK(counts[1].sectors == 64 * 8 * 8 * 8 + 2048);
  CHECK(counts[1].shared_wavefronts == 64 * 8 * 8 * (2 + 32));
  CHECK(counts[2].shared_wavefronts == 4 * 8 * (96 + 8 * 16 * 8));
  CHECK(counts[2].merged_shared == 4 * 8 * (96 + 8 * 16 * 6));
  CHECK(counts[0].times(3).sectors == 3 * counts[0].sectors);
  CHECK(std::abs(predictions[0].seconds - counts[0].global_wavefronts / kCycles) < 1e-15);
  CHECK(std::string(predictions[0].unit) == "loads and stores");
  // Without any loads the products remain: 128 a cycle, on tensor units 645.
  const Rung plain{.name = "", .device = DeviceKind::emulator, .run = {}, .accuracy = Accuracy::fp32},
      tensor{.name = "", .device = DeviceKind::emulator, .run = {}, .accuracy = Accuracy::tf32};
  const auto large = product_ladder(4096, 4096, 4096);
  CHECK(std::abs(predict(*large, plain, {}).seconds * kCycles * 128 / std::pow(4096, 3) - 1) < 1e-12);
  CHECK(std::abs(predict(*large, tensor, {}).seconds * kCycles * 645.12 / std::pow(4096, 3) - 1) < 1e-12);
  CHECK(std::string(predict(*layernorm_ladder(4050, 384), plain, {}).unit) == "memory");
}

}  // namespace isobar::testing
