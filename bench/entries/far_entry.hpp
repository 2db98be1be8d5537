// SPDX-License-Identifier: MIT
/// \file
/// Entries of the operators with a far field: forward, backward, training, decoding, and what runs
/// in turns with them to be compared with.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/baselines/token_loops.hpp"
#include "bench/entries/softmax_entry.hpp"
#include "bench/reference/far_gradient_reference.hpp"
#include "bench/reference/far_reference.hpp"

namespace bench {

/// Inputs with what else an operator reads: rates of the delta rule in (0, 1), and a pair of logits
/// per head.
template <class T>
struct FarData {
  template <class Op>
  FarData(const AllInputs<T>& in, const Op& /*op*/) : inputs(in) {
    const Shape rates = {in.k.batch(), in.k.heads(), in.k.rows(), 1};
    const Shape heads = {1, in.q.heads(), 1, 1};
    if constexpr (Op::kHasBeta) {
      beta = gaussians<T>(4, 0, rates[1] * rates[2]);
      for (T& b : beta) b = 1 / (1 + std::exp(-b));
      inputs.beta = View<const T>(beta.data(), rates);
    }
    if constexpr (Op::kHasNear) {
      near_logits = gaussians<T>(4, 1, heads[1]);
      far_logits = gaussians<T>(4, 2, heads[1]);
      inputs.near_logits = View<const T>(near_logits.data(), heads);
      inputs.far_logits = View<const T>(far_logits.data(), heads);
    }
  }
  FarData(const FarData&) = delete;
  FarData& operator=(const FarData&) = delete;

  std::vector<T> beta, near_logits, far_logits;
  AllInputs<T> inputs;
};

/// A pass that is compared with nothing.
struct NoOther {
  std::string name = {};

  template <class T>
  std::function<void(ThreadPool&)> operator()(const AllInputs<T>& /*in*/) const {
    return {};
  }
};

/// Consecutive forward passes.
template <class... Ops>
struct ForwardPasses {
  std::string name;
  std::tuple<Ops...> ops;

