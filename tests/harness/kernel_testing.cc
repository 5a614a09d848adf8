// The implementation of tests/harness/kernel_testing.h: values, guarded memory, the 2x rule, the device loop.
#include "tests/harness/kernel_testing.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <sstream>

#include "kernels/common/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/emulator/schedule.h"

#if ISOBAR_HAS_CUDA
#include <cuda_runtime.h>
#endif
#if defined(ISOBAR_SANITIZED_ADDRESS)
#include <sanitizer/asan_interface.h>
#endif

namespace isobar::testing {

// ---- values ---------------------------------------------------------------------------------------------------------

double round_to(double value, DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return value;
    case DType::i32:
      return std::trunc(value);
    case DType::bf16:
      return static_cast<double>(static_cast<float>(bf16(static_cast<float>(value))));
    case DType::fp16:
      return static_cast<double>(static_cast<float>(fp16(static_cast<float>(value))));
    default:
      return static_cast<double>(static_cast<float>(value));
  }
}

double epsilon_of(DType dtype) {
  return dtype == DType::fp64   ? 0x1p-52
         : dtype == DType::bf16 ? 0x1p-7
         : dtype == DType::fp16 ? 0x1p-10
         : dtype == DType::i32  ? 0.0
                                : 0x1p-23;
}

double smallest_of(DType dtype) {
  return dtype == DType::fp64   ? std::numeric_limits<double>::denorm_min()
         : dtype == DType::bf16 ? 0x1p-133
         : dtype == DType::fp16 ? 0x1p-24
         : dtype == DType::i32  ? 1.0
                                : 0x1p-149;
}

OneUlpNoise::OneUlpNoise(DType dtype, std::uint64_t seed) {
  size = epsilon_of(dtype);
  seed_ = seed;
  drawn_ = 0;
}

OneUlpNoise::~OneUlpNoise() {
  size = 0;
}

double OneUlpNoise::apply(double value) {
  // One block of random_bits serves four words: naive implementations read their inputs many times.
  if (drawn_ % 4 == 0) block_ = philox4x32(seed_, 3, drawn_ / 4);
  const std::uint32_t bits = block_.word[drawn_++ % 4];
  return bits % 4 != 0 ? value : bits & 0x10 ? value * (1 + size) : value * (1 - size);
}

Values values_of(std::vector<double> values, DType dtype) {
  for (double& value : values) value = round_to(value, dtype);
  return {dtype, std::move(values)};
}

Values constant_values(std::int64_t n, DType dtype, double value) {
  return values_of(std::vector<double>(static_cast<std::size_t>(n), value), dtype);
}

Values uniform_values(std::int64_t n, DType dtype, std::uint64_t seed, double low, double high) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = low + (high - low) * (random_bits(seed, 1, i) * 0x1p-32);
  return values_of(std::move(v), dtype);
}

Values random_values(std::int64_t n, DType dtype, std::uint64_t seed, double scale, double mean) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) {  // Box-Muller
    const Philox4 bits = philox4x32(seed, 2, i);
    const double radius = std::sqrt(-2 * std::log((bits.word[0] + 1.0) * 0x1p-32));
    v[i] = mean + scale * radius * std::cos(6.283185307179586 * (bits.word[1] * 0x1p-32));
  }
  return values_of(std::move(v), dtype);
}

static std::vector<std::byte> encode(const Values& values) {
  std::vector<std::byte> bytes(values.v.size() * size_of(values.dtype));
  for (std::size_t i = 0; i < values.v.size(); ++i) {
    const double value = values.v[i];
    std::byte* place = bytes.data() + i * size_of(values.dtype);
    if (values.dtype == DType::i32) {
      const auto integer = static_cast<std::int32_t>(value);
      std::memcpy(place, &integer, sizeof integer);
    } else {
      visit_floating(values.dtype, [&]<class T>(Type<T>) {
        T element;
        if constexpr (std::is_same_v<T, double>)
          element = value;
        else
          element = T(static_cast<float>(value));
        std::memcpy(place, &element, sizeof element);
      });
    }
  }
  return bytes;
}

