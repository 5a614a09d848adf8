// Attention whose tokens are dealt over ranks, beside the serial op: every form, ragged bands, several samples, masks.
#include "comm/context_attention.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "comm/parallel.h"
#include "comm/thread_ranks.h"
#include "engine/tape.h"
#include "kernels/common/cost_account.h"
#include "kernels/cuda/runtime.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::Findings;
using Values = std::vector<double>;

constexpr ContextForm kForms[] = {ContextForm::all_to_all, ContextForm::gather, ContextForm::ring};

// Samples of `rows` rows of `row` tokens; ranks hold whole rows.
struct Problem {
  std::int64_t batch = 2, heads = 8, head_size = 8, rows = 9, row = 5;
  float dropout = 0;
  bool causal = false, zigzag = false;
  bool packed = false;   // samples are documents of 7 tokens, which do not see each other
  bool sliding = false;  // a query sees the three keys before it and the two behind it
  DType dtype = DType::fp64;
  Device device = {};

  std::int64_t embed() const { return heads * head_size; }
  std::int64_t tokens() const { return rows * row; }
  ShardedAxis axis(int ranks) const {
    return zigzag ? ShardedAxis::in_zigzag(tokens(), ranks) : ShardedAxis(tokens(), ranks, row);
  }
  // Of a rank that has the third of four parts of a batch, and heads 2 to 9 of 12.
  AttentionOptions options() const {
    return {.batch = batch,
            .heads = heads,
            .scale = 0.4,
            .causal = causal,
            .dropout = dropout,
            .key = {7, 8},
            .window = {.samples = {2, 4}, .heads = {2, heads + 4}},
            .keys = {.begin = packed    ? limits([](std::int64_t t) { return t / 7 * 7; })
                              : sliding ? begins()
                                        : Tensor(),
                     .end = sliding ? limits([this](std::int64_t t) { return std::min(t + 3, tokens()); }) : Tensor()}};
  }
  Tensor begins() const {
    return limits([](std::int64_t t) { return std::max<std::int64_t>(t - 3, 0); });
  }
  template <class OfToken>
  Tensor limits(const OfToken& of_token) const {
    std::vector<double> values;
    for (std::int64_t i = 0; i < batch * tokens(); ++i) values.push_back(static_cast<double>(of_token(i % tokens())));
    Tensor limits = Tensor::empty({batch, tokens()}, DType::i32, device);
    limits.set_values(values);
    return limits;
  }
};

Values waves(std::int64_t n, double frequency) {
  Values values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1.5 * std::sin(frequency * static_cast<double>(i) + 0.3 * static_cast<double>(i % 11));
  return values;
}

// A rank's tokens of every sample of [batch, tokens, width].
Values band_of(const Values& whole, std::int64_t batch, const ShardedAxis& axis, int rank) {
  const std::int64_t width = std::ssize(whole) / batch / axis.total();
  Values band;
  for (std::int64_t b = 0; b < batch; ++b)
    for (const Part& chunk : axis.chunks(rank)) {
      const auto from = whole.begin() + (b * axis.total() + chunk.begin) * width;
      band.insert(band.end(), from, from + chunk.size() * width);
    }
  return band;
}

Tensor on_device(const Values& values, Shape shape, const Problem& problem) {
  Tensor x = Tensor::empty(std::move(shape), problem.dtype, problem.device);
  x.set_values(values);
  return x;
}

struct AttentionPass {
  Values o, dqkv;
};

// Forward and backward over this rank's tokens, from the whole's values.
AttentionPass run(const Problem& problem, ContextForm form, const Communicator& ranks, bool again = false) {
  const ShardedAxis axis = problem.axis(ranks.size());
  const std::int64_t e = problem.embed(), rows = problem.batch * axis.count(ranks.rank());
  const std::int64_t all = problem.batch * problem.tokens();
  const auto own = [&](std::int64_t width, double frequency) {
    return on_device(band_of(waves(all * width, frequency), problem.batch, axis, ranks.rank()), {rows, width}, problem);
  };
  const Tensor qkv = own(3 * e, 0.7), gradient = Tensor::zeros(qkv.shape(), problem.dtype, problem.device);
  const Tensor leaf = make_leaf(qkv, gradient);
  const auto body = [&](const std::vector<Tensor>& in) {
    return std::vector{context_attention(in[0], problem.options(), axis, ranks, form)};
  };
  Tape tape;
  Tensor o;
  {
    const TapeScope recording(tape);
    o = again ? recompute(body, {leaf})[0] : body({leaf})[0];
  }
  AttentionPass pass{.o = o.to_vector(), .dqkv = {}};
  tape.backward(o, own(e, 1.3));
  pass.dqkv = gradient.to_vector();
  return pass;
}

