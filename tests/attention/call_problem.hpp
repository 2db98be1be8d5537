// SPDX-License-Identifier: MIT
/// \file
/// Problems of operators with inputs of their own: what one call reads, by a line of data for each
/// tensor, parts of it, and calls as data for conformance_calls_test.cpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attention/case.hpp"
#include "attention/operator_call.hpp"
#include "support/fill.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

/// Extents of axes by letter, those of AttentionShape: b; H query heads, h key heads; q and k rows;
/// d and v widths. Others are the operator's, of which w is 1 or b, t is 1 or H, e and f are 1 or
/// h.
using Extents = std::map<char, Index>;

/// A tensor of normal numbers, times a factor, and the letters of its four axes.
struct TensorAxes {
  std::string name;
  std::string axes;
  double factor = 1;

  Shape shape(const Extents& e) const {
    return {e.at(axes[0]), e.at(axes[1]), e.at(axes[2]), e.at(axes[3])};
  }
};

/// The data of calls of `Op`:
/// - name: in the table of worst errors
/// - inputs, saved: the tensors; an input with an axis ? is optional, there if that extent is 1;
///   lse is among the saved ones of all
/// - hidden: the axes that end at key lengths: what is beyond is not read, and results are 0
/// - is_cut: whether a sequence with a key length is a sequence of so many rows
/// - complete(op, extents): adds the extents that are its own, if they are not given, and changes
///   those that follow from others
/// - expected(problem): what the oracle says of the results
/// - fill(problem, seed): optional, other numbers than normal ones
/// - draws(op): optional, whether results depend on the place of a sequence and a head
template <class Op>
struct CallForm;

/// Some rows of some heads of one sequence.
struct Part {
  Index batch = 0;
  Index head = 0;
  Index heads = 1;
  Index first = 0;
  Index rows = 0;
};

template <class Of, class T>
class CallProblem {
 public:
  using Scalar = T;
  using Op = Of;
  using Form = CallForm<Op>;
  using Inputs = fovea::InputsOf<Op, T>;

  CallProblem(const Op& with, const AttentionShape& s, const Extents& more = {},
              std::uint64_t seed = 1, const Layout& layout = {})
      : CallProblem(with, joined(s, more), seed, layout) {}

  /// The tensor of an input, by name, or d_out.
  const Tensor<T>& operator[](const std::string& name) const {
    return name == "d_out" ? d_out : tensors[name];
  }
  /// Empty if there is none of that name.
  View<T> view(const std::string& name) const {
    const Tensor<T>* const x = tensors.find(name);
    return x == nullptr ? View<T>() : x->view();
  }

  Inputs inputs() const { return inputs_as<Inputs>(); }
  /// The same for oracles of any operator.
  AllInputs<T> all_inputs() const { return inputs_as<AllInputs<T>>(); }
  AttentionShape shape() const {
    return {extents.at('b'), extents.at('H'), extents.at('h'), extents.at('q'),
            extents.at('k'), extents.at('d'), extents.at('v')};
  }
  /// What workspace_bytes takes.
  auto call_shape() const {
    if constexpr (requires { Form::shape(extents); }) {
      return Form::shape(extents);
    } else {
      return fovea::shape_of(inputs());
    }
  }

  Shape saved_shape(const Op& /*op*/, const std::string& name) const {
    return saved_axes(name).shape(extents);
  }

  CallResult<T> run(AnyExecutor* executor = nullptr, const Layout& layout = {},
                    bool saves = true) const {
    return run_call(op, *this, executor, layout, saves);
  }

  /// Calls f(name, axes) for each result that there may be.
  template <class F>
  void for_each_result(const F& f) const {
    f("out", of_out());
    f("lse", saved_axes("lse"));
    for (const TensorAxes& x : Form::saved) f(x.name, x);
    for (const TensorAxes& x : Form::inputs) f("d_" + x.name, x);
  }