static Values decode(const std::byte* bytes, std::int64_t n, DType dtype) {
  Values values{dtype, std::vector<double>(static_cast<std::size_t>(n))};
  for (std::size_t i = 0; i < values.v.size(); ++i) {
    const std::byte* place = bytes + i * size_of(dtype);
    if (dtype == DType::i32) {
      std::int32_t integer;
      std::memcpy(&integer, place, sizeof integer);
      values.v[i] = integer;
    } else {
      visit_floating(dtype, [&]<class T>(Type<T>) {
        T element;
        std::memcpy(&element, place, sizeof element);
        if constexpr (std::is_same_v<T, double>)
          values.v[i] = element;
        else
          values.v[i] = static_cast<double>(static_cast<float>(element));
      });
    }
  }
  return values;
}

// ---- the 2x rule ----------------------------------------------------------------------------------------------------

namespace {

bool same_class(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::isinf(a) || std::isinf(b) ? a == b : true;
}

// Half the distance between `value` and its neighbour in a dtype: the error of one rounding. For zero that of numbers
// from 1/2 on, for sums whose terms cancel.
long double rounding_of(long double value, DType dtype) {
  const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(value));
  const auto power_of_two = std::bit_cast<double>(bits & 0x7ff0'0000'0000'0000);  // the largest one that is not larger
  return std::max((value == 0 ? 0.5 : power_of_two) * epsilon_of(dtype), smallest_of(dtype)) / 2.0L;
}

constexpr long double kFewErrors = 16;  // if fewer dominate the yardstick's error, that error varies a lot

struct Errors {
  long double greatest = 0, squares = 0, fourth_powers = 0, ulps = 0;
  std::size_t worst = 0, worst_ulps = 0;

  void add(std::size_t i, long double error, long double rounding) {
    error = std::fabs(error);
    squares += error * error;
    fourth_powers += error * error * error * error;
    if (error > greatest) {
      greatest = error;
      worst = i;
    }
    if (error / rounding > ulps) {
      ulps = error / rounding;
      worst_ulps = i;
    }
  }

  // How many elements dominate the error: 1 if a single one has all of it, n if all n have the same.
  long double participation_ratio() const { return fourth_powers > 0 ? squares * squares / fourth_powers : 0; }
};

std::string percent(long double part, long double whole) {
  return concat(std::round(static_cast<double>(whole > 0  ? 100 * part / whole
                                               : part > 0 ? INFINITY
                                                          : 0)),
                " % of budget");
}

}  // namespace

Verdict compare(const std::string& name, const Values& actual, const Expected& expected, Norm norm) {
  const std::size_t n = expected.exact.size();
  if (actual.v.size() != n) return {false, concat(name, ": ", actual.v.size(), " elements, the oracle has ", n)};

  Errors kernel, yardstick;
  long double greatest_rounding = 0, square_roundings = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const long double exact = expected.exact[i];
    const double rounded = round_to(static_cast<double>(exact), actual.dtype);
    const long double rounding = rounding_of(exact, actual.dtype);
    // A yardstick that is exact by chance still counts with the error of its last roundings.
    long double yardstick_error = rounding + 2 * rounding_of(exact, expected.computed_in);
    bool is_right_class = same_class(actual.v[i], rounded);
    for (const std::vector<double>& run : expected.yardsticks) {
      const double value = round_to(run[i], actual.dtype);
      is_right_class |= same_class(actual.v[i], value);
      if (std::isfinite(value)) yardstick_error = std::max(yardstick_error, std::fabs(value - exact));
    }
    if (!is_right_class) return {false, concat(name, "[", i, "] is ", actual.v[i], ", should be ", rounded)};
    if (!std::isfinite(rounded) || !std::isfinite(actual.v[i])) continue;
    kernel.add(i, actual.v[i] - exact, rounding);
    yardstick.add(i, yardstick_error, rounding);
    greatest_rounding = std::max(greatest_rounding, rounding);
    square_roundings += rounding * rounding;
  }

  const auto describe = [&](const char* what, long double error, long double budget, std::size_t i) {
    std::ostringstream out;
    out.precision(9);
    out << name << ": " << percent(error, budget) << " (" << what << "), worst at [" << i
        << "]: " << (n > 0 ? actual.v[i] : 0.0) << ", should be "
        << (n > 0 ? static_cast<double>(expected.exact[i]) : 0.0);
    return out.str();
  };
  const long double factor = yardstick.participation_ratio() < kFewErrors ? 4 : 2;
  if (norm == Norm::ulps) {
    const long double budget = factor * yardstick.ulps + 1;
    return {kernel.ulps <= budget, describe("units of the last place", kernel.ulps, budget, kernel.worst_ulps)};
  }
  const long double budget = factor * yardstick.greatest + greatest_rounding;
  const long double mean_budget = factor * std::sqrt(yardstick.squares) + std::sqrt(square_roundings);
  if (!(kernel.greatest <= budget)) return {false, describe("greatest error", kernel.greatest, budget, kernel.worst)};
  return {std::sqrt(kernel.squares) <= mean_budget,
          describe("root-mean-square error", std::sqrt(kernel.squares), mean_budget, kernel.worst)};
}

