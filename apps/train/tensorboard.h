// TensorBoard event files: scalars, images and texts, written without protobuf.
//
// A file is a sequence of records (TFRecord framing: length, CRC of the length, payload, CRC of the payload), each an
// Event message of TensorFlow's event.proto. Every event is written at once, in one write: TensorBoard can show it
// immediately, and kill -9 loses nothing. A record that could not be written completely (full disk) is removed again.
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
  // Opens a new file FOLDER/events.out.tfevents.<unix seconds>.<host>.<pid>.<counter>; creates the folder. purge_step:
  // null for a new run; for a resumed run, TensorBoard hides the data of earlier files from this step on. A run that
  // resumes after iteration n passes n + 1.
  TensorBoardWriter(const std::filesystem::path& folder, std::optional<std::int64_t> purge_step);
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  // Stored as fp32, as by PyTorch's writer
  void scalar(std::string_view tag, double value, std::int64_t step);
  void image(std::string_view tag, const Image& image, std::int64_t step);
  void text(std::string_view tag, std::string_view markdown, std::int64_t step);
  // Which scalars TensorBoard draws together on its page "Custom Scalars". A later call replaces an earlier one.
  void charts(const std::vector<Chart>& charts);

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  void write(std::string_view event);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// The parts of a file. wall_time: seconds since 1970.
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
