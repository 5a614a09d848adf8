// Steps of several files as one sequence: over the ends of files, over no hole, and joined where times meet.
#include "data/fields/timeline.h"

#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/pairs.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using Order = std::vector<std::int64_t>;
using testing::ContainsSubstring;
using testing::TemporaryFolder;
using testing::write_labelled_fields;

namespace {

// Hours since 2001-01-01 of `count` six-hourly steps.
std::vector<double> hours_from(double first, int count) {
  std::vector<double> hours;
  for (int i = 0; i < count; ++i) hours.push_back(first + 6 * i);
  return hours;
}

}  // namespace

TEST_CASE("timeline: pairs lie in two files that follow each other, if the files have times") {
  const TemporaryFolder folder;
  // In the order of their times, which is not that of their names.
  write_labelled_fields(folder / "a.h5", {3, 1, 1, 2}, {.hours = hours_from(24, 3)},
                        testing::field_values({3, 1, 1, 2}, 4000));
  write_labelled_fields(folder / "b.h5", {4, 1, 1, 2}, {.hours = hours_from(0, 4)});
  const FieldSeries series({.paths = {folder.path()}});
  CHECK(list_samples(series, SamplerKind::all_pairs) == Order{0, 1, 2, 3, 4, 5});
  std::vector<float> field(2);
  series.read_step(4, field.data());
  CHECK(field[0] == testing::field_value(4000, 0, 0, 0, 0));
  CHECK(series.time_of(4).iso() == "2001-01-02T00:00");
  CHECK(series.file_name_of(4) == folder / "a.h5");

  const FieldSeries far({.paths = {folder.path()}, .dt = 3});
  CHECK(list_samples(far, SamplerKind::all_pairs) == Order{0, 1, 2, 3});
  const FieldSeries apart({.paths = {folder.path()}, .spans_files = false});
  CHECK(list_samples(apart, SamplerKind::all_pairs) == Order{0, 1, 3, 4, 5});  // by name: a, then b
  CHECK(apart.file_name_of(0) == folder / "a.h5");
}

TEST_CASE("timeline: two yearly files are the same as one of both") {
  const TemporaryFolder folder;
  const std::vector<float> values = testing::field_values({7, 2, 2, 2});
  write_labelled_fields(folder / "one.h5", {7, 2, 2, 2}, {.hours = hours_from(0, 7)}, values);
  const auto part = [&](int first, int count) {
    return std::vector<float>(values.begin() + first * 8L, values.begin() + (first + count) * 8L);
  };
  write_labelled_fields(folder / "first.h5", {4, 2, 2, 2}, {.hours = hours_from(0, 4)}, part(0, 4));
  write_labelled_fields(folder / "second.h5", {3, 2, 2, 2}, {.hours = hours_from(24, 3)}, part(4, 3));
  const FieldSeries one({.paths = {folder / "one.h5"}, .dt = 2}),
      two({.paths = {folder / "first.h5", folder / "second.h5"}, .dt = 2});
  CHECK(list_samples(one, SamplerKind::all_pairs) == list_samples(two, SamplerKind::all_pairs));
  std::vector<float> a(8), b(8);
  for (std::int64_t step = 0; step < 7; ++step) {
    one.read_step(step, a.data());
    two.read_step(step, b.data());
    CHECK(a == b);
  }
}

TEST_CASE("timeline: a hole between files ends a window, and so does a file without times") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "a.h5", {3, 1, 1, 2}, {.hours = hours_from(0, 3)});
  write_labelled_fields(folder / "b.h5", {3, 1, 1, 2}, {.hours = hours_from(24, 3)});  // 18 h is missing
  const FieldSeries series({.paths = {folder.path()}});
  CHECK(list_samples(series, SamplerKind::all_pairs) == Order{0, 1, 3, 4});
  CHECK(describe_left_out(series, SamplerKind::all_pairs) == "");
  const FieldSeries far({.paths = {folder.path()}, .dt = 2});
  CHECK(list_samples(far, SamplerKind::all_pairs) == Order{0, 3});

  const TemporaryFolder untimed;
  testing::write_fields(untimed / "a.h5", {3, 1, 1, 2});
  write_labelled_fields(untimed / "b.h5", {3, 1, 1, 2}, {.hours = hours_from(18, 3)});
  CHECK(list_samples(FieldSeries({.paths = {untimed.path()}}), SamplerKind::all_pairs) == Order{0, 1, 3, 4});
}