// Not finite where one of the values is not.
double largest(const Values& x) {
  double most = 0;
  for (const double v : x)
    if (!(std::abs(v) <= most)) most = std::isfinite(v) ? std::abs(v) : HUGE_VAL;
  return most;
}
double distance(const Values& a, const Values& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  Values difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return largest(difference);
}

// Whether a rank's part of the pass is the serial pass's, to `tolerance` of its largest element.
void compare(const Problem& problem, const AttentionPass& serial, const AttentionPass& pass, const Communicator& ranks,
             double tolerance, const std::string& what, Findings& findings) {
  const ShardedAxis axis = problem.axis(ranks.size());
  for (const auto& [name, whole, mine] :
       {std::tuple("o", &serial.o, &pass.o), std::tuple("dqkv", &serial.dqkv, &pass.dqkv)}) {
    const double error = distance(*mine, band_of(*whole, problem.batch, axis, ranks.rank())) / largest(*whole);
    findings.expect(error <= tolerance,
                    concat(what, ", ", ranks.size(), " ranks, rank ", ranks.rank(), ": ", name, " is off by ", error));
  }
}

}  // namespace

TEST_CASE("context attention: every form gives the serial op's outputs and gradients", "[context]") {
  for (const float dropout : {0.0f, 0.25f})
    for (const std::int64_t batch : {1, 2}) {
      const Problem problem{.batch = batch, .dropout = dropout};
      const AttentionPass serial = run(problem, ContextForm::automatic, {});
      REQUIRE(std::isfinite(largest(serial.dqkv)));
      for (int ranks = 1; ranks <= 8; ++ranks) {
        Findings findings;
        run_ranks({.ranks = ranks}, [&](const Communicator& world) {
          for (const ContextForm form : kForms) {
            const AttentionPass pass = run(problem, form, world);
            compare(problem, serial, pass, world, ranks == 1 ? 0 : 1e-14, name_of_enum(form), findings);
            const AttentionPass repeated = run(problem, form, world, /*again=*/true);
            findings.expect(repeated.o == pass.o && repeated.dqkv == pass.dqkv, "recomputed: other bits");
          }
        });
        CHECK(findings.wrong() == "");
      }
    }
}

TEST_CASE("context attention: heads that the ranks do not divide, more ranks than heads, rows of one token",
          "[context]") {
  for (const Problem& problem : {Problem{.heads = 5, .head_size = 16, .rows = 7, .row = 3, .dropout = 0.25},
                                 Problem{.batch = 3, .heads = 2, .rows = 40, .row = 1, .dropout = 0.25}}) {
    const AttentionPass serial = run(problem, ContextForm::automatic, {});
    for (const int ranks : {2, 3, 5, 7}) {
      Findings findings;
      run_ranks({.ranks = ranks}, [&](const Communicator& world) {
        for (const ContextForm form : kForms)
          if (form != ContextForm::all_to_all || ranks <= problem.heads)
            compare(problem, serial, run(problem, form, world), world, 1e-14, name_of_enum(form), findings);
      });
      CHECK(findings.wrong() == "");
    }
  }
}

TEST_CASE("context attention: causal, with parts of the keys that lie behind all queries of a rank", "[context]") {
  for (const Problem& problem : {Problem{.causal = true}, Problem{.batch = 1, .dropout = 0.25, .causal = true}}) {
    const AttentionPass serial = run(problem, ContextForm::automatic, {});
    Problem full = problem;
    full.causal = false;
    CHECK(distance(run(full, ContextForm::automatic, {}).o, serial.o) > 0.1 * largest(serial.o));
    for (const int ranks : {2, 3, 8}) {
      Findings findings;
      run_ranks({.ranks = ranks}, [&](const Communicator& world) {
        for (const ContextForm form : kForms)
          compare(problem, serial, run(problem, form, world), world, 1e-14, name_of_enum(form), findings);
      });
      CHECK(findings.wrong() == "");
    }
  }
}

