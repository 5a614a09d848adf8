// TensorBoard event files: scalars, images and texts, written without protobuf.
//
// A file is a sequence of records (TFRecord framing: length, CRC of the length, payload, CRC of the payload), each an
// Event message of TensorFlow's event.proto. Every event reaches the file in one write, at once: TensorBoard shows it,
// and kill -9 loses nothing. A record that could not be written whole (full disk) is cut off again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/maps/png.h"
#include "models/task.h"

namespace isobar {

class TensorBoardWriter {
 public:
  // Opens a new file FOLDER/events.out.tfevents.<unix seconds>.<host>.<pid>.<counter>; makes the folder.
  // purge_step: null for a new run; where a run goes on, TensorBoard hides what earlier files hold at this step and
  // later. A run that resumes after iteration n passes n + 1.
  TensorBoardWriter(const std::filesystem::path& folder, std::optional<std::int64_t> purge_step);
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  void scalar(std::string_view tag, double value, std::int64_t step);  // kept as fp32, as PyTorch's writer does
  void image(std::string_view tag, const Image& image, std::int64_t step);
  void text(std::string_view tag, std::string_view markdown, std::int64_t step);
  // Which scalars its page "Custom Scalars" draws together. A later call takes the place of an earlier one.
  void charts(const std::vector<Chart>& charts);

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  void write(std::string_view event);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// The pieces a file is made of. wall_time: seconds since 1970.
namespace tensorboard {

std::string record(std::string_view payload);
std::string file_version_event(double wall_time, std::int64_t step = 0);
std::string session_start_event(double wall_time, std::int64_t step);
std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value);
std::string image_event(double wall_time, std::int64_t step, std::string_view tag, int width, int height,
                        std::span<const std::byte> png);
std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown);
std::string charts_event(double wall_time, const std::vector<Chart>& charts);

}  // namespace tensorboard

}  // namespace isobar