TEST_CASE("timeline: files of one step each are a sequence too") {
  const TemporaryFolder folder;
  for (int i = 0; i < 4; ++i)
    write_labelled_fields(folder / ("step" + std::to_string(i) + ".h5"), {1, 1, 1, 2}, {.hours = hours_from(6 * i, 1)});
  const FieldSeries series({.paths = {folder.path()}, .dt = 2});
  CHECK(series.labels().step_hours == 6);
  CHECK(list_samples(series, SamplerKind::all_pairs) == Order{0, 1});
}

TEST_CASE("timeline: a time that two files have is an error that names both") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "a.h5", {3, 1, 1, 2}, {.hours = hours_from(0, 3)});
  write_labelled_fields(folder / "b.h5", {3, 1, 1, 2}, {.hours = hours_from(12, 3)});
  const std::string a = folder / "a.h5", b = folder / "b.h5";
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder.path()}}),
                    b + " begins at 2001-01-01T12:00, when " + a +
                        ", with the same variables, has not ended: it ends at 2001-01-01T12:00");
  CHECK_NOTHROW(FieldSeries({.paths = {folder.path()}, .spans_files = false}));
}

TEST_CASE("timeline: files with other variables are joined where their times meet, not by position") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "t.h5", {4, 1, 1, 2}, {.names = {"t"}, .hours = hours_from(0, 4)});
  write_labelled_fields(folder / "u.h5", {4, 2, 1, 2}, {.names = {"u", "v"}, .hours = hours_from(6, 4)},
                        testing::field_values({4, 2, 1, 2}, 5000));
  const FieldSeries series({.paths = {folder.path()}});
  CHECK(series.steps() == 3);
  CHECK(series.channel_names() == std::vector<std::string>{"t", "u", "v"});
  CHECK(series.timeline().left_out() == "2 steps that not all files have, the first at 2001-01-01T00:00");
  std::vector<float> fields(6);
  series.read_step(0, fields.data());
  CHECK(fields[0] == testing::field_value(0, 1, 0, 0, 0));     // t of 06:00 is its second step
  CHECK(fields[2] == testing::field_value(5000, 0, 0, 0, 0));  // u of 06:00 is its first
  CHECK(fields[4] == testing::field_value(5000, 0, 1, 0, 0));
  CHECK(list_samples(series, SamplerKind::all_pairs) == Order{0, 1});
}

TEST_CASE("timeline: a step that one file lacks is a hole of the joined series") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "t.h5", {5, 1, 1, 2}, {.names = {"t"}, .hours = hours_from(0, 5)});
  write_labelled_fields(folder / "u.h5", {4, 1, 1, 2}, {.names = {"u"}, .hours = {0, 6, 18, 24}});
  const FieldSeries series({.paths = {folder.path()}});
  CHECK(series.steps() == 4);
  CHECK(list_samples(series, SamplerKind::all_pairs) == Order{0, 2});
  CHECK(series.holes({0, 4}) == Order{1});
}

TEST_CASE("timeline: files that cannot be joined are refused") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "t.h5", {2, 1, 1, 2}, {.names = {"t"}, .hours = hours_from(0, 2)});
  write_labelled_fields(folder / "u.h5", {2, 1, 1, 2}, {.names = {"u"}, .hours = hours_from(60, 2)});
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder.path()}}),
                    (folder / "t.h5").string() + " (2001-01-01T00:00 to 2001-01-01T06:00) and " +
                        (folder / "u.h5").string() + " (2001-01-03T12:00 to 2001-01-03T18:00), with other variables, " +
                        "have no time in common");
  const auto choose = [&](std::vector<std::string> names) {
    return FieldSeries({.paths = {folder.path()}, .channels = std::move(names), .choose = true});
  };
  CHECK(choose({"u"}).steps() == 2);
  CHECK_THROWS_WITH(choose({"u", "w"}), folder.path().string() + " has no channel w; it has t, u");

  const TemporaryFolder untimed;
  write_labelled_fields(untimed / "t.h5", {2, 1, 1, 2}, {.names = {"t"}});
  write_labelled_fields(untimed / "u.h5", {2, 1, 1, 2}, {.names = {"u"}});
  CHECK_THROWS_WITH(FieldSeries({.paths = {untimed.path()}, .channels = {"t", "u"}, .choose = true}),
                    ContainsSubstring("not all of these files have a 'time'"));
}

