// kernels/common: conversions of all 65536 patterns, the known answers of Philox, the drop threshold, the parallel
// split, notices.
#include <omp.h>

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/common/dtype.h"
#include "kernels/common/notices.h"
#include "kernels/common/rng.h"
#include "kernels/cpu/parallel.h"
#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

// The value of a 16-bit pattern from its definition: sign, exponent and mantissa, nothing clever.
double decode(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

template <class T>
void check_all_patterns(int exponent_bits, int mantissa_bits) {
  const auto infinity_bits = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  int wrong_widened = 0, wrong_narrowed = 0, wrong_midpoints = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    T element;
    element.bits = static_cast<std::uint16_t>(bits);
    const double value = decode(bits, exponent_bits, mantissa_bits);
    const auto widened = static_cast<float>(element);
    const bool is_nan = std::isnan(value);
    wrong_widened += is_nan ? !std::isnan(widened) : widened != value || std::signbit(widened) != std::signbit(value);
    const std::uint16_t back = T::from_float(widened);
    wrong_narrowed += is_nan ? !std::isnan(decode(back, exponent_bits, mantissa_bits)) : back != bits;
    // Between this number and the next one further from zero: to nearest, a tie to the even one. Infinity stands where
    // the next power of two would.
    if (is_nan || std::isinf(value)) continue;
    const std::uint16_t next = static_cast<std::uint16_t>(bits + 1);
    const bool overflows = (next & 0x7fff) == infinity_bits;
    const double beyond = overflows ? std::copysign(std::ldexp(1.0, (1 << (exponent_bits - 1))), value)
                                    : decode(next, exponent_bits, mantissa_bits);
    const auto middle = static_cast<float>((value + beyond) / 2);
    if (middle != (value + beyond) / 2) continue;  // bf16 subnormals: a float has no number there
    const float below = std::nextafter(middle, static_cast<float>(value));
    const float above = std::nextafter(middle, std::copysign(std::numeric_limits<float>::infinity(), middle));
    wrong_midpoints += T::from_float(middle) != (bits % 2 == 0 ? bits : next);
    wrong_midpoints += T::from_float(below) != bits;
    wrong_midpoints += T::from_float(above) != next;
  }
  CHECK(wrong_widened == 0);
  CHECK(wrong_narrowed == 0);
  CHECK(wrong_midpoints == 0);
  CHECK(T::from_float(std::numeric_limits<float>::infinity()) == infinity_bits);
  CHECK(T::from_float(std::numeric_limits<float>::max()) == infinity_bits);
  CHECK(std::isnan(static_cast<float>(T(std::bit_cast<float>(0x7f800001u)))));  // a NaN whose payload is cut off
  CHECK(std::isnan(static_cast<float>(T(std::bit_cast<float>(0xffffffffu)))));
}

}  // namespace

TEST_CASE("bf16 converts all 65536 patterns and rounds to nearest even") {
  check_all_patterns<bf16>(8, 7);
}

TEST_CASE("fp16 converts all 65536 patterns and rounds to nearest even") {
  check_all_patterns<fp16>(5, 10);
}

TEST_CASE("Philox gives the known answers of Random123") {
  // kat_vectors of Random123, philox4x32 with 10 rounds: counter, key, result.
  struct Known {
    std::uint32_t counter[4], key[2], result[4];
  };
  const Known known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  const auto join = [](std::uint32_t low, std::uint32_t high) { return low | static_cast<std::uint64_t>(high) << 32; };
  for (const Known& k : known) {
    const Philox4 bits =
        philox4x32(join(k.key[0], k.key[1]), join(k.counter[2], k.counter[3]), join(k.counter[0], k.counter[1]));
    for (int i = 0; i < 4; ++i) CHECK(bits.word[i] == k.result[i]);
  }
}

TEST_CASE("random_bits takes its words in order and to_uniform stays below 1") {
  const Philox4 second = philox4x32(7, 9, 1);
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(random_bits(7, 9, 4 + i) == second.word[i]);
  CHECK(to_uniform(0xffffffffu) < 1.0f);
  CHECK(to_uniform(0) == 0.0f);
}

TEST_CASE("drop_threshold drops nothing at 0, half at 0.5 and never wraps") {
  CHECK(drop_threshold(0.0f) == 0);
  CHECK(drop_threshold(0.5f) == 0x80000000u);
  CHECK(drop_threshold(std::nextafter(1.0f, 0.0f)) == 0xffffff00u);
  CHECK(drop_threshold(1.0f) == 0xffffffffu);
}

TEST_CASE("parallel_for covers every index once, whatever the number of threads") {
  const int threads = omp_get_max_threads();
  for (int wanted : {1, 2, 3, 7}) {
    omp_set_num_threads(wanted);
    for (std::int64_t n : {0, 1, 2, 5, 64, 65, 1001}) {
      std::vector<int> visits(static_cast<std::size_t>(n), 0);
      parallel_for(n, 10, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      CHECK(visits == std::vector<int>(static_cast<std::size_t>(n), 1));
    }
  }
  omp_set_num_threads(threads);
}

TEST_CASE("a notice waits for the next call that takes notices, once a process") {
  take_notices();
  for (const char* sentence : {"one", "two", "one"}) notice(sentence);
  CHECK(take_notices() == std::vector<std::string>{"one", "two"});
  notice("two");
  CHECK(take_notices().empty());
}

}  // namespace isobar::testing
