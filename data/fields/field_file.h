// One file, or store, of fields [steps, V, LAT, LON], read as fp32, with the facts about them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/catalog.h"
#include "data/fields/field_facts.h"
#include "data/fields/field_reader.h"
#include "data/fields/time_axis.h"

namespace isobar {

class FieldFile {
 public:
  // Opens the file and checks everything that does not depend on options. catalog: caches the file's facts (null: no
  // cache). A file that the catalog knows is opened when its first step is read, and its facts must then be unchanged.
  FieldFile(const std::string& path, CacheBudget budget, FieldCatalog* catalog = nullptr);
  ~FieldFile();

  const std::string& path() const { return path_; }
  std::int64_t steps() const { return facts_->shape[0]; }
  std::int64_t channels() const { return facts_->shape[1]; }
  std::int64_t height() const { return facts_->shape[2]; }
  std::int64_t width() const { return facts_->shape[3]; }
  std::string how_it_is_read() const { return opened().name(); }
  std::vector<std::int64_t> chunk() const { return opened().chunk(); }  // the shape of its chunks; empty: it has none

  // What is stored beside the fields; empty if it is missing.
  const std::vector<std::string>& channel_names() const { return facts_->channel_names; }
  const std::vector<double>& latitudes() const { return facts_->latitudes; }    // [LAT], degrees
  const std::vector<double>& longitudes() const { return facts_->longitudes; }  // [LON], degrees
  const std::vector<std::string>& units() const { return facts_->units; }       // [V], "" if one is not given
  const std::optional<TimeAxis>& time() const { return time_; }
  const std::vector<std::string>& left_out() const { return facts_->left_out; }  // FieldFacts::left_out
  const std::vector<float>& fill_values() const { return facts_->fill_values; }

  // Opens the file if it has an expver.
  PreliminaryData preliminary() const { return facts_->has_expver ? opened().preliminary() : PreliminaryData(); }

  // From `time`; else the steps are spread evenly over the year at the end of the file's name; Error if there is no
  // year.
  StepTime time_of(std::int64_t step) const;
  // Whether the times are known: there is a `time`, or the number of steps fits the year (a step every day, every 6 or
  // 3 hours, or every hour).
  bool has_times() const;

  // The fields of a step. A hole is an Error naming file, step and channel: NaN, an infinity, a value beyond 1e15 (no
  // field has such values, but fill values are such), or a fill value of the file. With MissingPoints::kept a
  // hole other than an infinity becomes NaN. Thread-safe.
  void read_step(std::int64_t step, std::span<const Plane> planes, FieldCrop crop) const;

 private:
  FieldReader& opened() const;
  void set_time();
  bool is_hole(float value) const;
  bool has_holes(std::span<const float> values) const;
  [[noreturn]] void refuse_hole(std::int64_t step, std::int64_t channel, float value) const;

  const std::string path_;
  const CacheBudget budget_;
  std::shared_ptr<const FieldFacts> facts_;
  std::optional<TimeAxis> time_;
  std::optional<std::int64_t> year_;  // at the end of the name
  mutable std::mutex opening_;
  mutable std::unique_ptr<FieldReader> opened_;
};

}  // namespace isobar
