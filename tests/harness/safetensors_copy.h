// Copies of safetensors files, with other metadata or without a tensor.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"

namespace isobar::testing {

// Without tensors of this name.
inline void copy_safetensors(const std::filesystem::path& from, const std::filesystem::path& to,
                             const Metadata& metadata, const std::string& without = "") {
  const SafetensorsReader file(from);
  std::vector<TensorInfo> kept;
  for (const TensorInfo& info : file.tensors())
    if (info.name != without) kept.push_back(info);
  SafetensorsWriter writer(to, kept, metadata);
  for (const TensorInfo& info : kept) {
    std::vector<std::byte> bytes(bytes_of(info));
    file.read(info, 0, elements_of(info), info.dtype, bytes.data());
    writer.append(info.name, bytes);
  }
  writer.commit();
}

}  // namespace isobar::testing
