// What the libraries compress comes back; what they did not compress is one sentence, before memory is taken for it.
#include "data/files/codecs.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/files/checksum.h"
#include "kernels/common/check.h"
#include "tests/harness/error_of.h"
#include "tests/harness/kept.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using Kind = Codec::Kind;

namespace {

using StoredBytes = std::vector<std::byte>;

// StoredBytes written in hexadecimal.
StoredBytes hex(const std::string& text) {
  StoredBytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

// 0, 3, 6, ... as 16-bit numbers: what the packed bytes below hold, made by numcodecs 0.16.
StoredBytes ramp(int count) {
  StoredBytes bytes;
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(3 * i));
    bytes.push_back(static_cast<std::byte>((3 * i) >> 8));
  }
  return bytes;
}

StoredBytes deflated(const StoredBytes& bytes, bool gzip) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  StoredBytes out(bytes.size() + 100);
  StoredBytes in = bytes;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

StoredBytes with_checksum(StoredBytes bytes, bool first = false) {
  const std::uint32_t sum = crc32c(bytes);
  for (int i = 0; i < 4; ++i)
    bytes.insert(first ? bytes.begin() + i : bytes.end(), static_cast<std::byte>(sum >> (8 * i)));
  return bytes;
}

StoredBytes shuffled(const StoredBytes& bytes, std::size_t element) {
  StoredBytes out;
  const std::size_t elements = bytes.size() / element;
  for (std::size_t k = 0; k < element; ++k)
    for (std::size_t i = 0; i < elements; ++i) out.push_back(bytes[i * element + k]);
  out.insert(out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(elements * element), bytes.end());
  return out;
}

StoredBytes undo(const std::vector<Codec>& codecs, const StoredBytes& bytes, std::size_t size) {
  check_codecs(codecs, "s/c.0");
  return undo_codecs(codecs, bytes, size, "s/c.0");
}

std::string refusal(const std::vector<Codec>& codecs, const StoredBytes& bytes, std::size_t size) {
  return testing::error_of([&] { undo(codecs, bytes, size); }, "accepted");
}

