// Convolutions by cuDNN on the virtual GPU, whose engines are mostly traps (lab/stand_ins/cuda/cudnn.cc): which one
// computes, that all do what isobar's own kernels do, and that every misuse of the library is an error.
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/algorithms.h"
#include "comm/communicator.h"
#include "kernels/common/notices.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/cudnn.h"
#include "kernels/conv/cudnn_api.h"
#include "kernels/conv/engines.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/timing.h"
#include "lab/virtual_gpu/fresh_context.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::EnvironmentVariable;

// ---- One convolution ------------------------------------------------------------------------------------------------

ConvAxis axis(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t behind) {
  return {in, (in + pad + behind - kernel) / stride + 1, kernel, stride, pad, Edge::zeros};
}

const ConvShape kPlane{2, 5, 3, {{}, axis(5, 3, 1, 1, 1), axis(4, 3, 1, 1, 1)}};

// Numbers in (-1, 1) with all bits of fp32, so that orders and roundings are seen.
float number(std::size_t i, unsigned seed) {
  const auto bits = static_cast<std::uint32_t>((i + 1) * 2654435761u + seed * 40503u) * 2246822519u;
  return static_cast<float>(bits >> 8) * 0x1p-23f - 1;
}

enum class Kind { fwd, bwd_data, bwd_weight };
constexpr std::array kKinds{Kind::fwd, Kind::bwd_data, Kind::bwd_weight};

// Operands on the device, and their convolutions on a stream of its own.
class Convolution {
 public:
  // shift: elements by which operands begin behind an aligned address.
  explicit Convolution(const ConvShape& shape, DType dtype = DType::fp32, bool tf32 = false, int shift = 0)
      : shape_(shape), dtype_(dtype), tf32_(tf32), shift_(shift) {
    x_ = operand(shape.x(), 1, dtype);
    weight_ = operand(shape.weight(), 2, dtype);
    y_ = operand(shape.y(), 3, dtype);
    dweight_ = operand(shape.weight(), 4, DType::fp32);
    bias_ = operand(std::max(shape.in_channels, shape.out_channels), 5, DType::fp32);
    cuda::use_conv_algorithms(kGpu, {});
  }
  ~Convolution() {
    cuda::use_conv_algorithms(kGpu, {});
    for (void* memory : allocated_) gpu::free(memory, stream_.get());
  }

  Stream stream() const { return stream_.get(); }

  // Bias and activation are those of fwd and bwd_data where they overwrite.
  void run(Kind kind, Grad mode = Grad::overwrite, bool has_epilogue = false) const {
    run_on(stream_.get(), kind, mode, has_epilogue);
  }
  void run_on(Stream stream, Kind kind, Grad mode = Grad::overwrite, bool has_epilogue = false) const {
    const void* bias = has_epilogue ? bias_ : nullptr;
    const Pointwise activation = has_epilogue ? Pointwise::leaky_relu : Pointwise::none;
    if (kind == Kind::fwd) {
      ConvFwdArgs a{.shape = shape_,
                    .dtype = dtype_,
                    .out_dtype = dtype_,
                    .x = x_,
                    .weight = weight_,
                    .bias = bias,
                    .y = y_,
                    .activation = activation,
                    .tf32 = tf32_};
      with_workspace(a, conv_fwd_workspace(a), stream, [&] { cuda::conv_fwd(a, stream); });
    } else if (kind == Kind::bwd_data) {
      ConvBwdDataArgs a{.shape = shape_,
                        .dtype = dtype_,
                        .out_dtype = dtype_,
                        .dy = y_,
                        .weight = weight_,
                        .bias = bias,
                        .dx = x_,
                        .activation = activation,
                        .mode = mode,
                        .tf32 = tf32_};
      with_workspace(a, conv_bwd_data_workspace(a), stream, [&] { cuda::conv_bwd_data(a, stream); });
    } else {
      ConvBwdWeightArgs a{
          .shape = shape_, .dtype = dtype_, .x = x_, .dy = y_, .dweight = dweight_, .mode = mode, .tf32 = tf32_};
      with_workspace(a, conv_bwd_weight_workspace(a), stream, [&] { cuda::conv_bwd_weight(a, stream); });
    }
  }

  // What the kind writes.
  std::vector<float> result(Kind kind) const {
    if (kind == Kind::bwd_weight) return read(dweight_, shape_.weight(), DType::fp32);
    return kind == Kind::fwd ? read(y_, shape_.y(), dtype_) : read(x_, shape_.x(), dtype_);
  }
  // Writes its first values again.
  void reset(Kind kind) const {
    if (kind == Kind::fwd) write(y_, shape_.y(), 3, dtype_);
    if (kind == Kind::bwd_data) write(x_, shape_.x(), 1, dtype_);
    if (kind == Kind::bwd_weight) write(dweight_, shape_.weight(), 4, DType::fp32);
  }
  // A run on the first values, and what it wrote.
  std::vector<float> result_of_run(Kind kind, Grad mode = Grad::overwrite, bool has_epilogue = false) const {
    for (const Kind each : kKinds) reset(each);
    run(kind, mode, has_epilogue);
    return result(kind);
  }
  std::vector<float> by_own_kernels(Kind kind, Grad mode = Grad::overwrite, bool has_epilogue = false) const {
    const EnvironmentVariable own("ISOBAR_CONV", "own");
    cuda::use_conv_algorithms(kGpu, {});
    const std::vector<float> result = result_of_run(kind, mode, has_epilogue);
    cuda::use_conv_algorithms(kGpu, {});
    return result;
  }

