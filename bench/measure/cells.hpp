// SPDX-License-Identifier: MIT
/// \file
/// The rows of fovea_bench and their names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/entries/operator_entry.hpp"

namespace bench {

/// One row.
struct Cell {
  std::shared_ptr<const Entry> entry;
  Family family;
  Index n;
  std::string name;

  fovea::Shape q_shape() const { return {1, family.heads, entry->queries(n), family.width}; }
  fovea::Shape k_shape() const { return {1, family.key_heads, n, family.width}; }
  AttentionShape shape() const {
    return {1, family.heads, family.key_heads, entry->queries(n), n, family.width, family.width};
  }
};

/// `<operator>/<pass>/<type>/<variant>[,heads:<h>][,threads:<n>]/D:<D>/N:<N>`
inline std::string name_of(const Names& names, const Family& family, Index n) {
  std::string variant = names.variant;
  const auto add = [&](const char* key, Index value) {
    if (!variant.empty()) variant += ',';
    variant.append(key).append(":").append(std::to_string(value));
  };
  if (family.heads != 8 || names.pass == Pass::decode) add("heads", family.heads);
  if (family.key_heads != family.heads) add("key_heads", family.key_heads);
  if (family.threads != 1) add("threads", family.threads);
  const std::string type = family.scalar == Scalar::f32 ? "f32" : "f64";
  return names.op + "/" + name(names.pass) + "/" + (names.storage.empty() ? type : names.storage) +
         "/" + variant + "/D:" + std::to_string(family.width) + "/N:" + std::to_string(n);
}

inline std::vector<Cell> cells_of(const std::vector<Entry>& entries) {
  std::vector<Cell> all;
  for (const Entry& op : entries) {
    const auto entry = std::make_shared<const Entry>(op);
    for (const Family& family : entry->families) {
      for (const Index n : family.lengths) {
        all.push_back({entry, family, n, name_of(entry->names, family, n)});
      }
    }
  }
  return all;
}

}  // namespace bench