  /// Calls f(b, h, n, d) for each element of a tensor that is beyond the key length of its
  /// sequence, or beyond all of them.
  template <class F>
  void for_each_hidden(const TensorAxes& x, const F& f) const {
    if (key_lengths.empty()) return;
    std::vector<Extents> visible;
    for (const Index length : key_lengths) visible.push_back(with_rows(length));
    const Extents of_all = with_rows(*std::max_element(key_lengths.begin(), key_lengths.end()));
    const bool has_sequences = x.axes[0] == 'b' || (x.axes[0] == 'w' && extents.at('w') > 1);
    for_each_index(x.shape(extents), [&](Index b, Index h, Index n, Index d) {
      const Extents& e = has_sequences ? visible[as_size(b)] : of_all;
      if (n >= e.at(x.axes[2]) || d >= e.at(x.axes[3])) f(b, h, n, d);
    });
  }
  /// Overwrites what is beyond the key lengths.
  void hide(T poison) const {
    const auto poisons = [&](const Tensor<T>& to) {
      return [&to, poison](Index b, Index h, Index n, Index d) { to(b, h, n, d) = poison; };
    };
    for (const TensorAxes& x : Form::inputs) {
      if (const Tensor<T>* const to = tensors.find(x.name)) for_each_hidden(x, poisons(*to));
    }
    for_each_hidden(of_out(), poisons(d_out));
  }

  /// All heads of a sequence.
  Part sequence(Index b) const {
    const Index rows = key_lengths.empty() ? extents.at('k') : key_lengths[as_size(b)];
    return {.batch = b, .heads = extents.at('H'), .rows = rows};
  }
  /// A part as a call of its own.
  CallProblem part(const Part& of) const {
    Extents e = Form::is_cut ? with_rows(of.rows) : extents;
    e['b'] = e['w'] = 1;
    e['H'] = of.heads;
    e['h'] = std::max<Index>(1, of.heads * extents.at('h') / extents.at('H'));
    e['t'] = std::min(extents.at('t'), e['H']);
    e['e'] = std::min(extents.at('e'), e['h']);
    e['f'] = std::min(extents.at('f'), e['h']);
    CallProblem made(op, e, 1, {});
    const auto copy = [&](const Tensor<T>& to, const Tensor<T>& from, const TensorAxes& x) {
      const Shape at = first_of(x, of);
      to.fill([&](Index b, Index h, Index n, Index d) {
        return static_cast<double>(from(at[0] + b, at[1] + h, at[2] + n, at[3] + d));
      });
    };
    for (const TensorAxes& x : Form::inputs) {
      if (const Tensor<T>* const to = made.tensors.find(x.name)) copy(*to, tensors[x.name], x);
    }
    copy(made.d_out, d_out, of_out());
    if (!Form::is_cut && !key_lengths.empty()) made.key_lengths = {key_lengths[as_size(of.batch)]};
    return made;
  }
  /// Where a part begins in a tensor.
  Shape first_of(const TensorAxes& x, const Part& of) const {
    Shape at{};
    for (std::size_t i = 0; i < 4; ++i) {
      const char axis = x.axes[i];
      if (extents.at(axis) == 1) continue;
      if (axis == 'b' || axis == 'w') at[i] = of.batch;
      if (axis == 'H' || axis == 't') at[i] = of.head;
      if (axis == 'h' || axis == 'e' || axis == 'f') {
        at[i] = of.head * extents.at('h') / extents.at('H');
      }
      if (axis == 'q' || axis == 'k') at[i] = of.first;
    }
    return at;
  }
  /// Whether a tensor has a number of its own for the part, and not a sum over more than that.
  bool is_of_part(const TensorAxes& x, const Part& of) const {
    if (extents.at(x.axes[0]) != extents.at('b')) return false;
    if (of.heads == extents.at('H')) return true;
    const Index heads = extents.at(x.axes[1]);
    return heads == extents.at('H') ||
           (heads == extents.at('h') && of.heads * heads % extents.at('H') == 0);
  }

  Op op;
  Extents extents;
  std::vector<Index> key_lengths = {};
  std::vector<Index> cu_seqlens = {};
  Named<Tensor<T>> tensors;
  Tensor<T> d_out;

 private:
  CallProblem(const Op& with, const Extents& e, std::uint64_t seed, const Layout& layout)
      : op(with), extents(e) {
    Form::complete(op, extents);
    const std::uint64_t first = seed;
    for (const TensorAxes& x : Form::inputs) {
      if (x.axes.find('?') != std::string::npos && extents.at('?') == 0) continue;
      Tensor<T> made(x.shape(extents), layout);
      made.fill(gaussian(seed++, x.factor));
      tensors.add(x.name, std::move(made));
    }
    d_out = Tensor<T>(of_out().shape(extents), layout);
    d_out.fill(gaussian(seed));
    if constexpr (requires { Form::fill(*this, first); }) Form::fill(*this, first);
  }

  template <class Members>
  Members inputs_as() const {
    const auto set = [&]<class Member>(const char* name, Member& member) {
      if constexpr (std::derived_from<Member, View<const T>>) member = view(name);
    };
    auto in = made_of_tensors<Members>(set);
    in.key_lengths = key_lengths;
    if constexpr (requires { in.cu_seqlens_q; }) in.cu_seqlens_q = cu_seqlens;
    return in;
  }