// Ragged chunks, tokens that the ranks do not divide, several samples, masks drawn for the whole.
TEST_CASE("context attention: causal in zig-zag gives the serial op's outputs and gradients", "[context]") {
  for (const Problem& problem :
       {Problem{.causal = true, .zigzag = true}, Problem{.batch = 1, .dropout = 0.25, .causal = true, .zigzag = true},
        Problem{.batch = 3, .rows = 17, .row = 1, .dropout = 0.25, .causal = true, .zigzag = true},
        Problem{.rows = 16, .row = 1, .causal = true, .zigzag = true},
        Problem{.causal = true, .zigzag = true, .packed = true}, Problem{.zigzag = true, .sliding = true},
        Problem{.batch = 3, .rows = 17, .row = 1, .causal = true, .zigzag = true, .sliding = true},
        Problem{.dropout = 0.25, .causal = true, .packed = true}}) {
    const AttentionPass serial = run(problem, ContextForm::automatic, {});
    for (const int ranks : {2, 3, 4, 8}) {
      Findings findings;
      run_ranks({.ranks = ranks}, [&](const Communicator& world) {
        for (const ContextForm form : kForms) {
          const AttentionPass pass = run(problem, form, world);
          compare(problem, serial, pass, world, 1e-14, concat(name_of_enum(form), " in zig-zag"), findings);
          const AttentionPass repeated = run(problem, form, world, /*again=*/true);
          findings.expect(repeated.o == pass.o && repeated.dqkv == pass.dqkv, "recomputed: other bits");
        }
      });
      CHECK(findings.wrong() == "");
    }
  }
}

// The pairs of a query and a key that a rank computes are those that its queries see; and each rank has the mean of all
// ranks, but for the keys of one query where the tokens do not divide.
TEST_CASE("context attention: in zig-zag all ranks have the same number of pairs", "[context]") {
  for (const std::int64_t tokens : {16, 17, 31, 64, 100, 1023, 1024})
    for (const int ranks : {2, 3, 4, 8}) {
      const ShardedAxis axis = ShardedAxis::in_zigzag(tokens, ranks);
      std::vector<std::int64_t> pairs;
      std::vector<bool> seen(static_cast<std::size_t>(tokens));
      for (int r = 0; r < ranks; ++r) {
        pairs.push_back(0);
        for (const Part& chunk : axis.chunks(r))
          for (std::int64_t t = chunk.begin; t < chunk.end; ++t) {
            pairs.back() += t + 1;
            CHECK_FALSE(seen[static_cast<std::size_t>(t)]);
            seen[static_cast<std::size_t>(t)] = true;
          }
      }
      INFO(tokens << " tokens, " << ranks << " ranks");
      CHECK(std::ranges::count(seen, false) == 0);
      for (const std::int64_t mine : pairs)
        CHECK(std::abs(mine * ranks - tokens * (tokens + 1) / 2) <= (tokens % (2 * ranks) == 0 ? 0 : tokens * ranks));
      const Problem problem{.batch = 1, .rows = tokens, .row = 1, .causal = true, .zigzag = true};
      for (int r = 0; r < ranks; ++r)
        for (const ContextForm form : {ContextForm::gather, ContextForm::ring}) {
          const Parallel parallel = Parallel::imagined(r, {.cp = ranks}, "tp-cp-dp");
          const Tensor qkv = Tensor::zeros({axis.count(r), 3 * problem.embed()}, DType::fp64, Device{DeviceKind::meta});
          const CostAccount account;
          context_attention(qkv, problem.options(), axis, parallel.cp, form);
          const double counted = account.kernels().at("attention_fwd").cost.flops;
          CHECK(counted == 4.0 * static_cast<double>(problem.embed() * pairs[static_cast<std::size_t>(r)]));
        }
    }
}

