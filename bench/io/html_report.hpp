// SPDX-License-Identifier: MIT
/// \file
/// A run of fovea_compare as one page of HTML, which fetches nothing: which operator is the fastest
/// within which distance from full attention, what was measured and on what machine, the plots, and
/// a table that a click on a column sorts. Test: tests/bench/fovea_compare_test.cpp, in a browser
/// where there is one.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/io/compare_plots.hpp"
#include "bench/io/compare_table.hpp"
#include "bench/io/human.hpp"
#include "bench/io/svg_plot.hpp"

namespace bench {

namespace detail {

inline constexpr std::string_view kReportHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>fovea_compare</title>
<style>
body{font:15px/1.5 Helvetica,Arial,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;
  background:#fff;color:#1b1b1b}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #dedede;white-space:nowrap}
th:first-child,td:first-child,td.why{text-align:left}
th button{font:inherit;font-weight:bold;color:inherit;background:none;border:0;padding:0;
  cursor:pointer}
th[aria-sort=ascending] button::after{content:" \2191"}
th[aria-sort=descending] button::after{content:" \2193"}
td i{display:inline-block;width:.7em;height:.7em;margin-right:.5em;background:currentColor}
svg{max-width:100%;height:auto}
.wide{overflow-x:auto}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dt{color:#555}dd{margin:0}
@media (prefers-color-scheme:dark){body{background:#14171a;color:#ececec}
  th,td{border-color:#33383d}dt{color:#a5a5a5}}
</style></head><body>
<h1>Attention operators side by side</h1>
)";

/// Sorts by a column: by the numbers in data-v, where there are some, and otherwise by the text.
/// The address tells the order: report.html#2 or #-2, for descending.
inline constexpr std::string_view kReportTail = R"(<script>
const table = document.querySelector("#cells"), body = table.tBodies[0];
function value(row, column) {
  const cell = row.cells[column];
  if (!cell) return Infinity;
  return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
}
function sort(column, sign) {
  const rows = [...body.rows];
  rows.sort((a, b) => {
    const x = value(a, column), y = value(b, column);
    if (x === y) return 0;
    if (x === Infinity) return 1;
    if (y === Infinity) return -1;
    return (x < y ? -1 : 1) * sign;
  });
  body.append(...rows);
  [...table.tHead.rows[0].cells].forEach((cell, i) => cell.setAttribute("aria-sort",
    i !== column ? "none" : sign > 0 ? "ascending" : "descending"));
}
[...table.tHead.rows[0].cells].forEach((cell, i) =>
  cell.firstChild.addEventListener("click", () => {
    const sign = cell.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    sort(i, sign);
    history.replaceState(null, "", "#" + (sign < 0 ? "-" : "") + (i + 1));
  }));
function sort_as_told() {
  const told = Number(location.hash.slice(1));
  if (told) sort(Math.abs(told) - 1, Math.sign(told));
}
addEventListener("hashchange", sort_as_told);
sort_as_told();
</script></body></html>
)";

/// An operator's name with its mark.
inline std::string name_cell(const Row& row) {
  return "<td><i class=\"s-" + row.names.op + "\"></i>" + escaped_markup(row.names.label) + "</td>";
}

/// A cell with the number that it is sorted by; cells without one come last.
inline std::string number_cell(double value, const std::string& text) {
  if (!std::isfinite(value)) return "<td data-v=\"Infinity\">-</td>";
  return "<td data-v=\"" + short_number(value, "%.9g") + "\">" + escaped_markup(text) + "</td>";
}

inline std::string report_row(const Row& row) {
  std::string html =
      "<tr>" + name_cell(row) + number_cell(static_cast<double>(row.n), std::to_string(row.n));
  if (!row.skipped.empty()) {
    return html + "<td class=\"why\" colspan=\"8\" data-v=\"Infinity\">" +
           escaped_markup(row.skipped) + "</td></tr>\n";
  }
  const auto none = std::nan("");
  const auto put = [&](double x, const char* format) {
    html += number_cell(x, short_number(x, format));
  };
  put(row.seconds * 1e3, "%.3f");
  put(row.useful_gflops, "%.1f");
  put(row.peak_fraction, "%.2f");
  put(row.speed_up.value_or(none), "%.2fx");
  html += number_cell(static_cast<double>(row.workspace_bytes),
                      human_bytes(static_cast<double>(row.workspace_bytes)));
  put(row.error.ratio, "%.2f");
  put(row.difference.value_or(none), "%.3f");
  put(row.other_seconds ? *row.other_seconds / row.seconds : none, "%.2fx");
  return html + "</tr>\n";
}

/// Which operator is the fastest within which distance, of what is causal or of what is not;
/// nothing if no distance is known.
inline std::string fastest_table(const Comparison& run, bool causal) {
  const Index n = longest_with_distance(run.rows, causal);
  std::string rows;
  for (const Row* const row : fastest_at_distances(run.rows, causal, n)) {
    rows += "<tr>" + name_cell(*row) + "<td>" + distance_text(*row) + "</td><td>" +
            short_number(row->seconds * 1e3, "%.3g") + "</td><td>" + shown("%.2fx", row->speed_up) +
            "</td><td>" + human_bytes(static_cast<double>(row->workspace_bytes)) + "</td></tr>\n";
  }
  if (rows.empty()) return rows;
  return std::string("<h3>") + (causal ? "Causal" : "Not causal") + ", N = " + std::to_string(n) +
         "</h3>\n<table><thead><tr><th>fastest operator</th><th>within distance</th><th>ms</th>"
         "<th>over full</th><th>workspace</th></tr></thead><tbody>\n" +
         rows + "</tbody></table>\n";
}

/// The colours of systems, for the marks in the table.
inline std::string system_colours() {
  std::string light;
  std::string dark;
  for (const SystemStyle& style : kSystemStyles) {
    const std::string rule = ".s-" + std::string(style.system) + "{color:";
    light += rule + std::string(style.light) + "}";
    dark += rule + std::string(style.dark) + "}";
  }
  return "<style>" + light + "@media (prefers-color-scheme:dark){" + dark + "}</style>\n";
}

}  // namespace detail

/// The page. \param more paragraphs below the plots of distances: their texts
inline std::string html_report(const Comparison& run, const std::vector<SvgPlot>& plots,
                               const std::vector<std::string>& more) {
  std::string html(detail::kReportHead);
  html += detail::system_colours() + "<p>" + escaped_markup(run.input) + "; " +
          escaped_markup(subtitle_of(run)) + ".</p>\n";
  html +=
      "<h2>Which operator</h2>\n<p>The fastest within each distance |out - full| / |full| from "
      "full attention: no other operator is both faster and nearer. The distance of zeros is "
      "1.</p>\n";
  for (const bool causal : {true, false}) html += detail::fastest_table(run, causal);
  const auto draw = [&](std::string_view file) {
    for (const SvgPlot& plot : plots) {
      if (plot.file.starts_with(file)) html += svg_text(plot) + "\n";
    }
  };
  draw("distance");
  for (const std::string& text : more) html += "<p>" + escaped_markup(text) + "</p>\n";
  html += "<h2>Time</h2>\n";
  draw("time");
  html += "<h2>Memory</h2>\n";
  draw("memory");
  html += "<h2>All cells</h2>\n<div class=\"wide\"><table id=\"cells\"><thead><tr>";
  for (const char* column : {"operator", "N", "ms", "GFLOP/s", "of the peak", "over full",
                             "workspace", "error, units", "from full", "against"}) {
    html += "<th aria-sort=\"none\"><button>" + std::string(column) + "</button></th>";
  }
  html += "</tr></thead><tbody>\n";
  for (const Row& row : run.rows) html += detail::report_row(row);
  html += "</tbody></table></div>\n<h2>How</h2>\n<dl>";
  std::string command;
  for (const std::string& word : run.command) command += (command.empty() ? "" : " ") + word;
  auto facts = run.machine;
  facts.emplace_back("command", command);
  facts.emplace_back("date", run.date);
  for (const auto& [key, value] : facts) {
    html += "<dt>" + escaped_markup(key) + "</dt><dd>" + escaped_markup(value) + "</dd>";
  }
  return html + "</dl>\n" + std::string(detail::kReportTail);
}

}  // namespace bench
