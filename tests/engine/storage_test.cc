// Blocks of memory: which freed block serves a request, how much the pool keeps, and that freeing needs no memory.
#include "engine/storage.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/free_memory.h"
#include "tests/harness/resource_limit.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_CASE("a freed block serves requests of about its size, and no smaller ones", "[storage]") {
  constexpr std::size_t kSize = 300 * kMiB;  // larger than what other tests leave in the pool
  const void* block = std::make_unique<Storage>(kSize, Device{})->data();
  CHECK(Storage(1000, Device{}).bytes() <= 1280);
  const Storage again(kSize - kSize / 10, Device{});
  CHECK(again.data() == block);
  CHECK(again.bytes() == kSize);
}

TEST_CASE("a freed block serves what is at least four fifths of it", "[storage]") {
  constexpr std::size_t kSize = 400 * kMiB;  // no freed block is as large
  const void* block = std::make_unique<Storage>(kSize, Device{})->data();
  {
    const Storage again(kSize / 5 * 4, Device{});
    CHECK(again.data() == block);
    CHECK(again.bytes() == kSize);
  }
  CHECK(Storage(kSize / 5 * 4 - 4096, Device{}).bytes() < kSize);
}

TEST_CASE("the pool keeps at most a quarter more than was ever in use", "[storage]") {
  // What could not be had was not in use.
  CHECK_THROWS_WITH(Storage(std::size_t{1} << 60, Device{}), testing::ContainsSubstring("out of memory"));
  const std::size_t unit = std::max(peak_memory_bytes() / 4, 16 * kMiB);
  const auto allocate = [](int count, std::size_t bytes) {
    std::vector<std::unique_ptr<Storage>> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(std::make_unique<Storage>(bytes, Device{}));
    return blocks;
  };
  allocate(8, unit);
  REQUIRE(pooled_memory_bytes() >= 8 * unit);
  const auto larger = allocate(5, unit + unit / 2);  // the freed blocks fit none of these
  CHECK(memory_bytes() + pooled_memory_bytes() <= peak_memory_bytes() + peak_memory_bytes() / 4);
}

TEST_CASE("a pool that keeps too much gives its largest block back first", "[storage]") {
  // A third of what was ever in use: all that is in use or freed now is below 3.75 units.
  const std::size_t unit = std::max(peak_memory_bytes() / 3 / 4096 * 4096, 16 * kMiB);
  { const Storage small(unit / 2, Device{}), large(8 * unit, Device{}); }
  const std::size_t pooled = pooled_memory_bytes();
  REQUIRE(pooled >= 8 * unit + unit / 2);
  const Storage fits_none(5 * unit + unit / 2, Device{});
  CHECK(pooled - pooled_memory_bytes() == 8 * unit);
}

TEST_CASE("the report of memory is a table by purpose", "[storage]") {
  const auto line_of = [](const std::string& tag) {
    const std::string report = memory_report();
    const std::size_t at = report.find("\n  " + tag + " ");
    return at == report.npos ? "" : report.substr(at + 1, report.find('\n', at + 1) - at - 1);
  };
  CHECK(line_of("of a test") == "");
  {
    const MemoryScope scope("of a test");
    const Storage block(3 * kMiB / 2, Device{});
    CHECK(line_of("of a test") == "  of a test               1.5        1.5");
    { const MemoryScope inner("within"); }
    const Storage more(kMiB, Device{});
    CHECK(line_of("of a test") == "  of a test               2.5        2.5");
    CHECK(line_of("within") == "");  // nothing was ever held
  }
  CHECK(line_of("of a test") == "  of a test               0.0        2.5");
  {
    const MemoryScope scope("of a test");
    const Storage less(kMiB / 2, Device{});
    CHECK(line_of("of a test") == "  of a test               0.5        2.5");
  }
  CHECK(memory_report().starts_with("memory                now MiB   peak MiB\n"));
  char all[100];
  std::snprintf(all, sizeof all, "  %-18s%9.1f%11.1f", "all", static_cast<double>(memory_bytes()) / (1 << 20),
                static_cast<double>(peak_memory_bytes()) / (1 << 20));
  CHECK(line_of("all") == all);
  CHECK(Storage(0, Device{}).bytes() >= 1);
  CHECK(Storage(256, Device{}).bytes() >= 256);
  CHECK(reinterpret_cast<std::uintptr_t>(Storage(1000, Device{}).data()) % kStorageAlignment == 0);
}

TEST_CASE("a size in words has one digit, and GiB from where MiB would read 1024.0", "[storage]") {
  constexpr std::size_t kGiB = kMiB << 10, kShown = kMiB / 20;  // kShown: half of the last digit
  CHECK(text_of_bytes(0) == "0.0 MiB");
  CHECK(text_of_bytes(kShown) == "0.0 MiB");
  CHECK(text_of_bytes(kShown + 1) == "0.1 MiB");
  CHECK(text_of_bytes(310 * kMiB) == "310.0 MiB");
  CHECK(text_of_bytes(kGiB - kShown - 1) == "1023.9 MiB");
  CHECK(text_of_bytes(kGiB - kShown) == "1.0 GiB");
  CHECK(text_of_bytes(kGiB) == "1.0 GiB");
  CHECK(text_of_bytes(61 * kGiB + kGiB / 5) == "61.2 GiB");
  CHECK(text_of_bytes(2000 * kGiB) == "2000.0 GiB");
}

