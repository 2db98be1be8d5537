// SPDX-License-Identifier: MIT
/// \file
/// Entries of the operators with a far field: their passes, decoding, and a loop over tokens that
/// runs in turns with them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/baselines/token_loops.hpp"
#include "bench/entries/pass_entry.hpp"
#include "bench/reference/far_reference.hpp"

namespace bench {

using fovea::DecoderShape;

/// Inputs with what else an operator reads: rates of the delta rule in (0, 1), and a pair of logits
/// per head.
template <class T>
struct FarData : PlainData<T> {
  template <class Op>
  FarData(const AllInputs<T>& in, const Op& op) : PlainData<T>(in, op) {
    const Shape rates = {in.k.batch(), in.k.heads(), in.k.rows(), 1};
    const Shape heads = {1, in.q.heads(), 1, 1};
    if constexpr (Op::kHasBeta) {
      std::vector<T> beta = gaussians<T>(4, 0, rates[1] * rates[2]);
      for (T& b : beta) b = 1 / (1 + std::exp(-b));
      this->inputs.beta = this->keep(rates, std::move(beta));
    }
    if constexpr (Op::kHasNear) {
      this->inputs.near_logits = this->keep(heads, gaussians<T>(4, 1, heads[1]));
      this->inputs.far_logits = this->keep(heads, gaussians<T>(4, 2, heads[1]));
    }
  }
};

/// A loop over the tokens, one head after the other; in float.
struct TokenLoop {
  std::string name;
  void (*loop)(const TokenLoopInput&, float*);

  template <class T>
  std::function<void(ThreadPool&)> operator()(const AllInputs<T>& in) const {
    if constexpr (std::is_same_v<T, float>) {
      const auto out = std::make_shared<std::vector<float>>(
          static_cast<std::size_t>(in.v.rows() * in.v.width()));
      return [=, *this](ThreadPool&) {
        for (Index h = 0; h < in.q.heads(); ++h) {
          const Index key_head = h / (in.q.heads() / in.k.heads());
          loop({&in.q(0, h, 0, 0), &in.k(0, key_head, 0, 0), &in.v(0, key_head, 0, 0),
                in.beta.empty() ? nullptr : &in.beta(0, key_head, 0, 0),
                static_cast<std::size_t>(in.q.rows()), static_cast<std::size_t>(in.q.width()),
                static_cast<std::size_t>(in.v.width())},
               out->data());
        }
      };
    } else {
      return {};
    }
  }
};

/// An operator with a far field.
template <class O>
struct FarSubject : Subject<O> {
  template <class T, class S>
  using Data = FarData<T>;

  static constexpr bool kIn16Bits = true;
  static constexpr bool kBesideForward = true;

  template <class T>
  Shape saved_shape(std::string_view name, const AllInputs<T>& in) const {
    return {1, in.q.heads(), in.q.rows(), name == "near_out" ? in.v.width() : 1};
  }
  template <class T>
  Error error(const FarData<T>& data, const View<const T>& out, Index samples,
              const Rounding& rounding) const {
    return decoded_error(data, data.inputs.k.rows(), out, samples, rounding);
  }
  /// \param tokens of a decoder
  template <class T>
  Error decoded_error(const FarData<T>& data, Index tokens, const View<const T>& out, Index samples,
                      const Rounding& rounding) const {
    return far_error(far_model(this->op), data.inputs, tokens, out, samples, rounding);
  }
  template <class T>
  Error gradient_error(const FarData<T>& data, const View<const T>& d_out, const AllGrads<T>& grads,
                       Index samples) const {
    return far_gradient_error(far_model(this->op), data.inputs, d_out, grads, samples);
  }
  void describe(Entry& entry) const {
    const auto far_field = this->op.template far_field<float>();
    entry.far_field = {far_field.map_count(), far_field.delta_count()};
    entry.causal = far_model(this->op).causal;
    if constexpr (O::kHasNear) {
      entry.attended_pairs = [near_field = this->op.near_field()](const AttentionShape& shape) {
        return attended_pairs(near_field, shape);
      };
    }
  }
  DecoderShape decoder_shape(const DecoderShape& shape) const { return shape; }
};

/// Forward passes, backward ones in turns with these, or both. \param other as of pass_entry
template <class Op, class Other = NoOther>
Entry far_entry(Names names, const Op& op, std::vector<Family> families, const Other& other = {}) {
  return pass_entry(std::move(names), FarSubject<Op>{{op}}, std::move(families), other);
}

/// A decoder that has some tokens; `step` adds one, the next of them over and over.
template <class Of, class T, class S>
struct LinearDecoding {
  LinearDecoding(const Of& subject, const AllInputs<T>& in, const View<T>& out)
      : of(subject),
        data(in, of.op),
        call(data.inputs, out),
        decoder(of.op.template decoder<S>(of.decoder_shape({.batch = 1,
                                                            .query_heads = in.q.heads(),
                                                            .key_heads = in.k.heads(),
                                                            .width = in.q.width(),
                                                            .value_width = in.v.width()}))) {
    typename Of::Op::template Tokens<S> tokens;
    tokens.k = call.inputs.k;
    tokens.v = call.inputs.v;
    if constexpr (requires { tokens.beta; }) tokens.beta = data.inputs.beta;
    if constexpr (requires { tokens.projection; }) tokens.projection = data.inputs.projection;
    decoder.append(tokens);
  }

  void step(ThreadPool& pool) {
    const Index row = decoder.length() % data.inputs.k.rows();
    const auto token = [&]<class X>(const View<const X>& x) {
      if (x.empty()) return x;
      return View<const X>(&x(0, 0, row, 0), {1, x.heads(), 1, x.width()}, x.strides());
    };
    AllInputs<S> one = call.inputs;
    one.k = token(one.k);
    one.v = token(one.v);
    one.beta = token(one.beta);
    decoder.step(one, call.out, pool);
  }

  Error error(Index samples) const {
    call.widen();
    return of.decoded_error(data, decoder.length(), View<const T>(call.as_numbers), samples,
                            rounding_to<S, T>());
  }
  Of of;
  typename Of::template Data<T, S> data;
  StoredCall<S, T> call;
  decltype(std::declval<typename Of::Op>().template decoder<S>({})) decoder;
};

/// Decoding steps, each with a new token.
template <class Op>
Entry far_decode_entry(Names names, const Op& op, std::vector<Family> families) {
  return steps_entry<LinearDecoding>(std::move(names), FarSubject<Op>{{op}}, std::move(families));
}

}  // namespace bench
