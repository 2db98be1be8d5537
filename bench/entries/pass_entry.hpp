// SPDX-License-Identifier: MIT
/// \file
/// Entries of the passes of an operator: forward, backward, training. They are made of a subject:
/// the operator with what it is called with and judged by. Besides the members of Subject it has
/// error(data, out, samples, rounding), how far the output is from the truth; describe(entry),
/// which sets what an entry knows of the work; and, where gradients are checked,
/// gradient_error(data, d_out, grads, samples), with a gradient of some rows of the output.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/entries/operator_entry.hpp"
#include "bench/io/gaussian.hpp"

namespace bench {

/// Tensors that are kept as long as the object.
template <class T>
class KeptTensors {
 public:
  KeptTensors() = default;
  KeptTensors(const KeptTensors&) = delete;
  KeptTensors& operator=(const KeptTensors&) = delete;

  View<T> keep(const Shape& shape, std::vector<T> numbers) {
    return View<T>(memory_.emplace_back(std::move(numbers)).data(), shape);
  }

 private:
  std::vector<std::vector<T>> memory_;
};

/// The tensors of a call of an operator that reads q, k and v alone; of others, a base.
template <class T>
struct PlainData : KeptTensors<T> {
  template <class Op>
  PlainData(const AllInputs<T>& in, const Op& /*op*/) : inputs(in) {}

  AllInputs<T> inputs;
};

/// What most subjects have. Others hide some of it.
template <class O>
struct Subject {
  using Op = O;
  /// Made of the inputs of a row and the operator: owns further tensors. Its `inputs` are those of
  /// the row with these. \tparam S of the tensors of the call
  template <class T, class S>
  using Data = PlainData<T>;

  static constexpr bool kInDouble = true;
  static constexpr bool kIn16Bits = false;  ///< forward passes
  static constexpr bool kTrains = true;
  /// Whether a backward pass runs in turns with the forward pass.
  static constexpr bool kBesideForward = false;

  O op;

  O op_for(Index /*tokens*/) const { return op; }
  AttentionShape shape(const AttentionShape& s) const { return s; }
  /// What the operator reads. \param in of `data`, with tensors of S
  template <class D, class S>
  static const AllInputs<S>& inputs(const D& /*data*/, const AllInputs<S>& in) {
    return in;
  }
  template <class T>
  Shape saved_shape(std::string_view /*name*/, const AllInputs<T>& in) const {
    return {1, in.q.heads(), in.q.rows(), 1};
  }
  /// Sets saved tensors that `data` has.
  template <class Saved, class D>
  static void add_saved(Saved& /*saved*/, D& /*data*/) {}
};

/// A gradient of the output, what a forward pass saves, and what a backward pass writes.
template <class Op, class T>
class Training : KeptTensors<T> {
 public:
  /// What is saved is a number for each row.
  Training(const fovea::InputsOf<Op, T>& in, const Shape& out)
      : Training(in, out, [&](std::string_view) {
          return Shape{out[0], out[1], out[2], 1};
        }) {}
  /// \param saved_shape saved_shape(name) of a tensor that the forward pass saves
  template <class F>
  Training(const fovea::InputsOf<Op, T>& in, const Shape& out, const F& saved_shape)
      : d_out(this->keep(out, gaussians<T>(2, 0, out[1] * out[2] * out[3]))) {
    using Saved = fovea::SavedOf<Op, T>;
    using Grads = fovea::GradsOf<Op, T>;
    saved = fovea::detail::made_of_tensors<Saved>([&]<class X>(const char* name, X& to) {
      if constexpr (std::derived_from<X, View<T>>) to = made(saved_shape(name));
    });
    grads = fovea::detail::made_of_tensors<Grads>([&]<class X>(std::string_view name, X& to) {
      if constexpr (std::derived_from<X, View<T>>) {
        in.for_each_tensor([&](const char* own, const auto& x) {
          if (name != own || x.empty()) return;
          if constexpr (requires { x.shape(); }) to = made(x.shape());
        });
      }
    });
  }

