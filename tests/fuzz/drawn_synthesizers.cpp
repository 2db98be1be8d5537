// SPDX-License-Identifier: MIT
/// \file
/// Trials of the three forms of the Synthesizer, compiled once for all.
#include "attention/synthesizer_problem.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/drawn_calls.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

template <class P>
void try_form(Bytes& bytes) {
  AttentionShape s;
  s.queries = s.keys = drawn_rows(bytes);
  const Index pairs = s.keys * s.keys;
  s.key_heads = drawn_few(bytes, 3, pairs);
  s.query_heads = s.key_heads * drawn_few(bytes, 3, s.key_heads * pairs);
  s.width = drawn_width(bytes);
  s.value_width = drawn_width(bytes);
  Extents more;
  more['M'] = pairs > 40'000 ? bytes(0, 9) : drawn_width(bytes);
  more['x'] = bytes.once_in(2) ? 0 : bytes(1, 40);
  const bool is_shared = bytes.once_in(2);
  more['?'] = bytes.once_in(2) ? 1 : 0;
  more['t'] = bytes.once_in(2) ? s.query_heads : 1;
  s.batch = drawn_batch(bytes, s.query_heads * pairs);
  more['w'] = is_shared ? 1 : s.batch;
  const bool causal = bytes.once_in(2);
  const std::vector<Index> lengths = drawn_lengths(bytes, s.batch, s.keys);
  const auto make = [&](const Layout& layout) {
    P p(typename P::Op({.causal = causal}), s, more, 1, layout);
    p.key_lengths = lengths;
    return p;
  };
  try_problem(bytes, make, causal ? ", causal" : "");
}

}  // namespace

template <class T>
void try_synthesizer(Bytes& bytes) {
  switch (bytes(0, 3)) {
    case 0:
      return try_form<RandomProblem<T>>(bytes);
    case 1:
      return try_form<FactorisedProblem<T>>(bytes);
    default:
      return try_form<DenseProblem<T>>(bytes);
  }
}
#define FOVEA_DRAWN(T) template void try_synthesizer<T>(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