 private:
  void* operand(std::int64_t n, unsigned seed, DType dtype) {
    const std::size_t bytes = static_cast<std::size_t>(n + shift_) * size_of(dtype);
    void* const memory = allocated_.emplace_back(gpu::allocate(bytes, 0, stream_.get()));
    void* const data = static_cast<char*>(memory) + static_cast<std::size_t>(shift_) * size_of(dtype);
    write(data, n, seed, dtype);
    return data;
  }
  void write(void* to, std::int64_t n, unsigned seed, DType dtype) const {
    if (n == 0) return;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = number(i, seed);
    if (dtype == DType::fp32) return gpu::copy(to, values.data(), values.size() * 4, kGpu, stream_.get());
    std::vector<std::uint16_t> halves;
    for (const float value : values) halves.push_back(dtype == DType::bf16 ? bf16(value).bits : fp16(value).bits);
    gpu::copy(to, halves.data(), halves.size() * 2, kGpu, stream_.get());
  }
  std::vector<float> read(const void* from, std::int64_t n, DType dtype) const {
    std::vector<float> values(static_cast<std::size_t>(n));
    if (n == 0) return values;
    if (dtype == DType::fp32) {
      gpu::copy(values.data(), from, values.size() * 4, kGpu, stream_.get());
      gpu::synchronize(kGpu, stream_.get());
      return values;
    }
    std::vector<std::uint16_t> halves(values.size());
    gpu::copy(halves.data(), from, halves.size() * 2, kGpu, stream_.get());
    gpu::synchronize(kGpu, stream_.get());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = dtype == DType::bf16 ? std::bit_cast<float>(static_cast<std::uint32_t>(halves[i]) << 16)
                                       : fp16::to_float(halves[i]);
    return values;
  }
  template <class Args, class F>
  static void with_workspace(Args& a, std::size_t bytes, Stream stream, const F& call) {
    const cuda::Scratch workspace(bytes, 0, stream);
    a.workspace = workspace.data();
    call();
  }

  ConvShape shape_;
  DType dtype_;
  bool tf32_;
  int shift_;
  const gpu::OwnedStream stream_{kGpu};
  std::vector<void*> allocated_;
  void *x_ = nullptr, *weight_ = nullptr, *y_ = nullptr, *dweight_ = nullptr, *bias_ = nullptr;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(apart / size);
}

struct Precision {
  DType dtype;
  bool tf32;
  double max_distance;  // of what may be used from the own kernels
};
constexpr std::array<Precision, 4> kPrecisions{{{DType::fp32, false, 0x1p-20},
                                                {DType::fp32, true, 0x1p-10},
                                                {DType::bf16, false, 0x1p-7},
                                                {DType::fp16, false, 0x1p-10}}};

// The words of the one convolution that has run while candidates were timed, or of which a choice was given.
std::pair<std::string, std::string> in_use() {
  const cuda::ConvAlgorithms all = cuda::conv_algorithms_in_use(kGpu);
  if (all.size() != 1) return {};
  return {all.begin()->first, all.begin()->second};
}

std::string words_of(const Convolution& convolution, Kind kind) {
  cuda::use_conv_algorithms(kGpu, {});
  const cuda::AlgorithmTiming timing(kGpu);
  convolution.run(kind);
  return in_use().first;
}

// What an engine gives; the engine must be taken.
std::vector<float> result_by(const Convolution& convolution, Kind kind, const std::string& words,
                             const std::string& engine) {
  cuda::use_conv_algorithms(kGpu, {{words, engine}});
  std::vector<float> result = convolution.result_of_run(kind);
  CHECK(in_use().second == engine);
  return result;
}

// Notices are only of engines that are wrong or cannot run.
void check_notices() {
  for (const std::string& notice : take_notices()) {
    INFO(notice);
    const bool is_wrong = notice.rfind("engine 9 is not used for ", 0) == 0 &&
                          notice.find("from that of isobar's own kernels") != std::string::npos;
    const bool cannot_run =
        notice.rfind("engine 11 is not used for ", 0) == 0 && notice.find(": it cannot run: ") != std::string::npos;
    CHECK((is_wrong || cannot_run));
  }
}

}  // namespace

// ---- Which engine computes ------------------------------------------------------------------------------------------

TEST_CASE("virtual GPU: a convolution takes the first engine that may be used, and gives what the own kernels give") {
  const FreshContext whole;
  take_notices();
  const std::vector<ConvShape> shapes{
      kPlane,
      {3, 4, 5, {{}, {}, axis(9, 4, 2, 1, 1)}},
      {1, 3, 8, {{}, axis(7, 3, 2, 0, 1), axis(6, 5, 1, 2, 2)}},
      {2, 8, 3, {axis(4, 3, 1, 1, 1), axis(5, 3, 2, 1, 1), axis(3, 2, 1, 0, 1)}},
      {1, 2, 2, {{}, axis(8, 3, 2, 0, 0), axis(3, 1, 1, 0, 0)}},  // the last row of x is read by no window
  };
  for (const ConvShape& shape : shapes)
    for (const Precision& precision : kPrecisions)
      for (const Kind kind : kKinds) {
        const Convolution convolution(shape, precision.dtype, precision.tf32);
        INFO(name_of(precision.dtype) << ", tf32 " << precision.tf32 << ", kind " << static_cast<int>(kind));
        const std::vector<float> right = convolution.by_own_kernels(kind);
        const std::vector<float> first = convolution.result_of_run(kind);
        CHECK(distance(first, right) <= precision.max_distance);
        CHECK(convolution.result_of_run(kind) == first);
        CHECK(cuda::conv_algorithms_in_use(kGpu).empty());                               // a guess is no choice
        const bool widens = kind == Kind::bwd_weight && precision.dtype != DType::fp32;  // no engine does
        const std::string words = words_of(convolution, kind);
        const std::string expected = widens ? "own" : precision.dtype == DType::fp32 ? "engine 8" : "engine 5: 2=1";
        CHECK(result_by(convolution, kind, words, expected) == first);
        check_notices();
      }
}

