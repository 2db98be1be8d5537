// SPDX-License-Identifier: MIT
/// \file
/// Bytes, seconds and dates as people read them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string>

namespace bench {

/// "2026-01-31T12:00:00Z".
inline std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// "488 KiB": three digits and a binary unit.
inline std::string human_bytes(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  char text[32];
  const int digits = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, bytes, units[unit]);
  return text;
}

/// "2 m 05 s", "31 s".
inline std::string human_seconds(double seconds) {
  const int whole = static_cast<int>(std::lround(std::clamp(seconds, 0.0, 1e6)));
  char text[32];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%d s", whole);
  } else {
    std::snprintf(text, sizeof text, "%d m %02d s", whole / 60, whole % 60);
  }
  return text;
}

}  // namespace bench