  /// d_out in the rows of each head that are judged, and 0 in the others.
  View<const T> d_out_of_rows(Index samples) {
    const View<T> to = made(d_out.shape());
    for (Index h = 0; h < to.heads(); ++h) {
      for (const Index row : sampled_rows(samples, h, to.rows())) {
        for (Index c = 0; c < to.width(); ++c) to(0, h, row, c) = d_out(0, h, row, c);
      }
    }
    return to;
  }

  View<const T> d_out;
  fovea::SavedOf<Op, T> saved;
  fovea::GradsOf<Op, T> grads;

 private:
  View<T> made(const Shape& shape) {
    const Index size = shape[0] * shape[1] * shape[2] * shape[3];
    return this->keep(shape, std::vector<T>(static_cast<std::size_t>(size)));
  }
};

/// The gradients of an operator that the truth is known for.
template <class T, class Grads>
AllGrads<T> all_grads(const Grads& of) {
  AllGrads<T> grads;
  grads.q = of.q;
  grads.k = of.k;
  grads.v = of.v;
  if constexpr (requires { of.beta; }) grads.beta = of.beta;
  return grads;
}

/// The passes of a call.
struct PassCall {
  PassCall() = default;
  PassCall(const PassCall&) = delete;
  PassCall& operator=(const PassCall&) = delete;
  virtual ~PassCall() = default;

  virtual void forward(ThreadPool& pool) = 0;
  virtual void backward(ThreadPool& pool) = 0;
  virtual Error error(Index samples) = 0;
};

/// A call of a subject's operator, with tensors of S.
template <class Of, class T, class S>
class OperatorCall final : public PassCall {
  using Op = typename Of::Op;

 public:
  OperatorCall(const Of& of, const AllInputs<T>& in, const View<T>& out, Pass pass)
      : of_(of),
        op_(of.op_for(in.k.rows())),
        data_(in, op_),
        call_(data_.inputs, out),
        out_(View<const T>(out)) {
    if constexpr (kTrains) {
      if (pass == Pass::forward) return;
      training_.emplace(of_.inputs(data_, call_.inputs), out.shape(),
                        [&](std::string_view name) { return of_.saved_shape(name, data_.inputs); });
      of_.add_saved(training_->saved, data_);
    }
  }

  const AllInputs<T>& inputs() const { return data_.inputs; }
  auto& training() { return training_; }

  void forward(ThreadPool& pool) override {
    if constexpr (kTrains) {
      if (training_) {
        op_.forward(of_.inputs(data_, call_.inputs), call_.out, training_->saved, pool);
        return;
      }
    }
    op_.forward(of_.inputs(data_, call_.inputs), call_.out, pool);
  }
  /// \pre the pass was not Pass::forward
  void backward(ThreadPool& pool) override {
    if constexpr (kTrains) {
      threads_ = pool.concurrency();
      op_.backward(of_.inputs(data_, call_.inputs), out_, training_->saved, training_->d_out,
                   training_->grads, pool);
    }
  }

  Error error(Index samples) override {
    call_.widen();
    Error error = of_.error(data_, out_, samples, rounding_to<S, T>());
    if constexpr (kTrains && requires(const AllGrads<T>& grads) {
                    of_.gradient_error(data_, out_, grads, samples);
                  }) {
      if (training_) {
        const View<const T> d_out = training_->d_out_of_rows(samples);
        ThreadPool pool(threads_);
        op_.backward(of_.inputs(data_, call_.inputs), out_, training_->saved, d_out,
                     training_->grads, pool);
        error.add(of_.gradient_error(data_, d_out, all_grads<T>(training_->grads), samples));
      }
    }
    return error;
  }

 private:
  static constexpr bool kTrains = Of::kTrains && std::is_same_v<S, T>;
  struct None {};