// Each codec's bytes of ramp(100).
const std::vector<std::pair<Kind, std::string>> kPacked = {
    {Kind::zlib,
     "785e05c1014403001000c0fb4d29a594a69452ca52c4182322c6181111111111111111111111111111111111111111111123"
     "22222222222222da1d4995aad5aad728a5459b0e5d7af4ea3720232b67d0906179054523468d193761d294693366cd99b760"
     "d192652b56ad59b761d3966d3b76edd977e0d09163274e9d3977e1d2956b376eddb957f2e0d193672f5ebd79f7e1d3976f3f"
     "7efdf997888aa88a9aa88b86688ae6688df6e88cee48475f9401723a2c11"},
    {Kind::gzip,
     "1f8b0800d2250a6b00ff05c1014403001000c0fb4d29a594a69452ca52c4182322c618111111111111111111111111111111"
     "111111111111112322222222222222da1d4995aad5aad728a5459b0e5d7af4ea3720232b67d0906179054523468d193761d2"
     "94693366cd99b760d192652b56ad59b761d3966d3b76edd977e0d09163274e9d3977e1d2956b376eddb957f2e0d193672f5e"
     "bd79f7e1d3976f3f7efdf997888aa88a9aa88b86688ae6688df6e88cee48475f9401180f7ddbc8000000"},
    {Kind::zstd,
     "28b52ffd20c8450500820c292f3077650d707723f637627f23f637627f23f637627f23f637627f23f637627f23f62f54d731"
     "040902040810202044a6d7700b9770075770031770b7abddec62f7bad6ad56a53a556a54a84f9d3665ba546952a4478d1625"
     "3a546850a03f7df6e4b953674e9c376dd6a43953664c982f5db664b952654a94274d962439526448901f3d76e4b85163468c"
     "172d56a438516244880f1d325488d0204181006d6965615d590700"},
    {Kind::lz4,
     "c8000000f0b900000300060009000c000f001200150018001b001e002100240027002a002d0030003300360039003c003f00"
     "4200450048004b004e005100540057005a005d0060006300660069006c006f007200750078007b007e008100840087008a00"
     "8d0090009300960099009c009f00a200a500a800ab00ae00b100b400b700ba00bd00c000c300c600c900cc00cf00d200d500"
     "d800db00de00e100e400e700ea00ed00f000f300f600f900fc00ff000201050108010b010e011101140117011a011d012001"
     "230126012901"},
    {Kind::blosc,
     "02013102c8000000c8000000900000001400000078000000ff5a000306090c0f1215181b1e2124272a2d303336393c3f4245"
     "484b4e5154575a5d606366696c6f7275787b7e8184878a8d909396999c9fa2a5a8abaeb1b4b7babdc0c3c6c9cccfd2d5d8db"
     "dee1e4e7eaedf0f3f6f9fcff0205080b0e1114171a1d20232629000000000005003e14010100500101010101"},
    {Kind::blosc,
     "02019402c8000000c8000000c900000014000000b100000028b52ffd20c8450500820c292f3077650d707723f637627f23f6"
     "37627f23f637627f23f637627f23f637627f23f62f54d731040902040810202044a6d7700b9770075770031770b7abddec62"
     "f7bad6ad56a53a556a54a84f9d3665ba546952a4478d16253a546850a03f7df6e4b953674e9c376dd6a43953664c982f5db6"
     "64b952654a94274d962439526448901f3d76e4b85163468c172d56a438516244880f1d325488d0204181006d6965615d5907"
     "00"},
    {Kind::blosc,
     "02011202c8000000c8000000d800000000000300060009000c000f001200150018001b001e002100240027002a002d003000"
     "3300360039003c003f004200450048004b004e005100540057005a005d0060006300660069006c006f007200750078007b00"
     "7e008100840087008a008d0090009300960099009c009f00a200a500a800ab00ae00b100b400b700ba00bd00c000c300c600"
     "c900cc00cf00d200d500d800db00de00e100e400e700ea00ed00f000f300f600f900fc00ff000201050108010b010e011101"
     "140117011a011d012001230126012901"},
    {Kind::blosc,
     "02017102c8000000c80000008e0000001400000076000000785e636066e3e4e11712959096535451d7d2353036b3b4b17772"
     "f5f0f60b0c098f8a4d484ecbccc92f2aada8ae6b6c69efea9d3079dacc39f3172d5db17addc62ddb77ed3d70f8d8c933e72f"
     "5dbd71fbdec327cf5fbdfdf0f9dbcf3fff995839b8f90445c4a5641594d534196802185100006b4f2c11"},
    {Kind::blosc,
     "02013102c8000000c80000008c0000001400000074000000ff56000306090c0f1215181b1e2124272a2d303336393c3f4245"
     "484b4e5154575a5d606366696c6f7275787b7e8184878a8d909396999c9fa2a5a8abaeb1b4b7babdc0c3c6c9cccfd2d5d8db"
     "dee1e4e7eaedf0f3f6f9fcff0205080b0e1114171a1d202326290001004214010100500101010101"}};

}  // namespace

TEST_CASE("codecs: what numcodecs compressed comes back") {
  const StoredBytes expected = ramp(100);
  for (const auto& [kind, packed] : kPacked) {
    if (!build_undoes(kind)) continue;
    INFO(name_of(kind));
    CHECK((undo({{.kind = kind}}, hex(packed), 200) == expected));
  }
  CHECK((undo({}, expected, 200) == expected));
  CHECK((undo({{.kind = Kind::zlib}}, deflated({}, false), 0).empty()));
}

TEST_CASE("codecs: less or more bytes than expected, damage and a cut are one sentence") {
  for (const auto& [kind, packed] : kPacked) {
    if (!build_undoes(kind)) continue;
    const std::vector<Codec> codecs = {{.kind = kind}};
    INFO(name_of(kind));
    const StoredBytes good = hex(packed);
    for (const std::size_t size : {0, 1, 199, 201, 100000}) {
      INFO(size);
      CHECK(refusal(codecs, good, size) == "s/c.0 is damaged: its " + std::to_string(good.size()) + " bytes are no " +
                                               std::to_string(size) + " bytes that " + name_of(kind) +
                                               " has compressed");
    }
    for (const std::size_t size : {std::size_t{1} << 40, std::size_t{1} << 62, ~std::size_t{0} / 2})
      CHECK_THAT(refusal(codecs, good, size), ContainsSubstring("s/c.0 is damaged"));  // and takes no such memory
    for (std::size_t size = 0; size < good.size(); ++size) {
      const StoredBytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
      CHECK_THAT(refusal(codecs, cut, 200), ContainsSubstring("s/c.0 is damaged"));
    }
    CHECK_THAT(refusal(codecs, StoredBytes(50, std::byte{0xff}), 200), ContainsSubstring("s/c.0 is damaged"));
  }
  CHECK(refusal({}, ramp(3), 8) == "s/c.0 is truncated or damaged: it has 6 bytes, not 8");
}

