// The mesh of ranks.
#include "comm/mesh.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <set>

#include "comm/imagined.h"
#include "comm/parallel.h"
#include "comm/pieces.h"
#include "comm/thread_ranks.h"
#include "kernels/common/check.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

using Groups = std::vector<std::vector<std::int64_t>>;

TEST_CASE("the mesh follows the order string") {
  const Mesh mesh({.dp = 8, .tp = 2, .cp = 2}, "tp-cp-dp");
  CHECK(mesh.world_size() == 32);
  CHECK(mesh.groups(mesh.axes()[0].name).front() == std::vector<std::int64_t>{0, 1});
  CHECK(mesh.groups(mesh.axes()[1].name).front() == std::vector<std::int64_t>{0, 2});
  CHECK(mesh.groups(mesh.axes()[2].name).front() == std::vector<std::int64_t>{0, 4, 8, 12, 16, 20, 24, 28});
  const Mesh other({.dp = 3, .tp = 2}, "dp-tp");
  CHECK(other.groups(other.axes()[0].name) == Groups{{0, 1, 2}, {3, 4, 5}});
  CHECK(other.groups(other.axes()[1].name) == Groups{{0, 3}, {1, 4}, {2, 5}});
  CHECK(Mesh::coordinate(other.axes()[1], 4) == 1);
  CHECK(Mesh({}, "tp-cp-pp-dp").world_size() == 1);
  CHECK_THROWS_WITH(Mesh({.dp = 2}, "tp-cp"), "order tp-cp leaves out dp, whose size is 2");
  for (const std::string name : {"tp", "ep"})
    CHECK_THROWS_WITH(Mesh({}, "tp-" + name),
                      "order tp-" + name + ": '" + name + "' is not one of tp, cp, dp, pp, or is named twice");
  CHECK_THROWS_WITH(Mesh({.dp = 0}, "dp"), "the dp size must be at least 1, not 0");
  CHECK_THROWS_WITH(Mesh({.tp = -2}, "tp"), "the tp size must be at least 1, not -2");
}

TEST_CASE("a mesh of one rank has every axis, of size 1") {
  const Mesh mesh = Mesh::single();
  CHECK(mesh.world_size() == 1);
  std::vector<std::string> names;
  for (const Mesh::Axis& axis : mesh.axes()) {
    names.push_back(axis.name);
    CHECK(axis.size == 1);
    CHECK(Mesh::coordinate(axis, 0) == 0);
    CHECK(mesh.groups(axis.name) == std::vector<std::vector<std::int64_t>>{{0}});
  }
  CHECK(names == std::vector<std::string>{"tp", "cp", "dp"});
}

