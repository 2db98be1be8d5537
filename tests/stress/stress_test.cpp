// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
/// \file
/// Threads that share operators, pools, FFTW plans and decoders: they call operators on their own
/// and others' pools and inside each other's tasks, with temporary pools and tasks that throw, and
/// all results must have the bits of a single thread. It runs for FOVEA_STRESS_SECONDS, under
/// ThreadSanitizer in the preset `tsan`.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/tensor.hpp"

#include "fovea/spectral/hidden_state_cross.hpp"
#include "fovea/spectral/plan_cache.hpp"

namespace fovea_test::stress_stress {

using bench::AllGrads;
using bench::AllInputs;
using bench::AllSaved;
using fovea::ThreadPool;

/// Something that threads call at once: all that it writes.
struct Subject {
  std::string name;
  std::function<std::vector<float>(const ThreadPool&)> run;
  std::vector<float> expected;
};

constexpr Index kTokens = 90;
constexpr Index kWidth = 8;
constexpr Index kListed = 5;  // keys that Smart Bird chooses

/// The inputs of all calls.
struct Read {
  Tensor<float> q{{2, 4, kTokens, kWidth}}, k{{2, 2, kTokens, kWidth}}, v{{2, 2, kTokens, kWidth}},
      d_out{{2, 4, kTokens, kWidth}}, beta{{2, 2, kTokens, 1}}, sketch_q{{2, 1, kTokens, 4}},
      sketch_k{{2, 1, kTokens, 4}}, dominant{{2, 4, kTokens, 2}}, projection{{1, 1, 6, kWidth}};

  Read() {
    std::uint64_t seed = 1;
    for (const auto* x : {&q, &k, &v, &d_out, &sketch_q, &sketch_k, &projection}) {
      x->fill(gaussian(seed++));
    }
    beta.fill(constant(0.5));
    dominant.fill([](Index b, Index h, Index n, Index d) {
      return static_cast<double>(kTokens) * uniform(hash(9, b, h, n, d));
    });
  }
  AllInputs<float> inputs() const {
    AllInputs<float> in{q.view(), k.view(), v.view()};
    in.beta = beta.view();
    in.sketch_q = sketch_q.view();
    in.sketch_k = sketch_k.view();
    in.dominant = dominant.view();
    in.projection = projection.view();
    return in;
  }
};

const Read& read() {
  static const Read all;
  return all;
}

void append(std::vector<float>& all, const Tensor<float>& x) {
  const std::vector<float> values = x.values();
  all.insert(all.end(), values.begin(), values.end());
}

/// Both passes of an operator, which is one object for all threads.
template <class Op>
Subject passes(std::string name, const Op& op) {
  return {std::move(name),
          [op](const ThreadPool& pool) {
            const AnyExecutor executor = AnyExecutor::of(pool);
            const AllInputs<float> in = read().inputs();
            const Tensor<float> out(in.q.shape()), lse({2, 4, kTokens, 1}), d_q(in.q.shape()),
                d_k(in.k.shape()), d_v(in.v.shape());
            AllSaved<float> saved;
            const Tensor<Index> indices({2, 4, kTokens, kListed});
            if constexpr (requires(fovea::SavedOf<Op, float> of_op) { of_op.lse; }) {
              saved.lse = lse.view();
            }
            if constexpr (requires(fovea::SavedOf<Op, float> of_op) { of_op.indices; }) {
              saved.indices = indices.view();
            }
            AllGrads<float> grads;
            grads.q = d_q.view();
            grads.k = d_k.view();
            grads.v = d_v.view();
            op.forward(in, out.view(), saved, executor);
            op.backward(in, out.view(), saved, read().d_out.view(), grads, executor);
            std::vector<float> all;
            for (const auto* x : {&out, &d_q, &d_k, &d_v}) append(all, *x);
            return all;
          },
          {}};
}

/// A copy of a decoder, of which all threads take copies, goes on by some tokens.
template <class Op, class Shape>
Subject forks(std::string name, const Op& op, Shape shape) {
  shape.batch = 2;
  shape.query_heads = 4;
  shape.key_heads = 2;
  shape.width = shape.value_width = kWidth;
  const auto inputs = [](Index first, Index count) {
    AllInputs<float> in = read().inputs();
    for (auto* x : {&in.q, &in.k, &in.v, &in.sketch_q, &in.sketch_k}) {
      *x = cut(*x, 2, first, count);
    }
    return in;
  };
  using Decoder = decltype(op.template decoder<float>(shape));
  const auto prototype = std::make_shared<Decoder>(op.template decoder<float>(shape));
  const Tensor<float> prompt({2, 4, 60, kWidth});
  prototype->step(inputs(0, 60), prompt.view(), {});
  return {std::move(name),
          [prototype, inputs](const ThreadPool& pool) {
            Decoder decoder = static_cast<const Decoder&>(*prototype).fork();
            std::vector<float> all;
            for (const Index count : {1, 20, 1}) {
              const Tensor<float> out({2, 4, count, kWidth});
              decoder.step(inputs(decoder.length(), count), out.view(), {}, AnyExecutor::of(pool));
              append(all, out);
            }
            return all;
          },
          {}};
}

/// Both passes of the Fourier cross for sequences of one length, whose plans come and go.
Subject cross(Index length) {
  return {"cross of " + std::to_string(length),
          [length](const ThreadPool& pool) {
            const AnyExecutor executor = AnyExecutor::of(pool);
            const Tensor<float> f1({1, 1, length, 5}), f2(f1.shape()), d_out(f1.shape()),
                out(f1.shape()), d_f1(f1.shape()), d_f2(f1.shape());
            f1.fill(gaussian(1));
            f2.fill(gaussian(2));
            d_out.fill(gaussian(3));
            const fovea::CrossInputs<float> in{f1.view(), f2.view()};
            const fovea::HiddenStateCross op;
            op.forward(in, out.view(), executor);
            if (length % 2 == 0) fovea::fft_plans<float>().clear();
            op.backward(in, d_out.view(), {d_f1.view(), d_f2.view()}, executor);
            std::vector<float> all;
            for (const auto* x : {&out, &d_f1, &d_f2}) append(all, *x);
            return all;
          },
          {}};
}

std::vector<Subject> make_subjects() {
  using namespace fovea;
  std::vector<Subject> all = {
      passes("full", FullAttention{{.causal = true}}),
      passes("strided", StridedAttention{{.stride = 7, .heads = HeadAssignment::merged}}),
      passes("linear", LinearAttention<EluPlusOne>{{.causal = true}}),
      passes("linear, not causal", LinearAttention<EluPlusOne>{}),
      passes("delta rule", DeltaRuleAttention<EluPlusOne>{}),
      passes("performer", PerformerAttention({.causal = true})),
      passes("fsat", FsatAttention({.max_length = kTokens})),
      passes("smart bird", SmartBirdAttention({.keys_per_row = kListed, .causal = true})),
      forks("full decoder", FullAttention{{.causal = true}}, DecoderShape{}),
      forks("linear decoder", LinearAttention<EluPlusOne>{{.causal = true}}, DecoderShape{}),
  };
  for (const Index length : {33, 64, 90, 127}) all.push_back(cross(length));
  const ThreadPool alone(1);
  for (Subject& subject : all) subject.expected = subject.run(alone);
  return all;
}

/// One of the ways to call a subject. Returns how often it was called and what was wrong.
class Stress {
 public:
  explicit Stress(const std::vector<Subject>& subjects) : subjects_(subjects) {}

