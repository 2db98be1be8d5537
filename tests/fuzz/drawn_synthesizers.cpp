// SPDX-License-Identifier: MIT
/// \file
/// Trials of the three forms of the Synthesizer, compiled once for all.
#include <sstream>

#include "attention/synthesizer_problem.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/drawn_calls.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

SynthesizerSizes drawn_synthesizer(Bytes& bytes) {
  SynthesizerSizes s{.rows = drawn_rows(bytes)};
  const Index pairs = s.rows * s.rows;
  s.key_heads = drawn_few(bytes, 3, pairs);
  s.heads = s.key_heads * drawn_few(bytes, 3, s.key_heads * pairs);
  s.width = drawn_width(bytes);
  s.value_width = drawn_width(bytes);
  s.hidden = pairs > 40'000 ? bytes(0, 9) : drawn_width(bytes);
  s.columns = bytes.once_in(2) ? 0 : bytes(1, 40);
  s.is_shared = bytes.once_in(2);
  s.has_biases = bytes.once_in(2);
  s.has_token_heads = bytes.once_in(2);
  s.batch = drawn_batch(bytes, s.heads * s.rows * s.rows);
  return s;
}

std::string describe(const SynthesizerSizes& s, bool causal, const std::vector<Index>& lengths) {
  std::ostringstream text;
  text << "B " << s.batch << ", Hq " << s.heads << ", Hk " << s.key_heads << ", N " << s.rows
       << ", D " << s.width << ", Dv " << s.value_width << ", M " << s.hidden << ", columns "
       << s.columns << (s.is_shared ? ", shared" : "") << (s.has_biases ? ", biases" : "")
       << (s.has_token_heads ? ", tokens of heads" : "") << (causal ? ", causal" : "");
  for (const Index n : lengths) text << ", length " << n;
  return text.str();
}

template <class Form>
void try_form(Bytes& bytes) {
  using T = typename Form::Scalar;
  using Problem = SynthesizerProblem<Form>;
  const SynthesizerSizes s = drawn_synthesizer(bytes);
  const bool causal = bytes.once_in(2);
  const std::vector<Index> lengths = drawn_lengths(bytes, s.batch, s.rows);
  SCOPED_TRACE(std::string(Form::Op::name()) + " " + scalar_name<T>() + ": " +
               describe(s, causal, lengths));
  try_here_and_elsewhere(
      bytes, [&](const Layout& layout) { return Problem(s, causal, lengths, layout); },
      [](const Problem& p, AnyExecutor* executor, const Layout& layout) {
        return p.run(executor, layout);
      },
      [](const Problem& p, const CallResult<T>& got) {
        synthesizer_judge(p)(got, drawn_name("synthesizer"));
      },
      [&](const Problem& p) { poison_rows<T>(bytes, lengths, {&p.tensors["v"]}); });
}

}  // namespace

template <class T>
void try_synthesizer(Bytes& bytes) {
  switch (bytes(0, 3)) {
    case 0:
      return try_form<RandomForm<T>>(bytes);
    case 1:
      return try_form<FactorisedForm<T>>(bytes);
    default:
      return try_form<DenseForm<T>>(bytes);
  }
}
#define FOVEA_DRAWN(T) template void try_synthesizer<T>(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
