// SPDX-License-Identifier: MIT
/// \file
/// Every umbrella header, and every pass of each operator once.
#include <fovea/fovea.hpp>
#if __has_include(<fftw3.h>)
#include <fovea/layers/fat_layer.hpp>
#include <fovea/layers/fourier_mixer_layer.hpp>
#include <fovea/layers/fsat_layer.hpp>
#include <fovea/spectral.hpp>
#endif

namespace {

using namespace fovea;

/// A modifier of logits.
struct Twice {
  float value(float logit, ScorePair /*pair*/) const noexcept { return 2 * logit; }
  float derivative(float /*logit*/, ScorePair /*pair*/) const noexcept { return 2; }
};

/// Forward and backward of one operator.
template <class Op>
void train(const Op& op) {
  ThreadPool pool(1);
  Tensor4<float> q, k, v, out, d_q;
  const typename Op::template Inputs<float> inputs{q, k, v};
  op.forward(inputs, out, pool);
  op.backward(inputs, out, {}, out, {.q = d_q}, pool);
}

/// Forward, backward and a decoder of one that has no queries and keys.
template <class Op>
void synthesize(const Op& op) {
  ThreadPool pool(1);
  Tensor4<float> out, d_v;
  op.forward(typename Op::template Inputs<float>{}, out, pool);
  op.backward(typename Op::template Inputs<float>{}, out, {}, out, {.v = d_v}, pool);
  auto decoder = op.template decoder<float>({.width = 4, .value_width = 4});
  decoder.append({});
  decoder.step({}, out);
}

/// And a decoder of one operator.
template <class Op>
void train_and_decode(const Op& op) {
  train(op);
  auto decoder = op.template decoder<float>({.width = 4, .value_width = 4});
  Tensor4<float> q, k, v, out;
  typename Op::template Tokens<float> tokens;
  tokens.k = k;
  tokens.v = v;
  decoder.append(tokens);
  decoder.step({q, k, v}, out);
}

}  // namespace

int main() {
  train_and_decode(FullAttention{{.causal = true}});
  train_and_decode(LocalAttention{{.left = 4}});
  train_and_decode(StridedAttention{});
  train_and_decode(FixedAttention{});
  train_and_decode(LongformerAttention{});
  train_and_decode(BigBirdAttention{});
  train_and_decode(BlockSparseAttention{{.layouts = {{}}}});
  train_and_decode(ModifiedAttention(FullAttention{}, Twice{}));
  train_and_decode(SparseAttention{{.patterns = {unite(Window{4, 4}, GlobalTokens::at({0}))}}});
  train_and_decode(LinearAttention<EluPlusOne>{});
  train_and_decode(FmmAttention<EluPlusOne, TanhPlusOne>{});
  train_and_decode(DeltaRuleAttention<>{});
  train(PerformerAttention{{.causal = true}});
  static_cast<void>(PerformerAttention{{.causal = true}}.decoder<float>({.features = 1}));
  train_and_decode(SmartBirdAttention{});
  synthesize(RandomSynthesizerAttention{{.causal = true}});
  synthesize(FactorisedSynthesizerAttention{});
  synthesize(DenseSynthesizerAttention{});
  train(IndexedAttention{});
  train(FsatAttention{{.max_length = 16}});
  train(FatAttention{});
  train(SinkhornAttention{});
  Tensor4<float> x, y;
  ReformerAttention{}.forward({.qk = x, .v = x}, y);
  ReformerAttention{}.backward({.qk = x, .v = x}, y, {}, y, {.qk = y});
  train(LinformerAttention{});
  train(NystroemAttention{});
  train(LunaPack{});
  train(LunaAttention{}.unpack());
  const auto attended =
      attend(FullAttention{}, Tensor4<double>{}, Tensor4<double>{}, Tensor4<double>{}, Serial{});
#if __has_include(<fftw3.h>)
  Tensor4<float> f, c;
  HiddenStateCross{}.forward({f, f}, c);
  HiddenStateCross{}.backward(CrossInputs<float>{f, f}, c, {.f1 = c});
  FourierMixer{}.forward(f, View<float>(c));
  FourierMixer{}.backward(c, View<float>(f));
#endif
  return attended.size() == 0 ? 0 : 1;
}