TEST_CASE("context attention: which form runs, and what is refused", "[context]") {
  CHECK(form_of(ContextForm::automatic, 8, 8) == ContextForm::all_to_all);
  CHECK(form_of(ContextForm::automatic, 7, 8) == ContextForm::gather);
  CHECK(form_of(ContextForm::ring, 8, 2) == ContextForm::ring);
  CHECK_THROWS_WITH(form_of(ContextForm::all_to_all, 2, 3),
                    "context form all-to-all deals 2 heads over 3 ranks, of which each needs one; use gather or ring");
  CHECK_THROWS_WITH(ShardedAxis::in_zigzag(7, 4),
                    "a dealt axis: 7 indices in zig-zag over 4 ranks are fewer than the 8 chunks");
  CHECK_THROWS_WITH(ShardedAxis(45, 4, 2), "a dealt axis: 45 indices are no whole units of 2");
  const ShardedAxis padded(12, 3);
  CHECK(padded.cut_at(9).elements(2) == std::vector<std::int64_t>{8, 8, 2});
  CHECK(padded.cut_at(9).total() == 9);
  CHECK(padded.cut_at(12).elements(1) == std::vector<std::int64_t>{4, 4, 4});
  for (const std::int64_t none : {8, 13})
    CHECK_THROWS_WITH(padded.cut_at(none),
                      concat("a dealt axis: ", none, " indices of 12 leave none for the last of 3 ", "ranks"));
  CHECK_THROWS_WITH(ShardedAxis::in_zigzag(12, 3).cut_at(11), "a dealt axis in zig-zag cannot be cut");
  CHECK_THROWS_WITH(run_ranks({.ranks = 2},
                              [](const Communicator& world) {
                                const Tensor qkv = Tensor::zeros({4, 48}, DType::fp64, Device{});
                                context_attention(qkv, {.batch = 1, .heads = 2}, {9, 2}, world, ContextForm::gather);
                              }),
                    ContainsSubstring("[4, 48] are not those of 1 samples, "));
  CHECK_THROWS_WITH(run_ranks({.ranks = 2},
                              [](const Communicator& world) {
                                const Tensor qkv = Tensor::zeros({3, 48}, DType::fp64, Device{});
                                context_attention(qkv, {.batch = 1, .heads = 2}, {9, 3}, world, ContextForm::gather);
                              }),
                    ContainsSubstring(": context attention: tokens dealt over 3 ranks, and 2 ranks"));
  const Tensor rows = Tensor::zeros({5, 2}, DType::fp64, Device{});
  CHECK_THROWS_WITH(gather_axis(rows, 2, {4, 1}, {}), "a dealt axis: [5, 2] are not 2 groups of 4 rows");
  CHECK_THROWS_WITH(reduce_scatter_axis(rows, 2, {4, 1}, {}), "a dealt axis: [5, 2] are not 2 groups of 4 rows");
  CHECK_THROWS_WITH(gather_axis(rows.view({10}), 5, {2, 1}, {}), "a dealt axis: [10] are not 5 groups of 2 rows");
  CHECK_THROWS_WITH(ShardedAxis(4, 2, 0), "a dealt axis: 4 indices are no whole units of 0");
}

namespace {

// ‖x - exact‖ and the largest difference, relative to those of `exact`.
std::pair<double, double> errors_of(const Values& x, const Values& exact) {
  double squares = 0, all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    squares += (x[i] - exact[i]) * (x[i] - exact[i]);
    all += exact[i] * exact[i];
  }
  return {std::sqrt(squares / all), distance(x, exact) / largest(exact)};
}

}  // namespace

TEST_CASE("context attention: in 16 bits no form errs more than twice as much as the serial op", "[context]") {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const double rounding = dtype == DType::bf16 ? 0x1p-9 : 0x1p-12;
    Problem problem{.dropout = 0.25, .dtype = dtype};
    const AttentionPass serial = run(problem, ContextForm::automatic, {});
    // The same operands in fp64: rounded as the 16-bit ones are.
    const AttentionPass exact = [&] {
      const auto rounded = [&](std::int64_t width, double frequency) {
        return on_device(waves(problem.batch * problem.tokens() * width, frequency),
                         {problem.batch * problem.tokens(), width}, problem)
            .to(DType::fp64);
      };
      const Tensor qkv = rounded(3 * problem.embed(), 0.7), gradient = Tensor::zeros(qkv.shape(), DType::fp64, {});
      Tape tape;
      Tensor o;
      {
        const TapeScope recording(tape);
        o = attention(make_leaf(qkv, gradient), problem.options());
      }
      AttentionPass pass{.o = o.to_vector(), .dqkv = {}};
      tape.backward(o, rounded(problem.embed(), 1.3));
      pass.dqkv = gradient.to_vector();
      return pass;
    }();
    for (const int ranks : {2, 3, 8}) {
      Findings findings;
      run_ranks({.ranks = ranks}, [&](const Communicator& world) {
        const ShardedAxis axis = problem.axis(ranks);
        for (const ContextForm form : kForms) {
          const AttentionPass pass = run(problem, form, world);
          const auto check = [&](const char* name, const Values& mine, const Values& one, const Values& right) {
            const auto own = [&](const Values& whole) { return band_of(whole, problem.batch, axis, world.rank()); };
            const auto [rms, most] = errors_of(mine, own(right));
            const auto [serial_rms, serial_most] = errors_of(own(one), own(right));
            findings.expect(rms <= 2 * serial_rms + rounding && most <= 2 * serial_most + rounding,
                            concat(name_of(dtype), ' ', name_of_enum(form), ' ', ranks, " ranks: ", name, " errs by ",
                                   rms, " and ", most, ", the serial op by ", serial_rms, " and ", serial_most));
          };
          check("o", pass.o, serial.o, exact.o);
          check("dqkv", pass.dqkv, serial.dqkv, exact.dqkv);
        }
      });
      CHECK(findings.wrong() == "");
    }
  }
}