TEST_CASE("mesh: groups over several axes, and what each rank holds") {
  const Mesh mesh({.dp = 2, .tp = 2, .cp = 3}, "tp-cp-dp");
  CHECK(mesh.group_of(4, "dp-cp") == std::vector<std::int64_t>{0, 2, 4, 6, 8, 10});
  CHECK(mesh.group_of(4, "tp-cp") == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(mesh.groups("cp-dp") == Groups{{0, 2, 4, 6, 8, 10}, {1, 3, 5, 7, 9, 11}});
  CHECK(mesh.group_of(7, "pp") == std::vector<std::int64_t>{7});
  CHECK(mesh.coordinate("cp", 9) == 1);
  CHECK(mesh.coordinate("pp", 9) == 0);

  CHECK(part_of(45, 0, 4) == Part{0, 12});
  CHECK(part_of(45, 1, 4) == Part{12, 23});
  CHECK(part_of(45, 3, 4) == Part{34, 45});
  CHECK(part_of(2, 2, 3) == Part{2, 2});
  CHECK(part_of(0, 0, 1) == Part{0, 0});
  CHECK_THROWS_WITH(part_of(5, 3, 3), "part 3 of 3 of 5");
  CHECK_THROWS_WITH(part_of(5, -1, 3), "part -1 of 3 of 5");
  CHECK_THROWS_WITH(part_of(-1, 0, 3), "part 0 of 3 of -1");
}

TEST_CASE("mesh: ranks as ranges") {
  const auto text = [](std::vector<std::int64_t> ranks) { return to_text(std::span<const std::int64_t>(ranks)); };
  CHECK(text({3}) == "rank 3");
  CHECK(text({0, 1}) == "ranks 0, 1");
  CHECK(text({0, 1, 2}) == "ranks 0-2");
  CHECK(text({0, 4, 8, 12, 16, 17}) == "ranks 0, 4, ... 16, 17");
  CHECK(text({0, 1, 2, 3, 9}) == "ranks 0-3, 9");
  CHECK(text({0, 4, 8, 12}) == "ranks 0, 4, 8, 12");
  CHECK(text({0, 4, 8, 12, 16}) == "ranks 0, 4, ... 16");
  CHECK(text({1, 3, 4, 5, 6}) == "ranks 1, 3-6");
  CHECK(text({0, 1, 4, 5, 8, 9}) == "ranks 0, 1, 4, 5, 8, 9");
}

TEST_CASE("mesh: 8,192 ranks are told in a few lines") {
  const std::string text = to_text(Mesh({.dp = 2048, .tp = 4}, "tp-cp-dp"));
  CHECK(text ==
        "tp: 2048 groups of 4: {0-3} {4-7} {8-11} ... {8188-8191}\n"
        "cp: 8192 groups of 1: {0} {1} {2} ... {8191}\n"
        "dp groups: {0,4,... 8188} {1,5,... 8189} {2,6,... 8190} {3,7,... 8191}\n");
}

TEST_CASE("mesh: small ones are told rank by rank, and up to eight groups whole") {
  CHECK(to_text(Mesh({.dp = 2, .tp = 2}, "tp-dp")) ==
        "  rank    tp    dp\n"
        "     0     0     0\n"
        "     1     1     0\n"
        "     2     0     1\n"
        "     3     1     1\n"
        "tp groups: {0,1} {2,3}\n"
        "dp groups: {0,2} {1,3}\n");
  CHECK_THAT(to_text(Mesh({.dp = 32}, "dp")), ContainsSubstring("\n    31    31\n"));
  CHECK(to_text(Mesh({.dp = 33}, "dp")) == "dp groups: {0-32}\n");
  CHECK_THAT(to_text(Mesh({.dp = 8, .tp = 2}, "tp-dp")),
             ContainsSubstring("tp groups: {0,1} {2,3} {4,5} {6,7} {8,9} {10,11} {12,13} {14,15}\n"));
  CHECK_THAT(to_text(Mesh({.dp = 9, .tp = 2}, "tp-dp")),
             ContainsSubstring("tp: 9 groups of 2: {0,1} {2,3} {4,5} ... {16,17}\n"));
}

TEST_CASE("mesh: more ranks than a run may have are refused") {
  CHECK(Mesh({.dp = kMaxRanks / 4, .tp = 4}, "tp-dp").world_size() == kMaxRanks);
  CHECK_THROWS_WITH(Mesh({.dp = kMaxRanks / 4 + 1, .tp = 4}, "tp-dp"), concat("more than ", kMaxRanks, " ranks"));
  CHECK_THROWS_WITH(Mesh({.dp = std::int64_t{1} << 62, .tp = 4}, "tp-dp"), concat("more than ", kMaxRanks, " ranks"));
}

TEST_CASE("parallel: groups of the same members are one of the backend, and one rank is none") {
  struct Case {
    MeshSizes sizes;
    std::int64_t shards, formed;
  };
  // Of tp, cp and tp x cp, which the passes call, and of dp, dp x cp, the world and what deals out the optimizer.
  constexpr std::int64_t kAll = ExchangeOptions::kAll;
  for (const auto& [sizes, shards, formed] : {Case{{.dp = 4}, 1, 0},
                                              {{.dp = 4}, kAll, 0},
                                              {{.dp = 4}, 2, 2},  // the groups of two, and the replicas
                                              {{.tp = 4}, 1, 1},
                                              {{.cp = 3}, 1, 1},
                                              {{.dp = 2, .tp = 2}, 1, 2},
                                              {{.dp = 2, .tp = 2}, kAll, 2},
                                              {{.dp = 2, .cp = 2}, 1, 2},
                                              {{.tp = 2, .cp = 2}, 1, 4},
                                              {{.dp = 2, .tp = 2, .cp = 2}, 1, 5},
                                              {{.dp = 2, .tp = 2, .cp = 2}, kAll, 5},
                                              {{.dp = 4, .tp = 2}, 2, 5}}) {
    const auto ranks = static_cast<int>(sizes.dp * sizes.tp * sizes.cp);
    INFO("dp " << sizes.dp << ", tp " << sizes.tp << ", cp " << sizes.cp << ", shards " << shards);
    testing::Findings findings;
    const ExchangeOptions exchange{.shards = shards};
    run_ranks({.ranks = ranks}, [&, sizes = sizes, formed = formed](const Communicator& world) {
      const Parallel parallel = Parallel::start(world, sizes, "tp-cp-dp", exchange);
      findings.expect(world.formed() == formed, concat(world.formed(), " groups"));
      const Parallel imagined = Parallel::imagined(world.rank(), sizes, "tp-cp-dp", exchange);
      for (const auto group : {&Parallel::dp, &Parallel::tp, &Parallel::cp, &Parallel::tokens, &Parallel::model,
                               &Parallel::shards, &Parallel::wide_shards, &Parallel::replicas, &Parallel::world}) {
        const Communicator &real = parallel.*group, &other = imagined.*group;
        findings.expect(real.size() == other.size() && real.rank() == other.rank() && real.name() == other.name(),
                        concat(real.name(), " and the imagined ", other.name()));
        real.barrier();
      }
      findings.expect(parallel.dp.size() == 1 || parallel.dp.name() == "dp", "the name of dp");
    });
    CHECK(findings.wrong() == "");
  }
}

TEST_CASE("parallel: members of a group stand in the order of the world, whichever axis varies fastest") {
  // With dp before tp the shards of ranks 4 and 5 are these two; with their tp neighbours they are 0, 1, 4 and 5.
  const auto place = [](std::int64_t rank, std::int64_t shards, Communicator Parallel::*group) {
    return (Parallel::imagined(rank, {.dp = 4, .tp = 2}, "dp-tp", {.shards = shards}).*group).rank();
  };
  for (const auto& [rank, wide, narrow, replica] :
       std::vector<std::array<std::int64_t, 4>>{{0, 0, 0, 0}, {1, 1, 1, 0}, {4, 2, 0, 0}, {5, 3, 1, 0}, {6, 2, 0, 1}}) {
    INFO("rank " << rank);
    CHECK(place(rank, 2, &Parallel::wide_shards) == wide);
    CHECK(place(rank, 2, &Parallel::shards) == narrow);
    CHECK(place(rank, 2, &Parallel::replicas) == replica);
    CHECK(place(rank, ExchangeOptions::kAll, &Parallel::wide_shards) == rank);
  }
  struct Case {
    std::string order;
    std::int64_t shards, formed;
  };
  // Of dp, of tp, and of two shards that, their neighbours and the replicas.
  for (const auto& [order, shards, formed] : {Case{"dp-tp", ExchangeOptions::kAll, 2}, {"dp-tp", 2, 5}}) {
    INFO(order << ", shards " << shards);
    testing::Findings findings;
    run_ranks({.ranks = 8}, [&, order = order, shards = shards, formed = formed](const Communicator& world) {
      const Parallel parallel = Parallel::start(world, {.dp = 4, .tp = 2}, order, {.shards = shards});
      findings.expect(world.formed() == formed, concat(world.formed(), " groups"));
      const Parallel imagined = Parallel::imagined(world.rank(), {.dp = 4, .tp = 2}, order, {.shards = shards});
      for (const auto group : {&Parallel::shards, &Parallel::wide_shards, &Parallel::replicas})
        findings.expect((parallel.*group).rank() == (imagined.*group).rank(), (parallel.*group).name());
    });
    CHECK(findings.wrong() == "");
  }
}

TEST_CASE("parallel: buckets have as many slices as ranks share a parameter's optimizer") {
  using Slices = std::array<int, kSharings>;
  const auto slices = [](const MeshSizes& sizes, std::int64_t shards, bool sequence = false) {
    Parallel parallel = Parallel::imagined(0, sizes, "tp-cp-dp", {.shards = shards});
    parallel.sequence = sequence;
    const BucketPlan plan = parallel.bucket_plan();
    Slices own{}, tied{};
    for (std::size_t i = 0; i < kSharings; ++i) {
      own[i] = static_cast<int>(plan.slices[i]);
      tied[i] = static_cast<int>(plan.tied_slices[i]);
    }
    return std::pair(own, tied);
  };
  constexpr std::int64_t kAll = ExchangeOptions::kAll;
  const auto at = [](Sharing sharing) { return static_cast<std::size_t>(sharing); };
  // Nothing is dealt out; over dp; over dp and the tp ranks that hold copies; over both ends of a pipeline.
  CHECK(slices({.dp = 3, .tp = 2, .pp = 2}, 1) == std::pair(Slices{1, 1, 1}, Slices{1, 1, 1}));
  const auto [own, tied] = slices({.dp = 3, .tp = 2, .pp = 2}, kAll);
  CHECK(own[at(Sharing::shard)] == 3);
  CHECK(own[at(Sharing::copy)] == 6);
  CHECK(own[at(Sharing::copy_of_partial)] == 6);
  CHECK(tied[at(Sharing::shard)] == 6);
  CHECK(tied[at(Sharing::copy)] == 12);
  CHECK(tied[at(Sharing::copy_of_partial)] == 12);
  // One rank of dp: only rows that are split make parts of a gradient.
  const auto [whole, unused] = slices({.tp = 2}, kAll);
  CHECK(whole == Slices{1, 1, 1});
  const auto [split, also_unused] = slices({.tp = 2}, kAll, /*sequence=*/true);
  CHECK(split[at(Sharing::shard)] == 1);
  CHECK(split[at(Sharing::copy)] == 1);
  CHECK(split[at(Sharing::copy_of_partial)] == 2);
}

TEST_CASE("parallel: only the first tensor-parallel rank's copy of a gradient counts, but of own rows all do") {
  for (const std::int64_t rank : {0, 1, 2, 3})
    for (const bool sequence : {false, true}) {
      Parallel parallel = Parallel::imagined(rank, {.dp = 2, .tp = 2}, "tp-dp");
      parallel.sequence = sequence;
      const bool is_second = rank % 2 == 1;
      CHECK_FALSE(parallel.is_copy(Sharing::shard));
      CHECK(parallel.is_copy(Sharing::copy) == is_second);
      CHECK(parallel.is_copy(Sharing::copy_of_partial) == (is_second && !sequence));
    }
}

TEST_CASE("parallel: tensor-parallel ranks have whole units, and the last one what is left") {
  const auto part = [](std::int64_t rank, std::int64_t total, std::int64_t unit) {
    return Parallel::imagined(rank, {.tp = 3}, "tp").over_tp(total, unit);
  };
  for (const auto& [rank, own] : std::vector<std::pair<std::int64_t, Part>>{{0, {0, 16}}, {1, {16, 32}}, {2, {32, 35}}})
    CHECK(part(rank, 35, 8) == own);
  for (const auto& [rank, own] : std::vector<std::pair<std::int64_t, Part>>{{0, {0, 8}}, {1, {8, 11}}, {2, {11, 11}}})
    CHECK(part(rank, 11, 8) == own);
  CHECK(part(1, 7, 1) == Part{3, 5});
}

TEST_CASE("parallel: groups have the names that reports of what was exchanged use") {
  const auto name = [](const MeshSizes& sizes, std::int64_t shards, Communicator Parallel::*group) {
    return (Parallel::imagined(0, sizes, "tp-cp-dp", {.shards = shards}).*group).name();
  };
  constexpr std::int64_t kAll = ExchangeOptions::kAll;
  const MeshSizes all{.dp = 4, .tp = 2, .cp = 2}, staged{.dp = 4, .tp = 2, .cp = 2, .pp = 2};
  for (const MeshSizes& sizes : {all, staged}) {
    CHECK(name(sizes, 1, &Parallel::dp) == "dp");
    CHECK(name(sizes, 1, &Parallel::tp) == "tp");
    CHECK(name(sizes, 1, &Parallel::cp) == "cp");
    CHECK(name(sizes, 1, &Parallel::tokens) == "dp-cp");
    CHECK(name(sizes, 1, &Parallel::model) == "tp-cp");
    CHECK(name(sizes, kAll, &Parallel::shards) == "dp-cp");
    CHECK(name(sizes, 2, &Parallel::shards) == "shards");
    CHECK(name(sizes, 2, &Parallel::wide_shards) == "shards-tp");
    CHECK(name(sizes, 2, &Parallel::replicas) == "replicas");
  }
  CHECK(name({.dp = 4}, 2, &Parallel::wide_shards) == "shards");
  CHECK(name(all, kAll, &Parallel::wide_shards) == "world");
  CHECK(name(staged, kAll, &Parallel::wide_shards) == "dp-tp-cp");
  CHECK(name(all, 1, &Parallel::stage) == "world");
  CHECK(name(staged, 1, &Parallel::stage) == "dp-tp-cp");
  CHECK(name(all, 1, &Parallel::samples) == "dp");
  CHECK(name(staged, 1, &Parallel::samples) == "dp-pp");
  CHECK(name(staged, 1, &Parallel::pp) == "pp");
  CHECK(name(staged, 1, &Parallel::next) == "pp");
  CHECK(name(staged, 1, &Parallel::tied_tokens) == "tied");
  CHECK(name(staged, 1, &Parallel::tied_stage) == "tied-tp");
  CHECK(name(staged, 2, &Parallel::tied_shards) == "tied-shards");
  CHECK(name(staged, 2, &Parallel::tied_wide_shards) == "tied-shards-tp");
}

TEST_CASE("parallel: a layout of another number of ranks than there are is refused") {
  const auto refused = [](const MeshSizes& sizes, const std::string& layout) {
    CHECK_THROWS_WITH(
        run_ranks({.ranks = 4}, [&](const Communicator& world) { Parallel::start(world, sizes, "tp-cp-dp", {}); }),
        ContainsSubstring(": " + layout + " ranks, and there are 4"));
  };
  refused({.dp = 2}, "dp 2 x tp 1 x cp 1 x pp 1 are 2");
  refused({.dp = 2, .tp = 3, .cp = 4, .pp = 5}, "dp 2 x tp 3 x cp 4 x pp 5 are 120");
}

TEST_CASE("parallel: what is no group of ranks that share the optimizer is refused") {
  CHECK_THROWS_WITH(Parallel::imagined(0, {.dp = 6, .tp = 2}, "tp-dp", {.shards = 4}),
                    ContainsSubstring("groups of 4 ranks: they do not divide the 6 ranks that share it, dp x cp"));
  CHECK_THROWS_WITH(Parallel::imagined(0, {.dp = 6, .tp = 2}, "tp-dp", {.off = true, .shards = 2}),
                    ContainsSubstring("where gradients are not exchanged"));
}

TEST_CASE("parallel: imagined ranks add up what one hands in, and know the largest of those before") {
  const auto world = std::make_shared<ImaginedWorld>();
  const auto asked = [&](int rank, double a, double b) {
    const Communicator ranks(make_imagined_backend(world, rank, 3));
    std::vector<double> numbers{a, 1};
    ranks.all_reduce(numbers);
    CHECK(numbers == std::vector<double>{3 * a, 3});
    ranks.all_reduce({&a, 1}, Reduce::max);
    ranks.all_reduce({&b, 1}, Reduce::max);
    CHECK_THROWS_WITH(ranks.all_reduce(Tensor::zeros({4}, DType::fp32, Device{})),
                      ContainsSubstring("all_reduce of 4 fp32: these ranks are imagined, and only shapes can be"));
    CHECK_THROWS_WITH(ranks.split(0, 0, "part"), "imagined ranks form no groups but those of a layout");
    return std::vector<double>{a, b};
  };
  CHECK(asked(0, 5, 1) == std::vector<double>{5, 1});
  CHECK(asked(1, 2, 4) == std::vector<double>{5, 4});
  CHECK(asked(2, 6, 3) == std::vector<double>{6, 4});
}

TEST_CASE("pieces: each is first held by the lowest rank that has the same, beside slow loops") {
  constexpr std::size_t kRanks = 60, kTensors = 3;
  std::uint32_t state = 5;
  const auto bit = [&] { return static_cast<std::int64_t>((state = state * 1664525u + 1013904223u) >> 31); };
  std::vector<Piece> all;
  for (std::size_t i = 0; i < kRanks * kTensors; ++i) all.push_back({bit(), bit(), 2 + bit(), bit(), 5 + bit()});
  const Pieces pieces(all, kTensors);
  CHECK(pieces.ranks() == kRanks);
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    std::vector<std::int64_t> given(kRanks);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      std::size_t first = 0;
      while (all[first * kTensors + tensor] != all[rank * kTensors + tensor]) ++first;
      CHECK(pieces.first_holder(rank, tensor) == first);
      if (first == rank) given[rank] = all[rank * kTensors + tensor].size();
    }
    CHECK(pieces.givers(tensor) == given);
  }
}