TEST_CASE("behind a ledger of its own a thread goes on counting where it was", "[storage]") {
  const auto held = [] {
    std::size_t bytes = 0;
    for (const MemoryUse& use : memory_use())
      if (use.tag == "around a ledger") bytes += use.bytes;
    return bytes;
  };
  const MemoryScope scope("around a ledger");
  {
    const OwnMemoryLedger own;
    const Storage apart(kMiB, Device{});
    CHECK(memory_bytes() == kMiB);
    CHECK(held() == 0);
  }
  CHECK(held() == 0);
  const Storage block(kMiB, Device{});
  CHECK(held() == kMiB);
}

TEST_CASE("what no machine has is refused, and counts as used by nobody", "[storage]") {
  const std::size_t before = memory_bytes(), pooled = pooled_memory_bytes();
  CHECK_THROWS_WITH(Storage(std::size_t{1} << 60, Device{}), testing::ContainsSubstring("out of memory"));
  CHECK(memory_bytes() == before);
  CHECK(pooled_memory_bytes() <= pooled);
}

TEST_CASE("free memory is what a limit of this process leaves beside what is held and what is pooled", "[storage]") {
#ifdef ISOBAR_SANITIZED
  ISOBAR_SKIP("a sanitizer needs more memory than the limit leaves");
#endif
  constexpr std::size_t kRoom = 2048 * kMiB;
  const std::size_t available = free_memory_bytes();
  if (available < 2 * kRoom) ISOBAR_SKIP("less than 4 GiB of memory are free");
  const Storage block(64 * kMiB, Device{});
  { const Storage pooled(32 * kMiB, Device{}); }
  const testing::ResourceLimit limit(RLIMIT_DATA, memory_bytes() + pooled_memory_bytes() + kRoom);
  CHECK(free_memory_bytes() == kRoom);
}

TEST_CASE("free memory is at most what the system has available", "[storage]") {
  const auto available = [] {
    std::ifstream system("/proc/meminfo");
    std::string name;
    for (std::size_t kib = 0; system >> name; system.ignore(1000, '\n'))
      if (name == "MemAvailable:" && system >> kib) return kib << 10;
    return std::size_t{0};
  };
  const std::size_t before = available(), found = free_memory_bytes(), after = available();
  REQUIRE(before > 0);
  CHECK(found <= std::max(before, after) + 256 * kMiB);  // others come and go
}

TEST_CASE("a process may have what the lesser of its two limits leaves it", "[storage]") {
  constexpr std::size_t kNone = SIZE_MAX, kMuch = std::size_t{1} << 45;  // more than anything here needs
  const testing::ResourceLimit all(RLIMIT_AS, RLIM_INFINITY), data(RLIMIT_DATA, RLIM_INFINITY);
  if (process_memory_bytes() != kNone) ISOBAR_SKIP("a hard limit of memory cannot be lifted");
  {
    const testing::ResourceLimit limit(RLIMIT_AS, kMuch);
    CHECK(process_memory_bytes() == kMuch);
    const testing::ResourceLimit lesser(RLIMIT_DATA, kMuch / 2);
    CHECK(process_memory_bytes() == kMuch / 2);
    const testing::ResourceLimit greater(RLIMIT_DATA, 2 * kMuch);
    CHECK(process_memory_bytes() == kMuch);
  }
  CHECK(process_memory_bytes() == kNone);
  CHECK(shared_memory_bytes() <= machine_memory_bytes());
}

TEST_CASE("a block over no memory is refused with its bytes", "[storage]") {
  CHECK_THROWS_WITH(Storage(std::shared_ptr<void>(), 5), "no memory was given for a block of 5 bytes");
}

TEST_CASE("memory of another owner is not counted, and lives as long as a block refers to it", "[storage]") {
  const std::size_t before = memory_bytes(), pooled = pooled_memory_bytes();
  bool freed = false;
  {
    auto memory = std::shared_ptr<void>(new char[kMiB], [&](void* block) {
      delete[] static_cast<char*>(block);
      freed = true;
    });
    const Storage storage(memory, kMiB);
    CHECK(storage.data() == memory.get());
    CHECK(storage.bytes() == kMiB);
    CHECK(storage.device() == Device{});
    memory.reset();
    CHECK_FALSE(freed);
    CHECK(memory_bytes() == before);
  }
  CHECK(freed);
  CHECK(memory_bytes() == before);
  CHECK(pooled_memory_bytes() == pooled);
  CHECK_THROWS_WITH(Storage(nullptr, kMiB), testing::ContainsSubstring("no memory was given"));
}

}  // namespace
}  // namespace isobar