TEST_CASE("virtual GPU: an engine that may not be used is passed over, although it is given") {
  const FreshContext whole;
  take_notices();
  for (const Precision& precision : kPrecisions) {
    const Convolution convolution(kPlane, precision.dtype, precision.tf32);
    const std::vector<float> first = convolution.result_of_run(Kind::fwd);
    const std::string words = words_of(convolution, Kind::fwd);
    const bool is_fp32 = precision.dtype == DType::fp32;
    std::vector<std::string> refused{"engine 1",
                                     "engine 2",
                                     "engine 3",
                                     "engine 4",
                                     "engine 6",
                                     "engine 7",
                                     "engine 9",
                                     "engine 11",
                                     "engine 99",
                                     "engine 12: 5=1",
                                     "engine 12: 2=0",
                                     "engine 12 2=1",
                                     "engine 12: 2",
                                     "engine 12: 2=x",
                                     "engine 12: 2=1 12",
                                     "engine",
                                     "engines 12",
                                     "x",
                                     ""};
    if (!is_fp32) refused.emplace_back("engine 8");
    if (is_fp32 && !precision.tf32) refused.emplace_back("engine 5: 2=1");
    for (const std::string& engine : refused) {
      INFO(name_of(precision.dtype) << ", tf32 " << precision.tf32 << ", given \"" << engine << '"');
      cuda::use_conv_algorithms(kGpu, {{words, engine}});
      CHECK(convolution.result_of_run(Kind::fwd) == first);
      CHECK(cuda::conv_algorithms_in_use(kGpu).empty());
    }
    std::vector<std::string> taken{"own",      "engine 0", "engine 10", "engine 12: 2=3 12=0", "engine 12: 2=1 12=1",
                                   "engine 12"};
    taken.emplace_back(is_fp32 ? "engine 8" : "engine 5: 2=2");
    if (precision.tf32) taken.emplace_back("engine 5: 2=1");
    const std::vector<float> right = convolution.by_own_kernels(Kind::fwd);
    for (const std::string& engine : taken)
      CHECK(distance(result_by(convolution, Kind::fwd, words, engine), right) <= precision.max_distance);
    check_notices();
  }
}

TEST_CASE("virtual GPU: a convolution takes the fastest engine or the own kernels, the same when it is given") {
  const FreshContext whole;
  take_notices();
  const Convolution convolution({1, 4, 6, {{}, axis(6, 3, 1, 1, 1), axis(5, 3, 1, 1, 1)}});
  const std::vector<std::string> usable{
      "own", "engine 0", "engine 8", "engine 10", "engine 12: 2=1 12=0", "engine 12: 2=3 12=0", "engine 12: 2=1 12=1"};
  std::set<std::string> taken;
  for (const char* seed : {"0", "1", "2", "3", "4", "5"}) {
    const EnvironmentVariable durations("ISOBAR_VIRTUAL_GPU_DURATIONS", seed);
    for (const Kind kind : kKinds) {
      const std::string words = words_of(convolution, kind);
      const std::string chosen = in_use().second;
      INFO("seed " << seed << ", kind " << static_cast<int>(kind) << ": " << chosen);
      taken.insert(chosen);
      const std::vector<float> result = convolution.result_of_run(kind);
      double min_milliseconds = 1e9, of_chosen = 0;
      for (const std::string& engine : usable) {
        const bool is_same = result_by(convolution, kind, words, engine) == result;
        if (engine == chosen) CHECK(is_same);
        gpu::Timer timer;
        timer.start(convolution.stream());
        convolution.run(kind);
        const double milliseconds = timer.stop(convolution.stream());
        min_milliseconds = std::min(min_milliseconds, milliseconds);
        if (engine == chosen) of_chosen = milliseconds;
      }
      CHECK(of_chosen <= min_milliseconds + 1e-6);
    }
  }
  CHECK(taken.size() >= 3);
  check_notices();
}

TEST_CASE("virtual GPU: an engine that compiles at run time is a candidate only while candidates are timed") {
  const FreshContext whole;
  const Convolution convolution(kPlane);
  const std::string words = words_of(convolution, Kind::fwd);
  // Engine 10 stands before all others that may be used, and adds in another order.
  cuda::use_conv_algorithms(kGpu, {});
  const std::vector<float> first = convolution.result_of_run(Kind::fwd);
  CHECK(result_by(convolution, Kind::fwd, words, "engine 10") != first);
  CHECK(result_by(convolution, Kind::fwd, words, "engine 8") == first);
}

TEST_CASE("virtual GPU: what cannot be said to cuDNN takes the own kernels") {
  const FreshContext whole;
  ConvShape wrapped = kPlane, cut = kPlane, empty = kPlane;
  wrapped.axes[2].edge = Edge::wrap;
  cut.axes[1].out -= 2;  // fewer results than the padding gives
  empty.batch = 0;
  for (const ConvShape& shape : {wrapped, cut, empty})
    for (const Kind kind : kKinds) {
      const Convolution convolution(shape);
      const cuda::AlgorithmTiming timing(kGpu);
      CHECK(convolution.result_of_run(kind) == convolution.by_own_kernels(kind));
      convolution.run(kind);
      CHECK(cuda::conv_algorithms_in_use(kGpu).empty());
    }
}

