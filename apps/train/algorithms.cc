#include "apps/train/algorithms.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "engine/files/atomic_file.h"
#include "engine/files/file_lock.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/kernel.h"
#include "kernels/common/sentence.h"
#include "kernels/cuda/timing.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr std::size_t kMaxBytes = std::size_t{16} << 20;  // size limit of the file; one product takes about 250 bytes

// Keeps letters, digits and dots; each run of other characters becomes one dash.
std::string file_name_of(const std::string& platform) {
  std::string name = "algorithms-";
  for (const char letter : platform) {
    const bool is_plain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                          (letter >= 'A' && letter <= 'Z') || letter == '.';
    if (is_plain)
      name += letter;
    else if (name.back() != '-')
      name += '-';
  }
  return name + ".json";
}

// Follows the XDG specification: a path that is not absolute is ignored.
fs::path cache_folder() {
  const auto absolute = [](const char* variable) {
    const char* value = std::getenv(variable);
    const fs::path path = value == nullptr ? "" : value;
    return path.is_absolute() ? path : fs::path();
  };
  if (const fs::path cache = absolute("XDG_CACHE_HOME"); !cache.empty()) return cache / "isobar";
  const fs::path home = absolute("HOME");
  return home.empty() ? home : home / ".cache" / "isobar";
}

std::string platform_of(Device device) {
  if constexpr (ISOBAR_HAS_CUDA) return cuda::gemm_platform(device);
  fail_not_built(device.kind);
}
void use(Device device, const ChosenAlgorithms& chosen) {
  if constexpr (ISOBAR_HAS_CUDA) {
    cuda::use_gemm_algorithms(device, chosen.of_products);
    return cuda::use_conv_algorithms(device, chosen.of_convolutions);
  }
  fail_not_built(device.kind);
}
// Whether convolutions can take these: their engines are there, in the same version.
bool has_engines_of(const ChosenAlgorithms& chosen, Device device) {
  if constexpr (ISOBAR_HAS_CUDA) return cuda::are_of_these_engines(chosen.of_convolutions, device);
  fail_not_built(device.kind);
}
std::string engines_of(Device device) {
  if constexpr (ISOBAR_HAS_CUDA) return cuda::conv_engines(device);
  fail_not_built(device.kind);
}
// Returns what was used.
ChosenAlgorithms choose_by_time(Device device, const ChosenAlgorithms& known, const std::function<void()>& rehearse) {
  if constexpr (ISOBAR_HAS_CUDA) {
    const cuda::AlgorithmTiming timing(device);
    rehearse();
    return {known.platform, cuda::gemm_algorithms_in_use(device), cuda::conv_algorithms_in_use(device)};
  }
  fail_not_built(device.kind);
}

// Adds the entries whose keys are missing.
void add_missing(ChosenAlgorithms& to, ChosenAlgorithms from) {
  to.of_products.merge(from.of_products);
  to.of_convolutions.merge(from.of_convolutions);
}

// The entries of `all` that `known` has not, or has otherwise.
ChosenAlgorithms::Texts new_entries(ChosenAlgorithms::Texts all, const ChosenAlgorithms::Texts& known) {
  std::erase_if(all, [&](const auto& entry) {
    const auto found = known.find(entry.first);
    return found != known.end() && found->second == entry.second;
  });
  return all;
}

// What the first rank knows before timing.
struct Start {
  ChosenAlgorithms known;
  bool is_complete;  // the run resumes with these: nothing is timed
};