TEST_CASE("codecs: a checksum is looked at, before and behind the bytes") {
  const StoredBytes plain = ramp(9);
  for (const bool first : {false, true}) {
    const std::vector<Codec> codecs = {{.kind = Kind::crc32c, .checksum_first = first}};
    const StoredBytes good = with_checksum(plain, first);
    CHECK((undo(codecs, good, 18) == plain));
    for (std::size_t i = 0; i < good.size(); ++i) {
      StoredBytes bad = good;
      bad[i] ^= std::byte{4};
      CHECK(refusal(codecs, bad, 18) == "s/c.0 is damaged: its CRC-32C is not the one that is stored with it");
    }
    CHECK(refusal(codecs, good, 19) == "s/c.0 is truncated or damaged: it has 18 bytes, not 19");
    CHECK(refusal(codecs, StoredBytes(3), 0) == "s/c.0 is damaged: its 3 bytes hold no checksum");
  }
}

TEST_CASE("codecs: several are undone from the last to the first") {
  const StoredBytes plain = ramp(33);
  for (const std::size_t element : {1, 2, 3, 4, 8}) {
    const std::vector<Codec> codecs = {{.kind = Kind::shuffle, .element = element},
                                       {.kind = Kind::crc32c},
                                       {.kind = Kind::gzip},
                                       {.kind = Kind::crc32c}};
    const StoredBytes packed = with_checksum(deflated(with_checksum(shuffled(plain, element)), true));
    CHECK((undo(codecs, packed, plain.size()) == plain));
  }
  CHECK(refusal({{.kind = Kind::zlib}, {.kind = Kind::gzip}}, plain, 66) ==
        "s/c.0 is compressed twice, by zlib and by gzip; isobar undoes one compressor");
}

TEST_CASE("codecs: a size before a block of lz4 that is not the chunk's is damage, whatever the block holds") {
  if (!build_undoes(Kind::lz4)) return;
  for (const auto& [kind, packed] : kPacked) {
    if (kind != Kind::lz4) continue;
    StoredBytes bytes = hex(packed);
    bytes[0] ^= std::byte{1};
    CHECK_THAT(refusal({{.kind = Kind::lz4}}, bytes, 200), ContainsSubstring("s/c.0 is damaged"));
  }
}

TEST_CASE("codecs: a build without a library names it") {
  for (const Kind kind : {Kind::zstd, Kind::lz4, Kind::blosc}) {
    const std::string name = name_of(kind), message = refusal({{.kind = kind}}, {}, 0);
    const std::string expected = "s/c.0 is compressed by " + name +
                                 ", which this build of isobar cannot undo; install lib" + name +
                                 "-dev (scripts/install does), and build isobar again";
    CHECK((message == expected) != build_undoes(kind));
  }
  for (const Kind kind : {Kind::zlib, Kind::gzip, Kind::crc32c, Kind::shuffle}) CHECK(build_undoes(kind));
  for (const auto& [kind, packed] : kPacked) CHECK(codec_named(name_of(kind)) == kind);
  CHECK(!codec_named("bz2"));
}

TEST_CASE("codecs: what the libraries need to undo a chunk, good or damaged, is given back") {
  for (const auto& [kind, packed] : kPacked) {
    if (!build_undoes(kind)) continue;
    INFO(name_of(kind));
    const StoredBytes good = hex(packed), cut(good.begin(), good.begin() + 20);
    const testing::Kept kept = testing::kept_by(100, [&good, &cut, kind = kind] {
      CHECK(undo({{.kind = kind}}, good, 200).size() == 200);
      CHECK(refusal({{.kind = kind}}, cut, 200) != "");
    });
    CHECK(kept.bytes < 100 * 16);
  }
  const std::vector<std::byte> bytes(5000);
  CHECK(testing::kept_by(100, [&] { CHECK(zlib_compressed(bytes, 6).size() < 100); }).bytes < 100 * 16);
}