TEST_CASE("virtual GPU: ISOBAR_CONV chooses the own kernels, and nothing else but cuDNN") {
  const FreshContext whole;
  const Convolution convolution(kPlane);
  CHECK(cuda::conv_engines(kGpu) == "cuDNN 91900");
  const std::vector<float> own = convolution.by_own_kernels(Kind::fwd);
  {
    const EnvironmentVariable wanted("ISOBAR_CONV", "own");
    CHECK(cuda::conv_engines(kGpu) == "own kernels");
    CHECK(convolution.result_of_run(Kind::fwd) == own);
    CHECK(in_use().second == "own");
    CHECK_THAT(in_use().first, ContainsSubstring(", of own kernels"));
  }
  {
    const EnvironmentVariable wanted("ISOBAR_CONV", "mine");
    CHECK_THROWS_WITH(cuda::conv_engines(kGpu), "ISOBAR_CONV is \"mine\"; it may be own or cudnn");
  }
  const EnvironmentVariable wanted("ISOBAR_CONV", "cudnn");
  CHECK(cuda::conv_engines(kGpu) == "cuDNN 91900");
}

// ---- What is around an engine ---------------------------------------------------------------------------------------

TEST_CASE("virtual GPU: bias, activation and what is added follow an engine of cuDNN") {
  const FreshContext whole;
  for (const Precision& precision : kPrecisions) {
    const Convolution convolution(kPlane, precision.dtype, precision.tf32);
    const double limit = 2 * precision.max_distance;  // of two roundings
    for (const Kind kind : {Kind::fwd, Kind::bwd_data})
      CHECK(distance(convolution.result_of_run(kind, Grad::overwrite, true),
                     convolution.by_own_kernels(kind, Grad::overwrite, true)) <= limit);
    for (const Kind kind : {Kind::bwd_data, Kind::bwd_weight})
      CHECK(distance(convolution.result_of_run(kind, Grad::accumulate),
                     convolution.by_own_kernels(kind, Grad::accumulate)) <= limit);
  }
}

TEST_CASE("virtual GPU: an engine serves the alignment that it was planned for") {
  const FreshContext whole;
  const Convolution aligned(kPlane);
  const std::vector<float> result = aligned.result_of_run(Kind::fwd);
  for (const int shift : {1, 2, 3}) {
    const Convolution shifted(kPlane, DType::fp32, false, shift);
    CHECK(shifted.result_of_run(Kind::fwd) == result);
  }
}

TEST_CASE("virtual GPU: a convolution runs on the stream that it is given") {
  const FreshContext whole;
  const Convolution convolution(kPlane);
  const std::vector<float> result = convolution.result_of_run(Kind::fwd);
  const gpu::OwnedStream side(kGpu);
  convolution.reset(Kind::fwd);
  gpu::Event fork(kGpu), join(kGpu);
  fork.record(convolution.stream());
  fork.make_wait(side.get());
  convolution.run_on(side.get(), Kind::fwd);
  join.record(side.get());
  join.make_wait(convolution.stream());
  CHECK(convolution.result(Kind::fwd) == result);
}

TEST_CASE(
    "virtual GPU: a captured convolution repeats itself, and one that is new in a capture takes the own kernels") {
  const FreshContext whole;
  const cuda::AlgorithmTiming timing(kGpu);
  for (const bool is_met : {true, false})
    for (const Kind kind : kKinds) {
      const Convolution convolution({1, 6, is_met ? 4 : 5, {{}, axis(5, 3, 1, 1, 1), axis(4, 3, 1, 1, 1)}});
      cuda::use_conv_algorithms(kGpu, {});
      const std::vector<float> own = convolution.by_own_kernels(kind);
      const std::vector<float> result = is_met ? convolution.result_of_run(kind) : own;
      gpu::Capture capture(convolution.stream());
      convolution.run(kind);
      const gpu::Graph graph = capture.end();
      for (int replay = 0; replay < 2; ++replay) {
        convolution.reset(kind);
        graph.launch(convolution.stream());
        CHECK(convolution.result(kind) == result);
      }
      if (!is_met) CHECK(cuda::conv_algorithms_in_use(kGpu).empty());
    }
}

// ---- A run ----------------------------------------------------------------------------------------------------------

TEST_CASE("virtual GPU: convolutions of a resumed run take the engines of its checkpoint") {
  const FreshContext whole;
  const testing::TemporaryFolder folder;
  const Convolution convolution({2, 3, 7, {{}, axis(6, 3, 1, 1, 1), axis(4, 3, 1, 1, 1)}});
  const auto run_all = [&] {
    std::vector<std::vector<float>> results;
    for (const Kind kind : kKinds) results.push_back(convolution.result_of_run(kind));
    return results;
  };
  std::vector<std::string> lines;
  const auto choose = [&](const ChosenAlgorithms& known, const char* durations, const char* cache) {
    const EnvironmentVariable seed("ISOBAR_VIRTUAL_GPU_DURATIONS", durations);
    const EnvironmentVariable home("XDG_CACHE_HOME", (folder / cache).c_str());
    lines.clear();
    return choose_algorithms(
        known, kGpu, Communicator(), [&] { run_all(); }, [&](const std::string& line) { lines.push_back(line); });
  };
  const auto says = [&](const char* sentence) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(sentence) != std::string::npos; });
  };
  const ChosenAlgorithms chosen = choose({}, "1", "one");
  CHECK(chosen.of_convolutions.size() == 3);
  CHECK(says("algorithms of 3 convolutions, 3 of them chosen by time"));
  const auto results = run_all();
  const ChosenAlgorithms other = choose({}, "4", "two");
  CHECK(other.of_convolutions != chosen.of_convolutions);
  CHECK(run_all() != results);

  const ChosenAlgorithms read = algorithms_from(nlohmann::ordered_json::parse(to_json(chosen).dump()));
  CHECK(choose(read, "4", "two") == chosen);  // what its file has, or what is faster, does not matter
  CHECK(lines.empty());
  CHECK(run_all() == results);
  CHECK(choose({}, "4", "one").of_convolutions == chosen.of_convolutions);  // from the file
  CHECK(says("algorithms of 3 convolutions, 0 of them chosen by time"));

  {
    const EnvironmentVariable newer("ISOBAR_VIRTUAL_GPU_CUDNN", "92600");
    const ChosenAlgorithms again = choose(read, "4", "three");
    CHECK(says("the checkpoint's algorithms of convolutions are not of cuDNN 92600: others are chosen"));
    CHECK(says("algorithms of 3 convolutions, 3 of them chosen by time"));
    CHECK(again.of_convolutions != chosen.of_convolutions);
    for (const auto& [words, engine] : again.of_convolutions) CHECK_THAT(words, ContainsSubstring(", of cuDNN 92600"));
  }
  const EnvironmentVariable own("ISOBAR_CONV", "own");
  for (const auto& [words, engine] : choose(read, "1", "one").of_convolutions) CHECK(engine == "own");
  CHECK(says("the checkpoint's algorithms of convolutions are not of own kernels: others are chosen"));
  choose_no_algorithms(kGpu);
}

