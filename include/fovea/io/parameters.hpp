// SPDX-License-Identifier: MIT
/// \file
/// Conversion between the parameters of a layer or model and named tensors. For file formats see
/// fovea/io/safetensors.hpp and fovea/io/npy.hpp.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "fovea/io/tensor_set.hpp"
#include "fovea/layers/layer_parts.hpp"

FOVEA_NAMESPACE_BEGIN

/// The source of a parameter, or of some of its columns, in a file.
struct ParameterSource {
  std::string name;         ///< the name of a tensor
  bool transposed = false;  ///< whether it is [outputs, inputs], as in most frameworks
};

/// Options of load_parameters.
struct LoadOptions {
  /// The tensors from which a parameter of this name is read. Several tensors are concatenated
  /// along its columns, as the query, key and value maps of most frameworks for MultiHead. By
  /// default one tensor of the parameter's name.
  std::function<std::vector<ParameterSource>(const std::string&)> sources = {};
  /// Whether unused tensors are allowed. By default they are an error.
  bool allow_unknown = false;
};

namespace detail {

/// Converts the elements of a parameter. \return the bytes, owned by the appended owner
template <class To, class T>
std::span<const std::byte> converted_bytes(const RowMatrix<T>& value, TensorSet& set) {
  const auto all = std::make_shared<std::vector<To>>(static_cast<std::size_t>(value.size()));
  for (Index i = 0; i < value.size(); ++i) {
    (*all)[static_cast<std::size_t>(i)] = static_cast<To>(value.data()[i]);
  }
  set.owners.push_back(all);
  return std::as_bytes(std::span<const To>(*all));
}

/// The elements of a parameter in this type, without a copy if it is their own.
template <class T>
std::span<const std::byte> bytes_of(const RowMatrix<T>& value, Dtype dtype, TensorSet& set) {
  if (dtype == kDtype<T>) {
    return std::as_bytes(std::span<const T>(value.data(), static_cast<std::size_t>(value.size())));
  }
  std::span<const std::byte> bytes;
  with_element_type(dtype, [&](auto element) {
    using To = decltype(element);
    if constexpr (TensorScalar<To>) {
      bytes = converted_bytes<To>(value, set);
    } else {
      refuse("parameters_of", "dtype", std::string(names_of(dtype).safetensors),
             "F64, F32, F16 or BF16");
    }
  });
  return bytes;
}

/// Appends a matrix to a set; a single row becomes a vector, as biases are in frameworks.
/// \throws std::invalid_argument if the name exists
template <class T>
void add_tensor(const std::string& name, const RowMatrix<T>& value, Dtype dtype, TensorSet& set) {
  std::vector<Index> shape = {value.rows(), value.cols()};
  if (value.rows() == 1) shape.erase(shape.begin());
  const StoredTensor tensor{.dtype = dtype, .shape = shape, .bytes = bytes_of(value, dtype, set)};
  if (!set.tensors.emplace(name, tensor).second) {
    refuse("parameters_of", "two parameters are called " + quoted_name(name),
           "expected different names (LayerParts documents the names of parts)");
  }
}

/// Transposes rows into columns of another matrix, from `first` on, in tiles of a cache line each
/// way, so that every cache line is used completely. \param rows [count, to.rows()]
template <class T>
void copy_transposed(const T* rows, Index count, RowMatrix<T>& to, Index first) {
  constexpr Index tile = 16;
  for (Index i = 0; i < count; i += tile) {
    const Index height = (std::min)(tile, count - i);
    for (Index j = 0; j < to.rows(); j += tile) {
      const Index width = (std::min)(tile, to.rows() - j);
      for (Index c = j; c < j + width; ++c) {
        for (Index r = i; r < i + height; ++r) to(c, first + r) = rows[r * to.rows() + c];
      }
    }
  }
}

/// Reads a tensor [count, to.rows()] transposed into columns from `first` on. Rows pass in pieces
/// through a buffer in cache, unless only the whole tensor can be read.
template <class T>
void read_transposed(const StoredTensor& tensor, Index count, RowMatrix<T>& to, Index first) {
  const bool in_row_blocks = tensor.decode == nullptr && !tensor.column_major;
  const Index block = in_row_blocks ? 16 : (std::max)(Index{1}, count);
  std::vector<T> rows(static_cast<std::size_t>((std::min)(block, count) * to.rows()));
  for (Index i = 0; i < count; i += block) {
    const Index height = (std::min)(block, count - i);
    if (in_row_blocks) {
      const Index begin = i * to.rows() * names_of(tensor.dtype).bits / 8;
      from_bytes(tensor.dtype, tensor.bytes.data() + begin, height * to.rows(), rows.data());
    } else {
      tensor.read(rows.data());
    }
    copy_transposed(rows.data(), height, to, first + i);
  }
}

/// Moves a matrix to large pages, if it is not too small.
template <class T>
void collapse_to_large_pages(const RowMatrix<T>& value) {
  collapse_to_large_pages(value.data(), static_cast<std::size_t>(value.size()) * sizeof(T));
}

/// The matrices that a set is read into, with their source tensors. Everything is checked before
/// anything is written.
class LoadPlan {
 public:
  LoadPlan(const TensorSet& set, const LoadOptions& options) : set_(set), options_(options) {}

