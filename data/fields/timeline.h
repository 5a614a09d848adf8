// The steps of a series of files: where each step lies in the files, and when it is.
//
// Files with the same variables follow each other: they are a track. Tracks with different variables are joined where
// their times meet: the steps of the series are the times that every track has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/field_file.h"
#include "data/fields/time_axis.h"

namespace isobar {

// A step of a file.
struct Place {
  std::size_t file = 0;
  std::int64_t step = 0;
};

// Consecutive steps of a series that lie in one file.
struct Segment {
  std::int64_t first = 0, count = 0;
};

class Timeline {
 public:
  // files: must outlive the timeline. tracks: the numbers of the files of each track, in order; several tracks need
  // times in all files. spans_files: the steps of consecutive files with times are one sequence, so that a window of
  // steps may lie in several files; without it a window ends with its file.
  //
  // Error naming the files if times are missing, if two files of a track have common times (only with spans_files or
  // several tracks), or if no time is in all tracks.
  Timeline(std::span<const std::unique_ptr<FieldFile>> files, std::vector<std::vector<std::size_t>> tracks,
           bool spans_files);

  std::int64_t steps() const { return steps_; }
  std::size_t tracks() const { return tracks_.size(); }
  const std::vector<std::size_t>& files_of(std::size_t track) const { return tracks_[track].files; }
  // Where a track has a step of the series; step must be in [0, steps()).
  Place place(std::int64_t step, std::size_t track = 0) const;

  // `step` and the steps after it that lie in the same file: of several tracks, in the same files.
  Segment rest_of_file(std::int64_t step) const;

  // Whether `last` is last - first regular steps after `first`: within one file, or, if windows may span files, in any.
  // True within a file that has no time axis.
  bool regular(std::int64_t first, std::int64_t last) const;
  // The steps before `end`, from `first`, that are followed by a hole in time within one file.
  std::vector<std::int64_t> holes(std::int64_t first, std::int64_t end) const;

  // Hours since 1970-01-01T00 of a step; none if its file has no time axis.
  std::optional<double> hours_since_1970(std::int64_t step) const;
  // The time of a step; Error if neither `time` nor the file's name gives it.
  StepTime time_of(std::int64_t step) const;
  // The same by `time`, else by the year in the file's name. Error naming a file without either.
  double known_hours(std::int64_t step) const;
  // The first step at `hours` since 1970 or later, within a second; steps() if all are earlier. Error naming a file
  // whose times neither `time` nor its name tells.
  std::int64_t first_step_from(double hours) const;

  // The time from a step to the next; 0 if unknown.
  double step_hours() const { return step_hours_; }
  // "3 steps that not all files have, the first at 2018-10-01T00:00": what joining tracks leaves out; empty if nothing.
  const std::string& left_out() const { return left_out_; }

 private:
  struct Track {
    std::vector<std::size_t> files;
    std::vector<std::int64_t> first_step;  // [files + 1], counted over the files of the track
    std::vector<std::int64_t> joined;      // [steps] the track's step for each step of the series; empty: the same one
  };

  const FieldFile& file(std::size_t number) const { return *files_[number]; }
  bool are_in_same_files(std::int64_t a, std::int64_t b) const;
  void sort_by_time(Track& track) const;
  std::vector<double> hours_of(const Track& track) const;
  void join_tracks();
  void make_axis();

  std::span<const std::unique_ptr<FieldFile>> files_;
  std::vector<Track> tracks_;
  bool spans_files_;
  std::int64_t steps_ = 0;
  std::optional<TimeAxis> axis_;  // of all steps, if all files have times and windows may span files
  double step_hours_ = 0;
  std::string left_out_;
};

}  // namespace isobar
