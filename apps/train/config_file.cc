#include "apps/train/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/suggestions.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The key that sets a length in iterations for one that sets it in epochs.
const std::map<std::string, std::string> kInIterations{{"num_epochs", "num_iters"}, {"decay_epochs", "decay_iters"}};

// One config as written, without inherited keys.
struct Source {
  std::string name;
  fs::path file;
  json values;

  std::string origin() const { return file.stem() == name ? file.string() : file.string() + " (" + name + ")"; }
};

std::vector<Source> read_config_file(const fs::path& file) {
  json content = read_json<json>(file, JsonComments::allowed);
  ISOBAR_CHECK(content.is_object(), file.string(), ": a config must be a JSON object");
  const bool several =
      !content.empty() && std::all_of(content.begin(), content.end(), [](const json& v) { return v.is_object(); });
  if (!several) return {{file.stem().string(), file, std::move(content)}};
  std::vector<Source> sources;
  for (auto& [name, values] : content.items()) sources.push_back({name, file, std::move(values)});
  return sources;
}

std::vector<Source> read_config_folder(const fs::path& folder, std::error_code& unreadable) {
  std::vector<Source> sources;
  for (const fs::path& file : entries_of(folder, unreadable)) {
    if (file.extension() != ".json") continue;
    for (Source& source : read_config_file(file)) sources.push_back(std::move(source));
  }
  return sources;
}

std::vector<std::string> names_of(const std::vector<Source>& sources) {
  std::vector<std::string> names;
  for (const Source& source : sources) names.push_back(source.name);
  return names;
}

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

struct Reference {
  std::optional<fs::path> file;
  std::string name;  // empty: the file's only config
};

Reference parse_reference(const std::string& text) {
  const std::string suffix = ".json";
  const std::size_t colon = text.rfind(suffix + ":");
  if (colon != std::string::npos) {
    return {text.substr(0, colon + suffix.size()), text.substr(colon + suffix.size() + 1)};
  }
  if (text.ends_with(suffix)) return {text, ""};
  return {std::nullopt, text};
}

Source find_in_file(const fs::path& file, const std::string& name) {
  std::vector<Source> sources = read_config_file(file);
  if (name.empty()) {
    ISOBAR_CHECK(sources.size() == 1, "config file ", file.string(), " holds several configs: say which, as ",
                 file.string(), ":NAME (", joined(names_of(sources), ", "), ")");
    return sources.front();
  }
  for (Source& source : sources) {
    if (source.name == name) return source;
  }
  throw_error("config file ", file.string(), " holds no config '", name, "'",
              did_you_mean(suggestion(name, names_of(sources))));
}

Source find_in_folders(const std::string& name, const std::vector<fs::path>& folders) {
  std::vector<std::string> known;
  std::vector<std::string> searched;
  for (const fs::path& folder : folders) {
    std::error_code unreadable;
    for (Source& source : read_config_folder(folder, unreadable)) {
      if (source.name == name) return source;
      known.push_back(source.name);
    }
    searched.push_back(folder.string() + (unreadable ? " (cannot be read: " + unreadable.message() + ")" : ""));
  }
  ISOBAR_CHECK(!known.empty(), "there is no config '", name, "': no configs in ",
               searched.empty() ? "any folder (set ISOBAR_CONFIG_PATH)" : joined(searched, ", "));
  throw_error("there is no config '", name, "'", did_you_mean(suggestion(name, known)), " (looked in ",
              joined(searched, ", "), ")");
}

Source find_source(const std::string& text, const Source* extending, const std::vector<fs::path>& folders) {
  const Reference reference = parse_reference(text);
  if (reference.file) {
    const fs::path relative_to = extending ? extending->file.parent_path() : fs::path();
    return find_in_file(relative_to / *reference.file, reference.name);
  }
  if (extending) {
    for (Source& source : read_config_file(extending->file)) {
      if (source.name == reference.name) return source;
    }
  }
  return find_in_folders(reference.name, folders);
}

// One file can be spelled in several ways: "self.json", "./self.json".
bool is_same(const Source& a, const Source& b) {
  std::error_code unknown;
  return a.name == b.name && fs::equivalent(a.file, b.file, unknown);
}

