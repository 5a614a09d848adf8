#include "apps/train/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "engine/files/checksum.h"
#include "engine/files/system_error.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"

namespace isobar {
namespace {

// Protobuf's wire format, as far as it is needed here. A field is a key (number and type) and a value; a field with its
// default value (zero, the empty string) is omitted.
enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

class Message {
 public:
  Message& integer(unsigned field, std::int64_t value) {
    if (value == 0) return *this;
    key(field, Wire::varint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(unsigned field, double value) {
    key(field, Wire::fixed64);
    return raw(value);
  }
  // A member of a oneof: written even if it is zero.
  Message& real(unsigned field, float value) {
    key(field, Wire::fixed32);
    return raw(value);
  }
  Message& bytes(unsigned field, std::string_view value) {
    key(field, Wire::bytes);
    varint(value.size());
    encoded_ += value;
    return *this;
  }
  const std::string& encoded() const { return encoded_; }

 private:
  void key(unsigned field, Wire kind) { varint(field << 3 | static_cast<unsigned>(kind)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) encoded_ += static_cast<char>(value | 0x80);
    encoded_ += static_cast<char>(value);
  }
  template <class T>
  Message& raw(T value) {
    encoded_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }

  std::string encoded_;
};

// Field numbers of TensorFlow's event.proto, summary.proto, tensor.proto and tensor_shape.proto, and of TensorBoard's
// layout.proto of the plugin custom_scalar.
namespace field {
constexpr unsigned kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5, kEventSessionLog = 7;
constexpr unsigned kSummaryValue = 1, kValueTag = 1, kValueSimple = 2, kValueImage = 4, kValueTensor = 8,
                   kValueMetadata = 9;
constexpr unsigned kImageHeight = 1, kImageWidth = 2, kImageColorspace = 3, kImageEncoded = 4;
constexpr unsigned kSessionLogStatus = 1;
constexpr unsigned kMetadataPlugin = 1, kPluginName = 1;
constexpr unsigned kTensorDtype = 1, kTensorShape = 2, kTensorString = 8, kShapeDim = 2, kDimSize = 1;
constexpr unsigned kLayoutCategory = 2, kCategoryTitle = 1, kCategoryChart = 2;
constexpr unsigned kChartTitle = 1, kChartLines = 2, kLinesTag = 1;
}  // namespace field
constexpr std::int64_t kColorspaceRgb = 3;
constexpr std::int64_t kSessionStart = 1;
constexpr std::int64_t kDtypeString = 7;

Message event(double wall_time, std::int64_t step) {
  return Message().real(field::kEventWallTime, wall_time).integer(field::kEventStep, step);
}

std::string summary_event(double wall_time, std::int64_t step, const Message& value) {
  const Message summary = Message().bytes(field::kSummaryValue, value.encoded());
  return event(wall_time, step).bytes(field::kEventSummary, summary.encoded()).encoded();
}

// A tensor of one string, displayed by the named plugin of TensorBoard.
std::string string_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view plugin,
                         std::string_view text) {
  const Message dim = Message().integer(field::kDimSize, 1);
  const Message shape = Message().bytes(field::kShapeDim, dim.encoded());
  const Message tensor = Message()
                             .integer(field::kTensorDtype, kDtypeString)
                             .bytes(field::kTensorShape, shape.encoded())
                             .bytes(field::kTensorString, text);
  const Message shown_by = Message().bytes(field::kPluginName, plugin);
  const Message metadata = Message().bytes(field::kMetadataPlugin, shown_by.encoded());
  return summary_event(wall_time, step,
                       Message()
                           .bytes(field::kValueTag, tag)
                           .bytes(field::kValueTensor, tensor.encoded())
                           .bytes(field::kValueMetadata, metadata.encoded()));
}

// A regular expression that matches only the tag.
std::string exactly(std::string_view tag) {
  std::string pattern = "^";
  for (const char c : tag) {
    if (std::string_view(R"(\^$.|?*+()[]{})").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The counter makes the names of one process unique, even if it opens several files in a second.
std::string next_file_name() {
  static std::atomic<int> counter{0};
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%010lld", static_cast<long long>(seconds_since_1970()));
  return concat("events.out.tfevents.", seconds, ".", host_name(), ".", ::getpid(), ".", counter++);
}

}  // namespace

namespace tensorboard {

std::string record(std::string_view payload) {
  const auto masked_crc = [](std::string_view bytes) {
    const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  const auto append = [](std::string& out, auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  std::string out;
  append(out, static_cast<std::uint64_t>(payload.size()));
  append(out, masked_crc(out));
  out += payload;
  append(out, masked_crc(payload));
  return out;
}

std::string file_version_event(double wall_time, std::int64_t step) {
  return event(wall_time, step).bytes(field::kEventFileVersion, "brain.Event:2").encoded();
}

std::string session_start_event(double wall_time, std::int64_t step) {
  const Message log = Message().integer(field::kSessionLogStatus, kSessionStart);
  return event(wall_time, step).bytes(field::kEventSessionLog, log.encoded()).encoded();
}

std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value) {
  return summary_event(wall_time, step, Message().bytes(field::kValueTag, tag).real(field::kValueSimple, value));
}

std::string image_event(double wall_time, std::int64_t step, std::string_view tag, int width, int height,
                        std::span<const std::byte> png) {
  const Message image = Message()
                            .integer(field::kImageHeight, height)
                            .integer(field::kImageWidth, width)
                            .integer(field::kImageColorspace, kColorspaceRgb)
                            .bytes(field::kImageEncoded, {reinterpret_cast<const char*>(png.data()), png.size()});
  return summary_event(wall_time, step,
                       Message().bytes(field::kValueTag, tag).bytes(field::kValueImage, image.encoded()));
}

std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown) {
  return string_event(wall_time, step, tag, "text", markdown);
}

// One category per group: adjacent charts of the same group.
std::string charts_event(double wall_time, const std::vector<Chart>& charts) {
  Message layout;
  for (std::size_t first = 0; first < charts.size();) {
    const std::string& group = charts[first].group;
    Message category = Message().bytes(field::kCategoryTitle, group);
    for (; first < charts.size() && charts[first].group == group; ++first) {
      Message lines;
      for (const std::string& tag : charts[first].tags) lines.bytes(field::kLinesTag, exactly(tag));
      const Message chart =
          Message().bytes(field::kChartTitle, charts[first].title).bytes(field::kChartLines, lines.encoded());
      category.bytes(field::kCategoryChart, chart.encoded());
    }
    layout.bytes(field::kLayoutCategory, category.encoded());
  }
  return string_event(wall_time, 0, "custom_scalars__config__", "custom_scalars", layout.encoded());
}

}  // namespace tensorboard

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) : path_(folder / next_file_name()) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  ISOBAR_CHECK(!error, folder.string(), ": cannot be made: ", error.message());
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_with_errno(path_, "created");
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, std::optional<std::int64_t> purge_step)
    : TensorBoardWriter(folder) {
  const double now = seconds_since_1970();
  write(tensorboard::file_version_event(now));
  if (purge_step) {
    write(tensorboard::file_version_event(now, *purge_step));
    write(tensorboard::session_start_event(now, *purge_step));
  }
}

TensorBoardWriter::~TensorBoardWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void TensorBoardWriter::scalar(std::string_view tag, double value, std::int64_t step) {
  write(tensorboard::scalar_event(seconds_since_1970(), step, tag, static_cast<float>(value)));
}

void TensorBoardWriter::image(std::string_view tag, const Image& image, std::int64_t step) {
  write(tensorboard::image_event(seconds_since_1970(), step, tag, image.width, image.height, encode_png(image)));
}

void TensorBoardWriter::text(std::string_view tag, std::string_view markdown, std::int64_t step) {
  write(tensorboard::text_event(seconds_since_1970(), step, tag, markdown));
}

void TensorBoardWriter::charts(const std::vector<Chart>& charts) {
  write(tensorboard::charts_event(seconds_since_1970(), charts));
}

void TensorBoardWriter::write(std::string_view event) {
  const std::string record = tensorboard::record(event);
  ssize_t written = 0;
  for (std::size_t done = 0; done < record.size(); done += static_cast<std::size_t>(written)) {
    written = ::write(descriptor_, record.data() + done, record.size() - done);
    if (written >= 0) continue;
    const int error = errno;
    if (error == EINTR) {
      written = 0;
      continue;
    }
    // A reader stops at an incomplete record and would lose everything after it, so the file is cut back to the start
    // of the record.
    const off_t end = ::lseek(descriptor_, 0, SEEK_END);
    const bool cut = ::ftruncate(descriptor_, end - static_cast<off_t>(done)) == 0;
    throw_error(path_.string(), ": cannot be written",
                cut ? ": " : " (and now ends in half a record): ", std::strerror(error));
  }
}

}  // namespace isobar