TEST_CASE("timeline: channels are chosen by any of their names, in the order asked for") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "a.h5", {2, 3, 1, 2},
                        {.names = {"t2m", "u850", "z"}, .units = {"K", "m/s", "m2/s2"}, .hours = hours_from(0, 2)});
  const FieldSeries series({.paths = {folder.path()}, .channels = {"u_component_of_wind_850", "t2m"}, .choose = true});
  std::vector<float> fields(4);
  series.read_step(1, fields.data());
  CHECK(fields[0] == testing::field_value(0, 1, 1, 0, 0));
  CHECK(fields[2] == testing::field_value(0, 1, 0, 0, 0));
  CHECK(series.labels().units == std::vector<std::string>{"m/s", "K"});
  const std::vector<std::int64_t> second{1};
  series.read_channels(0, second, series.all_rows(), fields.data());
  CHECK(fields[0] == testing::field_value(0, 0, 0, 0, 0));

  write_labelled_fields(folder / "b.h5", {2, 1, 1, 2}, {.names = {"t2m"}, .hours = hours_from(0, 2)});
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder.path()}, .channels = {"t2m", "u850"}, .choose = true}),
                    concat((folder / "b.h5").string(), " has no channel u850, which ", (folder / "a.h5").string(),
                           " has, and both have others that are asked for"));
  write_labelled_fields(folder / "c.h5", {2, 2, 1, 2}, {.names = {"2m_temperature", "t2m"}});
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder / "c.h5"}, .channels = {"2t"}, .choose = true}),
                    std::string(folder / "c.h5") + ": the name 2t fits two channels, 2m_temperature and t2m");
}

TEST_CASE("timeline: ranges of dates include both ends, and a day ends with its last step") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "a.h5", {12, 1, 1, 2}, {.hours = hours_from(0, 12)});
  const FieldSeries series({.paths = {folder.path()}});
  const auto steps = [&](const char* first, const char* last) {
    return series.steps_of(std::array<std::string, 2>{first, last}, "train_range");
  };
  CHECK(steps("2001-01-01", "2001-01-02") == StepRange{0, 8});
  CHECK(steps("2001-01-02", "2001-01-02") == StepRange{4, 8});
  CHECK(steps("2001-01-01T06", "2001-01-02T12") == StepRange{1, 7});
  CHECK(steps("2001-01-01T06:30", "2001-01-03T18:00") == StepRange{2, 12});
  CHECK_THROWS_WITH(steps("2001-01-03", "2001-01-04"), "train_range [2001-01-03, 2001-01-04] goes beyond the data of " +
                                                           folder.path().string() +
                                                           ", which are from 2001-01-01T00:00 to 2001-01-03T18:00");
  CHECK_THROWS_WITH(steps("2000-12-31", "2001-01-02"), ContainsSubstring("goes beyond the data"));
  CHECK_THROWS_WITH(steps("2001-01-03", "2001-01-02"), "train_range [2001-01-03, 2001-01-02] is reversed");
  CHECK_THROWS_WITH(steps("2001-01-01T12", "2001-01-01T06"), ContainsSubstring("is reversed"));
  CHECK_THROWS_WITH(steps("2001-01-01T01", "2001-01-01T05"),
                    "train_range [2001-01-01T01, 2001-01-01T05] holds no step of " + folder.path().string());
  CHECK(steps("2001-01-01T06", "2001-01-01T06") == StepRange{1, 2});  // an instant has its step
  CHECK(steps("2001-01-03T18", "2001-01-03") == StepRange{11, 12});   // in the last day
  CHECK_THROWS_WITH(steps("2001-01-03T19", "2001-01-03"), ContainsSubstring("goes beyond the data"));
  for (const char* bad : {"2001-02-30", "2001-1-1", "yesterday", "2001-01-01 06", "2001-01-01T24", "2001-01-01T06:60"})
    CHECK_THROWS_WITH(steps(bad, "2001-01-02"), ContainsSubstring("is no date like"));

  testing::write_fields(folder / "b.h5", {3, 1, 1, 2});
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder / "b.h5"}})
                        .steps_of(std::array<std::string, 2>{"2001-01-01", "2001-01-02"}, "valid_range"),
                    "valid_range [2001-01-01, 2001-01-02] are dates, but " + (folder / "b.h5").string() +
                        " has files without 'time'");
}