// ---- devices --------------------------------------------------------------------------------------------------------

bool gpu_is_present() {
#if ISOBAR_HAS_CUDA
  static const bool present = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  }();
  return present;
#else
  return false;
#endif
}

std::vector<DeviceKind> cpu_only() {
  return {DeviceKind::cpu};
}

std::vector<DeviceKind> all_devices() {
  std::vector<DeviceKind> kinds = cpu_only();
  if (ISOBAR_HAS_EMULATOR) kinds.push_back(DeviceKind::emulator);
  if (ISOBAR_HAS_CUDA) kinds.push_back(DeviceKind::cuda);
  return kinds;
}

// Memory of a device. Only this part of the tests copies to it.
namespace {

std::byte* allocate(DeviceKind kind, std::size_t bytes) {
#if ISOBAR_HAS_CUDA
  if (kind == DeviceKind::cuda) {
    void* memory = nullptr;
    ISOBAR_CHECK(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc of ", bytes, " bytes failed in a test");
    return static_cast<std::byte*>(memory);
  }
#endif
  (void)kind;
  return static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
}

void release(DeviceKind kind, std::byte* memory) {
#if ISOBAR_HAS_CUDA
  if (kind == DeviceKind::cuda) {
    cudaFree(memory);
    return;
  }
#endif
  (void)kind;
  std::free(memory);
}

void copy(DeviceKind kind, std::byte* to, const std::byte* from, std::size_t bytes) {
#if ISOBAR_HAS_CUDA
  if (kind == DeviceKind::cuda) {
    const cudaError_t error = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    ISOBAR_CHECK(error == cudaSuccess, "copy from or to the GPU failed in a test: ", cudaGetErrorString(error));
    return;
  }
#endif
  (void)kind;
  if (bytes > 0) std::memcpy(to, from, bytes);
}

constexpr std::size_t kGuard = 512;      // bytes before and after every buffer; a multiple of 256 keeps it aligned
constexpr std::byte kUnwritten{0xFF};    // NaN in every floating dtype
constexpr std::byte kOutputGuard{0xA5};  // differs from the value that a kernel leaves if it writes a NaN too many
constexpr std::byte kInputGuard = kUnwritten;  // a read beyond an input spoils the result

// Calls AddressSanitizer's functions, because its macros are empty in a file that is not instrumented.
#if defined(ISOBAR_SANITIZED_ADDRESS)
void poison(const void* memory, std::size_t bytes) {
  __asan_poison_memory_region(memory, bytes);
}
void unpoison(const void* memory, std::size_t bytes) {
  __asan_unpoison_memory_region(memory, bytes);
}
#else
void poison(const void*, std::size_t) {}
void unpoison(const void*, std::size_t) {}
#endif

}  // namespace

struct Workbench::Buffer {
  DeviceKind kind;
  DType dtype;
  Role role;
  std::size_t size, before, total;  // bytes: of the contents, before them, and in total
  std::vector<std::byte> initial;   // contents; not kept for scratch memory, which may be large
  std::byte* memory;