// 8,192 ranks as they would stand in a run, tp 4, cp 2 and an optimizer dealt out over 64: where each stands, and the
// pieces of a checkpoint's moments that each holds.
TEST_CASE("parallel: 8,192 imagined ranks") {
  constexpr std::int64_t kDp = 1024, kTp = 4, kCp = 2, kShards = 64, kTensors = 150, kElements = std::int64_t{1} << 20;
  constexpr std::int64_t kStep = 163;  // between the ranks that are looked at
  const MeshSizes sizes{.dp = kDp, .tp = kTp, .cp = kCp};
  // Of this process's processor: others are at work on the machine.
  const auto now = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  double start = now();
  std::set<std::array<int, 5>> places;
  for (std::int64_t rank = 0; rank < kDp * kTp * kCp; rank += kStep) {
    const Parallel p = Parallel::imagined(rank, sizes, "tp-cp-dp", {.shards = kShards});
    CHECK(p.shards.size() == kShards);
    CHECK(p.wide_shards.size() == kShards * kTp);
    CHECK(p.replicas.size() == kDp * kCp / kShards);
    places.insert({p.tp.rank(), p.cp.rank(), p.dp.rank(), p.shards.rank(), p.replicas.rank()});
  }
  CHECK(places.size() == (kDp * kTp * kCp + kStep - 1) / kStep);
  const double mesh_seconds = now() - start;

  std::vector<Piece> all;
  for (std::int64_t rank = 0; rank < kDp * kTp * kCp; ++rank)
    for (std::int64_t tensor = 0; tensor < kTensors; ++tensor) {
      const Part rows = part_of(4096, rank % kTp, kTp), slice = part_of(kElements, rank / kTp % kShards, kShards);
      all.push_back({0, rows.begin, rows.end, slice.begin, slice.end});
    }
  start = now();
  const Pieces pieces(std::move(all), kTensors);
  const double pieces_seconds = now() - start;
  start = now();
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    const std::vector<std::int64_t> givers = pieces.givers(tensor);
    std::int64_t total = 0;
    for (const std::int64_t count : givers) total += count;
    REQUIRE(total == kTp * kElements);
  }
  const double givers_seconds = now() - start;
  CHECK(pieces.first_holder(8191, 3) == 8191 % (kTp * kShards));
  CHECK(pieces.first_holder(255, 0) == 255);
  CHECK(pieces.first_holder(256, 149) == 0);
  INFO("places " << mesh_seconds << " s, pieces " << pieces_seconds << " s, givers " << givers_seconds << " s");
  std::printf("8,192 imagined ranks: places of 51 of them %.3f s, pieces %.3f s, givers %.3f s\n", mesh_seconds,
              pieces_seconds, givers_seconds);
#ifndef ISOBAR_SANITIZED
  CHECK(pieces_seconds + givers_seconds < 0.3);  // 0.1 s on a machine that is not busy
#endif
}
