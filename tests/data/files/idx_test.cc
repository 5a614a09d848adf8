// IDX files, plain and compressed: what is written is read, and what is wrong with a file is named.
#include "data/files/idx.h"

#include <sys/resource.h>

#include <string>

#include "data/files/gzip.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/data_files.h"
#include "tests/harness/kept.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring, testing::gzipped, testing::idx_header;

namespace {

std::string numbers(std::size_t n) {
  std::string bytes;
  for (std::size_t i = 0; i < n; ++i) bytes += static_cast<char>(i * 31 % 256);
  return bytes;
}

}  // namespace

TEST_CASE("idx: arrays come back as they were written, plain and compressed") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a";
  for (const std::vector<std::uint32_t>& shape : {std::vector<std::uint32_t>{1}, {300}, {2, 3}, {3, 100, 257}}) {
    std::size_t n = 1;
    for (const std::uint32_t size : shape) n *= size;
    const std::string values = numbers(n), whole = idx_header(shape) + values;
    const std::size_t half = whole.size() / 2;
    for (const std::string& contents : {whole, gzipped(whole), gzipped(whole) + std::string(512, '\0'),
                                        gzipped(whole.substr(0, half)) + gzipped(whole.substr(half))}) {
      testing::write_text(path, contents);
      const IdxArray array = read_idx(path);
      CHECK(array.shape == std::vector<std::int64_t>(shape.begin(), shape.end()));
      CHECK(std::string(array.values.begin(), array.values.end()) == values);
    }
  }
}

TEST_CASE("idx: bad files are refused by name") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a";
  CHECK_THROWS_WITH(read_idx(path), ContainsSubstring(path));
  const auto refused = [&](const std::string& contents, const std::string& why) {
    for (const bool compressed : {false, true}) {
      testing::write_text(path, compressed ? gzipped(contents) : contents);
      INFO("compressed: " << compressed);
      CHECK_THROWS_WITH(read_idx(path), ContainsSubstring(path + why));
    }
  };
  const std::string whole = idx_header({2, 3}) + numbers(6);
  refused("", " is not an IDX file");
  refused("\x89PNG\r\n", " is not an IDX file");
  refused(std::string("\0\1\x08\1\0\0\0\1x", 9), " is not an IDX file");
  refused(whole.substr(0, 3), " is not an IDX file");
  refused(idx_header({2}, 0x09) + "ab", " holds signed bytes (type 0x09); expected unsigned bytes (type 0x08)");
  refused(idx_header({2}, 0x0b) + "abcd", " holds 16-bit integers (type 0x0b)");
  refused(idx_header({2}, 0x0c) + "abcdefgh", " holds 32-bit integers (type 0x0c)");
  refused(idx_header({1}, 0x0d) + "abcd", " holds fp32 numbers (type 0x0d)");
  refused(idx_header({1}, 0x0e) + "abcdefgh", " holds fp64 numbers (type 0x0e)");
  refused(idx_header({1}, 0x0a) + "a", " holds elements of an unknown type (type 0x0a)");
  refused(idx_header({}) + "a", " is damaged: its IDX header gives no dimensions");
  refused(whole.substr(0, 11), " is truncated: it ends within its IDX header");
  refused(idx_header({2, 0, 3}), " holds nothing: its IDX header gives the shape [2, 0, 3]");
  refused(whole.substr(0, 17), " is truncated: its shape [2, 3] takes 6 bytes, but it holds 5 of them");
  refused(idx_header({2, 3}), " is truncated: its shape [2, 3] takes 6 bytes, but it holds 0 of them");
  refused(whole + "x", " is damaged: bytes follow the 6 of its shape [2, 3]");
  refused(idx_header({1u << 31, 1u << 31, 2}), " has an impossible size: 2147483648 x 2147483648 x 2");
  refused(idx_header({1u << 31, 1u << 31, 1}), " is truncated: its shape [2147483648, 2147483648, 1]");
}

TEST_CASE("idx: gzip streams that are damaged, cut or continued are refused by name") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.gz", whole = gzipped(idx_header({4, 50}) + numbers(200));
  const auto refused = [&](const std::string& contents, const std::string& why) {
    testing::write_text(path, contents);
    CHECK_THROWS_WITH(read_idx(path), ContainsSubstring(path + why));
  };
  for (std::size_t kept : {2ul, 12ul, whole.size() / 2, whole.size() - 1}) {
    INFO(kept << " of " << whole.size() << " bytes");
    refused(whole.substr(0, kept), " is truncated: its gzip stream has no end");
  }
  std::string changed = whole;
  changed[whole.size() - 6] ^= 1;  // of the checksum
  refused(changed, " is damaged: its gzip stream cannot be decompressed (incorrect data check)");
  changed = whole;
  changed[2] = 7;  // no such method
  refused(changed, " is damaged: its gzip stream cannot be decompressed");
  refused(whole + "more", " is damaged: its gzip stream cannot be decompressed");
}

TEST_CASE("idx: what is decompressed takes its own size of memory, and not more while it grows") {
  const std::size_t bytes = 3 << 18;
  CHECK(gunzip(gzipped(std::string(bytes, 'x')), bytes, "x").capacity() == bytes);
}

TEST_CASE("idx: no more is decompressed than a file's header says") {
  // A gibibyte of zeros that no test ever holds: a thousand streams one after another.
  const std::string zeros = gzipped(std::string(1 << 20, '\0'));
  std::string bomb;
  for (int i = 0; i < 1024; ++i) bomb += zeros;
  CHECK(bomb.size() < 2 << 20);
  const testing::TemporaryFolder folder;
  const std::string path = folder / "bomb.gz";
  const auto greatest_memory = [] {  // of this process so far [KiB]
    rusage usage;
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };

  const long before = greatest_memory();
  CHECK(gunzip(bomb, 17, "bomb") == std::vector<std::uint8_t>(17));
  CHECK(gunzip(bomb, 0, "bomb").empty());
  testing::write_text(path, gzipped(idx_header({10})) + bomb);
  CHECK_THROWS_WITH(read_idx(path), ContainsSubstring(path + " is damaged: bytes follow the 10 of its shape [10]"));
  // A header that promises more than the file holds costs what the file holds.
  testing::write_text(path, gzipped(idx_header({1u << 31, 1u << 31}) + "x"));
  CHECK_THROWS_WITH(read_idx(path), ContainsSubstring(path + " is truncated"));
  CHECK(greatest_memory() - before < 64 << 10);
}

TEST_CASE("idx: what zlib needs to decompress, whole or in pieces, good or damaged, is given back") {
  const testing::TemporaryFolder folder;
  const std::string whole = gzipped(std::string(1000, 'x')), cut = whole.substr(0, whole.size() - 5);
  const std::string path = folder / "whole.gz";
  testing::write_text(path, whole);
  const testing::Kept kept = testing::kept_by(100, [&] {
    CHECK(gunzip(whole, 1000, "x").size() == 1000);
    CHECK_THROWS_AS(gunzip(cut, 2000, "x"), Error);
    std::string text(1001, ' ');
    CHECK(GunzippingReader(path).read(text) == 1000);
  });
  CHECK(kept.bytes < 100 * 16);
  CHECK(kept.files == 0);
}