  Buffer(DeviceKind where, DType type, std::vector<std::byte> bytes, std::size_t shift, Role use)
      : kind(where),
        dtype(type),
        role(use),
        size(bytes.size()),
        before(kGuard + shift),
        total(before + size + kGuard),
        memory(allocate(kind, total)) {
    const std::vector<std::byte> guards(before, guard());
    copy(kind, memory, guards.data(), before);
    copy(kind, data(), bytes.data(), size);
    copy(kind, data() + size, guards.data(), kGuard);
    if (role != Role::scratch) initial = std::move(bytes);
    if (kind != DeviceKind::cuda) {
      poison(memory, before);
      poison(data() + size, kGuard);
    }
  }
  ~Buffer() {
    unpoison_guards();
    release(kind, memory);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return memory + before; }
  std::byte guard() const { return role == Role::input ? kInputGuard : kOutputGuard; }
  void unpoison_guards() const {
    if (kind != DeviceKind::cuda) unpoison(memory, total);
  }
  std::vector<std::byte> contents() const {
    std::vector<std::byte> bytes(size);
    copy(kind, bytes.data(), data(), size);
    return bytes;
  }
  bool guards_are_whole() const {
    unpoison_guards();
    std::vector<std::byte> guards(before + kGuard);
    copy(kind, guards.data(), memory, before);
    copy(kind, guards.data() + before, data() + size, kGuard);
    return std::all_of(guards.begin(), guards.end(), [this](std::byte byte) { return byte == guard(); });
  }
};

Workbench::Workbench(Device device) : device_(device) {}
Workbench::~Workbench() = default;

Pointer Workbench::add(std::vector<std::byte> bytes, DType dtype, std::int64_t shift, Role role) {
  const std::size_t shift_bytes = static_cast<std::size_t>(shift) * size_of(dtype);
  buffers_.push_back(std::make_unique<Buffer>(device_.kind, dtype, std::move(bytes), shift_bytes, role));
  return {buffers_.back()->data()};
}

Pointer Workbench::input(const Values& values, std::int64_t shift) {
  return add(encode(values), values.dtype, shift, Role::input);
}

Pointer Workbench::in_out(const Values& values, std::int64_t shift) {
  return add(encode(values), values.dtype, shift, Role::output);
}

Pointer Workbench::output(std::int64_t n, DType dtype, std::int64_t shift) {
  return add(std::vector<std::byte>(static_cast<std::size_t>(n) * size_of(dtype), kUnwritten), dtype, shift,
             Role::output);
}

Pointer Workbench::workspace(std::size_t bytes) {
  return add(std::vector<std::byte>(bytes, kUnwritten), DType::fp32, 0, Role::scratch);
}

void* TestOperands::allocate(const cases::Operand& operand) {
  using cases::Role;
  const Values* values = nullptr;
  std::int64_t shift = 0;
  for (const Given& given : given_)
    if (given.name == operand.name) values = given.values, shift = given.shift;
  ISOBAR_CHECK(values != nullptr || !operand.is_read(), "a test gives no ", operand.name, " to a kernel that reads it");
  ISOBAR_CHECK(values == nullptr || (values->size() == operand.n && values->dtype == operand.dtype), "a test gives ",
               values->size(), " elements of ", name_of(values->dtype), " as ", operand.name, ", whose case has ",
               operand.n, " of ", name_of(operand.dtype));
  if (operand.role == Role::input) return bench_.input(*values, shift).raw;
  if (operand.role == Role::in_out) return bench_.in_out(*values, shift).raw;
  if (operand.role == Role::output) return bench_.output(operand.n, operand.dtype, shift).raw;
  return bench_.workspace(operand.bytes()).raw;
}

const Workbench::Buffer& Workbench::buffer(Pointer pointer) const {
  for (const auto& candidate : buffers_)
    if (candidate->data() == pointer.raw) return *candidate;
  throw_error("a test reads a pointer that its workbench did not give out");
}

Values Workbench::read(Pointer pointer) const {
  const Buffer& from = buffer(pointer);
  const std::vector<std::byte> bytes = from.contents();
  return decode(bytes.data(), static_cast<std::int64_t>(bytes.size() / size_of(from.dtype)), from.dtype);
}

void Workbench::check(const std::string& name, Pointer pointer, const Expected& expected, Norm norm) const {
  const Verdict verdict = compare(name, read(pointer), expected, norm);
  INFO(verdict.text);
  CHECK(verdict.ok);
}

void Workbench::check_equal(const std::string& name, Pointer pointer, const Values& values) const {
  const Values actual = read(pointer);
  REQUIRE(actual.size() == values.size());
  std::int64_t wrong = 0;
  while (wrong < values.size() &&
         (actual[wrong] == values[wrong] || (std::isnan(actual[wrong]) && std::isnan(values[wrong]))))
    ++wrong;
  INFO(name << "[" << wrong << "] is " << (wrong < values.size() ? actual[wrong] : 0) << ", should be "
            << (wrong < values.size() ? values[wrong] : 0));
  CHECK(wrong == values.size());
}

std::vector<std::byte> Workbench::finish() const {
  std::vector<std::byte> outputs;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer& one = *buffers_[i];
    INFO("buffer " << i << " of the case, " << one.size << " bytes of " << name_of(one.dtype));
    CHECK(one.guards_are_whole());
    if (one.role == Role::scratch) continue;
    const std::vector<std::byte> contents = one.contents();
    const bool input_is_unchanged = one.role != Role::input || contents == one.initial;
    CHECK(input_is_unchanged);
    if (one.role == Role::output) outputs.insert(outputs.end(), contents.begin(), contents.end());
  }
  return outputs;
}