// The configs from `first` to the one that extends nothing.
std::vector<Source> inheritance_chain(Source first, const std::vector<fs::path>& folders) {
  std::vector<Source> chain{std::move(first)};
  while (chain.back().values.contains("extends")) {
    const Source& last = chain.back();
    const json& parent = last.values["extends"];
    ISOBAR_CHECK(parent.is_string(), "config key extends in ", last.origin(), " must be a config's name, not ",
                 shown(parent));
    Source next = find_source(parent.get<std::string>(), &last, folders);
    const bool cycle = std::any_of(chain.begin(), chain.end(), [&](const Source& s) { return is_same(s, next); });
    chain.push_back(std::move(next));
    ISOBAR_CHECK(!cycle, "config ", chain.front().origin(), " extends itself: ", joined(names_of(chain), " -> "));
  }
  return chain;
}

}  // namespace

std::vector<fs::path> config_search_path() {
  std::vector<fs::path> folders;
  if (const char* path = std::getenv("ISOBAR_CONFIG_PATH")) {
    std::istringstream in(path);
    for (std::string folder; std::getline(in, folder, ':');) {
      if (folder.empty()) continue;
      std::error_code unreadable;
      ISOBAR_CHECK(fs::is_directory(folder, unreadable), "ISOBAR_CONFIG_PATH names ", folder,
                   ", which is not a folder");
      folders.emplace_back(folder);
    }
  }
  std::error_code unreadable;
  const fs::path binary = fs::read_symlink("/proc/self/exe", unreadable);
  const fs::path installed = binary.parent_path().parent_path() / "share" / "isobar" / "configs";
  for (const fs::path& folder : {installed, fs::path(ISOBAR_SOURCE_CONFIGS)}) {
    if (fs::is_directory(folder, unreadable)) folders.push_back(folder);
  }
  return folders;
}

NamedConfig load_config(const std::string& reference, const std::vector<fs::path>& folders) {
  const std::vector<Source> chain = inheritance_chain(find_source(reference, nullptr, folders), folders);
  NamedConfig config{chain.front().name, {}};
  int layer = 0;
  for (const Source& source : chain) {
    ConfigEntries inherited;
    for (const auto& [key, value] : source.values.items())
      if (key != "extends") inherited[key] = {.value = value, .origin = source.origin(), .layer = layer};
    extend(config.entries, inherited);
    --layer;
  }
  return config;
}

std::string config_beside(const fs::path& file, const std::string& reference) {
  return parse_reference(reference).file ? (file.parent_path() / reference).string() : reference;
}

std::vector<ListedConfig> list_configs(const std::vector<fs::path>& folders) {
  std::vector<ListedConfig> listed;
  for (const fs::path& folder : folders) {
    // An unreadable folder is skipped, as in load_config
    std::error_code unreadable;
    for (const Source& source : read_config_folder(folder, unreadable)) {
      const bool hidden = std::any_of(listed.begin(), listed.end(),
                                      [&](const ListedConfig& earlier) { return earlier.name == source.name; });
      if (!hidden) listed.push_back({source.name, source.file});
    }
  }
  return listed;
}

void set_from_assignment(ConfigEntries& entries, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  ISOBAR_CHECK(equals != std::string::npos && equals > 0, "--set ", assignment, " is not of the form KEY=VALUE");
  const std::string key = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  std::optional<json> parsed = parse_json_if_valid<json>(value, "--set " + key);
  set_entry(entries, key, {.value = parsed ? std::move(*parsed) : json(value), .origin = "--set"});
}

void extend(ConfigEntries& entries, const ConfigEntries& inherited) {
  std::set<std::string> left_out;
  for (const auto& [in_epochs, in_iterations] : kInIterations)
    if (entries.contains(in_iterations)) left_out.insert(in_epochs);
  for (const auto& [key, entry] : inherited)
    if (!left_out.contains(key)) entries.try_emplace(key, entry);
}

void set_entry(ConfigEntries& entries, const std::string& key, ConfigEntry entry) {
  for (const auto& [in_epochs, in_iterations] : kInIterations)
    if (key == in_iterations) entries.erase(in_epochs);
  entry.layer = kLayerOfFlags;
  entries[key] = std::move(entry);
}

ConfigEntries entries_from(const nlohmann::ordered_json& object, const std::string& origin) {
  ConfigEntries entries;
  for (const auto& [key, value] : object.items()) entries[key] = {.value = value, .origin = origin};
  return entries;
}

}  // namespace isobar