  Of of_;
  Op op_;
  typename Of::template Data<T, S> data_;
  StoredCall<S, T> call_;
  View<const T> out_;
  int threads_ = 1;  ///< of the last backward pass
  std::conditional_t<kTrains, std::optional<Training<Op, T>>, None> training_;
};

/// The flops of a pass in units of its forward pass. \param backward those of the backward pass
constexpr double passes_of_forward(Pass pass, double backward) {
  const bool has_backward = pass == Pass::backward || pass == Pass::training;
  return (has_backward ? backward : 0) + (pass == Pass::backward ? 0 : 1);
}

inline Prepared passes_of(Pass pass, const std::shared_ptr<PassCall>& call) {
  const bool is_forward = pass != Pass::backward;
  const bool is_backward = pass == Pass::backward || pass == Pass::training;
  if (!is_forward) {
    ThreadPool one(1);
    call->forward(one);
  }
  return {[=](ThreadPool& pool) {
            if (is_forward) call->forward(pool);
            if (is_backward) call->backward(pool);
          },
          [=](Index samples) { return call->error(samples); }};
}

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

/// An entry without its runners.
template <class Of>
Entry entry_of(Names names, const Of& of, std::vector<Family> families) {
  Entry entry;
  entry.names = std::move(names);
  entry.families = std::move(families);
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  of.describe(entry);
  return entry;
}

/// Of a pass on tensors of S.
template <class T, class S, class Of>
Index workspace_bytes(const Of& of, Pass pass, const AttentionShape& shape, Index workers) {
  const auto op = of.op_for(shape.keys);
  if constexpr (Of::kTrains && std::is_same_v<S, T>) {
    if (pass != Pass::forward) {
      return op.template backward_workspace_bytes<T>(of.shape(shape), workers);
    }
  }
  return op.template workspace_bytes<S>(of.shape(shape), workers);
}

/// Forward passes, backward passes or training steps, as `names` says.
/// \param other made of inputs, what a forward pass runs in turns with
template <class Of, class Other = NoOther>
Entry pass_entry(Names names, const Of& of, std::vector<Family> families, const Other& other = {}) {
  const Pass pass = names.pass;
  const auto runner = [&]<class T, class S = T>(T, S = S{}) {
    const auto prepare = [=](const AllInputs<T>& in, const View<T>& out) {
      const auto call = std::make_shared<OperatorCall<Of, T, S>>(of, in, out, pass);
      Prepared made = passes_of(pass, call);
      if (pass == Pass::forward) made.other = other(call->inputs());
      if (Of::kBesideForward && pass == Pass::backward) {
        made.other = [=](ThreadPool& pool) { call->forward(pool); };
      }
      return made;
    };
    return Runner<T>{prepare, [=](const AttentionShape& shape, Index workers) {
                       return workspace_bytes<T, S>(of, pass, shape, workers);
                     }};
  };
  Entry entry = entry_of(std::move(names), of, std::move(families));
  entry.f32 = runner(float{});
  if constexpr (Of::kInDouble) entry.f64 = double_runner(runner);
  if constexpr (Of::kIn16Bits) {
    if (pass == Pass::forward) add_stored_runners(entry, runner);
  }
  if (pass == Pass::forward) entry.other = other.name;
  if (Of::kBesideForward && pass == Pass::backward) entry.other = "forward";
  return entry;
}

/// Decoding steps. \tparam Decoding made of the subject, inputs and an output: has step(pool),
/// error(samples) and `decoder`   \tparam As of the tensors where the arithmetic is in float; void:
/// that of the arithmetic
template <template <class, class, class> class Decoding, class As = void, class Of>
Entry steps_entry(Names names, const Of& of, std::vector<Family> families) {
  names.pass = Pass::decode;
  const auto runner = [&]<class T, class S = T>(T, S = S{}) {
    const auto prepare = [of](const AllInputs<T>& in, const View<T>& out) {
      const auto work = std::make_shared<Decoding<Of, T, S>>(of, in, out);
      return Prepared{[=](ThreadPool& pool) { work->step(pool); },
                      [=](Index samples) { return work->error(samples); },
                      [=] { return work->decoder.memory_bytes(); }};
    };
    return Runner<T>{prepare, [](const AttentionShape&, Index) { return Index{0}; }};
  };
  Entry entry = entry_of(std::move(names), of, std::move(families));
  if constexpr (!std::is_void_v<As>) {
    entry.f32 = runner(float{}, As{});
    return entry;
  }
  entry.f32 = runner(float{});
  if constexpr (Of::kInDouble) entry.f64 = double_runner(runner);
  if constexpr (Of::kIn16Bits) add_stored_runners(entry, runner);
  return entry;
}

}  // namespace bench