TEST_CASE("context attention: calls and bytes of every form are those that docs/parallelism.md tells", "[context]") {
  const Problem problem;
  const auto matrix = [&](std::int64_t tokens, std::int64_t width) {
    return problem.batch * tokens * width * problem.embed() * 8;
  };
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    const ShardedAxis axis = problem.axis(4);
    const std::int64_t own = axis.count(world.rank()), all = axis.total();
    // What is sent in a ring: the blocks of all ranks but the next one's; its own comes back to it at the end.
    const std::int64_t passed_on = all - axis.count((world.rank() + 1) % 4);
    const auto expect = [&](ContextForm form, Verb verb, const Traffic& traffic) {
      const Communicator group = world.split(0, world.rank(), concat(name_of_enum(form), name_of(verb)));
      run(problem, form, group);
      const Traffic counted = group.ledger().of(group.name(), verb);
      findings.expect(counted == traffic,
                      concat(name_of_enum(form), ": ", counted.calls, " calls of ", name_of(verb), " and ",
                             counted.bytes, " bytes, not ", traffic.calls, " and ", traffic.bytes));
    };
    expect(ContextForm::gather, Verb::all_gather, {.calls = 2, .bytes = 2 * matrix(all, 2)});
    expect(ContextForm::gather, Verb::reduce_scatter, {.calls = 1, .bytes = matrix(all, 2)});
    expect(ContextForm::ring, Verb::send_receive,
           {.calls = 3 + 3 + 4, .bytes = 2 * matrix(passed_on, 2) + matrix(all, 2)});
    const std::int64_t o_of_heads = matrix(all, 1) / 4;  // two of eight heads
    expect(ContextForm::all_to_all, Verb::all_to_all,
           {.calls = 4, .bytes = matrix(own, 3) + o_of_heads + matrix(own, 1) + 3 * o_of_heads});
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("context attention: a tape tells what each form saves, logarithms of sums of every chunk too", "[context]") {
  for (const bool zigzag : {false, true}) {
    const Problem problem{
        .batch = 4, .heads = 16, .head_size = 8, .rows = 8, .row = 4, .causal = zigzag, .zigzag = zigzag};
    Findings findings;
    run_ranks({.ranks = 2}, [&](const Communicator& world) {
      const ShardedAxis axis = problem.axis(2);
      const Tensor qkv = Tensor::zeros({4 * 16, 3 * 128}, DType::fp64, Device{});
      const Tensor leaf = make_leaf(qkv, Tensor::zeros(qkv.shape(), DType::fp64, Device{}));
      for (const ContextForm form : kForms) {
        Tape tape;
        {
          const TapeScope recording(tape);
          context_attention(leaf, problem.options(), axis, world, form);
        }
        // 64 rows of 384 numbers, their 128 outputs, and a number for each of 64 rows and 16 heads: 270336 bytes.
        findings.expect(tape.report().starts_with("context_attention             0.26 MiB\n"),
                        concat(name_of_enum(form), ": ", tape.report()));
      }
    });
    CHECK(findings.wrong() == "");
  }
}

#if ISOBAR_HAS_EMULATOR

// There work of a stream runs as late as events allow: a forgotten one is a wrong number.
TEST_CASE("context attention: on streams, where what is forgotten runs too late", "[context]") {
  // The emulator's list of streams is made now: ThreadSanitizer does not see what guards a static within the kernels.
  const gpu::OwnedStream first({DeviceKind::emulator});
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Problem problem{.heads = 2, .rows = 5, .row = 3, .dropout = 0.25, .dtype = dtype};
    const AttentionPass serial = run(problem, ContextForm::automatic, {});
    problem.device = {DeviceKind::emulator};
    for (const int ranks : {2, 3}) {
      Findings findings;
      run_ranks({.ranks = ranks}, [&](const Communicator& world) {
        const StreamScope stream(std::make_shared<gpu::OwnedStream>(problem.device));
        for (const ContextForm form : kForms) {
          if (form == ContextForm::all_to_all && ranks > problem.heads) continue;
          compare(problem, serial, run(problem, form, world), world, dtype == DType::fp32 ? 1e-5 : 2e-2,
                  name_of_enum(form), findings);
        }
      });
      CHECK(findings.wrong() == "");
    }
  }
}

#endif

}  // namespace isobar