Start start_with(const ChosenAlgorithms& of_checkpoint, const AlgorithmDevice& device, const fs::path& file,
                 const std::function<void(const std::string& line)>& log) {
  const std::string& platform = device.platform;
  const bool is_of_here = of_checkpoint.platform == platform;
  if (is_of_here && device.has_engines_of(of_checkpoint)) return {of_checkpoint, true};
  if (is_of_here)
    log(concat("the checkpoint's algorithms of convolutions are not of ", device.engines(), ": others are chosen"));
  else if (!of_checkpoint.platform.empty())
    log(concat("the checkpoint's algorithms of products are for ", of_checkpoint.platform, ", and this is ", platform,
               ": others are chosen"));
  Start start{{platform, {}}, false};
  if (is_of_here) start.known.of_products = of_checkpoint.of_products;
  try {
    if (!file.empty()) add_missing(start.known, read_algorithms(file, platform));
  } catch (const std::exception&) {
    log(concat("passed over: ", sentence_of_current_exception()));
  }
  return start;
}

// Runs that end at the same time add their entries one after the other. After about 10 seconds of waiting the lock is
// ignored: at worst a choice is lost and made again.
FileLock lock_for_adding(const fs::path& folder) {
  constexpr int kMaxTries = 500;
  constexpr std::chrono::milliseconds kBetween(20);
  FileLock lock = FileLock::of_folder(folder);
  for (int tries = 0; lock.state() == FileLock::State::elsewhere && tries < kMaxTries; ++tries) {
    std::this_thread::sleep_for(kBetween);
    lock = FileLock::of_folder(folder);
  }
  return lock;
}

Start broadcast_from_first(const Start& mine, const Communicator& ranks) {
  if (ranks.size() == 1) return mine;
  const ordered_json json{{"known", to_json(mine.known)}, {"is_complete", mine.is_complete}};
  const auto told = parse_json<ordered_json>(ranks.broadcast_text(json.dump(), 0), "the first rank");
  return {algorithms_from(told.at("known")), told.at("is_complete").get<bool>()};
}

void keep(const fs::path& file, const ChosenAlgorithms& chosen,
          const std::function<void(const std::string& line)>& log) {
  if (file.empty()) return log("no folder for what is chosen: neither XDG_CACHE_HOME nor HOME is an absolute path");
  try {
    add_algorithms(file, chosen);
  } catch (const std::exception&) {
    log(concat("what is chosen is not kept for other runs: ", sentence_of_current_exception()));
  }
}

}  // namespace

ordered_json to_json(const ChosenAlgorithms& chosen) {
  ordered_json json{{"platform", chosen.platform}, {"of_products", chosen.of_products}};
  if (!chosen.of_convolutions.empty()) json["of_convolutions"] = chosen.of_convolutions;
  return json;
}

ChosenAlgorithms algorithms_from(const ordered_json& json) {
  const auto is_text = [](const ordered_json& value) { return value.is_string(); };
  const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  ISOBAR_CHECK(has("platform") && is_text(json.at("platform")), "platform is missing, or no text");
  const auto texts = [&](const char* key) {
    ISOBAR_CHECK(has(key) && json.at(key).is_object(), key, " is missing, or no object");
    ChosenAlgorithms::Texts found;
    for (const auto& [words, algorithm] : json.at(key).items()) {
      ISOBAR_CHECK(is_text(algorithm), "the algorithm of ", in_quotes(words), " is no text");
      found[words] = algorithm.get<std::string>();
    }
    return found;
  };
  ChosenAlgorithms chosen{.platform = json.at("platform").get<std::string>(), .of_products = texts("of_products")};
  if (has("of_convolutions")) chosen.of_convolutions = texts("of_convolutions");
  return chosen;
}

fs::path algorithms_file(const std::string& platform) {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / file_name_of(platform);
}

ChosenAlgorithms read_algorithms(const fs::path& file, const std::string& platform) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {platform, {}};
  const auto json = read_json<ordered_json>(file, JsonComments::refused, kMaxBytes);
  ChosenAlgorithms chosen;
  try {
    chosen = algorithms_from(json);
  } catch (const Error& error) {
    throw_error(file.string(), " holds no algorithms: ", error.what());
  }
  ISOBAR_CHECK(chosen.platform == platform, file.string(), " is for ", chosen.platform, ", and this is ", platform);
  return chosen;
}