// ---- the device loop ------------------------------------------------------------------------------------------------

std::vector<DeviceKind> wanted_devices(const std::vector<DeviceKind>& kinds) {
  const char* wanted = std::getenv("ISOBAR_TEST_DEVICES");
  const auto is_wanted = [&](DeviceKind kind) {
    if (wanted == nullptr) return kind != DeviceKind::cuda || gpu_is_present();
    return ("," + std::string(wanted) + ",").find(std::string(",") + name_of(kind) + ",") != std::string::npos;
  };
  std::vector<DeviceKind> found;
  std::copy_if(kinds.begin(), kinds.end(), std::back_inserter(found), is_wanted);
  return found;
}

namespace {

#if defined(ISOBAR_SANITIZED_THREAD) || defined(ISOBAR_SANITIZED_ADDRESS)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// One way to run a case on a device: number of threads, schedule, or a repetition.
struct Way {
  std::string name;
  int threads = 0;                   // CPU; 0: all threads
  emulator::Schedule schedule = {};  // emulator
};

// The kernels that this CPU can run for a case. With a sanitizer only those of one instruction set.
std::vector<CpuKernels> cpu_kernels(bool multiplies_bf16) {
  using cpu::Bf16Products;
  const CpuKernels here{cpu::best_isa(), cpu::bf16_products()};
  if (kIsSanitized) return {here};
  std::vector<CpuKernels> kernels;
  if (multiplies_bf16 && here.isa == cpu::Isa::avx512) {
    const bool has_tiles = here.products == Bf16Products::tiles;
    kernels.push_back({here.isa, has_tiles ? Bf16Products::tiles : Bf16Products::emulated_tiles});
    kernels.push_back({here.isa, cpu::has_pairs() ? Bf16Products::pairs : Bf16Products::emulated_pairs});
  }
  for (const cpu::Isa isa : {cpu::Isa::avx512, cpu::Isa::avx2, cpu::Isa::generic})
    if (isa <= here.isa) kernels.push_back({isa, Bf16Products::widened});
  return kernels;
}

std::vector<Way> emulator_ways() {
  std::vector<Way> ways;
  if constexpr (ISOBAR_HAS_EMULATOR) {
    for (const emulator::Schedule& schedule : emulator::kTestSchedules)
      ways.push_back({concat("emulator, schedule ", emulator::name_of(schedule)), 0, schedule});
    // A sanitizer's findings do not depend on the order, and it is slow.
    if (kIsSanitized) ways.resize(1);
  }
  return ways;
}

std::vector<Way> ways_of(DeviceKind kind, const DeviceOptions& options) {
  if (kind == DeviceKind::cuda) return {{name_of(kind)}, {concat(name_of(kind), ", again")}};
  if (kind == DeviceKind::emulator) return emulator_ways();
#if defined(ISOBAR_SANITIZED_THREAD)
  (void)options;
  return {{"cpu, 1 thread", 1}};  // as in tests/CMakeLists.txt
#else
  if (options.any_thread_count) return {{"cpu, 1 thread", 1}, {"cpu, 3 threads", 3}};
  return {{"cpu, 3 threads", 3}, {"cpu, 3 threads again", 3}};
#endif
}

class ThreadCount {
 public:
  explicit ThreadCount(int threads) : saved_(omp_get_max_threads()) {
    if (threads > 0) omp_set_num_threads(threads);
  }
  ~ThreadCount() { omp_set_num_threads(saved_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int saved_;
};

// Runs body in every way; all must give the same bits.
void run_in(const std::vector<Way>& ways, DeviceKind kind, const std::function<void(Workbench&)>& body) {
  std::vector<std::byte> first;
  bool is_first = true;
  for (const Way& way : ways) {
    INFO("on " << way.name);
    const ThreadCount threads(way.threads);
    if constexpr (ISOBAR_HAS_EMULATOR) set_schedule(way.schedule);
    Workbench bench({.kind = kind});
    body(bench);
    const std::vector<std::byte> outputs = bench.finish();
    if (is_first) first = outputs;
    const bool same_bits_as_first_run = outputs == first;
    CHECK(same_bits_as_first_run);
    is_first = false;
  }
}

}  // namespace

bool is_sanitized() {
  return kIsSanitized;
}

void on_devices(const std::vector<DeviceKind>& kinds, std::initializer_list<DType> dtypes,
                const std::function<void(Workbench&)>& body, DeviceOptions options) {
  const auto has = [&](DType dtype) { return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end(); };
  for (const DeviceKind kind : wanted_devices(kinds)) {
    if (has(DType::fp64) && kind != DeviceKind::cpu) continue;
    if (kind == DeviceKind::cuda && !gpu_is_present()) ISOBAR_SKIP("no GPU");
    if (kind != DeviceKind::cpu) {
      run_in(ways_of(kind, options), kind, body);
      continue;
    }
    for (const CpuKernels& kernels : cpu_kernels(options.multiplies && has(DType::bf16))) {
      INFO(name_of(kernels.isa) << ", products of bf16 by " << name_of(kernels.products));
      const UsedKernels used(kernels);
      run_in(ways_of(kind, options), kind, body);
    }
  }
}

// ---- gradients ------------------------------------------------------------------------------------------------------

double dot(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void check_gradient(const std::string& name, const Values& x, const Values& gradient,
                    const std::function<double(const Values&)>& loss) {
  REQUIRE(x.dtype == DType::fp64);
  REQUIRE(gradient.size() == x.size());
  Values moved = x;
  const auto at = [&](std::int64_t i, double step) {
    moved[i] = x[i] + step;
    const double value = loss(moved);
    moved[i] = x[i];
    return value;
  };
  double worst = 0;
  std::int64_t where = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double h = 1e-3 * std::max(1.0, std::fabs(x[i]));
    const double far = at(i, 2 * h) - at(i, -2 * h), middle = at(i, h) - at(i, -h), near = at(i, h / 2) - at(i, -h / 2);
    const double coarse = (8 * middle - far) / (12 * h), fine = (8 * near - middle) / (6 * h);
    // The two estimates differ by the error of the coarse one, 16 times that of the fine one, plus cancellation.
    const double budget = std::fabs(coarse - fine) + 64 * 0x1p-52 * (std::fabs(loss(x)) + std::fabs(near)) / h;
    const double share = std::fabs(gradient[i] - fine) / budget;
    if (!(share <= worst)) {
      worst = share;
      where = i;
    }
    if (std::isnan(share)) break;
  }
  INFO(name << ": gradient " << (x.size() > 0 ? gradient[where] : 0.0) << " at [" << where << "] is off by " << worst
            << " times the error of the finite difference");
  CHECK(worst <= 1.0);
}

}  // namespace isobar::testing