// ---- cuDNN that is missing, or fails --------------------------------------------------------------------------------

// Run by the next test, in processes with other environments.
TEST_CASE("a convolution in a process of its own", "[.][alone]") {
  const Convolution convolution(kPlane);
  const std::vector<float> result = convolution.result_of_run(Kind::fwd);
  CHECK(convolution.result_of_run(Kind::fwd) == result);
  CHECK(result == convolution.by_own_kernels(Kind::fwd));
  CHECK(cuda::conv_engines(kGpu) == "own kernels");
}

TEST_CASE(
    "virtual GPU: where cuDNN is missing, of another version or cannot start, own kernels compute, and one line says "
    "so") {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  for (const auto& [variable, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"LD_PRELOAD=" ISOBAR_WITHOUT_CUDNN, "libcudnn.so.9 is needed on a GPU and was not found"},
           {"ISOBAR_VIRTUAL_GPU_CUDNN=8907", "libcudnn.so.9 says that it is version 8907, and cuDNN 9 is needed"},
           {"ISOBAR_VIRTUAL_GPU_FAIL=cudnnCreate:1", "cuDNN 91900 cannot start on GPU 0: an error of cuDNN"}}) {
    INFO(variable);
    const std::string command = variable + " '" + program + "' '[alone]' 2>&1 >/dev/null; echo status $?";
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string said;
    for (int letter = 0; (letter = std::fgetc(pipe)) != EOF;) said += static_cast<char>(letter);
    ::pclose(pipe);
    CHECK_THAT(said, ContainsSubstring("isobar: convolutions do without cuDNN, by isobar's own kernels: " + sentence));
    CHECK_THAT(said, ContainsSubstring("\nstatus 0\n"));
    CHECK(std::count(said.begin(), said.end(), '\n') == 2);
  }
}

TEST_CASE("virtual GPU: where a call of cuDNN fails, another engine or the own kernels compute") {
  int channels = 10;  // another convolution each time: nothing is known of it
  for (const char* call :
       {"cudnnBackendCreateDescriptor:1", "cudnnBackendSetAttribute:1", "cudnnBackendSetAttribute:30",
        "cudnnBackendFinalize:1",       // of a tensor
        "cudnnBackendFinalize:6:801",   // of the graph, which the library does not support
        "cudnnBackendFinalize:7",       // of the heuristics
        "cudnnBackendFinalize:7:801",   // the same
        "cudnnBackendFinalize:10",      // of engine 9's plan: 8 and 9 are those of engines 6 and 7
        "cudnnBackendFinalize:11",      // of its variant pack
        "cudnnBackendFinalize:11:801",  // the same
        "cudnnBackendGetAttribute:1", "cudnnBackendGetAttribute:5", "cudnnBackendExecute:1", "cudnnSetStream:1"}) {
    INFO(call);
    const FreshContext whole;
    const Convolution convolution({1, ++channels, 2, {{}, axis(4, 3, 1, 1, 1), axis(4, 3, 1, 1, 1)}});
    const std::vector<float> right = convolution.by_own_kernels(Kind::fwd);
    {
      const EnvironmentVariable fails("ISOBAR_VIRTUAL_GPU_FAIL", call);
      CHECK(distance(convolution.result_of_run(Kind::fwd), right) < 0x1p-20);
    }
    CHECK(distance(convolution.result_of_run(Kind::fwd), right) < 0x1p-20);
  }
}

TEST_CASE(
    "virtual GPU: without memory to try engines, or for an engine's workspace, another one or own kernels compute") {
  constexpr int kOfOperands = 5, kOfTrial = 5;  // allocations; the one after them is engine 8's workspace
  for (int i = 1; i <= kOfTrial + 1; ++i)
    for (const bool times : {false, true}) {
      INFO("allocation " << i << ", times " << times);
      const FreshContext whole;
      const Convolution convolution({1, 5, 10 + 2 * i + times, {{}, axis(4, 3, 1, 1, 1), axis(4, 3, 1, 1, 1)}});
      const std::vector<float> own = convolution.by_own_kernels(Kind::fwd);
      take_notices();
      const EnvironmentVariable fails("ISOBAR_VIRTUAL_GPU_FAIL", concat("cudaMallocAsync:", kOfOperands + i).c_str());
      std::optional<cuda::AlgorithmTiming> timing;
      if (times) timing.emplace(kGpu);
      const std::vector<float> result = convolution.result_of_run(Kind::fwd);
      const bool is_tried = i > kOfTrial;
      CHECK((is_tried ? distance(result, own) < 0x1p-20 : result == own));
      CHECK(convolution.result_of_run(Kind::fwd) == result);
      CHECK(in_use().second.empty() == !times);
      if (times && !is_tried) CHECK(in_use().second == "own");
      const std::vector<std::string> said = take_notices();
      const char* expected = is_tried ? "engine 8 is not used for conv_fwd" : "no engine of cuDNN is used for conv_fwd";
      CHECK(std::any_of(said.begin(), said.end(), [&](const std::string& line) {
        return line.find(expected) == 0 && line.find("out of memory on GPU 0: ") != std::string::npos;
      }));
    }
}