TEST_CASE("timeline: dates mean steps of files that are named by their years, if these ascend") {
  const TemporaryFolder years, mixed;
  testing::write_fields(years / "2000.h5", {366 * 4, 1, 1, 2});
  testing::write_fields(years / "2001.h5", {365 * 4, 1, 1, 2});
  const FieldSeries series({.paths = {years.path().string()}});
  const auto steps = [&](const char* first, const char* last) {
    return series.steps_of(std::array<std::string, 2>{first, last}, "train_range");
  };
  CHECK(steps("2000-12-31", "2001-01-01T06") == StepRange{365 * 4, 366 * 4 + 2});
  CHECK(steps("2000-02-29", "2000-02-29") == StepRange{59 * 4, 60 * 4});
  CHECK(steps("2001-03-01T12", "2001-12-31") == StepRange{366 * 4 + 59 * 4 + 2, 731 * 4});
  CHECK_THROWS_WITH(steps("2001-12-31", "2002-01-01"), ContainsSubstring("goes beyond the data"));
  testing::write_fields(mixed / "a_2001.h5", {365, 1, 1, 2});
  testing::write_fields(mixed / "b_2000.h5", {366, 1, 1, 2});
  CHECK_THROWS_WITH(FieldSeries({.paths = {mixed.path().string()}})
                        .steps_of(std::array<std::string, 2>{"2001-01-01", "2001-01-02"}, "train_range"),
                    ContainsSubstring("a_2001.h5 comes before") && ContainsSubstring("b_2000.h5 by name"));
}

TEST_CASE("timeline: which of three tracks cannot be joined, and how many steps are left out") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "t.h5", {2, 1, 1, 2}, {.names = {"t"}, .hours = hours_from(0, 2)});
  write_labelled_fields(folder / "u.h5", {2, 1, 1, 2}, {.names = {"u"}, .hours = hours_from(6, 2)});
  write_labelled_fields(folder / "v.h5", {2, 1, 1, 2}, {.names = {"v"}, .hours = hours_from(12, 2)});
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder.path()}}),
                    ContainsSubstring("with other variables, have no time in common, or other files beside them"));
  write_labelled_fields(folder / "v.h5", {1, 1, 1, 2}, {.names = {"v"}, .hours = {6}});
  const FieldSeries three({.paths = {folder.path()}});
  CHECK(three.steps() == 1);
  CHECK(three.timeline().tracks() == 3);
  CHECK(three.timeline().left_out() == "2 steps that not all files have, the first at 2001-01-01T00:00");
  write_labelled_fields(folder / "u.h5", {1, 1, 1, 2}, {.names = {"u"}, .hours = {6}});
  CHECK(FieldSeries({.paths = {folder.path()}}).timeline().left_out() ==
        "1 step that not all files have, the first at 2001-01-01T00:00");
}

TEST_CASE("timeline: a step belongs to the rest of the file that it lies in") {
  const TemporaryFolder folder;
  write_labelled_fields(folder / "a.h5", {5, 1, 1, 2}, {.hours = hours_from(0, 5)});
  write_labelled_fields(folder / "b.h5", {3, 1, 1, 2}, {.hours = hours_from(30, 3)});
  const FieldSeries series({.paths = {folder.path()}, .range = StepRange{2, 7}});
  for (const auto& [step, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 5}, {4, 1}, {5, 3}, {7, 1}}) {
    CHECK(series.timeline().rest_of_file(step).first == step);
    CHECK(series.timeline().rest_of_file(step).count == count);
  }
  const std::vector<Segment> segments = series.segments();
  REQUIRE(segments.size() == 2);
  CHECK((segments[0].first == 2 && segments[0].count == 3));
  CHECK((segments[1].first == 5 && segments[1].count == 2));
}
