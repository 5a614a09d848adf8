// TensorBoard event files: golden records, framing, names, resuming, a full disk.
#include "apps/train/tensorboard.h"

#include <unistd.h>

#include <cstring>
#include <limits>
#include <regex>
#include <vector>

#include "engine/files/checksum.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::TemporaryFolder;

std::string hexadecimal(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) {
    for (const int nibble : {(byte >> 4) & 15, byte & 15}) digits += "0123456789abcdef"[nibble];
  }
  return digits;
}

// The payloads of a file's records. Framing and checksums must be right to the last byte.
std::vector<std::string> payloads_of(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  std::vector<std::string> payloads;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t length = 0;
    REQUIRE(file.size() - at >= 16);
    std::memcpy(&length, file.data() + at, 8);
    REQUIRE(length <= file.size() - at - 16);
    payloads.push_back(file.substr(at + 12, length));
    REQUIRE(tensorboard::record(payloads.back()) == file.substr(at, length + 16));
    at += length + 16;
  }
  return payloads;
}

// An event without its wall time: a key byte and eight bytes.
std::string timeless(const std::string& event) {
  REQUIRE(event.size() > 9);
  REQUIRE(event[0] == '\x09');
  return event.substr(9);
}

TEST_CASE("events have the bytes of the format", "[tensorboard]") {
  using namespace tensorboard;
  CHECK(hexadecimal(record(file_version_event(1.0))) ==
        "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  CHECK(hexadecimal(record(scalar_event(2.0, 5, "a", 1.5f))) ==
        "1700000000000000e7cef81e09000000000000004010052a0a0a080a0161150000c03fa4cedd19");
  // Step 0 is absent; the value 0 of a oneof is not.
  CHECK(hexadecimal(scalar_event(2.0, 0, "a", 0.0f)) == "0900000000000000402a0a0a080a01611500000000");
  CHECK(hexadecimal(scalar_event(2.0, 300, "a", 0.0f)) == "09000000000000004010ac022a0a0a080a01611500000000");
  CHECK(hexadecimal(session_start_event(1.0, 7)) == "09000000000000f03f10073a020801");
  const std::vector<std::byte> png{std::byte{0xab}, std::byte{0xcd}};
  CHECK(hexadecimal(image_event(1.0, 1, "i", 200, 3, png)) ==
        "09000000000000f03f1001"  // wall time, step
        "2a12"                    // summary
        "0a10"                    // value
        "0a0169"                  // tag
        "220b"                    // image
        "0803"                    // height
        "10c801"                  // width
        "1803"                    // RGB
        "2202abcd");
}

TEST_CASE("texts and charts have the bytes that TensorBoard's own protobuf classes write", "[tensorboard]") {
  using namespace tensorboard;
  CHECK(hexadecimal(text_event(1.0, 3, "Config", "a")) ==
        "09000000000000f03f10032a210a1f0a06436f6e666967420b08071204120208014201614a080a060a0474657874");
  CHECK(hexadecimal(charts_event(1.0, {{"g", "t", {"a(b)", "c"}}, {"g", "u", {"d"}}, {"h", "v", {"e"}}})) ==
        "09000000000000f03f2a740a720a18637573746f6d5f7363616c6172735f5f636f6e6669675f5f424208071204120208014238"
        "12250a016712140a0174120f0a085e615c28625c29240a035e6324120a0a017512050a035e6424120f0a0168120a0a01761205"
        "0a035e65244a120a100a0e637573746f6d5f7363616c617273");
}

TEST_CASE("a chart's curves are those of its tags alone, whatever signs these have", "[tensorboard]") {
  CHECK_THAT(tensorboard::charts_event(1.0, {{"g", "t", {R"(\a^b$c.d|e?f*g+h(i)j[k]l{m}n/o-p q)"}}}),
             ContainsSubstring(R"(^\\a\^b\$c\.d\|e\?f\*g\+h\(i\)j\[k\]l\{m\}n/o-p q$)"));
  // Charts of a group that do not stand together are two categories.
  const std::string apart = tensorboard::charts_event(1.0, {{"g", "t", {"a"}}, {"h", "u", {"b"}}, {"g", "v", {"c"}}});
  const std::string category("\x0a\x01g", 3);
  CHECK(apart.find(category) != apart.rfind(category));
}

TEST_CASE("a TensorBoard file is complete after every event", "[tensorboard]") {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder / "new" / "logs", std::nullopt);
  const std::regex name(R"(events\.out\.tfevents\.\d{10}\..+\.)" + std::to_string(::getpid()) + R"(\.\d+)");
  CHECK(std::regex_match(writer.path().filename().string(), name));
  CHECK(payloads_of(writer.path()).size() == 1);
  writer.scalar("Loss/train", 0.25, 0);
  writer.scalar("Loss/train", std::numeric_limits<double>::quiet_NaN(), 1000);
  writer.image("Visualization, t2m", Image(4, 3), 2);
  const std::vector<std::string> events = payloads_of(writer.path());
  REQUIRE(events.size() == 4);
  CHECK(timeless(events[0]) == timeless(tensorboard::file_version_event(0)));
  CHECK(timeless(events[1]) == timeless(tensorboard::scalar_event(0, 0, "Loss/train", 0.25f)));
  CHECK(timeless(events[3]) ==
        timeless(tensorboard::image_event(0, 2, "Visualization, t2m", 4, 3, encode_png(Image(4, 3)))));
  double wall_time = 0;
  std::memcpy(&wall_time, events[1].data() + 1, sizeof wall_time);
  CHECK(wall_time > 1.6e9);
}

TEST_CASE("a run that goes on hides what it repeats", "[tensorboard]") {
  const TemporaryFolder folder;
  const TensorBoardWriter first(folder.path(), std::nullopt);
  const TensorBoardWriter second(folder.path(), 43);
  CHECK(first.path() != second.path());
  const std::vector<std::string> events = payloads_of(second.path());
  REQUIRE(events.size() == 3);
  CHECK(timeless(events[1]) == timeless(tensorboard::file_version_event(0, 43)));
  CHECK(timeless(events[2]) == timeless(tensorboard::session_start_event(0, 43)));
}

TEST_CASE("a full disk leaves whole records only", "[tensorboard]") {
  const TemporaryFolder folder;
  TensorBoardWriter writer(folder.path(), std::nullopt);
  const auto size = std::filesystem::file_size(writer.path());
  {
    const testing::FileSizeLimit full(size + 100);
    writer.scalar("fits", 1, 1);
    CHECK_THROWS_WITH(writer.scalar(std::string(200, 'x'), 1, 2),
                      ContainsSubstring(writer.path().string()) && !ContainsSubstring("half a record"));
  }
  CHECK(payloads_of(writer.path()).size() == 2);
  writer.scalar("again", 1, 3);
  CHECK(payloads_of(writer.path()).size() == 3);
}

}  // namespace
}  // namespace isobar
