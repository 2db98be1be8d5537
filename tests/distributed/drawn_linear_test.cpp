// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Attention with a far field over ranks, with drawn options, sizes, data and places: the bits are
/// those of one process.
#include <gtest/gtest.h>

#include "distributed/drawn_trial.hpp"
#include "fovea/distributed/linear_backward.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/performer_backward.hpp"
#include "fovea/distributed/performer_forward.hpp"

namespace fovea_test::distributed_drawn_linear {

using fovea::EluMinusPlusOne;
using fovea::EluPlusOne;

/// Logits of a blend: what dimensions they have, of "hd", or none if there are none.
Shape blend_shape(const AttentionShape& s, const std::string& dims) {
  const auto extent = [&](char dim, Index n) {
    return dims.find(dim) == std::string::npos ? 1 : n;
  };
  return {1, extent('h', s.query_heads), 1, extent('d', s.value_width)};
}

/// An operator's inputs besides queries, keys and values.
struct FarExtras {
  Extras blend = {};
  bool has_near = false;
  bool has_beta = false;
  bool has_projection = false;
};

template <class T>
struct FarCall : ShardedCall<T> {
  FarCall(const DrawnSequence& s, const FarExtras& extras)
      : ShardedCall<T>(s, gaussian_fills(s.seed)),
        near_out(
            this->add("near_out", kept_if(extras.has_near), Held::rows, this->out.whole.shape())),
        near_lse(
            this->add("near_lse", kept_if(extras.has_near), Held::rows, this->lse.whole.shape())),
        beta(this->add("beta", read_if(extras.has_beta), Held::rows, s.of_keys(1),
                       beta_fill(s.seed))),
        d_beta(this->add("d_beta", gradient_if(extras.has_beta), Held::rows, s.of_keys(1))),
        projection(this->add("projection", read_if(extras.has_projection), Held::whole,
                             {1, 1, kBeyond, s.shape.width}, gaussian(s.seed + 1000))),
        d_projection(this->add("d_projection", gradient_if(extras.has_projection), Held::whole,
                               projection.whole.shape())),
        near_field(add_logits("near logits", extras.blend.near_logits, s.seed + 800)),
        far_field(add_logits("far logits", extras.blend.far_logits, s.seed + 900)),
        d_near(add_gradient("d_near_logits", near_field)),
        d_far(add_gradient("d_far_logits", far_field)) {
    this->lse.role = Role::none;
    d_near.is_alike = d_far.is_alike = d_projection.is_alike = true;
  }

  AllInputs<T> inputs(Where where) const {
    AllInputs<T> in = ShardedCall<T>::inputs(where);
    in.beta = beta.in(where);
    in.projection = projection.in(where);
    in.near_logits = near_field.in(where);
    in.far_logits = far_field.in(where);
    return in;
  }
  AllSaved<T> saved(Where where) const {
    return {.near_out = near_out.in(where), .near_lse = near_lse.in(where)};
  }
  AllGrads<T> grads(Where where) const {
    AllGrads<T> all = ShardedCall<T>::grads(where);
    if constexpr (std::floating_point<T>) {
      all.beta = d_beta.in(where);
      all.projection = d_projection.in(where);
      all.near_logits = d_near.in(where);
      all.far_logits = d_far.in(where);
    }
    return all;
  }

  using Numbers = ShardedTensor<fovea::Compute<T>>;
  Numbers &near_out, &near_lse, &beta, &d_beta, &projection, &d_projection;
  Numbers &near_field, &far_field, &d_near, &d_far;

 private:
  static Role kept_if(bool is_kept) { return is_kept ? Role::kept : Role::none; }
  Numbers& add_logits(const char* name, const std::string& dims, std::uint64_t seed) {
    return this->add(name, read_if(!dims.empty()), Held::whole,
                     blend_shape(this->sequence.shape, dims), gaussian(seed));
  }
  Numbers& add_gradient(const char* name, const Numbers& of) {
    return this->add(name, gradient_if(of.role == Role::read), Held::whole, of.whole.shape());
  }
};

template <class T, class Op>
void try_far(const Op& op, Bytes& bytes) {
  FarExtras extras;
  extras.has_projection = std::is_same_v<Op, fovea::PerformerAttention>;
  if constexpr (requires { Op::kHasNear; }) {
    extras.has_near = Op::kHasNear;
    if (Op::kHasNear) extras.blend = drawn_blend(bytes);
    extras.has_beta = Op::kHasBeta;
  }
  const DrawnSequence sequence(bytes, 1, 1500);
  FarCall<T> call(sequence, extras);
  const RowLayout layout = drawn_row_layout(bytes, sequence.shape.queries);
  try_sharded(op, "", call, false, layout, layout, bytes);
}

template <class T>
void try_any(Bytes& bytes) {
  switch (bytes(0, 7)) {
    case 0:
      return try_far<T>(drawn_linear<EluPlusOne>(bytes), bytes);
    case 1:
      return try_far<T>(drawn_linear<fovea::Tanh, EluPlusOne>(bytes), bytes);
    case 2:
      return try_far<T>(drawn_linear<EluPlusOne, EluMinusPlusOne>(bytes), bytes);
    case 3:
      return try_far<T>(fovea::DeltaRuleAttention<EluPlusOne>(), bytes);
    case 4:
      return try_far<T>(drawn_fmm<fovea::FmmOneKernel>(bytes, bytes.once_in(2)), bytes);
    case 5:
      return try_far<T>(drawn_fmm<fovea::FmmTwoKernels>(bytes, bytes.once_in(2)), bytes);
    case 6:
      return try_far<T>(drawn_fmm<fovea::FmmTwoKernelsFastWeight>(bytes, true), bytes);
    default:
      return try_far<T>(fovea::PerformerAttention{{.causal = bytes.once_in(2)}}, bytes);
  }
}

TEST(DistributedDrawnLinear, EqualsOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_linear