TEST_CASE("virtual GPU: an engine that fails after it was chosen is an error that names it") {
  const FreshContext whole;
  const Convolution convolution(kPlane);
  convolution.run(Kind::fwd);
  const EnvironmentVariable fails("ISOBAR_VIRTUAL_GPU_FAIL", "cudnnSetStream:12");
  const auto run_some = [&] {
    for (int i = 0; i < 12; ++i) convolution.run(Kind::fwd);
  };
  CHECK_THROWS_WITH(run_some(), ContainsSubstring("conv_fwd: cuDNN's engine 8 could not run: an error of cuDNN"));
}

TEST_CASE("virtual GPU: an engine whose workspace cannot be allocated any more is an error that names it") {
  const FreshContext whole;
  const Convolution convolution(kPlane);
  convolution.run(Kind::fwd);
  const EnvironmentVariable fails("ISOBAR_VIRTUAL_GPU_FAIL", "cudaMallocAsync:14");
  const auto run_some = [&] {
    for (int i = 0; i < 12; ++i) convolution.run(Kind::fwd);
  };
  CHECK_THROWS_WITH(run_some(),
                    ContainsSubstring("conv_fwd: cuDNN's engine 8 could not run: out of memory on GPU 0: "));
}

// ---- NVIDIA's own library ------------------------------------------------------------------------------------------

// Run by the next test, with NVIDIA's library behind the interface (nvidias_cudnn.cc).
TEST_CASE("convolutions as NVIDIA's cuDNN takes them", "[.][nvidia]") {
  const std::vector<ConvShape> shapes{
      {4, 4, 64, {axis(64, 4, 2, 1, 1), axis(64, 4, 2, 1, 1), axis(64, 4, 2, 1, 1)}},
      {4, 256, 512, {axis(8, 4, 2, 1, 1), axis(8, 4, 2, 1, 1), axis(8, 4, 2, 1, 1)}},
      {4, 5, 64, {axis(32, 4, 2, 1, 1), axis(32, 4, 2, 1, 1), axis(32, 4, 2, 1, 1)}},
      {32, 1, 32, {{}, axis(64, 3, 1, 1, 1), axis(64, 3, 1, 1, 1)}},
      {8, 64, 64, {{}, axis(33, 3, 2, 1, 0), axis(64, 5, 1, 2, 2)}},
      {8, 16, 32, {{}, {}, axis(100, 3, 1, 1, 1)}},
  };
  REQUIRE_THAT(cuda::cudnn_name(0), ContainsSubstring("cuDNN 9"));
  for (const ConvShape& shape : shapes)
    for (const Precision& precision : kPrecisions)
      for (const cuda::ConvKind kind : {cuda::ConvKind::fwd, cuda::ConvKind::bwd_data, cuda::ConvKind::bwd_weight}) {
        const DType out = kind == cuda::ConvKind::bwd_weight ? DType::fp32 : precision.dtype;
        const cuda::ConvProblem p{0, kind, shape, precision.dtype, out, precision.tf32, 16, 16, 16};
        std::vector<cuda::SharedCudnnPlan> plans;
        cuda::for_each_cudnn_plan(p, true, [&](const cuda::SharedCudnnPlan& plan) {
          plans.push_back(plan);
          return plans.size() < 3;
        });
        INFO(cuda::name_of(kind) << ' ' << name_of(precision.dtype) << ", tf32 " << precision.tf32);
        std::string texts;
        for (const cuda::SharedCudnnPlan& plan : plans) {
          texts += concat("; ", plan->text(), ", ", plan->workspace_bytes(), " bytes");
          const cuda::SharedCudnnPlan again = cuda::cudnn_plan_of(p, plan->text());
          REQUIRE(again != nullptr);
          CHECK(again->text() == plan->text());
          CHECK(again->workspace_bytes() == plan->workspace_bytes());
        }
        std::printf("%s, %lld -> %lld channels, %s%s: %zu plans%s\n", cuda::name_of(kind),
                    static_cast<long long>(shape.in_channels), static_cast<long long>(shape.out_channels),
                    name_of(precision.dtype), precision.tf32 ? ", tf32" : "", plans.size(), texts.c_str());
        if (out == precision.dtype) CHECK(!plans.empty());
      }
  CHECK(take_notices().empty());
}

TEST_CASE("virtual GPU: NVIDIA's cuDNN takes isobar's descriptions, and its engines are found again by their texts") {
  const char* chosen = std::getenv("ISOBAR_NVIDIAS_CUDNN");
  const std::string library = chosen != nullptr ? chosen : "/usr/local/cuda/lib64/libcudnn.so.9";
  if (!std::filesystem::exists(library)) ISOBAR_SKIP("NVIDIA's cuDNN is not installed: " + library);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "ISOBAR_NVIDIAS_CUDNN='" + library +
                              "' ISOBAR_CUDA_LIBS=" ISOBAR_NVIDIAS_CUDNN_FOLDER " '" + program + "' '[nvidia]'";
  CHECK(std::system(command.c_str()) == 0);
}

// ---- The stand-in's rules -------------------------------------------------------------------------------------------

namespace {

using namespace cudnn;

// The descriptors of a small convolution, each of which a case may make wrong.
struct Described {
  const Api api = load();
  std::string failure{};  // the first one
  std::vector<Descriptor> made{};
  Handle handle = nullptr;

  Described() { note(api.Create(&handle)); }
  ~Described() {
    for (Descriptor each : made) api.BackendDestroyDescriptor(each);
  }