  static Extents joined(const AttentionShape& s, const Extents& more) {
    Extents e = {{'1', 1},
                 {'b', s.batch},
                 {'H', s.query_heads},
                 {'h', s.key_heads},
                 {'q', s.queries},
                 {'k', s.keys},
                 {'d', s.width},
                 {'v', s.value_width},
                 {'w', 1},
                 {'t', s.query_heads},
                 {'e', 1},
                 {'f', 1}};
    for (const auto& [axis, extent] : more) e[axis] = extent;
    return e;
  }
  Extents with_rows(Index rows) const {
    Extents e = extents;
    for (const char axis : std::string(Form::hidden)) e[axis] = rows;
    Form::complete(op, e);
    return e;
  }
  static TensorAxes of_out() { return {"out", "bHqv"}; }
  static TensorAxes saved_axes(const std::string& name) {
    for (const TensorAxes& x : Form::saved) {
      if (x.name == name) return x;
    }
    return {"lse", "bHq1"};
  }
};

/// Returns judge(result, name), which compares results of the call with its oracle. \param name in
/// the table of worst errors
template <class Op, class T>
auto judge_of_call(const CallProblem<Op, T>& p) {
  return judge_of<T>(CallForm<Op>::expected(p));
}

/// Expects of a part of a call the bits of a call of that part alone.
template <class Op, class T>
void expect_same_part(const CallProblem<Op, T>& p, const CallResult<T>& all, const Part& of) {
  SCOPED_TRACE("sequence " + std::to_string(of.batch) + ", head " + std::to_string(of.head) +
               ", row " + std::to_string(of.first));
  const CallProblem<Op, T> alone = p.part(of);
  const CallResult<T> got = alone.run();
  p.for_each_result([&](const std::string& name, const TensorAxes& x) {
    const std::vector<T>* const numbers = got.find(name);
    if (numbers == nullptr || !p.is_of_part(x, of)) return;
    const Shape whole = x.shape(p.extents);
    const Shape at = p.first_of(x, of);
    std::vector<T> expected;
    for_each_index(x.shape(alone.extents), [&](Index b, Index h, Index n, Index d) {
      expected.push_back(all[name][place_of(whole, at[0] + b, at[1] + h, at[2] + n, at[3] + d)]);
    });
    EXPECT_TRUE(same_bits(expected, *numbers)) << name;
  });
}

/// Expects 0, and the lse of no key, beyond the key lengths.
template <class Op, class T>
void expect_nothing_beyond(const CallProblem<Op, T>& p, const CallResult<T>& got) {
  p.for_each_result([&](const std::string& name, const TensorAxes& x) {
    const std::vector<T>* const numbers = got.find(name);
    if (numbers == nullptr) return;
    const T none = name.ends_with("lse") ? -std::numeric_limits<T>::infinity() : T{0};
    const Shape shape = x.shape(p.extents);
    p.for_each_hidden(x, [&](Index b, Index h, Index n, Index d) {
      const T beyond = (*numbers)[place_of(shape, b, h, n, d)];
      ASSERT_TRUE(same_bits(&beyond, &none, 1, {1, 1, 1, 1})) << name << " " << b << " " << n;
    });
  });
}

/// One call.
template <class Op>
struct CallCase {
  Op op;
  AttentionShape shape;
  Extents more = {};
  std::vector<Index> key_lengths = {};
  std::vector<Index> cu_seqlens = {};
  std::vector<std::pair<const char*, Fill>> fills = {};  // other numbers, by the tensor's name

  template <class T>
  CallProblem<Op, T> problem(const Layout& layout = {}) const {
    CallProblem<Op, T> made(op, shape, more, 1, layout);
    made.key_lengths = key_lengths;
    made.cu_seqlens = cu_seqlens;
    for (const auto& [name, fill] : fills) made[name].fill(fill);
    return made;
  }
};

/// As many queries as keys.
inline AttentionShape of_tokens(Index tokens, Index width = 8, Index value_width = 5) {
  return {1, 1, 1, tokens, tokens, width, value_width};
}

/// The calls of `Op`:
/// - conforming(): compared with the oracle
/// - large(): whose bits are compared over threads, levels and strides, and that run in arenas
/// - batches(): several sequences, of which each is compared with itself alone
/// - small(): compared with central differences, within `tolerance`
template <class Op>
struct CallCases;

}  // namespace fovea_test