  void act(Draw& draw) {
    const auto pick = [&]() -> const Subject& {
      return subjects_[as_size(draw(0, std::ssize(subjects_) - 1))];
    };
    const ThreadPool& pool = draw(0, 1) == 0 ? first_ : second_;
    const ThreadPool& other = draw(0, 1) == 0 ? first_ : second_;
    switch (draw(0, 9)) {
      case 0: {  // inside tasks of a pool, on the same one or another
        const Subject& subject = pick();
        pool.parallel_for(3, [&](Index) { check(subject, other); });
        break;
      }
      case 1: {  // on a pool that comes and goes
        const ThreadPool own(static_cast<int>(draw(1, 4)));
        check(pick(), own);
        break;
      }
      case 2:  // together with tasks that throw
        expect_error(pool, draw(0, 20));
        break;
      default:
        check(pick(), pool);
    }
  }

  std::ptrdiff_t calls() const { return calls_; }
  std::string wrong() const {
    const std::lock_guard lock(mutex_);
    return wrong_;
  }

 private:
  void check(const Subject& subject, const ThreadPool& pool) {
    ++calls_;
    if (!same_bits(subject.expected, subject.run(pool))) report(subject.name);
  }
  void expect_error(const ThreadPool& pool, Index first) {
    ++calls_;
    try {
      fovea::for_each_task(pool, 40, [&](Index task, Index) {
        if (task >= first) throw std::runtime_error(std::to_string(task));
      });
      report("no error");
    } catch (const std::runtime_error& error) {
      if (error.what() != std::to_string(first)) report("another error");
    }
  }
  void report(const std::string& name) {
    const std::lock_guard lock(mutex_);
    wrong_ += name + "; ";
  }

  const std::vector<Subject>& subjects_;
  const ThreadPool first_{3}, second_{2};
  std::atomic<std::ptrdiff_t> calls_{0};
  mutable std::mutex mutex_;
  std::string wrong_;
};

double stress_seconds() {
  const char* const text = std::getenv("FOVEA_STRESS_SECONDS");
  return text == nullptr ? 3 : std::atof(text);
}

TEST(Stress, ThreadsShareOneOperator) {
  const std::vector<Subject> subjects = make_subjects();
  Stress stress(subjects);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(stress_seconds());
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      Draw draw(100 + thread);
      while (std::chrono::steady_clock::now() < end && stress.wrong().empty()) stress.act(draw);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stress.wrong(), "");
  EXPECT_GT(stress.calls(), 8);
  std::printf("calls of %zu subjects from 4 threads: %td\n", subjects.size(), stress.calls());
}

}  // namespace fovea_test::stress_stress
