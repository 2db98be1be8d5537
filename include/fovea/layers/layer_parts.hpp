// SPDX-License-Identifier: MIT
/// \file
/// How a layer's parameters are found and named: a layer lists its parts once, and `visit`
/// traverses them.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "fovea/layers/parameter.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

template <class Part>
struct IsParameter : std::false_type {};
template <class T>
struct IsParameter<Parameter<T>> : std::true_type {};

/// Whether f takes the parameter's name as its first argument.
template <class F, class P>
concept TakesNames = std::is_invocable_v<F&, const std::string&, P&>;

/// Calls f for a parameter, with its name if f takes it.
template <class F, class P>
void give(F& f, const std::string& name, P& parameter) {
  if constexpr (TakesNames<F, P>) {
    f(name, parameter);
  } else {
    f(parameter);
  }
}

/// Forwards parameters to f, prefixing their names.
template <class F>
struct Prefixed {
  F& f;
  const std::string& prefix;

  template <class P>
  void operator()(const std::string& name, P& parameter) const {
    give(f, prefix + name, parameter);
  }
};

/// The callback of `each_part`, for a parameter, a layer, or several layers.
template <class F>
class PartVisitor {
 public:
  explicit PartVisitor(F& f) : f_(f) {}

  /// A part whose parameters keep their names.
  template <class Part>
  void operator()(Part& part) const {
    if constexpr (IsParameter<std::remove_const_t<Part>>::value) {
      give(f_, part.name, part);
    } else {
      part.visit(f_);
    }
  }

  /// A named part. Its name, and the layer's number in a range of layers, prefixes the names of its
  /// parameters.
  template <class Part>
  void operator()(std::string_view name, Part& part) const {
    if constexpr (requires { std::begin(part); }) {
      std::size_t number = 0;
      for (auto& layer : part) (*this)(std::string(name) + '.' + std::to_string(number++), layer);
    } else if constexpr (IsParameter<std::remove_const_t<Part>>::value) {
      give(f_, std::string(name), part);
    } else {
      const std::string prefix = std::string(name) + '.';
      part.visit(Prefixed<F>{f_, prefix});
    }
  }

 private:
  F& f_;
};

}  // namespace detail

/// Gives a layer or a model `Self` the function `visit`. Self lists its parts once, in a static
/// function that works for const and non-const `self`:
///
///     struct Model : fovea::LayerParts<Model> {
///       template <class Self, class F>
///       static void each_part(Self& self, F&& f) {
///         f(self.embedding);          // embedding.table, embedding.position
///         f("blocks", self.blocks);   // a vector: blocks.0.norm1.scale, ...
///         f("classifier", self.head);
///       }
///     };
///
/// A part is a Parameter, a layer, anything else that has `visit`, or a range of those. A name
/// prefixes the part's parameter names, with a dot. Names must be unique: saving and loading
/// parameters rejects duplicates.
template <class Self>
class LayerParts {
 public:
  /// Calls `f(parameter)`, or `f(name, parameter)` if f takes two arguments, for each parameter of
  /// all parts, in the order of the list. The name is a `const std::string&` joined from the parts'
  /// names and the parameter's, such as "blocks.3.attention.qkv.weight".
  template <class F>
  void visit(F&& f) {
    Self::each_part(static_cast<Self&>(*this), detail::PartVisitor<std::remove_reference_t<F>>(f));
  }
  /// The same for read-only parameters.
  template <class F>
  void visit(F&& f) const {
    Self::each_part(static_cast<const Self&>(*this),
                    detail::PartVisitor<std::remove_reference_t<F>>(f));
  }

  /// A layer without listed parts has none.
  template <class Layer, class F>
  static void each_part(Layer& /*self*/, F&& /*f*/) {}

 protected:
  ~LayerParts() = default;
};

FOVEA_NAMESPACE_END