void add_algorithms(const fs::path& file, const ChosenAlgorithms& chosen) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  ISOBAR_CHECK(!error, file.parent_path().string(), ": cannot be made: ", error.message());
  // In a folder that others may write to, a link could point anywhere.
  ISOBAR_CHECK(!fs::is_symlink(file), file.string(), " is a link; a file of its own is written here");
  const FileLock lock = lock_for_adding(file.parent_path());
  ChosenAlgorithms all = chosen;
  try {
    add_missing(all, read_algorithms(file, chosen.platform));
  } catch (const Error&) {
    // The file is damaged: it is replaced.
  }
  write_file_atomically(file, to_json(all).dump(2) + "\n");
}

ChosenAlgorithms agree_on(const ChosenAlgorithms& mine, const Communicator& ranks) {
  if (ranks.size() == 1) return mine;
  const std::string text = to_json(mine).dump();
  auto max_bytes = static_cast<double>(text.size());
  ranks.all_reduce({&max_bytes, 1}, Reduce::max);
  const auto bytes = static_cast<std::size_t>(max_bytes);
  std::string padded = text, all(bytes * static_cast<std::size_t>(ranks.size()), ' ');
  padded.resize(bytes, ' ');
  ranks.all_gather_bytes(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  ChosenAlgorithms agreed;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::string told = all.substr(static_cast<std::size_t>(rank) * bytes, bytes);
    const ChosenAlgorithms theirs = algorithms_from(parse_json<ordered_json>(told, concat("rank ", rank)));
    if (rank == 0) agreed.platform = theirs.platform;
    add_missing(agreed, theirs);
  }
  return agreed;
}

ChosenAlgorithms choose_algorithms(const ChosenAlgorithms& of_checkpoint, const AlgorithmDevice& device,
                                   const Communicator& ranks, const std::function<void()>& rehearse,
                                   const std::function<void(const std::string& line)>& log) {
  const bool is_first = ranks.rank() == 0;
  const fs::path file = algorithms_file(device.platform);
  const Start start =
      broadcast_from_first(is_first ? start_with(of_checkpoint, device, file, log) : Start{{}, false}, ranks);
  device.use(start.known);
  if (start.is_complete) return start.known;
  ranks.barrier();  // ranks that are threads share a device: no rank may clear a choice that another rank has timed
  const ChosenAlgorithms chosen = agree_on(device.choose_by_time(start.known, rehearse), ranks);
  device.use(chosen);
  const ChosenAlgorithms timed{chosen.platform, new_entries(chosen.of_products, start.known.of_products),
                               new_entries(chosen.of_convolutions, start.known.of_convolutions)};
  if (is_first && !timed.empty()) keep(file, chosen, log);
  log(concat("algorithms of ", chosen.of_products.size(), " products, ", timed.of_products.size(),
             " of them chosen by time"));
  if (!chosen.of_convolutions.empty())
    log(concat("algorithms of ", chosen.of_convolutions.size(), " convolutions, ", timed.of_convolutions.size(),
               " of them chosen by time"));
  return chosen;
}

ChosenAlgorithms choose_algorithms(const ChosenAlgorithms& of_checkpoint, Device gpu, const Communicator& ranks,
                                   const std::function<void()>& rehearse,
                                   const std::function<void(const std::string& line)>& log) {
  const AlgorithmDevice device{
      .platform = platform_of(gpu),
      .engines = [=] { return engines_of(gpu); },
      .has_engines_of = [=](const ChosenAlgorithms& chosen) { return has_engines_of(chosen, gpu); },
      .use = [=](const ChosenAlgorithms& chosen) { use(gpu, chosen); },
      .choose_by_time = [=](const ChosenAlgorithms& known,
                            const std::function<void()>& passes) { return choose_by_time(gpu, known, passes); }};
  return choose_algorithms(of_checkpoint, device, ranks, rehearse, log);
}

void choose_no_algorithms(Device device) {
  use(device, {});
}

}  // namespace isobar
