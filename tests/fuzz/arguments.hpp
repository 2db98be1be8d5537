// SPDX-License-Identifier: MIT
/// \file
/// One trial of the checks: a call with one size, stride, length or address that is wrong, over
/// memory that nothing may touch. It must be refused by a sentence before anything is read or
/// written. What is wrong is said by GoogleTest's expectations, or by the system.
#pragma once

#include <sys/mman.h>

#include <functional>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attention/gradients.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/refusal.hpp"

namespace fovea_test {

/// Reserved addresses that can be neither read nor written.
inline std::byte* reserved_memory() {
  static std::byte* const memory = [] {
    void* const mapped = mmap(nullptr, std::size_t{1} << 40, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(mapped);
  }();
  return memory + (std::size_t{1} << 39);
}

template <class X>
View<X> moved_to_reserved(const View<X>& x) {
  if (x.empty()) return x;
  return View<X>(reinterpret_cast<X*>(reserved_memory()), x.shape(), x.strides());
}

/// A size or stride that no tensor of these problems has.
inline Index extreme(Bytes& bytes) {
  constexpr Index most = std::numeric_limits<Index>::max();
  static const std::vector<Index> all = {
      -1,       -7,        Index{1} << 31, Index{1} << 40,      most, most - 1, most / 2,
      most / 8, -most - 1, -(most / 2),    (Index{1} << 61) + 1};
  return drawn_of(bytes, all);
}

/// The same view with one size or stride replaced, or of no memory.
template <class X>
View<X> spoiled(Bytes& bytes, const View<X>& x) {
  fovea::Shape shape = x.shape();
  fovea::Shape strides = x.strides();
  const std::size_t axis = as_size(bytes(0, 3));
  switch (bytes(0, 3)) {
    case 0:
      strides[axis] = extreme(bytes);
      // The stride of a single element does not matter.
      if (shape[axis] == 1) shape[axis] = 2;
      break;
    case 1:
      return View<X>(nullptr, shape, strides);
    case 2:
      shape[axis] += bytes(1, 3);
      break;
    default:
      shape[axis] = extreme(bytes);
  }
  return View<X>(x.data(), shape, strides);
}

/// A call of forward or backward, everything in memory that cannot be touched.
template <class T>
struct ReservedCall {
  AllInputs<T> in;
  View<T> out;
  AllSaved<T> saved;
  View<T> d_out;
  AllGrads<T> grads;

  ReservedCall(const Case<T>& op, const Problem<T>& problem, GradStorage<T>& storage)
      : in(problem.inputs()) {
    const auto move = [](auto& x) { x = moved_to_reserved(x); };
    move(in.q);
    move(in.k);
    move(in.v);
    move(in.bias);
    move(in.mask);
    out = View<T>(reinterpret_cast<T*>(reserved_memory()), problem.out_shape());
    if (op.is_softmax) {
      saved.lse = View<T>(reinterpret_cast<T*>(reserved_memory()), problem.row_shape());
    }
    d_out = out;
    grads = storage.grads(problem.inputs(), {});
    move(grads.q);
    move(grads.k);
    move(grads.v);
    move(grads.bias);
  }

  /// Makes one argument invalid, and returns which.
  std::string spoil(Bytes& bytes, Problem<T>& problem, bool backward) {
    const auto wrong = [&](auto& x) { return [&] { x = spoiled(bytes, x); }; };
    const std::pair<const char*, std::function<void()>> all[] = {
        {"q", wrong(in.q)},
        {"k", wrong(in.k)},
        {"v", wrong(in.v)},
        {"out", wrong(out)},
        {"key_lengths", [&] { spoil_lengths(bytes, problem); }},
        {"d_out", wrong(d_out)},
        {"gradient of q", wrong(grads.q)},
        {"gradient of k", wrong(grads.k)},
        {"gradient of v", wrong(grads.v)},
    };
    const auto& [name, apply] = all[bytes(0, backward ? 8 : 4)];
    apply();
    return name;
  }

 private:
  /// An invalid key length, or lengths for too many sequences.
  void spoil_lengths(Bytes& bytes, Problem<T>& problem) {
    std::vector<Index>& lengths = problem.key_lengths;
    lengths.assign(as_size(problem.shape.batch), problem.shape.keys);
    Index& one = lengths[as_size(bytes(0, problem.shape.batch - 1))];
    switch (bytes(0, 2)) {
      case 0:
        one += bytes(1, 9);
        break;
      case 1:
        one = extreme(bytes);
        break;
      default:
        lengths.resize(lengths.size() + as_size(bytes(1, 3)), 1);
    }
    in.key_lengths = lengths;
  }
};

/// Whether its calls read nothing but what is moved to reserved memory here.
template <class T>
bool reads_given_alone(const Case<T>& op) {
  return op.is_softmax && !op.makes_lists && !op.draws && !op.is_square && !op.extras.beta;
}

inline void try_arguments(std::span<const std::uint8_t> data) {
  using T = float;
  Bytes bytes(data);
  const Case<T> op = drawn_case<T>(bytes);
  if (!reads_given_alone(op)) return;
  const AttentionShape sizes = {bytes(1, 3), 4,           2,          bytes(2, 9),
                                bytes(2, 9), bytes(2, 9), bytes(2, 9)};
  Problem<T> problem = make_problem(op, sizes);
  GradStorage<T> storage(problem.inputs(), {});
  ReservedCall<T> call(op, problem, storage);
  const bool backward = bytes.once_in(2);
  SCOPED_TRACE(op.name + ", " + (backward ? "backward" : "forward"));
  AnyExecutor executor = drawn_executor(bytes);
  std::string what;
  try {
    what = call.spoil(bytes, problem, backward);
    if (backward) {
      op.backward(call.in, call.out, call.saved, call.d_out, call.grads, &executor);
    } else {
      op.forward(call.in, call.out, call.saved, &executor);
    }
    ADD_FAILURE() << "a wrong " << what << " was accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(fault_of_message(error.what()), "") << error.what();
  }
}

}  // namespace fovea_test
