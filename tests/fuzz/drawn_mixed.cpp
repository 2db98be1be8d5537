// SPDX-License-Identifier: MIT
/// \file
/// Trials of Linformer and Nystroem attention, compiled once for all.
#include <sstream>

#include "attention/mixed_oracles.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/drawn_calls.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

std::string describe(const MixedSizes& s, const std::vector<Index>& lengths) {
  std::ostringstream text;
  text << "B " << s.batch << ", Hq " << s.heads << ", Hk " << s.key_heads << ", Nq " << s.queries
       << ", Nk " << s.keys << ", D " << s.width << ", Dv " << s.value_width << ", P "
       << s.projected << ", m " << s.landmarks << ", lengths";
  for (const Index n : lengths) text << " " << n;
  return text.str();
}

/// Data of these sizes in a layout.
template <class T>
struct MakesMixed {
  MixedSizes sizes;
  std::uint64_t seed;
  double spread;
  std::vector<Index> lengths;

  MixedProblem<T> operator()(const Layout& layout) const {
    MixedProblem<T> p(sizes, seed, spread);
    p.key_lengths = lengths;
    return p.in(layout);
  }
};

template <class T>
void try_linformer(Bytes& bytes) {
  const fovea::LinformerAttention op({.scale = drawn_scale(bytes)});
  MixedSizes s{.landmarks = 1};
  s.queries = drawn_rows(bytes);
  s.keys = drawn_rows(bytes);
  s.projected = bytes.once_in(3) ? bytes(1, 150) : bytes(1, 9);
  const Index pairs = (s.queries + s.keys) * s.projected;
  s.key_heads = drawn_few(bytes, 3, pairs);
  s.heads = s.key_heads * drawn_few(bytes, 2, s.key_heads * pairs);
  s.width = drawn_width(bytes);
  s.value_width = bytes.once_in(3) ? s.width : drawn_width(bytes);
  s.key_sharing = bytes.once_in(2) ? 1 : s.key_heads;
  s.value_sharing = bytes.once_in(2) ? 1 : s.key_heads;
  s.batch = drawn_batch(bytes, s.heads * pairs);
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  const MakesMixed<T> make{s, seed, spread, drawn_lengths(bytes, s.batch, s.keys)};
  const bool saves = bytes.once_in(2);
  SCOPED_TRACE("Linformer " + std::string(scalar_name<T>()) + ": " + describe(s, make.lengths));
  try_here_and_elsewhere(
      bytes, make,
      [&](const MixedProblem<T>& p, AnyExecutor* executor, const Layout& layout) {
        return run_call(op, p, executor, layout, saves);
      },
      [&](const MixedProblem<T>& p, const CallResult<T>& got) {
        linformer_judge(op.options.scale, p)(got, drawn_name("linformer"));
      },
      [&](const MixedProblem<T>& p) {
        poison_rows<T>(bytes, make.lengths, {&p.k, &p.v});
      });
}

template <class T>
void try_nystroem(Bytes& bytes) {
  // The oracle computes the call again for each number that is read, so these are few.
  const bool gradients = bytes.once_in(2);
  fovea::NystroemOptions options;
  options.landmarks = gradients ? bytes(1, 4) : bytes(1, 40);
  options.iterations = bytes(0, 7);
  if (bytes.once_in(2)) options.first_scale = fovea::NystroemScale::batch_max;
  options.scale = drawn_scale(bytes);
  MixedSizes s{.key_heads = bytes(1, 2), .projected = 1, .landmarks = options.landmarks};
  s.heads = s.key_heads * bytes(1, 2);
  const Index most = gradients ? 4 : std::max<Index>(1, 150 / options.landmarks);
  s.queries = options.landmarks * bytes(0, most);
  s.keys = options.landmarks * bytes(0, most);
  s.width = gradients ? bytes(0, 4) : drawn_width(bytes);
  s.value_width = gradients ? bytes(0, 3) : drawn_width(bytes);
  s.batch = bytes(gradients ? 0 : 1, 2);
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  MakesMixed<T> make{s, seed, spread, {}};
  // Lengths are of tokens, which are queries, too.
  if (s.queries == s.keys) {
    make.lengths = drawn_lengths(bytes, s.batch, s.keys, options.landmarks);
  }
  const bool saves = bytes.once_in(2);
  SCOPED_TRACE("Nystroem " + std::string(scalar_name<T>()) + ": " + describe(s, make.lengths) +
               ", n " + std::to_string(options.iterations));
  const fovea::NystroemAttention op(options);
  try_here_and_elsewhere(
      bytes, make,
      [&](const MixedProblem<T>& p, AnyExecutor* executor, const Layout& layout) {
        return run_call(op, p, executor, layout, saves);
      },
      [&](const MixedProblem<T>& p, const CallResult<T>& got) {
        nystroem_judge(options, p, gradients)(got, drawn_name("nystroem"));
      },
      [&](const MixedProblem<T>& p) {
        poison_rows<T>(bytes, make.lengths, {&p.q, &p.k, &p.v, &p.d_out});
      });
}

}  // namespace

template <class T>
void try_mixed(Bytes& bytes) {
  bytes.once_in(2) ? try_linformer<T>(bytes) : try_nystroem<T>(bytes);
}
#define FOVEA_DRAWN(T) template void try_mixed<T>(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
