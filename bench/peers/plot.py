# SPDX-License-Identifier: MIT
"""The ratios as a picture by gnuplot: title and key begin at the left, above and below the plot."""

import subprocess
from pathlib import Path
from typing import Any

# Pixels.
_WIDTH, _RIGHT, _TOP, _BELOW, _KEY_ROW, _LINE, _LETTER = 960, 28, 84, 76, 25, 21, 7
_KEY_LEFT = f"{24 / _WIDTH:.6g}"
# Of the palette of Okabe and Ito, which colour-blind people can tell apart.
_COLOURS = {"torch": "#D55E00", "openvino": "#0072B2", "onnxruntime": "#009E73"}
# Points of one thread are filled, those of several hollow.
_POINTS = {"torch": (7, 6), "openvino": (5, 4), "onnxruntime": (9, 8)}


def _quoted(text: str) -> str:
    """In single quotes gnuplot replaces nothing."""
    return "'" + text.replace("'", "''") + "'"


def _line_names(results: list[dict[str, Any]]) -> list[str]:
    """The rows' names without their threads, each once, in their order."""
    return list(dict.fromkeys(_without_threads(row) for row in results))


def _without_threads(row: dict[str, Any]) -> str:
    return row["name"].replace(f",threads:{row['threads']}", "")


def script(results: list[dict[str, Any]], subtitle: str, output: Path) -> str:
    """What gnuplot is to do."""
    names = _line_names(results)
    left = 24 + _LETTER * max(map(len, names))
    at = {name: len(names) - i for i, name in enumerate(names)}
    blocks, plots = "", []
    for threads in sorted({row["threads"] for row in results}):
        for peer, colour in _COLOURS.items():
            points = [f"{row[f'{peer}_ratio']:.6g} {at[_without_threads(row)]}"
                      for row in results
                      if row["threads"] == threads and f"{peer}_ratio" in row]
            if not points:
                continue
            block = f"${peer}{threads}"
            blocks += f"{block} << EOD\n" + "\n".join(points) + "\nEOD\n"
            title = peer + (", one thread" if threads == 1 else f", {threads} threads")
            plots.append(f"{block} with points pt {_POINTS[peer][threads > 1]} ps 1.1 "
                         f"lc rgb '{colour}' title {_quoted(title)}")
    key_rows = -(-len(plots) // 3)
    height = _TOP + _LINE * (len(names) + 1) + _BELOW + key_rows * _KEY_ROW + 16
    bottom = 1 - (_TOP + _LINE * (len(names) + 1)) / height
    key_top = bottom - _BELOW / height
    ticks = ", ".join(f"{_quoted(name)} {y}" for name, y in at.items())

    def label(number: int, text: str, y: int, size: int, colour: str) -> str:
        return (f"set label {number} {_quoted(text)} at screen {_KEY_LEFT}, "
                f"screen {1 - y / height:.6g} font ',{size}' textcolor rgb '{colour}' noenhanced\n")

    return (
        blocks
        + f"set terminal svg dynamic size {_WIDTH},{height} background rgb 'white' "
        "font 'Helvetica,Arial,sans-serif,14'\n"
        f"set output {_quoted(str(output))}\n"
        f"set lmargin at screen {left / _WIDTH:.6g}\n"
        f"set rmargin at screen {1 - _RIGHT / _WIDTH:.6g}\n"
        f"set tmargin at screen {1 - _TOP / height:.6g}\nset bmargin at screen {bottom:.6g}\n"
        f"set key at screen {_KEY_LEFT}, screen {key_top:.6g} left top horizontal Left reverse "
        f"noenhanced samplen 1 maxcols 3\n"
        + label(1, "Time of other libraries over that of fovea", 32, 18, "#000000")
        + label(2, subtitle, 58, 13, "#505050")
        + "set logscale x 2\nset xlabel 'times as long as fovea takes'\n"
        "set grid xtics ytics lt 1 lw 0.6 lc rgb '#DDDDDD'\nset border 3 lc rgb '#404040'\n"
        f"set tics nomirror out\nset ytics ({ticks}) noenhanced font ',12'\n"
        f"set yrange [0.3:{len(names)}.7]\n"
        f"set arrow 1 from 1, graph 0 to 1, graph 1 nohead lw 1.5 lc rgb '#404040'\n"
        + "plot " + ", \\\n  ".join(plots) + "\nunset output\n"
    )


def draw(results: list[dict[str, Any]], subtitle: str, output: Path) -> str:
    """Draws the picture. Returns the reason if it cannot, or nothing."""
    if not any(key.endswith("_ratio") for row in results for key in row):
        return "no plot: no peer was measured"
    try:
        done = subprocess.run(["gnuplot", "-"], input=script(results, subtitle, output), text=True,
                              capture_output=True, check=False)
    except FileNotFoundError:
        return "no plot: there is no gnuplot (apt install gnuplot-nox)"
    return "" if done.returncode == 0 else f"no plot: gnuplot says: {done.stderr.strip()}"
