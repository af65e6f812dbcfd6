#include "roofline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace halfbyte::tools {
namespace {

constexpr double kWidth = 960, kHeight = 600;
constexpr double kLeft = 80, kRight = 690, kTop = 56, kBottom = 530;  // the plot; names stand to its right

// Colour-blind safe (Okabe and Ito), and of enough contrast on white and on near-black.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#8c6bb1"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 32)
      out += c;
  }
  return out;
}

// A logarithmic axis over whole steps of `base`.
struct Axis {
  double low, high, from, to;

  static Axis over(double min, double max, double base, double from, double to) {
    const double low = std::pow(base, std::floor(std::log(min) / std::log(base) + 1e-9));
    double high = std::pow(base, std::ceil(std::log(max) / std::log(base) - 1e-9));
    if (high <= low) high = low * base;
    return {low, high, from, to};
  }
  double at(double v) const { return from + (to - from) * std::log(v / low) / std::log(high / low); }
};

struct Plot {
  Axis x, y;
};

Plot plot_of(const RooflinePicture& picture) {
  double x_min = 1e30, x_max = 0, y_min = 1e30, y_max = 0;
  for (const RooflineSeries& s : picture.series) {
    y_max = std::max(y_max, s.peak_gops);
    for (const RooflinePoint& p : s.points) {
      x_min = std::min(x_min, p.operations_per_byte);
      x_max = std::max(x_max, p.operations_per_byte);
      y_min = std::min(y_min, p.gops);
      y_max = std::max(y_max, p.gops);
    }
  }
  if (x_max <= 0) x_min = 1, x_max = 2, y_min = 1, y_max = 2;
  return {Axis::over(x_min, x_max, 2, kLeft, kRight), Axis::over(y_min, y_max * 1.05, 10, kBottom, kTop)};
}

std::string grid(const Plot& plot) {
  std::string out;
  for (double v = plot.x.low; v <= plot.x.high * 1.001; v *= 2) {
    const double x = plot.x.at(v);
    out += fmt::format(
        "<line class='grid' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'/><text class='tick' x='{0:.1f}' y='{3}' "
        "text-anchor='middle'>{4:g}</text>\n",
        x, kTop, kBottom, kBottom + 20, v);
  }
  for (double v = plot.y.low; v <= plot.y.high * 1.001; v *= 10) {
    const double y = plot.y.at(v);
    out += fmt::format(
        "<line class='grid' x1='{1}' x2='{2}' y1='{0:.1f}' y2='{0:.1f}'/><text class='tick' x='{3}' y='{4:.1f}' "
        "text-anchor='end'>{5:g}</text>\n",
        y, kLeft, kRight, kLeft - 8, y + 4, v);
  }
  out += fmt::format("<text class='axis' x='{}' y='{}' text-anchor='middle'>operations a byte of weights</text>\n",
                     (kLeft + kRight) / 2, kBottom + 44);
  out += fmt::format(
      "<text class='axis' transform='translate(24 {}) rotate(-90)' text-anchor='middle'>10⁹ operations a "
      "second</text>\n",
      (kTop + kBottom) / 2);
  return out;
}

// The memory roof over the whole plot, and each kernel's own roof from where the memory roof reaches it.
std::string roofs(const RooflinePicture& picture, const Plot& plot) {
  const double end = std::min(plot.x.high, plot.y.high / picture.read_gbps);
  const double begin = std::max(plot.x.low, plot.y.low / picture.read_gbps);
  std::string out;
  if (begin < end)
    out += fmt::format("<line class='roof' x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}'/>\n", plot.x.at(begin),
                       plot.y.at(begin * picture.read_gbps), plot.x.at(end), plot.y.at(end * picture.read_gbps));
  for (size_t i = 0; i < picture.series.size(); ++i) {
    const double peak = picture.series[i].peak_gops, from = peak / picture.read_gbps;
    if (peak <= plot.y.low || from >= plot.x.high) continue;
    out += fmt::format(
        "<line x1='{0:.1f}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='{3}' stroke-width='1.5' stroke-dasharray='6 "
        "4'/>\n",
        plot.x.at(std::max(from, plot.x.low)), kRight, plot.y.at(peak), kColours[i % kColours.size()]);
  }
  return out;
}

std::string points(const RooflinePicture& picture, const Plot& plot) {
  std::string out;
  for (size_t i = 0; i < picture.series.size(); ++i) {
    const RooflineSeries& s = picture.series[i];
    const char* colour = kColours[i % kColours.size()];
    std::string path;
    for (const RooflinePoint& p : s.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", plot.x.at(p.operations_per_byte),
                          plot.y.at(p.gops));
    out += fmt::format("<path d='{}' fill='none' stroke='{}' stroke-width='1.5'/>\n", path, colour);
    for (const RooflinePoint& p : s.points)
      out += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='4.5' fill='{}'><title>{}, M = {}: {:.1f} 10⁹ operations a "
          "second</title></circle>\n",
          plot.x.at(p.operations_per_byte), plot.y.at(p.gops), colour, escaped(s.name), escaped(p.label), p.gops);
    const double y = kTop + 20 + 44 * static_cast<double>(i);
    out += fmt::format(
        "<circle cx='{0}' cy='{1}' r='5' fill='{2}'/><text class='name' x='{3}' y='{4}'>{5}</text><text class='tick' "
        "x='{3}' "
        "y='{6}'>peak in the caches {7:.0f}</text>\n",
        kRight + 22, y - 4, colour, kRight + 34, y, escaped(s.name), y + 17, s.peak_gops);
  }
  return out;
}

}  // namespace

std::string roofline_svg(const RooflinePicture& picture) {
  const Plot plot = plot_of(picture);
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='system-ui, "
      "sans-serif'>\n"
      "<style>\n.page {{ fill: #ffffff }} text {{ fill: #1b1b1b }} .grid {{ stroke: #d5d5d5 }} .roof {{ stroke: "
      "#1b1b1b; stroke-width: 2.5 }}\n"
      ".title {{ font-size: 16px; font-weight: 600 }} .axis {{ font-size: 14px }} .tick {{ font-size: 13px }} .name {{ "
      "font-size: 13px; font-weight: 600 }}\n"
      "@media (prefers-color-scheme: dark) {{ .page {{ fill: #14171a }} text {{ fill: #ececec }} .grid {{ stroke: "
      "#3a3f44 }} .roof {{ stroke: #ececec }} }}\n"
      "</style>\n<rect class='page' width='{0}' height='{1}'/>\n<text class='title' x='{2}' y='32'>{3}</text>\n",
      kWidth, kHeight, kLeft, escaped(picture.title));
  out += grid(plot) + roofs(picture, plot) + points(picture, plot);
  out += fmt::format(
      "<text class='tick' x='{}' y='{}'>points left to right: M = 1, 2, 4, 8, 16 rows of input; black: the read "
      "bandwidth; dashed: a "
      "kernel's own peak</text>\n</svg>\n",
      kLeft, kHeight - 8);
  return out;
}

}  // namespace halfbyte::tools