  /// Adds a matrix of this name.
  template <class T>
  void add(const std::string& name, RowMatrix<T>& value) {
    if (!names_.insert(name).second) {
      refuse_file(set_.origin, "two parameters are called " + quoted_name(name) +
                                   " (LayerParts documents the names of parts)");
    }
    std::vector<ParameterSource> sources = {{name}};
    if (options_.sources) sources = options_.sources(name);
    Index first = 0;
    bool all_there = true;
    for (const ParameterSource& source : sources) {
      used_.insert(source.name);
      if (set_.tensors.count(source.name) == 0) {
        all_there = false;
        missing_.push_back(source.name);
      } else {
        first += add_columns(name, value, source, set_.at(source.name), first);
      }
    }
    if (all_there && first != value.cols()) {
      wrong_shape(name, value, std::to_string(first) + " columns in total");
    }
  }

  /// Reads all matrices. \throws std::runtime_error, with nothing written, if tensors are missing
  /// or unknown
  void read() const {
    std::vector<std::string> unknown;
    for (const auto& [name, tensor] : set_.tensors) {
      if (!options_.allow_unknown && used_.count(name) == 0) unknown.push_back(name);
    }
    std::string text;
    if (!missing_.empty()) text = "missing are " + quoted_names(missing_);
    if (!unknown.empty()) {
      text += (text.empty() ? "" : "; ") + ("unknown are " + quoted_names(unknown));
    }
    if (!text.empty()) refuse_file(set_.origin, text);
    for (const std::function<void()>& read_columns : reads_) read_columns();
  }

 private:
  template <class T>
  [[noreturn]] void wrong_shape(const std::string& name, const RowMatrix<T>& value,
                                const std::string& got) const {
    refuse_file(set_.origin, quoted_name(name) + " is " + shape_text({value.rows(), value.cols()}) +
                                 "; got " + got);
  }

  /// Adds columns from `first` on. \return their number
  template <class T>
  Index add_columns(const std::string& name, RowMatrix<T>& value, const ParameterSource& source,
                    const StoredTensor& tensor, Index first) {
    std::vector<Index> shape = tensor.shape;
    const bool transposed = source.transposed && shape.size() == 2;
    if (transposed) std::swap(shape[0], shape[1]);
    if (shape.size() == 1 && value.rows() == 1) shape.insert(shape.begin(), 1);
    if (shape.size() != 2 || shape[0] != value.rows() || shape[1] > value.cols() - first) {
      wrong_shape(name, value,
                  quoted_name(source.name) + " of " + shape_text(tensor.shape) +
                      (source.transposed ? " (transposed)" : "") +
                      (first > 0 ? " after " + std::to_string(first) + " columns" : ""));
    }
    reads_.push_back([&value, &tensor, transposed, first, count = shape[1]] {
      read_columns(value, tensor, transposed, first, count);
    });
    return shape[1];
  }

  template <class T>
  static void read_columns(RowMatrix<T>& value, const StoredTensor& tensor, bool transposed,
                           Index first, Index count) {
    if (!transposed && count == value.cols()) return tensor.read(value.data());
    if (transposed) return read_transposed(tensor, count, value, first);
    RowMatrix<T> columns(value.rows(), count);
    tensor.read(columns.data());
    value.middleCols(first, count) = columns;
  }

  const TensorSet& set_;
  const LoadOptions& options_;
  std::set<std::string> names_;
  std::set<std::string> used_;
  std::vector<std::string> missing_;
  std::vector<std::function<void()>> reads_;
};

}  // namespace detail

/// The parameters of a layer or a model as tensors: matrices [inputs, outputs], and rows as
/// vectors. They refer to the parameters' memory, unless converted. \param dtype their type in the
/// file, f64, f32, f16 or bf16; by default the parameters' type \throws std::invalid_argument if
/// two parameters have the same name, or for another type
template <class Layer>
TensorSet parameters_of(const Layer& layer, std::optional<Dtype> dtype = {}) {
  TensorSet set;
  layer.visit([&]<class T>(const std::string& name, const Parameter<T>& parameter) {
    detail::add_tensor(name, parameter.value, dtype.value_or(kDtype<T>), set);
  });
  return set;
}

/// Reads the parameters of a layer or model from tensors of any type, with conversion. Gradients
/// are unchanged. Where the system can do that, parameters are moved to large pages. (Measured with
/// a model of 135 million parameters: decoding, which reads them from memory, is 1.1 to 1.2 times
/// as fast, and loading takes 0.15 to 0.3 s longer.)
/// \throws std::runtime_error "<file>: <what is wrong>", with nothing changed: if tensors are
/// missing or unknown (both are listed), if a shape does not match its parameter, or if elements
/// are not converted (is_converted)
template <class Layer>
void load_parameters(Layer& layer, const TensorSet& set, const LoadOptions& options = {}) {
  detail::LoadPlan plan(set, options);
  layer.visit([&](const std::string& name, auto& parameter) { plan.add(name, parameter.value); });
  plan.read();
  layer.visit([](const std::string& /*name*/, const auto& parameter) {
    detail::collapse_to_large_pages(parameter.value);
  });
}

FOVEA_NAMESPACE_END
