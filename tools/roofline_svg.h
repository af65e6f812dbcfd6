// A roofline picture as one SVG file: readable on light and dark backgrounds, without scripts or fonts of its own.
#pragma once

#include <string>
#include <vector>

#include "halfbyte/status.h"

namespace halfbyte::tools {

struct RooflinePoint {
  double operations_per_byte = 0;  // > 0
  double gops = 0;                 // > 0
  std::string label;               // beside the point
};

struct RooflineSeries {
  std::string name;
  double peak_gops = 0;  // its horizontal roof
  std::vector<RooflinePoint> points;
};

struct RooflinePicture {
  std::string title;
  double read_gbps = 0;  // the slope of the memory roof
  std::vector<RooflineSeries> series;
};

std::string roofline_svg(const RooflinePicture& picture);

}  // namespace halfbyte::tools