  template <class T>
  std::function<void(ThreadPool&)> operator()(const AllInputs<T>& in) const {
    const auto out = std::make_shared<std::vector<T>>(
        static_cast<std::size_t>(in.q.heads() * in.q.rows() * in.v.width()));
    const View<T> to(out->data(), {1, in.q.heads(), in.q.rows(), in.v.width()});
    return [=, *this](ThreadPool& pool) {
      static_cast<void>(out);
      std::apply(
          [&](const Ops&... op) {
            (op.forward(AllInputs<T>{in.q, in.k, in.v}, to, pool), ...);
          },
          ops);
    };
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

namespace detail {

template <class Op>
FarWork far_work(const Op& op) {
  const auto far_field = op.template far_field<float>();
  return {far_field.map_count(), far_field.delta_count()};
}

/// An entry without its runners.
template <class Op>
Entry far_entry(Names names, const Op& op, std::vector<Family> families) {
  Entry entry;
  entry.names = std::move(names);
  entry.families = std::move(families);
  entry.far_field = far_work(op);
  entry.causal = far_model<float>(op).causal;
  if constexpr (Op::kHasNear) {
    entry.attended_pairs = [near_field = op.near_field()](const AttentionShape& shape) {
      return attended_pairs(near_field, shape);
    };
  } else {
    entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  }
  return entry;
}

}  // namespace detail

/// Forward passes. \param other as ForwardPasses
template <class Op, class Other = NoOther>
Entry far_entry(Names names, const Op& op, std::vector<Family> families, const Other& other = {}) {
  const auto runner = [&]<class T, class S = T>(T, S = S{}) {
    const auto prepare = [op, other](const AllInputs<T>& in, const View<T>& out) {
      const auto data = std::make_shared<const FarData<T>>(in, op);
      Prepared pass = forward_pass<S>(
          op, data->inputs, out,
          [=](const View<const T>& got, Index samples, const Rounding& rounding) {
            return far_error(far_model<T>(op), FarTokens<T>(data->inputs), got, samples, rounding);
          });
      pass.other = other(data->inputs);
      return pass;
    };
    return Runner<T>{prepare, [op](const AttentionShape& shape, Index workers) {
                       return op.template workspace_bytes<S>(shape, workers);
                     }};
  };
  Entry entry = detail::far_entry(std::move(names), op, std::move(families));
  entry.f32 = runner(float{});
  entry.f64 = double_runner(runner);
  add_stored_runners(entry, runner);
  entry.other = other.name;
  return entry;
}

/// A gradient of the output, and what a backward pass writes.
template <class T>
struct FarTraining {
  template <class Op>
  FarTraining(const AllInputs<T>& in, const View<T>& out, const Op& op)
      : data(in, op),
        basic(data.inputs, out),
        beta(data.beta.size()),
        near_logits(data.near_logits.size()),
        far_logits(data.far_logits.size()) {
    basic.saved = {};
    if constexpr (Op::kHasNear) {
      near_out.resize(basic.d_out_data.size());
      basic.saved.near_out = View<T>(near_out.data(), out.shape());
      basic.saved.near_lse =
          View<T>(basic.lse_data.data(), {out.batch(), out.heads(), out.rows(), 1});
    } else {
      basic.lse_data = {};
    }
    if (!beta.empty()) basic.grads.beta = View<T>(beta.data(), data.inputs.beta.shape());
    if (near_logits.empty()) return;
    basic.grads.near_logits = View<T>(near_logits.data(), data.inputs.near_logits.shape());
    basic.grads.far_logits = View<T>(far_logits.data(), data.inputs.far_logits.shape());
  }

  FarData<T> data;
  Training<T> basic;
  std::vector<T> beta, near_logits, far_logits, near_out;
};

/// Backward passes, compared with forward ones, or both.
template <class Op>
Entry far_training_entry(Names names, const Op& op, std::vector<Family> families) {
  const bool with_forward = names.pass == Pass::training;
  const auto runner = [&]<class T>(T) {
    const auto prepare = [op, with_forward](const AllInputs<T>& in, const View<T>& out) {
      const auto work = std::make_shared<FarTraining<T>>(in, out, op);
      const auto forward = [=](ThreadPool& pool) {
        op.forward(work->data.inputs, out, work->basic.saved, pool);
      };
      if (Op::kHasNear && !with_forward) {
        ThreadPool one(1);
        forward(one);
      }
      Prepared pass;
      pass.run = [=](ThreadPool& pool) {
        if (with_forward) forward(pool);
        op.backward(work->data.inputs, out, work->basic.saved, work->basic.d_out, work->basic.grads,
                    pool);
      };
      pass.error = [=](Index samples) {
        const FarModel<T> model = far_model<T>(op);
        const FarTokens<T> tokens(work->data.inputs);
        Error error =
            far_gradient_error(model, tokens, work->basic.d_out, work->basic.grads, samples);
        if (with_forward) error.add(far_error(model, tokens, View<const T>(out), samples));
        return error;
      };
      if (!with_forward) pass.other = forward;
      return pass;
    };
    return Runner<T>{prepare, [op](const AttentionShape& shape, Index workers) {
                       return op.template backward_workspace_bytes<T>(shape, workers);
                     }};
  };
  Entry entry = detail::far_entry(std::move(names), op, std::move(families));
  entry.f32 = runner(float{});
  entry.f64 = double_runner(runner);
  if (!with_forward) entry.other = "forward";
  return entry;
}

/// A decoder that has some tokens; `step` adds one, the next of them over and over. \tparam S of
/// its tensors
template <class Op, class T, class S>
struct FarDecoding {
  FarDecoding(const Op& op, const AllInputs<T>& in, const View<T>& out)
      : data(in, op),
        call(data.inputs, out),
        decoder(op.template decoder<S>({.batch = 1,
                                        .query_heads = in.q.heads(),
                                        .key_heads = in.k.heads(),
                                        .width = in.q.width(),
                                        .value_width = in.v.width()})) {
    typename Op::template Tokens<S> tokens;
    tokens.k = call.inputs.k;
    tokens.v = call.inputs.v;
    if constexpr (requires { tokens.beta; }) tokens.beta = data.inputs.beta;
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

  FarData<T> data;
  StoredCall<S, T> call;
  decltype(std::declval<Op>().template decoder<S>({})) decoder;
};

/// Decoding steps, each with a new token.
template <class Op>
Entry far_decode_entry(Names names, const Op& op, std::vector<Family> families) {
  names.pass = Pass::decode;
  const auto runner = [&]<class T, class S = T>(T, S = S{}) {
    const auto prepare = [op](const AllInputs<T>& in, const View<T>& out) {
      const auto work = std::make_shared<FarDecoding<Op, T, S>>(op, in, out);
      return Prepared{[=](ThreadPool& pool) { work->step(pool); },
                      [=](Index samples) {
                        work->call.widen();
                        const FarTokens<T> tokens(work->data.inputs, work->decoder.length());
                        return far_error(far_model<T>(op), tokens, View<const T>(out), samples,
                                         rounding_to<S, T>());
                      },
                      [=] { return work->decoder.memory_bytes(); }};
    };
    return Runner<T>{prepare, [](const AttentionShape&, Index) { return Index{0}; }};
  };
  Entry entry = detail::far_entry(std::move(names), op, std::move(families));
  entry.f32 = runner(float{});
  entry.f64 = double_runner(runner);
  add_stored_runners(entry, runner);
  return entry;
}

}  // namespace bench