  void note(Status status) {
    if (status == CUDNN_STATUS_SUCCESS || !failure.empty()) return;
    std::array<char, 500> said{};
    api.GetLastErrorString(said.data(), said.size());
    failure = said.data();
  }
  Descriptor make(DescriptorType type) {
    Descriptor descriptor = nullptr;
    note(api.BackendCreateDescriptor(type, &descriptor));
    return made.emplace_back(descriptor);
  }
  template <class T>
  void set(Descriptor to, AttributeName name, AttributeType type, const std::vector<T>& values) {
    note(api.BackendSetAttribute(to, name, type, static_cast<std::int64_t>(values.size()), values.data()));
  }
  void numbers(Descriptor to, AttributeName name, const std::vector<std::int64_t>& values) {
    set(to, name, CUDNN_TYPE_INT64, values);
  }
  void part(Descriptor to, AttributeName name, Descriptor part) {
    set(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector<Descriptor>{part});
  }
  Descriptor end(Descriptor descriptor) {
    note(api.BackendFinalize(descriptor));
    return descriptor;
  }

  Descriptor tensor(std::int64_t id, const std::vector<std::int64_t>& sizes, std::vector<std::int64_t> strides = {},
                    std::int64_t alignment = 16) {
    const Descriptor tensor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (strides.empty()) strides = {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
    set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<DataType>{CUDNN_DATA_FLOAT});
    numbers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
    numbers(tensor, CUDNN_ATTR_TENSOR_STRIDES, strides);
    numbers(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
    numbers(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {alignment});
    return end(tensor);
  }
  Descriptor convolution(std::int64_t pad = 1) {
    const Descriptor convolution = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector<DataType>{CUDNN_DATA_FLOAT});
    set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
        std::vector<ConvolutionMode>{CUDNN_CROSS_CORRELATION});
    numbers(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
    numbers(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {pad, pad});
    for (const AttributeName name : {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                                     CUDNN_ATTR_CONVOLUTION_DILATIONS})
      numbers(convolution, name, {1, 1});
    return end(convolution);
  }
  Descriptor graph(Descriptor x, Descriptor weight, Descriptor y, Descriptor of) {
    const Descriptor operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector<float>{1});
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector<float>{0});
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, of);
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight);
    part(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    const Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector<Handle>{handle});
    part(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, end(operation));
    return end(graph);
  }
  Descriptor graph() {
    return graph(tensor(1, {1, 2, 4, 4}), tensor(2, {3, 2, 3, 3}), tensor(3, {1, 3, 4, 4}), convolution());
  }
  Descriptor plan(Descriptor graph, std::int64_t engine = 12) {
    const Descriptor chosen = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    part(chosen, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    numbers(chosen, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {engine});
    const Descriptor config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    part(config, CUDNN_ATTR_ENGINECFG_ENGINE, end(chosen));
    const Descriptor plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector<Handle>{handle});
    part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, end(config));
    return end(plan);
  }
  void run(Descriptor plan, const std::vector<std::int64_t>& ids, const std::vector<void*>& pointers, void* workspace,
           Stream stream) {
    const Descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    numbers(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector<void*>{workspace});
    if (stream != nullptr) note(api.SetStream(handle, stream));
    note(api.BackendExecute(handle, plan, end(pack)));
  }
};

}  // namespace

