// fuzz_replay NAME INPUT...: runs the fuzz target NAME without libFuzzer, once on every file named, and on those in
// folders named.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/fuzz/target.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;

std::map<std::string, FuzzTarget*>& targets() {
  static std::map<std::string, FuzzTarget*> all;
  return all;
}

std::vector<fs::path> files_of(int count, char** names) {
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) {
    if (!fs::is_directory(names[i]))
      files.emplace_back(names[i]);
    else
      for (const auto& entry : fs::directory_iterator(names[i])) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

int replay(FuzzTarget* target, const std::vector<fs::path>& inputs) {
  for (const fs::path& input : inputs) {
    std::printf("%s\n", input.c_str());
    std::fflush(stdout);  // so that the last line names the input that ended the program
    const std::string bytes = read_file(input);
    target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  return inputs.empty() ? 1 : 0;
}

}  // namespace

NamedFuzzTarget::NamedFuzzTarget(const char* name, FuzzTarget* target) {
  targets().emplace(name, target);
}

}  // namespace isobar::testing

int main(int argc, char** argv) {
  using namespace isobar::testing;
  const auto found = targets().find(argc > 1 ? argv[1] : "");
  if (found != targets().end()) return replay(found->second, files_of(argc - 2, argv + 2));
  std::fprintf(stderr, "usage: fuzz_replay NAME INPUT..., where NAME is one of:");
  for (const auto& [name, target] : targets()) std::fprintf(stderr, " %s", name.c_str());
  std::fprintf(stderr, "\n");
  return 2;
}
