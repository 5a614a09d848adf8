// What a command writes must not replace what it reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace isobar {

struct CommandInputs {
  std::filesystem::path weights;                  // empty: none
  std::vector<std::filesystem::path> data;        // files, folders of files of data, and token files by their prefix
  std::vector<std::filesystem::path> statistics;  // files
};

// Error naming the flag if writing to `path` would replace an input or a file of the run that the weights are of.
void check_output(const std::string& flag, const std::string& path, const CommandInputs& inputs);

// Error if the file's extension names a format that the command does not write.
void check_format(const std::string& flag, const std::string& path);

// Error naming both flags if both files are given and are the same, however they are spelled.
void check_differ(const std::string& flag, const std::string& path, const std::string& other_flag,
                  const std::string& other_path);

// Error if the disk of the file has less room than `bytes`.
void check_disk(const std::string& flag, const std::string& path, std::uintmax_t bytes);

}  // namespace isobar