TEST_CASE("virtual GPU: every misuse of cuDNN is an error") {
  const auto failure_of = [](const std::function<void(Described&)>& body) {
    const FreshContext whole;
    Described described;
    body(described);
    return described.failure;
  };
  CHECK(failure_of([](Described& d) { d.plan(d.graph()); }) == "");
  using Case = std::pair<const char*, std::function<void(Described&)>>;
  const std::vector<Case> cases{
      {"is set after its descriptor was finalized",
       [](Described& d) {
         d.numbers(d.tensor(1, {1, 2, 4, 4}), CUDNN_ATTR_TENSOR_UNIQUE_ID, {2});
       }},
      {"is of type 3, and given as 4",
       [](Described& d) {
         d.set(d.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT,
               std::vector<float>{1});
       }},
      {"has 1 to 1 elements, and is given 2",
       [](Described& d) {
         d.numbers(d.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, {1, 2});
       }},
      {"has no attribute 100",
       [](Described& d) { d.numbers(d.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {1}); }},
      {"is finalized without attribute 901", [](Described& d) { d.end(d.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR)); }},
      {"is finalized twice",
       [](Described& d) {
         d.end(d.tensor(1, {1, 2, 4, 4}));
       }},
      {"strides do not fit its dimensions",
       [](Described& d) {
         d.tensor(1, {1, 2, 4, 4}, {32, 1, 8, 4});
       }},
      {"a tensor is aligned to 2 bytes",
       [](Described& d) {
         d.tensor(1, {1, 2, 4, 4}, {}, 2);
       }},
      {"is not finalized and is part of another one",
       [](Described& d) {
         d.part(d.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                d.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
       }},
      {"is given a descriptor of type 17",
       [](Described& d) {
         d.part(d.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), CUDNN_ATTR_ENGINE_OPERATION_GRAPH, d.tensor(1, {1, 2, 4, 4}));
       }},
      {"two tensors have one id",
       [](Described& d) {
         d.graph(d.tensor(1, {1, 2, 4, 4}), d.tensor(1, {3, 2, 3, 3}), d.tensor(3, {1, 3, 4, 4}), d.convolution());
       }},
      {"x has 2 channels and the weight 3",
       [](Described& d) {
         d.graph(d.tensor(1, {1, 2, 4, 4}), d.tensor(2, {3, 3, 3, 3}), d.tensor(3, {1, 3, 4, 4}), d.convolution());
       }},
      {"an axis of y has 4 elements, and the convolution makes 3",
       [](Described& d) {
         d.graph(d.tensor(1, {1, 2, 4, 4}), d.tensor(2, {3, 2, 3, 3}), d.tensor(3, {1, 3, 4, 4}), d.convolution(0));
       }},
      {"attribute 105 of a convolution is -1", [](Described& d) { d.convolution(-1); }},
      {"that does not exist, or was destroyed",
       [](Described& d) {
         const Descriptor tensor = d.tensor(1, {1, 2, 4, 4});
         d.made.pop_back();
         d.note(d.api.BackendDestroyDescriptor(tensor));
         d.note(d.api.BackendFinalize(tensor));
       }},
      {"was destroyed, and another one is made of it",
       [](Described& d) {
         const Descriptor weight = d.tensor(2, {3, 2, 3, 3}), x = d.tensor(1, {1, 2, 4, 4});
         const Descriptor graph = d.graph(x, weight, d.tensor(3, {1, 3, 4, 4}), d.convolution());
         d.note(d.api.BackendDestroyDescriptor(weight));
         std::erase(d.made, weight);
         d.plan(graph);
       }},
      {"a handle that does not exist",
       [](Described& d) { d.note(d.api.SetStream(reinterpret_cast<Handle>(&d), nullptr)); }},
      {"is read and was not set",
       [](Described& d) {
         std::int64_t count = 0, value = 0;
         d.note(d.api.BackendGetAttribute(d.tensor(1, {1, 2, 4, 4}), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                          1, &count, &value));
       }},
      {"is not finalized and is read",
       [](Described& d) {
         std::int64_t count = 0, value = 0;
         d.note(d.api.BackendGetAttribute(d.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                          CUDNN_TYPE_INT64, 1, &count, &value));
       }},
      {"is read into a descriptor of type 17, which is in use",
       [](Described& d) {
         const Descriptor heuristics = d.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
         d.part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, d.graph());
         d.set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector<HeurMode>{CUDNN_HEUR_MODE_A});
         Descriptor to = d.tensor(9, {1, 2, 4, 4});
         std::int64_t count = 0;
         d.note(d.api.BackendGetAttribute(d.end(heuristics), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &to));
       }},
      {"a thread that captures a graph plans an engine of cuDNN",
       [](Described& d) {
         const gpu::OwnedStream stream(kGpu);
         const gpu::Capture capture(stream.get());
         d.plan(d.graph());
       }},
  };
  for (const auto& [sentence, body] : cases) CHECK_THAT(failure_of(body), ContainsSubstring(sentence));
}

TEST_CASE("virtual GPU: every misuse of a plan of cuDNN is an error") {
  constexpr std::size_t kRoom = 4096, kWorkspace = 1 << 12;
  struct Memory {
    char *x, *weight, *y, *workspace;
    Stream stream;
  };
  const auto failure_of = [&](const std::function<void(Described&, const Memory&)>& body) {
    const FreshContext whole;
    Described described;
    const gpu::OwnedStream stream(kGpu);
    std::array<char*, 4> memory{};
    for (char*& each : memory) each = static_cast<char*>(gpu::allocate(kRoom, 0, stream.get()));
    body(described, {memory[0], memory[1], memory[2], memory[3], stream.get()});
    testing::error_of([&] { gpu::synchronize(kGpu, stream.get()); });
    for (char* each : memory) gpu::free(each, stream.get());
    return described.failure;
  };
  static_assert(kWorkspace <= kRoom);
  const std::vector<std::int64_t> ids{1, 2, 3};
  CHECK(failure_of([&](Described& d, const Memory& m) {
          d.run(d.plan(d.graph()), ids, {m.x, m.weight, m.y}, m.workspace, m.stream);
        }) == "");
  using Case = std::pair<const char*, std::function<void(Described&, const Memory&)>>;
  const std::vector<Case> cases{
      {"aligned to 16 bytes is run on one that is not",
       [&](Described& d, const Memory& m) {
         d.run(d.plan(d.graph()), ids, {m.x + 4, m.weight, m.y}, m.workspace, m.stream);
       }},
      {"no pointer for tensor 3",
       [&](Described& d, const Memory& m) {
         d.run(d.plan(d.graph()), {1, 2, 4}, {m.x, m.weight, m.y}, m.workspace, m.stream);
       }},
      {"another number of pointers than of ids",
       [&](Described& d, const Memory& m) {
         d.run(d.plan(d.graph()), ids, {m.x, m.weight}, m.workspace, m.stream);
       }},
      {"the workspace is no memory of the device",
       [&](Described& d, const Memory& m) {
         d.run(d.plan(d.graph()), ids, {m.x, m.weight, m.y}, nullptr, m.stream);
       }},
      {"the workspace of 4096 bytes begins 256 bytes into",
       [&](Described& d, const Memory& m) {
         d.run(d.plan(d.graph()), ids, {m.x, m.weight, m.y}, m.workspace + 256, m.stream);
       }},
      {"was given no stream",
       [&](Described& d, const Memory& m) {
         d.run(d.plan(d.graph()), ids, {m.x, m.weight, m.y}, m.workspace, nullptr);
       }},
      {"a plan is run on another handle",
       [&](Described& d, const Memory& m) {
         const Descriptor plan = d.plan(d.graph());
         d.note(d.api.Create(&d.handle));
         d.run(plan, ids, {m.x, m.weight, m.y}, m.workspace, m.stream);
       }},
      {"y is no memory of the device",
       [&](Described& d, const Memory& m) {
         d.run(d.plan(d.graph()), ids, {m.x, m.weight, nullptr}, m.workspace, m.stream);
       }},
  };
  for (const auto& [sentence, body] : cases) CHECK_THAT(failure_of(body), ContainsSubstring(sentence));
}

}  // namespace isobar
